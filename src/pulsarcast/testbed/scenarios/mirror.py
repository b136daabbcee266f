"""The mirror scenario: one small workload, simulated and on real nodes, counted in the same way.

Both run the same core. If what they send differs, one of the two drivers does something that the
other does not. Figures come from the traces alone, which both write at level `rpc`.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final, Literal, TypeAlias, cast

import msgspec

from pulsarcast.model import trace
from pulsarcast.model.workload import Workload
from pulsarcast.simulation.options import Options
from pulsarcast.simulation.run import DHT_MESSAGES, EVENT_MESSAGES
from pulsarcast.simulation.scenario_workload import run_workload as simulate_workload
from pulsarcast.simulation.synthetic import make_workload
from pulsarcast.testbed.options import Outcome, RunOptions
from pulsarcast.testbed.reading import lines_of
from pulsarcast.testbed.scenarios.compare import Progress, no_progress
from pulsarcast.testbed.scenarios.workload import run_workload
from pulsarcast.testbed.sessions import SUMMARY, TRACES, prepare

NODES: Final = 30
TOPICS: Final = 5
EVENTS: Final = 300
SIMULATED: Final = "simulated"
REAL: Final = "real"
TOLERANCE: Final = 0.1
NS_PER_S: Final = 1e9
Order: TypeAlias = Literal["none", "per-publisher", "causal", "total"]
Travel: TypeAlias = Literal["tree", "cube"]


class Figures(msgspec.Struct, kw_only=True):
    """What the traces of one run say, from the first event injected to the last delivered."""

    deliveries: int = 0
    """Of others' events, over at least one hop."""
    window_s: float = 0.0
    event_messages_per_delivery: float = 0.0
    """Messages that carry an event on, and requests to publish one."""
    replica_messages_per_delivery: float = 0.0
    """Those of the DHT, which keeps the copies."""
    other_messages_per_delivery: float = 0.0
    """Heartbeats, credit, joins, comparing: the longer the window, the more."""
    messages_per_delivery: float = 0.0
    hops_mean: float = 0.0
    messages: dict[str, int] = {}


class MirrorOutcome(Outcome, kw_only=True):
    """Both, and how far they are apart."""

    simulated: Figures
    real: Figures
    ratios: dict[str, float]
    """Real by simulated."""
    within: bool
    """Whether hops and event messages are within a tenth of each other."""

    def to_text(self) -> str:
        """A small table, for people."""
        names = [*self.ratios, "window_s"]
        lines = [f"{'per delivery':32} {'simulated':>10} {'real':>10} {'ratio':>7}"]
        for name in names:
            one, other = getattr(self.simulated, name), getattr(self.real, name)
            ratio = f"{self.ratios[name]:7.3f}" if name in self.ratios else ""
            lines.append(f"{name:32} {one:10.3f} {other:10.3f} {ratio}".rstrip())
        kinds = sorted({*self.simulated.messages, *self.real.messages})
        for kind in kinds:
            one, other = self.simulated.messages.get(kind, 0), self.real.messages.get(kind, 0)
            lines.append(f"  {kind:30} {one:10,} {other:10,}")
        lines.append(
            f"delivered {self.delivered:,} of {self.due:,} due, {self.duplicates:,} twice, and "
            f"{self.strays:,} that nobody published, both runs together"
        )
        is_so = "are" if self.within else "are NOT"
        lines.append(f"hops and messages that carry events {is_so} within a tenth of each other")
        return "\n".join(lines)


