import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pulsarcast.cli.testbed import testbed as command
from pulsarcast.model import trace
from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.contestants.ours import OurNode
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.proxies import Delay
from pulsarcast.testbed.reading import lines_of
from pulsarcast.testbed.scenarios.workload import run_workload
from pulsarcast.testbed.small_disk import SmallDisk, may_mount, small_disk
from tests.unit.testbed.small_workload import DUE, NODES, write_workload

needs_root = pytest.mark.skipif(not may_mount(), reason="only root may mount a small disk")


def faults_told(folder: Path) -> list[tuple[str, int | None]]:
    records = (line.record for line in lines_of(folder / "traces", "driver"))
    return [(r.action, r.target_incarnation) for r in records if isinstance(r, trace.Fault)]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulsarcast.testbed.faults.DOWN_S_MIN", 0.2)
    monkeypatch.setattr("pulsarcast.testbed.faults.DOWN_S_MAX", 0.4)


@pytest.mark.usefixtures("soon")
def test_killed_and_stopped_nodes_miss_nothing(tmp_path: Path) -> None:
    options = RunOptions(
        nodes=NODES,
        workload=write_workload(tmp_path),
        out=tmp_path / "out",
        faults=("kills", "stopped"),
        stopped_s=0.5,
    )
    summary = run_workload(options)
    assert summary.ok
    assert summary.due == summary.delivered == summary.expected_due == DUE
    assert summary.duplicates == 0
    assert summary.faults == {"kill": 1, "pause": 1, "restart": 1, "resume": 1}
    assert (summary.died, summary.refused) == ([], {})
    told = faults_told(options.out)
    assert sorted(told) == [("kill", 1), ("pause", 1), ("restart", 1), ("resume", 1)]
    assert told.index(("kill", 1)) < told.index(("restart", 1))


@pytest.mark.usefixtures("soon")
def test_a_cut_that_heals_and_an_author_that_dies_lose_nothing(tmp_path: Path) -> None:
    options = RunOptions(
        nodes=NODES,
        workload=write_workload(tmp_path),
        out=tmp_path / "out",
        faults=("author", "partition"),
        cut_s=3.0,
        author_down_s=0.5,
        delay=Delay(base_ms=20, jitter_ms=10),
    )
    summary = run_workload(options)
    assert summary.ok
    assert summary.due == summary.delivered == summary.expected_due == DUE
    assert summary.faults == {"cut": 1, "heal": 1, "kill": 1, "restart": 1}
    assert summary.delay == "20ms~10ms"
    assert summary.acknowledged_ms_p50 > 20
    assert summary.proxies_cpu_s > 0


@needs_root
@pytest.mark.usefixtures("soon")
def test_a_node_with_a_full_disk_says_so_and_the_rest_go_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = ["run", "workload", "--nodes", str(NODES), "--out", str(out), "--json"]
    given += ["--workload", str(write_workload(tmp_path)), "--faults", "full-disk"]
    # Without the command's own mount namespace, which would be that of all tests that follow.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("pulsarcast.testbed.small_disk.keep_mounts_to_ourselves", lambda: None)
        outcome = CliRunner().invoke(command, [*given, "--full-s", "0.5"], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    summary = json.loads(outcome.stdout)
    assert summary["due"] == summary["delivered"] == DUE
    assert "disk is full" in summary["full_disk"]
    assert summary["acknowledged_on_full_disk"] == 0
    assert "disk is full" in summary["refused_on_full_disk"]
    assert summary["died"] == []
    assert faults_told(out) == [("disk_full", 1), ("disk_free", 1), ("kill", 1), ("restart", 1)]
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    stops = [
        line.record.reason
        for line in lines_of(out / "traces")
        if isinstance(line.record, trace.NodeStopped) and line.envelope.incarnation == 1
    ]
    assert stops.count(trace.StopReason.DISK_FAILED) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("soon")
def test_no_fault_excuses_that_nothing_was_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise LocalError("not today")

    monkeypatch.setattr("pulsarcast.testbed.callers.RETRY_S", 0.01)
    monkeypatch.setattr(OurNode, "publish", refuse)
    options = RunOptions(
        out=tmp_path / "out",
        nodes=NODES,
        workload=write_workload(tmp_path),
        faults=["kills"],
        timeout_s=60,
    )
    summary = run_workload(options)
    assert summary.faults["kill"] >= 1
    assert (summary.due, summary.lost, summary.ok) == (0, 0, False)


@pytest.mark.slow
@needs_root
@pytest.mark.usefixtures("soon")
def test_a_full_disk_that_its_node_does_not_notice_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsarcast.testbed.faults.HALT_S_MAX", 0.5)
    monkeypatch.setattr(SmallDisk, "fill", lambda self: None)
    options = RunOptions(
        out=tmp_path / "out",
        nodes=NODES,
        workload=write_workload(tmp_path),
        faults=["full-disk"],
        timeout_s=60,
    )
    summary = run_workload(options)
    assert (summary.lost, summary.duplicates, summary.full_disk) == (0, 0, None)
    assert not summary.ok


@needs_root
def test_a_small_disk_is_full_until_it_is_freed_and_goes_away_on_an_error(tmp_path: Path) -> None:
    path = tmp_path / "disk"

    def use() -> None:
        with small_disk(path, size_bytes=1 << 20) as disk:
            assert path.is_mount()
            disk.fill()
            with pytest.raises(OSError, match="No space left"):
                (path / "more").write_bytes(b"x")
            disk.free()
            (path / "more").write_bytes(b"x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()
    assert not path.is_mount()


def test_an_unknown_fault_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="no fault 'flood'; there are: kills"):
        run_workload(RunOptions(nodes=4, out=tmp_path, faults=("flood",)))
