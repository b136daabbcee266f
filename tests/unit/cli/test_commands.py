"""The command as a whole: quick to help, light to import, and plain about what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pulsarcast.cli.main import COMMANDS, main
from pulsarcast.cli.node import _greet
from pulsarcast.daemon.daemon import Running
from pulsarcast.model.api import PublishedView

HEAVY = ("pyspark", "cryptography", "trio", "starlette", "hypercorn", "httpx", "rich", "pandas")
WITHOUT_JSON = (
    "daemon",
    "backup",
    "restore",
    "simulate",
    "testbed",
    "pipeline",
    "context",
    "config",
)


def commands(group: click.Group, path: str = "") -> dict[str, click.Command]:
    """Every command, by what one types."""
    found: dict[str, click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            found |= commands(command, f"{path}{name} ")
        else:
            found[f"{path}{name}"] = command
    return found


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pulsarcast", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    program = (
        "import sys\nfrom pulsarcast.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    best_s = 10.0
    for _ in range(5):
        began_s = time.monotonic()
        ran = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
        )
        best_s = min(best_s, time.monotonic() - began_s)
    assert ran.stderr.strip() == "[]"
    assert best_s < 0.5


def test_every_command_has_the_line_that_the_list_shows() -> None:
    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        assert command.help, name


def test_every_command_that_answers_can_answer_in_json() -> None:
    for words, command in commands(main).items():
        if words.split()[0] not in WITHOUT_JSON:
            assert any("--json" in each.opts for each in command.params), words


@pytest.mark.parametrize("words", ["nothing", "publish", "topic create"])
def test_who_calls_it_wrongly_is_told_with_two(words: str) -> None:
    assert run(*words.split()).returncode == 2


def test_without_a_daemon_it_says_how_to_start_one(tmp_path: Path) -> None:
    ran = run("status", "--home", str(tmp_path))
    assert ran.returncode == 3
    assert "pulsarcast daemon" in ran.stderr


def test_a_missing_extra_is_one_line_with_what_to_type(tmp_path: Path) -> None:
    (tmp_path / "httpx.py").write_text("raise ModuleNotFoundError('gone', name='httpx')\n")
    ran = run("status", "--home", str(tmp_path), PYTHONPATH=str(tmp_path))
    assert ran.returncode == 1
    assert ran.stderr == ("pulsarcast: httpx is not installed: pip install 'pulsarcast[client]'\n")


def test_shells_can_complete_it() -> None:
    for shell in ("bash", "zsh", "fish"):
        ran = run(_PULSARCAST_COMPLETE=f"{shell}_source")
        assert ran.returncode == 0
        assert "_PULSARCAST_COMPLETE" in ran.stdout


def test_an_attribute_is_what_json_says_or_a_text() -> None:
    from pulsarcast.cli.events import _attribute

    cases: dict[str, Any] = {
        "n=5": 5,
        "x=1.5": 1.5,
        "b=true": True,
        "s=sunny": "sunny",
        "l=[1]": "[1]",
    }
    for text, value in cases.items():
        assert _attribute(text)[1] == value
    with pytest.raises(click.UsageError):
        _attribute("nothing")


class Silent:
    """A client of a daemon that tells others no address."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def status(self) -> SimpleNamespace:
        return SimpleNamespace(addresses=[])


def test_where_there_is_no_address_none_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsarcast.client.Client", Silent)
    words = ["status", "--url", "http://127.0.0.1:1", "--token", "t", "--address"]
    ran = CliRunner().invoke(main, words)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "advertises no address" in ran.stderr
    assert CliRunner().invoke(main, [*words, "--json"]).stdout == "[]\n"


@pytest.mark.parametrize("words", [("--name", b"\xff"), ("--attribute", b"a=\xff")])
def test_what_is_not_unicode_is_told_in_a_sentence(words: tuple[str, bytes]) -> None:
    target = ("--url", "http://127.0.0.1:1", "--token", "t")
    ran = subprocess.run(
        [sys.executable, "-m", "pulsarcast", "publish", "topic", "text", *words, *target],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith(b"pulsarcast: ")
    assert b"Traceback" not in ran.stderr


def test_a_text_is_published_as_the_bytes_that_were_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bytes] = []

    class Telling(Silent):
        def publish(self, topic: str, payload: bytes, **_: object) -> PublishedView:
            given.append(payload)
            return PublishedView("id", 1)

    monkeypatch.setattr("pulsarcast.client.Client", Telling)
    words = ["publish", "t", os.fsdecode(b"caf\xe9"), "--url", "http://127.0.0.1:1"]
    assert CliRunner().invoke(main, [*words, "--token", "t"]).exit_code == 0
    assert given == [b"caf\xe9"]


@pytest.mark.parametrize(
    ("replicas", "kept"),
    [
        (0, "only its publisher keeps it so far"),
        (1, "only its publisher keeps it so far"),
        (2, "2 peers keep it"),
    ],
)
def test_publish_says_which_peers_keep_the_event(
    replicas: int, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Telling(Silent):
        def publish(self, *_: object, **__: object) -> PublishedView:
            return PublishedView("id", replicas)

    monkeypatch.setattr("pulsarcast.client.Client", Telling)
    words = ["publish", "t", "sunny", "--url", "http://127.0.0.1:1", "--token", "t"]
    assert CliRunner().invoke(main, words).stdout == f"id\n{kept}\n"


def test_a_new_node_suggests_commands_that_can_be_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.isatty", lambda _: True)
    _greet(Running("http://127.0.0.1:1", "peer", (), tmp_path))
    assert f"  pulsarcast topic ensure weather --home {tmp_path}\n" in capsys.readouterr().out


@pytest.mark.parametrize("where", ["--url", "--context"])
def test_nobody_waits_here_for_a_daemon_elsewhere(where: str, tmp_path: Path) -> None:
    words = ["status", "--wait", where, "http://127.0.0.1:1", "--home", str(tmp_path)]
    ran = CliRunner().invoke(main, words)
    assert (ran.exit_code, "--wait is for the daemon of a home" in ran.stderr) == (2, True)


@pytest.mark.parametrize("words", [[], ["weather", "bafy"]])
def test_an_alias_is_dropped_by_its_name_alone(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsarcast.client.Client", Silent)
    target = ["--url", "http://127.0.0.1:1", "--token", "t"]
    ran = CliRunner().invoke(main, ["topic", "alias", *words, "--drop", *target])
    assert (ran.exit_code, "--drop takes the alias alone" in ran.stderr) == (2, True)
