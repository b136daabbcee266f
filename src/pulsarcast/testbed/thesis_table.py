"""The thesis' table 5.8, ours beside it, for people. No figure is of anything but its own run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from pulsarcast.testbed.workload import Summary

MIB: Final = 2**20
RPC_AIM: Final = 5.0
"""How many times the mean the busiest nodes may send: a node, not a root, carries the load."""
NOT_MEASURED: Final = "–"


class SeedMessages(NamedTuple):
    """Messages per node of one run of the thesis (its tables 5.1, 5.2, 5.4 and 5.5)."""

    received_mean: float
    received_p95: float
    received_p99: float
    sent_mean: float
    sent_p95: float
    sent_p99: float


class Seed(msgspec.Struct, frozen=True):
    """One run of the thesis (its table 5.8): 100 nodes, about 25,000 events."""

    run: str
    of_injected: str
    of_published: str
    published: str
    memory_gib: float
    sent_mib: float
    vcpu_max: float
    minutes: int
    messages: SeedMessages | None = None


_PLAIN: Final = SeedMessages(17708.4, 17843, 17889.5, 17708.4, 84055, 267124.5)
_ORDER: Final = SeedMessages(7315.18, 8440, 8961, 5889.29, 33655.5, 80058.5)
_LATE: Final = SeedMessages(18773.3, 19624.35, 19838.92, 21756.75, 113367.75, 412396.32)
_ORDER_LATE: Final = SeedMessages(9647.13, 11731, 11862.5, 8215.28, 43018.5, 106661.5)
THESIS: Final = (
    Seed("Floodsub", "41 %", "41 %", "(100 %)", 21.15, 6552.4, 5.53, 70),
    Seed(
        "Pulsarcast, anyone publishes",
        "99.99 %",
        "99.99 %",
        "100 %",
        31.92,
        2237.74,
        3.77,
        85,
        _PLAIN,
    ),
    Seed("Pulsarcast, order guarantee", "37 %", "82 %", "46 %", 17.84, 1050.4, 4.35, 38, _ORDER),
    Seed("Floodsub, latency", "31 %", "31 %", "(100 %)", 15.95, 6474.79, 4.74, 60),
    Seed("Pulsarcast, latency", "52 %", "86 %", "60 %", 35.8, 3423, 1.26, 780, _LATE),
    Seed(
        "Pulsarcast, order, latency", "32 %", "62 %", "53 %", 19.99, 1595.6, 4.33, 226, _ORDER_LATE
    ),
)
THESIS_NODES: Final = 100
THESIS_EVENTS: Final = "about 25,000"


class Played(msgspec.Struct, kw_only=True):
    """One run of ours, or of a baseline, as it came out."""

    name: str
    beside: str | None
    summary: Summary
    verdict: str | None
    """None: there are no traces to judge, or they have not been."""


class Figures(msgspec.Struct, kw_only=True):
    """What the thesis' table has a column for, computed from a summary."""

    published: float | None
    coverage_of_injected: float | None
    coverage_of_published: float | None
    sent_mib: float
    cpu_s: float
    cores_mean: float | None
    memory_gib: float
    minutes: float


def figures_of(summary: Summary) -> Figures:
    """The thesis' figures of a run; None where there was nothing to divide by."""
    wall_s = summary.wall_s
    return Figures(
        published=_share(summary.acknowledged, summary.events),
        coverage_of_injected=_share(summary.delivered, summary.expected_due),
        coverage_of_published=_share(summary.delivered, summary.due),
        sent_mib=round(summary.bytes_out / MIB, 2),
        cpu_s=summary.cpu_s,
        cores_mean=round(summary.cpu_s / wall_s, 2) if wall_s else None,
        memory_gib=round(summary.pss_mib / 1024, 2),
        minutes=round(wall_s / 60, 2),
    )


def make_table(played: Sequence[Played], *, failed: dict[str, str]) -> str:
    """Two tables in Markdown that can be read as they are."""
    lines = [*_runs(played), "", *_rpc(played)]
    if failed:
        lines += ["", "Failed:", *(f"- {name}: {why}" for name, why in failed.items())]
    return "\n".join(lines) + "\n"


