"""A testbed in the background, led by commands."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pulsarcast.cli.testbed_control import add_to
from pulsarcast.model import trace
from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.claims import claim
from pulsarcast.testbed.control import control
from pulsarcast.testbed.control.book import parse_nodes
from pulsarcast.testbed.control.control import DownError, ask, start
from pulsarcast.testbed.control.messages import End, Play, Status
from pulsarcast.testbed.control.server import serve
from pulsarcast.testbed.fleet import Fleet
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.proxies import Delay
from pulsarcast.testbed.reading import lines_of
from pulsarcast.testbed.scenario_files import options_for
from tests.unit.testbed.small_workload import DUE, EVENTS_EACH, NODES, write_workload
from tests.unit.testbed.stub import is_running
from tests.unit.testbed.test_proxies import dial, network, read

# Long enough for a machine that does much else.
S_MAX = 30.0


@click.group()
def command() -> None:
    """What the real command has, and nothing else."""


add_to(command)


@pytest.fixture(scope="module", autouse=True)
def all_ended() -> Iterator[None]:
    """Whoever started a testbed hears of its end: here nobody else does."""
    yield
    for process in control._started:
        process.wait(S_MAX)


def call(*words: object, code: int = 0) -> Any:
    """Say something to a testbed; what it answered."""
    outcome = CliRunner().invoke(command, [*map(str, words), "--json"], catch_exceptions=False)
    assert outcome.exit_code == code, outcome.output
    return json.loads(outcome.stdout) if not code else outcome.stderr


def scenario(folder: Path) -> Path:
    write_workload(folder)
    path = folder / "given.toml"
    text = f'nodes = {NODES}\ntimeout_s = 100\n[load]\nworkload = "workload.ndjson"\n'
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One testbed for all tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("control")
    out = folder / "out"
    said = call("up", scenario(folder), "--out", out)
    assert (said["phase"], said["up"]) == ("up", NODES)
    yield out
    pid = call("status", out)["pid"]
    summary = call("down", out)
    assert summary == json.loads((out / "summary.json").read_text())
    assert (summary["ok"], summary["lost"], summary["undecided"]) == (True, 0, 0)
    assert summary["died"] == []
    wait_until(lambda: not is_running(pid))
    assert not list((out / "traces").glob(".*")), "a segment is open"
    actions = {
        line.record.action
        for line in lines_of(out / "traces", "driver")
        if isinstance(line.record, trace.Fault)
    }
    assert actions == summary["faults"].keys()


def wait_until(done: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + S_MAX
    while not done():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def until(bed: Path, **wanted: object) -> dict[str, Any]:
    said: dict[str, Any] = {}

    def is_so() -> bool:
        said.update(call("status", bed))
        return all(said[key] == value for key, value in wanted.items())

    wait_until(is_so)
    return said


def test_a_load_is_played_and_may_be_played_again(bed: Path) -> None:
    first = call("load", bed)
    assert first["events"] == first["acknowledged"] == NODES * EVENTS_EACH
    assert first["due"] == first["delivered"] == DUE
    again = call("load", bed, "--limit", 5, "--rate", 50)
    assert again["events"] == again["acknowledged"] == 5
    assert again["due"] == again["delivered"] > 0
    assert again["wall_s"] >= 4 / 50


def test_nodes_do_what_they_are_told(bed: Path) -> None:
    call("exec", bed, 1, "create", "weather")
    call("exec", bed, "0,2-3", "subscribe", "weather")
    before = call("status", bed)
    said = call("exec", bed, "1,3", "publish", "weather", "sunny")
    assert [row["node"] for row in said["rows"]] == [1, 3]
    assert all(row["event"].startswith("b") for row in said["rows"])
    after = until(bed, missing=0)
    assert after["due"] - before["due"] == 2 * 3
    measured = call("exec", bed, "all", "measure")["rows"]
    assert [row["node"] for row in measured] == list(range(NODES))
    assert sum(row["deliveries"] for row in measured) == after["delivered"]
    assert all(row["bytes_out"] > 0 < row["rss_mib"] and is_running(row["pid"]) for row in measured)


def test_who_is_killed_stopped_or_paused_gets_everything_in_the_end(bed: Path) -> None:
    call("load", bed, "--limit", 1)  # there are topics now
    before = call("status", bed)
    assert call("fault", bed, "kill", 1)["rows"] == [{"node": 1, "state": "down"}]
    assert call("fault", bed, "stop", 3)["rows"] == [{"node": 3, "state": "down"}]
    assert call("fault", bed, "pause", 2)["rows"] == [{"node": 2, "state": "paused"}]
    call("exec", bed, 0, "publish", "all", "hello")
    away = call("status", bed)
    assert away["away"] == {"1": "down", "2": "paused", "3": "down"}
    assert away["undecided"] - before["undecided"] == 3
    assert call("fault", bed, "start", "1,3")["rows"][1] == {"node": 3, "state": "up"}
    assert call("fault", bed, "resume")["rows"][2] == {"node": 2, "state": "up"}
    until(bed, up=NODES, missing=0, undecided=0)
    call("fault", bed, "kill", 2, "--for-s", 0.2)
    call("fault", bed, "pause", 1, "--for-s", 0.2)
    until(bed, up=NODES)


def test_the_network_is_cut_and_made_slow_while_it_runs(bed: Path) -> None:
    call("load", bed, "--limit", 1)
    assert call("fault", bed, "cut", "2-3")["cut"] == [2, 3]
    call("fault", bed, "heal")
    assert call("fault", bed, "cut", 1, "--for-s", 0.2)["cut"] == [1]
    until(bed, cut=[])
    assert call("fault", bed, "latency", "--latency", "80ms")["latency"] == "80ms~0ms"
    slow = call("load", bed, "--limit", 12)
    assert slow["latency_ms_p99"] >= 80
    assert slow["due"] == slow["delivered"]
    call("fault", bed, "latency", "--latency", "0ms")
    assert call("fault", bed, "latency", 3, "--latency", "9ms")["latency"] == "9ms~0ms at 3"
    call("fault", bed, "latency", 1, "--latency", "5ms", "--for-s", 1.0)
    both = call("fault", bed, "latency", "2-3", "--latency", "7ms")["latency"]
    assert both == "5ms~0ms at 1; 7ms~0ms at 2,3"
    until(bed, latency="7ms~0ms at 2,3")
    call("fault", bed, "latency", "--latency", "0ms")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["exec", 9, "measure"], "nodes are 0 to 3; not '9'"),
        (["exec", "some", "measure"], "nodes look like 3"),
        (["exec", "1", "subscribe", "nothing"], "no topic 'nothing'"),
        (["exec", "all", "create", "x"], "a topic has one author"),
        (["exec", "1", "publish"], "publish needs the name of a topic"),
        (["fault", "cut"], "name those who are to be cut off"),
        (["fault", "latency"], "say which: --latency"),
        (["fault", "latency", "--latency", "fast"], "a latency looks like"),
        (["fault", "start", "1", "--for-s", "2"], "start is for good"),
        (["fault", "kill", "1", "--latency", "5ms"], "kill takes no latency"),
        (["fault", "heal", "1"], "heal is for everyone"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_ends(
    bed: Path, words: list[object], message: str
) -> None:
    assert message in call(words[0], bed, *words[1:], code=1)
    assert call("status", bed)["phase"] == "up"


def test_a_folder_has_one_testbed(bed: Path, tmp_path: Path) -> None:
    assert "something runs in" in call("up", scenario(tmp_path), "--out", bed, code=1)


def test_where_the_testbed_is_killed_its_nodes_end_and_commands_say_so(tmp_path: Path) -> None:
    out = tmp_path / "out"
    call("up", scenario(tmp_path), "--out", out)
    pids = [row["pid"] for row in call("exec", out, "all", "measure")["rows"]]
    os.kill(call("status", out)["pid"], signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, pids)))
    assert "died, and all of its nodes with it" in call("status", out, code=3)
    assert list((out / "traces").glob(".*"))
    said = call("down", out, code=3)
    assert "died, and all of its nodes with it" in said
    assert "traces that were left open are closed now" in said
    assert not list((out / "traces").glob(".*"))
    # It makes place for another one, which ends in good order when it is told to by a signal.
    call("up", scenario(tmp_path), "--out", out)
    os.kill(call("status", out)["pid"], signal.SIGTERM)
    wait_until((out / "summary.json").exists)
    assert json.loads((out / "summary.json").read_text())["ended_by"] == "SIGTERM"


def test_a_load_of_which_nothing_could_be_published_fails(tmp_path: Path) -> None:
    path = scenario(tmp_path)
    workload = tmp_path / "workload.ndjson"
    lines = workload.read_text().splitlines(keepends=True)
    workload.write_text("".join(line for line in lines if "user-" in line))
    out = tmp_path / "out"
    call("up", path, "--out", out)
    played = ask(out, Play(patience_s=1.0))
    assert (played.facts["acknowledged"], played.facts["due"]) == (0, 0)
    assert played.facts["events"] > 0
    assert not played.ok
    ask(out, End(0.0))


def test_one_that_is_ended_while_it_starts_is_no_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(self: Fleet) -> None:
        raise SystemExit(143)

    monkeypatch.setattr(Fleet, "assemble", leave)
    options = options_for(str(scenario(tmp_path)), out=tmp_path / "out")
    with claim(options):
        pass
    with pytest.raises(SystemExit):
        serve(options.out)
    assert not (options.out / "summary.json").exists()


def test_a_testbed_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    options = RunOptions(out=tmp_path, workload=tmp_path / "nothing", nodes=2)
    with pytest.raises(LocalError, match=r"(?s)could not be started; it said:.*no such workload"):
        start(options)


def test_only_a_workload_is_led_by_hand(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="a scenario of kind soak goes by itself"):
        start(RunOptions(out=tmp_path, scenario="soak"))


@pytest.mark.parametrize("request_", [Status(), End()])
def test_where_no_testbed_was_started_commands_say_so(
    tmp_path: Path, request_: Status | End
) -> None:
    with pytest.raises(DownError, match="no testbed was started in"):
        ask(tmp_path, request_)


def test_nodes_are_named_by_their_numbers() -> None:
    assert parse_nodes("all", 3) == [0, 1, 2]
    assert parse_nodes("2,0-1,1", 3) == [2, 0, 1]
    for text in ("", "3", "-1", "1-", "a", "2-1", "0,,1"):
        with pytest.raises(LocalError):
            parse_nodes(text, 3)


def test_connections_that_stand_become_slow_at_one_node_and_at_all() -> None:
    def took_s(node: int) -> float:
        began_s = time.monotonic()
        lines[node].sendall(b"hello")
        assert read(lines[node], 5) == b"hello"
        return time.monotonic() - began_s

    with network(Delay()) as (proxies, _), ExitStack() as stack:
        lines = {node: stack.enter_context(dial(proxies, 0, node)) for node in (1, 2)}
        assert took_s(1) < 0.19
        proxies.slow(Delay(200), [1])
        wait_until(lambda: took_s(1) > 0.19)
        assert took_s(2) < 0.19
        proxies.slow(Delay(300))
        wait_until(lambda: min(took_s(1), took_s(2)) > 0.29)
