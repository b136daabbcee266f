"""Mistakes: each is told in a sentence that names it, with an exit code, and never a traceback."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result

from pulsarcast.cli.main import main
from pulsarcast.cli.top import keys
from tests.support.daemons import DaemonProcess

PEER = "12D3KooWBCZarzz7Wwh7DdpfxqoNsRjeHyV2ZbbGtFyDwnxEAxMi"


class Place(NamedTuple):
    """A daemon that runs, and files that are no home."""

    home: Path
    folder: Path
    topic: str
    event: str
    port: int

    def words(self, line: str) -> list[str]:
        """A line as a shell would cut it; `H` stands for the daemon's home."""
        filled = line.format(**self._asdict())
        return [word.replace("␣", " ") for word in filled.split()]

    def run(self, line: str, *, input: str = "") -> Result:  # noqa: A002 (as click has it)
        return CliRunner().invoke(main, self.words(line), input=input, prog_name="pulsarcast")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "file").write_bytes(bytes(range(256)))
    (folder / "broken").mkdir()
    (folder / "broken" / "config.toml").write_text("[node\n")
    (folder / "key").mkdir()
    (folder / "key" / "key").write_text("nonsense")
    (folder / "key" / "key").chmod(0o600)
    (folder / "done").mkdir()
    (folder / "done" / "summary.json").write_text("{}")
    daemon = DaemonProcess(folder / "ann")
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = str(folder / "config")
    daemon.start()
    try:
        found = Place(daemon.home, folder, "", "", daemon.port)
        line = "topic create weather --alias w --attribute price=float:0:100 --home {home}"
        topic = found.run(line).stdout.split()[0]
        event = found.run("publish w sunny --home {home}").stdout.split()[0]
        found.run("subscribe w --name dashboard --start beginning --count 1 --home {home}")
        found.run(f"name {PEER} ben --home {{home}}")
        found.run("context add here --url http://a --token t")
        yield found._replace(topic=topic, event=event)
    finally:
        daemon.close()
        if before is None:
            del os.environ["XDG_CONFIG_HOME"]
        else:
            os.environ["XDG_CONFIG_HOME"] = before


