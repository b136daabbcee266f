"""Memory limits, where the kernel lets us have them."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pulsarcast.model import trace
from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.testbed import limits as module
from pulsarcast.testbed.callers import Callers
from pulsarcast.testbed.child import Plan
from pulsarcast.testbed.contestants.contestants import Seat, Settings
from pulsarcast.testbed.fleet import Fleet
from pulsarcast.testbed.ledger import Ledger
from pulsarcast.testbed.limits import MIB, MemoryLimits, limits_for, why_not
from pulsarcast.testbed.messages import Answer, Created, CreateTopic, Failed
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.scenarios.compare import number_of
from pulsarcast.testbed.scenarios.workload import run_workload
from tests.unit.testbed.small_workload import DUE, NODES, write_workload
from tests.unit.testbed.stub import StubNode

LIMIT_MIB = 60
needs_limits = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


class HungryNode(StubNode):
    """Takes as many MiB as the name of a topic says."""

    async def create_topic(
        self,
        name: str,
        order: str,
        dissemination: str = "tree",
        sequencers: Sequence[PeerId] = (),
    ) -> Cid:
        self.taken = os.urandom(int(name) * MIB)
        return await super().create_topic(name, order)


@asynccontextmanager
async def open_hungry(seat: Seat) -> AsyncIterator[StubNode]:
    yield HungryNode(seat)


def hungry_fleet(home: Path, limits: MemoryLimits) -> Fleet:
    plan = Plan(
        opener=open_hungry,
        size=2,
        settings=Settings(),
        ledger=Ledger(nodes=2, events=10),
        number_of=number_of,
    )
    return Fleet(plan, home, limits=limits)


def eat(fleet: Fleet, index: int, mib: int) -> Answer:
    [answer] = fleet.each([index], lambda _: lambda call: CreateTopic(call, str(mib), "")).values()
    return answer


def groups() -> list[Path]:
    return list(module._own_group().glob(f"pulsarcast-{os.getpid()}*"))


@needs_limits
def test_a_node_that_takes_more_than_its_limit_is_killed_and_the_others_are_not(
    tmp_path: Path,
) -> None:
    with MemoryLimits(LIMIT_MIB) as limits, hungry_fleet(tmp_path, limits) as fleet:
        fleet.assemble()
        assert isinstance(eat(fleet, 0, LIMIT_MIB // 2), Created)
        assert isinstance(eat(fleet, 1, LIMIT_MIB // 2), Created)
        assert LIMIT_MIB // 2 <= limits.peak_mib(0) <= LIMIT_MIB
        assert isinstance(eat(fleet, 0, LIMIT_MIB * 2), Failed)
        [death] = fleet.unexpected_deaths()
        assert (death.node, death.by_limit) == (0, True)
        assert death.how == f"SIGKILL, over its limit of {LIMIT_MIB} MiB"
        assert fleet.living() == [1]
        # The next life has a limit as well, and its end is not taken for the last one's.
        fleet.restart(0, lambda _: None)
        assert isinstance(eat(fleet, 0, 1), Created)
        fleet.kill(0)
        assert not fleet.deaths[-1].by_limit
    assert groups() == []


@needs_limits
def test_groups_of_a_testbed_that_was_killed_are_removed_by_the_next_one() -> None:
    process = os.fork()
    if not process:
        os._exit(0)
    os.waitpid(process, 0)
    left = module._own_group() / f"pulsarcast-{process}"
    (left / "node-000").mkdir(parents=True)
    with MemoryLimits(LIMIT_MIB):
        assert not left.exists()


@needs_limits
def test_a_run_under_a_limit_that_is_enough_goes_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsarcast.testbed.scenarios.workload.QUIET_S_MIN", 0.1)
    options = RunOptions(
        nodes=NODES, workload=write_workload(tmp_path), out=tmp_path / "out", memory_mib=500
    )
    summary = run_workload(options)
    assert (summary.ok, summary.delivered, summary.died) == (True, DUE, [])
    assert groups() == []


@needs_limits
def test_a_run_whose_nodes_have_too_little_says_why_it_fails(tmp_path: Path) -> None:
    options = RunOptions(
        nodes=NODES, workload=write_workload(tmp_path), out=tmp_path / "out", memory_mib=2
    )
    with pytest.raises(LocalError, match="over its limit of 2 MiB"):
        run_workload(options)
    assert groups() == []


@needs_limits
def test_the_trace_says_whom_its_limit_killed(tmp_path: Path) -> None:
    from pulsarcast.testbed.sessions import _tell_of_limit

    told: list[trace.Record] = []
    with MemoryLimits(LIMIT_MIB) as limits, hungry_fleet(tmp_path, limits) as fleet:
        callers = Callers(fleet, replicas=3, note=told.append)
        fleet.on_death(lambda death: _tell_of_limit(fleet, callers, death))
        fleet.assemble()
        eat(fleet, 1, LIMIT_MIB * 2)
    [fault] = told
    assert isinstance(fault, trace.Fault)
    assert (fault.action, fault.detail, fault.target_incarnation) == ("kill", "its memory limit", 1)


def test_where_there_are_no_limits_a_run_goes_on_only_if_asked_to(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_mounted_at", lambda: None)
    options = RunOptions(out=Path("out"), memory_mib=500)
    with pytest.raises(LocalError, match=r"needs the memory groups of cgroup v1; .*without-limits"):
        limits_for(options)
    assert limits_for(RunOptions(out=Path("out"), memory_mib=500, without_limits=True)) is None
    assert "the nodes run without a limit" in caplog.text
    assert limits_for(RunOptions(out=Path("out"))) is None
