"""The commands `backup` and `restore`."""

from pathlib import Path

from click.testing import CliRunner, Result

from pulsarcast.cli import main
from pulsarcast.model.ids import peer_text
from pulsarcast.storage.home import Home
from tests.support.people import ALICE


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_a_node_that_runs_is_backed_up_and_brought_back_elsewhere(tmp_path: Path) -> None:
    with Home.open(tmp_path / "home", seed=ALICE.seed):
        result = run("backup", tmp_path / "home", tmp_path / "backup")
        assert result.exit_code == 0, result.output
        assert peer_text(ALICE.peer_id) in result.output
    result = run("restore", tmp_path / "backup", tmp_path / "back")
    assert result.exit_code == 0, result.output
    assert peer_text(ALICE.peer_id) in result.output
    with Home.open(tmp_path / "back") as back:
        assert back.identity.peer_id == ALICE.peer_id


def test_mistakes_of_the_caller_are_told_in_a_sentence(tmp_path: Path) -> None:
    Home.open(tmp_path / "home").close()
    mistakes: list[tuple[tuple[str | Path, ...], str]] = [
        (("backup", "nowhere", tmp_path / "backup"), "missing"),
        (("backup", tmp_path / "home", tmp_path), "exists already"),
        (("restore", "nowhere", tmp_path / "back"), "missing"),
        (("restore", tmp_path / "home", tmp_path / "home"), "not empty"),
    ]
    for words, complaint in mistakes:
        result = run(*words)
        assert result.exit_code == 1, words
        assert result.output.startswith("pulsarcast: ")
        assert complaint in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