MISTAKES: tuple[tuple[str, int, str], ...] = (
    # Commands, options, values.
    ("stauts", 2, "Did you mean 'status'?"),
    ("sub", 2, "Did you mean 'subscribe'?"),
    ("pipeline chek", 2, "Did you mean 'check'?"),
    ("topic creat x", 2, "Did you mean 'create'?"),
    ("history w --strt 1 --home {home}", 2, "Did you mean '--start'?"),
    ("history w --start x --home {home}", 2, "'x' is not a valid integer."),
    ("top --interval x --home {home}", 2, "'x' is not a valid float."),
    ("top --interval nan --home {home}", 2, "'nan' is not a finite number"),
    ("top --interval -1 --home {home}", 2, "-1.0 is not in the range"),
    ("testbed run workload --out {folder}/o --timeout-s nan", 2, "not a finite number"),
    ("simulate tree --latency-ms inf", 2, "not a finite number"),
    # Homes.
    ("id --home {folder}/none", 1, "/none is no node's home"),
    ("id --home {folder}/file/x", 1, "Not a directory"),
    ("id --home {folder}/file", 2, "is a file"),
    ("status --home {folder}/none", 3, "pulsarcast daemon --home {folder}/none"),
    ("init --home {folder}/broken", 1, "broken/config.toml: Expected ']'"),
    ("init --home {folder}/new --listen x", 1, "node.listen: not an address such as"),
    ("init --home {home}", 1, "A second node needs a home of its own"),
    ("config show --home {folder}/file/x", 1, "config.toml: Not a directory"),
    ("config show --home {home} --announce y", 1, "node.announce: not an address such as"),
    ("config show --home {home} --trace-level all", 1, "not 'all'"),
    (
        "config show --home {home} --http 127.0.0.1:99999",
        1,
        "a port up to 65535, not '127.0.0.1:99999'",
    ),
    (
        "config show --home {home} --http 127.0.0.1:1:2",
        1,
        "HOST:PORT, with a port up to 65535, not '127.0.0.1:1:2'",
    ),
    ("daemon --home {home} --http 127.0.0.1:{port}", 1, "is the home of a node that runs"),
    ("daemon --home {folder}/new --http 127.0.0.1:{port}", 1, "such as --http 127.0.0.1:"),
    ("daemon --home {folder}/key --http 127.0.0.1:0", 1, "key/key is damaged"),
    ("backup {folder}/none {folder}/b", 1, "/none is no node's home"),
    ("backup {home} {folder}/no/such", 1, "such cannot be made: {folder}/no: No such file"),
    ("restore {folder}/none {folder}/b", 1, "/none is no node's home, nor a backup"),
    # Which daemon.
    ("status --url http://127.0.0.1:{port} --token wrong", 4, "unknown, or was revoked"),
    ("status --url http://127.0.0.1:{port}", 4, "a token is missing: give --token"),
    ("status --url http://127.0.0.1:99999", 1, "no valid port"),
    ("status --url https://127.0.0.1:{port} --token t", 3, "give http:// if it has none"),
    ("status --url http://127.0.0.1:1 --token t", 3, "check the URL"),
    ("status --context nope", 1, "no context 'nope'"),
    ("context add x --url y --token t", 1, "looks like http://127.0.0.1:8420, not 'y'"),
    ("context add x --url http://a --token a␣b", 1, "no spaces"),
    ("context add x --url http://a", 2, "give --token"),
    ("context add a␣b --url http://a --token t", 1, "'a b'"),
    # Topics and events.
    ("topic create x --attribute p=int:5:1 --home {home}", 1, "'p' allows no value: min is 5"),
    ("topic create x --attribute p=int --attribute p=int --home {home}", 1, "'p' 2 times"),
    ("topic create x --retention-count 99999999999999999999 --home {home}", 1, "64 bits: 9999"),
    ("topic create x --alias a/b --home {home}", 1, "'a/b'"),
    ("topic create x --requester {peer} --no-request-to-publish --home {home}", 1, "one or the"),
    ("topic find %%% --home {home}", 1, "a word has letters and digits"),
    ("topic update w --order total --home {home}", 1, "create another topic"),
    ("topic update w --home {home}", 2, "nothing changes"),
    ("publish w x --attribute price=200 --home {home}", 1, "float from 0.0 to 100.0, not 200"),
    ("publish w x --attribute prise=2 --home {home}", 1, "no attribute 'prise': it has 'price'"),
    ("publish wether x --home {home}", 5, "(`pulsarcast topic list` shows the topics here)"),
    ("publish w --file /proc/self/mem --home {home}", 1, "/proc/self/mem: "),
    ("subscribe w --start {topic} --home {home}", 5, "the node has no event {topic}"),
    ("subscribe w --name {long} --home {home}", 1, "name: expected a text of at most 100"),
    ("history w --start 99999999999999999999 --home {home}", 1, "start: expected an integer of"),
    ("fetch nope --home {home}", 1, "such as bafyrei…: 'nope'"),
    ("token create {long} --home {home}", 1, "name: expected a text of at most 100 characters"),
    # Outputs.
    ("testbed run workload --out {folder}/file", 2, "is a file"),
    ("testbed run workload --out /proc/none", 1, "/proc/none: No such file"),
    ("testbed thesis --out /proc/none --small", 1, "/proc/none: No such file"),
)


@pytest.mark.parametrize(("line", "code", "words"), MISTAKES)
def test_a_mistake_is_told_in_a_sentence(place: Place, line: str, code: int, words: str) -> None:
    line = line.replace("{peer}", PEER).replace("{long}", "n" * 101)
    result = place.run(line)
    assert isinstance(result.exception, SystemExit), result.exception
    assert words.format(**place._asdict()) in result.output
    assert result.exit_code == code, result.output


@pytest.mark.parametrize("cut", [0, 40])
def test_a_ticket_is_followed_on_another_node_alone_and_may_come_in_pieces(
    place: Place, cut: int
) -> None:
    ticket = place.run("invite w --home {home}").stdout.strip()
    result = place.run(f"join {ticket[:cut]} {ticket[cut:]} --home {{home}}")
    assert "this ticket is of this node: run join on the other machine" in result.stderr
    assert result.exit_code == 1


