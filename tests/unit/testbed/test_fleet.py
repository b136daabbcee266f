import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from pulsarcast.model.errors import LocalError
from pulsarcast.model.identity import Identity
from pulsarcast.model.trace import Fault, Record
from pulsarcast.testbed.callers import Nodes
from pulsarcast.testbed.child import METER_S, Plan
from pulsarcast.testbed.contestants.contestants import Seat, Settings
from pulsarcast.testbed.fleet import Fleet
from pulsarcast.testbed.ledger import Ledger
from pulsarcast.testbed.messages import (
    Answer,
    Command,
    Created,
    CreateTopic,
    Done,
    Failed,
    Measure,
    Measured,
    Publish,
    Published,
)
from pulsarcast.testbed.scenarios.compare import NUMBER_BYTES, number_of
from tests.unit.testbed.stub import FALL, REFUSE, StubNode, is_running, stub_fleet


def creating(name: str) -> Callable[[int], Callable[[int], Command]]:
    return lambda index: lambda call: CreateTopic(call, name, "none")


def publishing(number: int) -> Callable[[int], Command]:
    payload = number.to_bytes(NUMBER_BYTES, "big")
    return lambda call: Publish(call, b"t", payload, number, str(number), "accepted")


def ask(fleet: Fleet, index: int, make: Callable[[int], Command], s_max: float = 5.0) -> Answer:
    answers: list[Answer] = []
    fleet.ask(index, make, answers.append, patience_s=s_max)
    assert fleet.run_until(lambda: bool(answers), s_max=s_max + 1)
    return answers[0]


def test_every_node_answers_and_learns_of_everyone(tmp_path: Path) -> None:
    with stub_fleet(tmp_path) as fleet:
        fleet.assemble()
        assert fleet.living() == [0, 1, 2]
        answers = fleet.each(fleet.living(), creating("a"))
        assert all(isinstance(answer, Created) for answer in answers.values())
        assert fleet.traffic() == (3, 9)  # each is in its first life and was told of three
        assert fleet.cpu_s() > 0
        assert fleet.pss_bytes() > 3 * 2**20


def test_deliveries_stand_in_the_ledger(tmp_path: Path) -> None:
    ledger = Ledger(nodes=3, events=10)
    with stub_fleet(tmp_path, ledger=ledger) as fleet:
        fleet.assemble()
        for number in range(10):
            assert isinstance(ask(fleet, number % 3, publishing(number)), Published)
        fleet.kill(1)
        assert ledger.deliveries == 10
        assert ledger.missing(1, range(3)) == [0, 2]


def test_a_refusal_is_told_and_takes_nobody_down(tmp_path: Path) -> None:
    with stub_fleet(tmp_path) as fleet:
        fleet.assemble()
        answers = fleet.each([1], creating(REFUSE))
        assert answers[1] == Failed(answers[1].call, "LocalError: not here")
        with pytest.raises(LocalError, match="node 1: LocalError: not here"):
            fleet.expect(answers)
        assert isinstance(fleet.each([1], creating("a"))[1], Created)


def test_a_node_that_falls_is_noticed_and_its_callers_hear_of_it(tmp_path: Path) -> None:
    with stub_fleet(tmp_path) as fleet:
        fleet.assemble()
        heard: list[int] = []
        fleet.on_death(lambda death: heard.append(death.node))
        answers = fleet.each([0, 1, 2], lambda index: creating(FALL if index == 1 else "a")(index))
        assert isinstance(answers[0], Created)
        assert answers[1] == Failed(answers[1].call, "node 1 ended: SIGABRT")
        assert fleet.living() == [0, 2]
        assert heard == [1]
        assert [(d.node, d.how) for d in fleet.unexpected_deaths()] == [(1, "SIGABRT")]
        # Whoever asks later is not left waiting either.
        answer = ask(fleet, 1, Measure)
        assert isinstance(answer, Failed)
        assert answer.error == "node 1 does not run"


def test_a_killed_node_starts_again_where_it_was(tmp_path: Path) -> None:
    with stub_fleet(tmp_path) as fleet:
        fleet.assemble()
        home, address, first = fleet.home_of(2), fleet.addresses[2], fleet.pid(2)
        fleet.kill(2)
        assert not is_running(first)
        assert fleet.unexpected_deaths() == []
        answers: list[Answer] = []
        fleet.restart(2, answers.append)
        fleet.run_until(lambda: bool(answers), s_max=5)
        assert isinstance(answers[0], Done)
        assert fleet.addresses[2] == address
        assert fleet.home_of(2) == home
        assert fleet.life(2) == 2
        measured = ask(fleet, 2, Measure)
        assert isinstance(measured, Measured)
        assert measured.bytes_in == 2  # its second life


