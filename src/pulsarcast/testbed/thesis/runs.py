"""The runs of the thesis' evaluation (chapter 5), as this machine is to play them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.proxies import Delay

LIMIT: Final = 2_000
"""Events of every run that does not play the whole workload."""
TRACE_LEVEL: Final = "delivery"
"""One for all: what the checkers need, and nothing beyond it."""
LATENCY: Final = Delay(base_ms=500, jitter_ms=300)
"""The thesis': so late arrives what comes in, in the runs with latency."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large all runs are."""

    nodes: int = 100
    events_max: int | None = None
    """Of the runs that play the whole workload; None: all that there are."""
    limit: int = LIMIT
    baseline_limit: int | None = None
    """Of the baselines, where even fewer are enough: each costs ten times ours and more."""
    delay: Delay = LATENCY
    cut_s: float = 20.0
    author_down_s: float = 20.0
    timeout_s: float = 4 * 3_600.0
    seed: int = 1
    at_a_time: int = 1
    """Runs; more than one only where nobody asks how fast they are."""


FULL: Final = Scale()
SMALL: Final = Scale(
    nodes=10,
    events_max=500,
    limit=500,
    baseline_limit=100,
    delay=Delay(base_ms=50, jitter_ms=30),
    cut_s=4.0,
    author_down_s=4.0,
    timeout_s=240.0,
    at_a_time=2,
)
"""All runs in some minutes: does everything work, end to end?"""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One run, and what it is to be put beside."""

    name: str
    beside: str | None
    """The run of the thesis' table 5.8 that is like it."""
    options: RunOptions
    live: bool = False
    """Whether its traces stream into Spark while it goes."""

    @property
    def folder(self) -> Path:
        """Where its traces and its summary are."""
        return self.options.out

    @property
    def is_ours(self) -> bool:
        """Whether it is a run of Pulsarcast: only those leave traces to judge."""
        return self.options.contestant == "ours"

    def asked(self) -> dict[str, Any]:
        """All that a result depends on; two runs that differ here must not be taken for one."""
        options, workload = self.options, self.options.workload
        return {
            "contestant": options.contestant,
            "order": options.order,
            "nodes": options.nodes,
            "events_max": options.events_max,
            "workload": None if workload is None else workload.name,
            "workload_sha256": None if workload is None else _digest(workload),
            "delay": "none" if options.delay is None else str(options.delay),
            "faults": list(options.faults),
            "cut_s": options.cut_s if "partition" in options.faults else None,
            "author_down_s": options.author_down_s if "author" in options.faults else None,
            "trace_level": options.trace_level,
            "seed": options.seed,
            "live": self.live,
        }


def plan_runs(out: Path, scale: Scale, workload: Path | None) -> list[Planned]:
    """All runs, in the order in which they are played: the thesis' own, then what it left open."""
    limit = _least(scale.limit, scale.events_max)
    baseline_limit = _least(limit, scale.baseline_limit)

    def run(
        name: str,
        beside: str | None = None,
        *,
        whole: bool = False,
        live: bool = False,
        **options: Any,
    ) -> Planned:
        ours = "contestant" not in options
        if whole:
            events_max = scale.events_max
        else:
            events_max = limit if ours else baseline_limit
        return Planned(
            name=name,
            beside=beside,
            live=live,
            options=RunOptions(
                out=out / "runs" / name,
                nodes=scale.nodes,
                seed=scale.seed,
                workload=workload,
                events_max=events_max,
                trace_level=TRACE_LEVEL,
                run_id=name,
                cut_s=scale.cut_s,
                author_down_s=scale.author_down_s,
                timeout_s=scale.timeout_s,
                **options,
            ),
        )

    late = scale.delay
    return [
        run("ours", "Pulsarcast, anyone publishes", whole=True),
        run("ours-total", "Pulsarcast, order guarantee", whole=True, order="total"),
        run("floodsub", "Floodsub", contestant="floodsub"),
        run("gossipsub", contestant="gossipsub"),
        run("ours-latency", "Pulsarcast, latency", delay=late),
        run("ours-total-latency", "Pulsarcast, order, latency", order="total", delay=late),
        run("floodsub-latency", "Floodsub, latency", contestant="floodsub", delay=late),
        run("gossipsub-latency", contestant="gossipsub", delay=late),
        run("ours-author", faults=("author",)),
        run("ours-kills", faults=("kills",)),
        run("ours-partition", faults=("partition",)),
        run("ours-live", live=True),
    ]


def choose(plan: Sequence[Planned], only: Sequence[str]) -> list[Planned]:
    """The runs of these names, or all."""
    names = [run.name for run in plan]
    for name in only:
        if name not in names:
            raise LocalError(f"no run {name!r}; there are: {', '.join(names)}")
    return [run for run in plan if not only or run.name in only]


def _least(limit: int, bound: int | None) -> int:
    return limit if bound is None else min(limit, bound)


def _digest(path: Path) -> str:
    if not path.is_file():
        raise LocalError(f"no such workload: {path}")
    return hashlib.sha256(path.read_bytes()).hexdigest()
