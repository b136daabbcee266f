"""A player and a judge that need neither nodes nor Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pulsarcast.pipeline.beside import Beside
from pulsarcast.testbed.scenarios.compare import Progress
from pulsarcast.testbed.scenarios.workload import Summary
from pulsarcast.testbed.thesis.evaluation import Tell
from pulsarcast.testbed.thesis.judge import CLEAN, Verdicts
from pulsarcast.testbed.thesis.play import INGESTED
from pulsarcast.testbed.thesis.runs import Planned, Scale, plan_runs

SPREAD = {"mean": 100.0, "p50": 90, "p95": 200, "p99": 300, "max": 350, "p99_over_mean": 3.0}
TINY = Scale(nodes=4, events_max=10, limit=5)


def make_summary(run: Planned | None = None, **changed: Any) -> Summary:
    """What a run of ten events for four nodes comes to where all goes well."""
    ours = run is None or run.is_ours
    fields: dict[str, Any] = {
        "scenario": "workload", "nodes": 4, "due": 40, "delivered": 40, "lost": 0,
        "duplicates": 0, "ok": True, "contestant": "ours", "order": "none",
        "trace_level": "delivery", "topics": 2, "subscriptions": 8, "events": 10,
        "expected_due": 40, "redeliveries": 0, "acknowledged": 10, "levels": {"replicated": 10},
        "refused": {}, "dropped": 0, "retries": 0, "faults": {}, "full_disk": None,
        "refused_on_full_disk": None, "acknowledged_on_full_disk": 0, "died": [], "setup_s": 1.0,
        "wall_s": 60.0, "cpu_s": 90.0, "setup_cpu_s": 1.0, "cpu_ms_per_delivery": 2.0,
        "bytes_in": 2**20, "bytes_out": 3 * 2**20, "bytes_per_delivery": 100.0,
        "received_per_node": SPREAD if ours else None, "sent_per_node": SPREAD if ours else None,
        "latency_ms_p50": 10.0, "latency_ms_p99": 20.0, "acknowledged_ms_p50": 30.0,
        "acknowledged_ms_p99": 40.0, "delay": "none", "proxies_cpu_s": 0.0, "pss_mib": 512.0,
        "trace_bytes": 1,
    }  # fmt: skip
    if run is not None:
        fields |= {"contestant": run.options.contestant, "order": run.options.order}
    return Summary(**fields | changed)


class FakePlayer:
    """Plays nothing; a run may be told to come out otherwise, or to raise."""

    def __init__(self, **other: dict[str, Any] | BaseException) -> None:
        self.played: list[str] = []
        self.other = other

    def __call__(self, run: Planned, progress: Progress, lock: int) -> None:
        """Leave what a run leaves."""
        self.played.append(run.name)
        (run.folder / "traces").mkdir()
        changed = self.other.get(run.name.replace("-", "_"), {})
        if isinstance(changed, BaseException):
            raise changed
        (run.folder / "summary.json").write_text(make_summary(run, **changed).to_json())
        if run.live:
            (run.folder / INGESTED).write_text("{}")


class FakeJudge:
    """Finds everything clean, unless told otherwise."""

    def __init__(self, **verdicts: str) -> None:
        self.verdicts = verdicts
        self.judged: list[str] = []

    def __call__(
        self,
        out: Path,
        runs: Sequence[Planned],
        tell: Tell,
        lock: int,
        beside: Callable[[Mapping[str, str]], Beside],
    ) -> Verdicts:
        """Judge all of ours."""
        self.judged = [run.name for run in runs if run.is_ours]
        verdicts = {name: self.verdicts.get(name.replace("-", "_"), CLEAN) for name in self.judged}
        self.shown = beside(verdicts)
        return Verdicts(of={}, runs=verdicts, lines=1)


def tiny_plan(out: Path, **changed: Any) -> list[Planned]:
    """All runs, at a size that nobody plays."""
    return plan_runs(out, TINY if not changed else Scale(nodes=4, events_max=10, **changed), None)