def run_mirror(options: RunOptions, *, progress: Progress = no_progress) -> MirrorOutcome:
    """Make a workload up, play it twice, and compare."""
    size = options.nodes or NODES
    traces = prepare(options.out)
    path = options.out / "workload.ndjson"
    write_workload(
        make_workload(
            Random(f"mirror/{options.seed}"),
            nodes=size,
            events=options.events or EVENTS,
            topics=options.topics or TOPICS,
        ),
        path,
    )
    name = options.name_of_run()
    result = simulate_workload(
        Options(
            scenario="thesis",
            kind="workload",
            seed=options.seed,
            nodes=size,
            order=cast(Order, options.order),
            dissemination=cast(Travel, options.dissemination),
            workload=str(path),
            latency_ms=options.latency_ms,
            through_wire=True,
            trace=str(traces / SIMULATED),
            trace_level="rpc",
            run_id=f"{name}-{SIMULATED}",
        ),
        progress=lambda what, done, total: progress(f"simulated: {what}", done, total),
    )
    own = replace(
        options,
        scenario="workload",
        out=options.out / REAL,
        nodes=size,
        workload=path,
        trace_level="rpc",
        run_id=f"{name}-{REAL}",
        # What a file may say of workloads: the simulated half knows nothing of it.
        faults=(),
        events_max=None,
        concurrency=RunOptions.concurrency,
    )
    summary = run_workload(
        own, progress=lambda what, done, total: progress(f"real: {what}", done, total)
    )
    (own.out / TRACES).rename(traces / REAL)
    shutil.rmtree(options.out / "nodes")
    simulated, real = count(traces / SIMULATED), count(traces / REAL)
    ratios = {
        field: round(getattr(real, field) / (getattr(simulated, field) or 1.0), 4)
        for field in (
            "event_messages_per_delivery",
            "replica_messages_per_delivery",
            "other_messages_per_delivery",
            "messages_per_delivery",
            "hops_mean",
        )
    }
    judged = ("event_messages_per_delivery", "hops_mean")
    outcome = MirrorOutcome(
        scenario=options.scenario,
        nodes=size,
        due=result.due + summary.due,
        delivered=result.delivered + summary.delivered,
        lost=result.due - result.delivered + summary.lost,
        duplicates=result.duplicates + summary.duplicates,
        strays=summary.strays,
        ok=result.ok and summary.ok,
        simulated=simulated,
        real=real,
        ratios=ratios,
        within=all(abs(ratios[name] - 1) <= TOLERANCE for name in judged),
    )
    (options.out / SUMMARY).write_text(outcome.to_json() + "\n")
    return outcome


def count(folder: Path) -> Figures:
    """The figures of one run, from its traces."""
    injected_ns = min(
        line.envelope.wall_ns
        for line in lines_of(folder, "driver")
        if isinstance(line.record, trace.Injected)
    )
    sent: list[tuple[int, str]] = []
    figures = Figures()
    last_ns = hops = 0
    for envelope, record in lines_of(folder):
        if isinstance(record, trace.RpcSent):
            sent.append((envelope.wall_ns, record.operation))
        elif isinstance(record, trace.Delivered):
            last_ns = max(last_ns, envelope.wall_ns)
            if record.hops:
                figures.deliveries += 1
                hops += record.hops
    for wall_ns, kind in sent:
        if injected_ns <= wall_ns <= last_ns:
            figures.messages[kind] = figures.messages.get(kind, 0) + 1
    figures.messages = dict(sorted(figures.messages.items()))
    deliveries = max(1, figures.deliveries)
    everything = sum(figures.messages.values())
    events = sum(figures.messages.get(kind, 0) for kind in EVENT_MESSAGES)
    replicas = sum(figures.messages.get(kind, 0) for kind in DHT_MESSAGES)
    figures.window_s = round((last_ns - injected_ns) / NS_PER_S, 3)
    figures.event_messages_per_delivery = round(events / deliveries, 4)
    figures.replica_messages_per_delivery = round(replicas / deliveries, 4)
    figures.other_messages_per_delivery = round((everything - events - replicas) / deliveries, 4)
    figures.messages_per_delivery = round(everything / deliveries, 4)
    figures.hops_mean = round(hops / deliveries, 4)
    return figures


def write_workload(workload: Workload, path: Path) -> None:
    """Write a workload in the thesis' own format, as `model.workload` reads it."""
    lines: list[object] = [
        {"type": "topic", "name": t.name, "node": t.node, "totalNumberEvents": t.event_count}
        for t in workload.topics
    ]
    lines += [
        {
            "type": "user",
            "name": user.name,
            "node": user.node,
            "events": [
                {"internalId": event.internal_id, "topic": event.topic, "ups": event.ups}
                for event in user.events
            ],
            "subscriptions": dict.fromkeys(user.subscriptions, True),
        }
        for user in workload.users
    ]
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
