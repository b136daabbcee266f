"""The thesis' table 5.8 with ours beside it. No figure is of anything but its own run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from pulsarcast.pipeline.beside import Bar, Bars, Beside, Table
from pulsarcast.testbed.scenarios.workload import Summary

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
_SEEDS: Final = {seed.run: seed for seed in THESIS}
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
    """All tables in Markdown that can be read as it is."""
    lines: list[str] = []
    for table in make_tables(played):
        lines += [f"### {table.title}", "", *_aligned(table), "", table.about, ""]
    if failed:
        lines += ["Failed:", *(f"- {name}: {why}" for name, why in failed.items())]
    return "\n".join(lines).rstrip("\n") + "\n"


def make_beside(played: Sequence[Played]) -> Beside:
    """The same for the report's page, and the thesis' coverage and ours as bars."""
    bars = []
    for run in played:
        seed = _SEEDS.get(run.beside or "")
        if seed is None:
            continue
        group = f"{run.name} ({run.summary.events:,} events)"
        theirs = float(seed.of_injected.rstrip(" %"))
        bars.append(Bar(group=group, whose="thesis", value=theirs, text=seed.of_injected))
        share = figures_of(run.summary).coverage_of_injected
        bars.append(
            Bar(group=group, whose="here", value=100 * (share or 0.0), text=_percent(share))
        )
    chart = Bars(
        name="beside-the-thesis",
        title="Coverage: what arrived of all that was to be published",
        about=f"The thesis' runs are of {THESIS_EVENTS} events on {THESIS_NODES} nodes.",
        axis="deliveries of all that the workload asks for, %",
        bars=bars,
    )
    return Beside(tables=make_tables(played), bars=[chart] if bars else [])


def make_tables(played: Sequence[Played]) -> list[Table]:
    """Coverage, cost, times and messages: the thesis' row above ours."""
    return [
        _table(
            "Coverage",
            ("nodes", "events", "published", "of injected", "of published", "delivered of due",
             "verdict"),
            played,
            _coverage,
            lambda seed: (seed.published, seed.of_injected, seed.of_published, *_NONE[:2]),
            "published: acknowledged of all that were to be published. of injected: deliveries of "
            "all that the workload asks for; of published: of what is due. verdict: what `pipeline "
            "check` says of the run's traces.",
        ),
        _table(
            "Cost",
            ("nodes", "events", "sent, MiB", "CPU", "memory, GiB", "minutes"),
            played,
            _cost,
            lambda seed: (
                f"{seed.sent_mib:,.1f}",
                f"{seed.vcpu_max} vCPU at most",
                f"{seed.memory_gib}",
                f"{seed.minutes}",
            ),
            "sent: at the sockets, encrypted. CPU: of all nodes during the load, without setting "
            "up. memory: of all nodes at its end, what they share counted once. minutes: the load.",
        ),
        _table(
            "Times",
            ("nodes", "events", "acknowledged p50, ms", "p99", "delivered p50, ms", "p99"),
            played,
            _times,
            None,
            "acknowledged: from the call of publish until three peers have it on disk, attempts "
            "that failed included. delivered: from the call until a subscriber has it.",
        ),
        _table(
            "Messages per node",
            ("nodes", "events", "received: mean", "p95", "p99", "max", "sent: mean", "p95", "p99",
             "max", f"sent: p99 / mean (aim: {RPC_AIM:g})"),
            [run for run in played if run.summary.sent_per_node is not None],
            _messages,
            _seed_messages,
            "Messages of the protocol during the load, as nodes count them; a baseline's do not.",
        ),
    ]  # fmt: skip


def _table(
    title: str,
    head: Sequence[str],
    played: Sequence[Played],
    row_of: Callable[[Played], Sequence[str]],
    seed_row_of: Callable[[Seed], Sequence[str] | None] | None,
    about: str,
) -> Table:
    rows, own = [], []
    for run in played:
        seed = _SEEDS.get(run.beside or "")
        theirs = None if seed is None or seed_row_of is None else seed_row_of(seed)
        if seed is not None and theirs is not None:
            rows.append([f"thesis: {seed.run}", f"{THESIS_NODES}", THESIS_EVENTS, *theirs])
            own.append(False)
        rows.append([run.name, f"{run.summary.nodes}", f"{run.summary.events:,}", *row_of(run)])
        own.append(True)
    return Table(title=title, head=["run", *head], rows=rows, own=own, about=about)


def _coverage(run: Played) -> Sequence[str]:
    figures = figures_of(run.summary)
    return (
        _percent(figures.published),
        _percent(figures.coverage_of_injected),
        _percent(figures.coverage_of_published),
        f"{run.summary.delivered:,} of {run.summary.due:,}",
        run.verdict or NOT_MEASURED,
    )


def _cost(run: Played) -> Sequence[str]:
    figures = figures_of(run.summary)
    cores = "" if figures.cores_mean is None else f", {figures.cores_mean:.2f} cores on average"
    return (
        f"{figures.sent_mib:,.1f}",
        f"{figures.cpu_s:,.0f} s{cores}",
        f"{figures.memory_gib:.2f}",
        f"{figures.minutes:.1f}",
    )


def _times(run: Played) -> Sequence[str]:
    summary = run.summary
    acknowledged = summary.acknowledged_ms_p50, summary.acknowledged_ms_p99
    delivered = summary.latency_ms_p50, summary.latency_ms_p99
    # A baseline answers when it has sent, which promises nothing.
    promised = summary.contestant == "ours"
    return (
        *((f"{each:,.0f}" for each in acknowledged) if promised else _NONE[:2]),
        *(f"{each:,.0f}" for each in delivered),
    )


def _messages(run: Played) -> Sequence[str]:
    received, sent = run.summary.received_per_node, run.summary.sent_per_node
    assert received is not None, "nobody counted"
    assert sent is not None, "nobody counted"
    spreads = [f"{each[key]:,.0f}" for each in (received, sent) for key in _SPREAD]
    return (*spreads, f"{sent['p99_over_mean']:.2f}")


def _seed_messages(seed: Seed) -> Sequence[str] | None:
    told = seed.messages
    if told is None:
        return None
    received, sent = [f"{each:,.0f}" for each in told[:3]], [f"{each:,.0f}" for each in told[3:]]
    over = f"{told.sent_p99 / told.sent_mean:.2f}"
    return (*received, NOT_MEASURED, *sent, NOT_MEASURED, over)


_SPREAD: Final = ("mean", "p95", "p99", "max")
_NONE: Final = (NOT_MEASURED,) * 2


def _aligned(table: Table) -> list[str]:
    """Markdown whose columns stand below each other: for a terminal and for a page."""
    rows = [
        [f"**{row[0]}**", *row[1:]] if own else row
        for row, own in zip(table.rows, table.own, strict=True)
    ]
    cells = [table.head, *rows]
    widths = [max(len(row[place]) for row in cells) for place in range(len(table.head))]
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