def _runs(played: Sequence[Played]) -> list[str]:
    head = (
        "run", "nodes", "events", "published", "coverage of injected", "of published",
        "delivered of due", "sent, MiB", "CPU", "memory, GiB", "minutes",
        "acknowledged p50 / p99, ms", "delivered p50 / p99, ms", "verdict",
    )  # fmt: skip
    rows = []
    seeds = {seed.run: seed for seed in THESIS}
    for run in played:
        if run.beside is not None:
            rows.append(_seed_row(seeds[run.beside]))
        rows.append(_row(run))
    return _aligned(head, rows)


def _seed_row(seed: Seed) -> list[str]:
    return [
        f"thesis: {seed.run}", f"{THESIS_NODES}", THESIS_EVENTS, seed.published, seed.of_injected,
        seed.of_published, NOT_MEASURED, f"{seed.sent_mib:,.1f}", f"{seed.vcpu_max} vCPU at most",
        f"{seed.memory_gib}", f"{seed.minutes}", NOT_MEASURED, NOT_MEASURED, NOT_MEASURED,
    ]  # fmt: skip


def _row(run: Played) -> list[str]:
    summary, figures = run.summary, figures_of(run.summary)
    cores = "" if figures.cores_mean is None else f", {figures.cores_mean:.2f} cores on average"
    acknowledged = f"{summary.acknowledged_ms_p50:,.0f} / {summary.acknowledged_ms_p99:,.0f}"
    return [
        f"**{run.name}**",
        f"{summary.nodes}",
        f"{summary.events:,}",
        _percent(figures.published),
        _percent(figures.coverage_of_injected),
        _percent(figures.coverage_of_published),
        f"{summary.delivered:,} of {summary.due:,}",
        f"{figures.sent_mib:,.1f}",
        f"{figures.cpu_s:,.0f} s{cores}",
        f"{figures.memory_gib:.2f}",
        f"{figures.minutes:.1f}",
        # A baseline answers when it has sent, which promises nothing.
        acknowledged if summary.contestant == "ours" else NOT_MEASURED,
        f"{summary.latency_ms_p50:,.0f} / {summary.latency_ms_p99:,.0f}",
        run.verdict or NOT_MEASURED,
    ]


def _rpc(played: Sequence[Played]) -> list[str]:
    head = (
        "messages per node", "nodes", "events", "received: mean", "p95", "p99", "max",
        "sent: mean", "p95", "p99", "max", f"sent: p99 / mean (aim: {RPC_AIM:g})",
    )  # fmt: skip
    rows = []
    seeds = {seed.run: seed for seed in THESIS}
    for run in played:
        seed = None if run.beside is None else seeds[run.beside]
        if seed is not None and seed.messages is not None:
            rows.append(_seed_messages(seed.run, seed.messages))
        received, sent = run.summary.received_per_node, run.summary.sent_per_node
        if received is None or sent is None:
            continue
        spreads = [f"{each[key]:,.0f}" for each in (received, sent) for key in _SPREAD]
        row = [f"**{run.name}**", f"{run.summary.nodes}", f"{run.summary.events:,}", *spreads]
        rows.append([*row, f"{sent['p99_over_mean']:.2f}"])
    return _aligned(head, rows)


def _seed_messages(run: str, told: SeedMessages) -> list[str]:
    received, sent = [f"{each:,.0f}" for each in told[:3]], [f"{each:,.0f}" for each in told[3:]]
    spreads = [*received, NOT_MEASURED, *sent, NOT_MEASURED]
    over = f"{told.sent_p99 / told.sent_mean:.2f}"
    return [f"thesis: {run}", f"{THESIS_NODES}", THESIS_EVENTS, *spreads, over]


_SPREAD: Final = ("mean", "p95", "p99", "max")


def _aligned(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Markdown whose columns stand below each other: for a terminal and for a page."""
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    rule = "| " + " | ".join("-" * width for width in widths) + " |"
    return [lines[0], rule, *lines[1:]]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _percent(share: float | None) -> str:
    """Cut off, not rounded: all but one is not all."""
    return NOT_MEASURED if share is None else f"{math.floor(share * 10_000) / 100:.2f} %"