def test_what_a_dead_node_sent_is_not_forgotten(tmp_path: Path) -> None:
    with stub_fleet(tmp_path) as fleet:
        fleet.assemble()
        fleet.wait(3 * METER_S)
        fleet.kill(2)
        assert fleet.traffic() == (3, 9)
        answers: list[Answer] = []
        fleet.restart(2, answers.append)
        fleet.run_until(lambda: bool(answers), s_max=5)
        assert fleet.traffic() == (5, 12)  # its second life counts two, and was told of three


def test_a_node_told_to_stop_ends_in_good_order(tmp_path: Path) -> None:
    with stub_fleet(tmp_path) as fleet:
        fleet.assemble()
        fleet.stop(1)
        assert fleet.run_until(lambda: not fleet.is_up(1), s_max=5)
        assert fleet.deaths[-1].how == "exit code 0"
        assert fleet.unexpected_deaths() == []


def test_a_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with stub_fleet(tmp_path) as fleet:
        fleet.must_end_within(0.2)
        with pytest.raises(LocalError, match="longer than it was given"):
            fleet.run_until(lambda: False, s_max=float("inf"))


def test_a_paused_node_does_not_answer_until_it_goes_on(tmp_path: Path) -> None:
    with stub_fleet(tmp_path) as fleet:
        fleet.assemble()
        fleet.pause(0)
        late = ask(fleet, 0, Measure, s_max=0.2)
        assert isinstance(late, Failed)
        assert late.error.startswith("node 0 did not answer")
        assert isinstance(ask(fleet, 1, Measure), Measured)
        fleet.resume(0)
        assert isinstance(ask(fleet, 0, Measure), Measured)


def test_nodes_end_in_good_order_when_told_to(tmp_path: Path) -> None:
    with stub_fleet(tmp_path) as fleet:
        fleet.assemble()
        pids = [fleet.pid(index) for index in fleet.living()]
        fleet.stop_all(s_max=5)
        assert {death.how for death in fleet.deaths} == {"exit code 0"}
        assert not any(map(is_running, pids))


def test_an_error_of_the_parent_leaves_no_process_behind(tmp_path: Path) -> None:
    pids: list[int] = []

    def fail() -> None:
        with stub_fleet(tmp_path) as fleet:
            fleet.assemble()
            fleet.pause(1)
            pids.extend(fleet.pid(index) for index in fleet.living())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(pids) == 3
    assert not any(map(is_running, pids))


PARENT = """
import sys
from pathlib import Path
from tests.unit.testbed.stub import stub_fleet

with stub_fleet(Path(sys.argv[1])) as fleet:
    fleet.assemble()
    print(*(fleet.pid(index) for index in fleet.living()), flush=True)
    fleet.wait(60)
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, -2)]
)
def test_nodes_die_with_their_parent(
    number: signal.Signals, code: int, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=pytestconfig.rootpath,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 3
        assert all(map(is_running, pids))
        parent.send_signal(number)
        assert parent.wait(10) == code
    deadline_s = time.monotonic() + 5
    while any(map(is_running, pids)) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not any(map(is_running, pids))


@asynccontextmanager
async def open_slow_to_end(seat: Seat) -> AsyncIterator[StubNode]:
    yield StubNode(seat)
    await trio.sleep(1.0)


def test_who_takes_too_long_to_stop_is_killed_and_that_is_told(tmp_path: Path) -> None:
    plan = Plan(
        opener=open_slow_to_end,
        size=1,
        settings=Settings(),
        ledger=Ledger(nodes=1, events=1),
        number_of=number_of,
    )
    told: list[Record] = []
    with Fleet(plan, tmp_path) as fleet:
        fleet.assemble()
        fleet.peers[0] = Identity.from_seed(bytes(32)).peer_id
        Nodes(fleet, told.append)
        fleet.stop_all(s_max=0.2)
    assert [record.action for record in told if isinstance(record, Fault)] == ["kill"]


def test_whoever_is_down_when_all_are_stopped_is_not_started_again(tmp_path: Path) -> None:
    ledger = Ledger(nodes=2, events=1)
    plan = Plan(
        opener=open_slow_to_end, size=2, settings=Settings(), ledger=ledger, number_of=number_of
    )
    told: list[Record] = []
    with Fleet(plan, tmp_path) as fleet:
        fleet.assemble()
        # Nobody needs its name in full.
        fleet.peers[1] = Identity.from_seed(bytes(32)).peer_id
        Nodes(fleet, told.append).kill(1, down_s=0.3)
        fleet.stop_all(s_max=5.0)
        assert fleet.life(1) == 1
    assert [death.how for death in fleet.deaths] == ["SIGKILL", "exit code 0"]
    assert [record.action for record in told if isinstance(record, Fault)] == ["kill"]