# What is lost.


LOSSES: tuple[tuple[str, str], ...] = (
    ("unsubscribe w --home {home}", "the places of its readers (dashboard at 1)"),
    ("unsubscribe w --name dashboard --home {home}", "(dashboard at 1)"),
    ("topic update w --flush --home {home}", "All events of w up to now are retired"),
    ("topic update w --retention-count 1 --home {home}", "beyond the new retention are retired"),
    ("topic alias w --drop --home {home}", "The alias w stands for the topic {topic} no longer"),
    ("topic alias w {event} --home {home}", "The alias w stands for the topic {topic} no longer"),
    ("name ben --drop --home {home}", "is called ben no longer"),
    ("name ben cal --home {home}", "is called ben no longer"),
    ("token revoke {token} --home {home}", "(sensor, read) are refused from now on"),
    ("context add here --url http://b --token t", "the context here (http://a) are deleted"),
    ("context remove here", "the context here (http://a) are deleted"),
    ("testbed run workload --out {folder}/done", "The finished run in {folder}/done is overwritt"),
    ("testbed up workload --out {folder}/done", "The finished run in {folder}/done is overwritten"),
)


@pytest.mark.parametrize(("line", "words"), LOSSES)
def test_nothing_is_lost_before_it_is_told_and_allowed(
    place: Place, line: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "{token}" in line:
        made = place.run("token create sensor --home {home}").stdout
        line = line.replace("{token}", made.split()[-1])
    refused = place.run(line)
    assert words.format(**place._asdict()) in refused.stderr
    assert refused.stderr.endswith("No terminal is there to ask on: say --yes to go on.\n")
    assert refused.exit_code == 2
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    declined = place.run(line, input="n\n")
    assert words.format(**place._asdict()) in declined.stderr
    assert (declined.exit_code, "nothing was changed" in declined.stderr) == (1, True)


def test_yes_says_so_beforehand(place: Place) -> None:
    place.run("context add gone --url http://a --token t")
    assert place.run("context remove gone --yes").exit_code == 0
    assert "gone" not in place.run("context list").stdout
    made = place.run("token create gone --home {home}").stdout.split()[-1]
    assert place.run(f"token revoke {made} --yes --home {{home}}").exit_code == 0


# What is missing, and what ends early.


@pytest.mark.parametrize(
    "line", ["archive w --out {folder}/a", "check {folder}", "metrics {folder} --out {folder}/m"]
)
def test_a_command_of_the_pipeline_without_it_says_what_to_install(
    place: Place, line: str, tmp_path: Path
) -> None:
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('gone', name='pyspark.sql')")
    ran = subprocess.run(
        [sys.executable, "-m", "pulsarcast", "pipeline", *place.words(line)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))},
    )
    assert ran.stderr == (
        "pulsarcast: pyspark is not installed: pip install 'pulsarcast[pipeline]'\n"
    )
    # Of `check`, 1 would say that a promise was broken.
    assert ran.returncode == (3 if line.startswith("check") else 1)


def test_ctrl_c_ends_a_command_without_a_word(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pulsarcast.client.Client.status", interrupt)
    result = place.run("status --home {home}")
    assert (result.exit_code, result.output) == (130, "")


def test_a_closed_standard_input_is_an_empty_one() -> None:
    words = [sys.executable, "-m", "pulsarcast", "context", "add", "x", "--url", "http://a"]
    command = f"exec {shlex.join(words)} <&-"
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (ran.returncode, "give --token" in ran.stderr) == (2, True)


def test_a_defect_keeps_its_traceback(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: Any, **__: Any) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr("pulsarcast.client.Client.status", break_down)
    assert isinstance(place.run("status --home {home}").exception, KeyError)


def test_keys_of_a_terminal_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    person, terminal = os.openpty()
    with os.fdopen(terminal, "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with keys() as pressed:
            assert pressed(0.0) == ""
            os.write(person, b"?q")
            assert (pressed(1.0), pressed(1.0)) == ("?", "q")
    os.close(person)
