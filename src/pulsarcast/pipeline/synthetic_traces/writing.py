"""Writing a planned trace, on several cores.

Every node's trace depends on the plan alone, so workers share nothing and their number does not
show in what they write. A worker goes through the trace era by era, with all its nodes side by
side: what an event adds to a line is made once per era, and only one era is ever in memory.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from pulsarcast.model import trace
from pulsarcast.model.ids import cid_text
from pulsarcast.pipeline.synthetic_traces.events import Era, acknowledged
from pulsarcast.pipeline.synthetic_traces.node_trace import SLOT_NS, START_NS, Filling, NodeTrace
from pulsarcast.pipeline.synthetic_traces.plan import ERA, PATTERN, Plan
from pulsarcast.pipeline.synthetic_traces.segments import Segments

EXPECTED: Final = "expected.json"
"""Beside the segments: the figures that a pipeline must come to."""
DRIVER: Final = "driver"

_ACKNOWLEDGED_LATER: Final = 8
"""Slots between an event's injection and its caller's being told."""


def write_traces(plan: Plan, folder: Path, *, workers: int | None = None) -> dict[str, object]:
    """Write all segments of a planned trace, and return the figures they come to."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty")
    workers = workers or len(os.sched_getaffinity(0))
    fillings = _share_filling(plan)
    # The driver has the most lines: it goes to the last worker, which has the fewest nodes.
    shares = [range(at, len(plan.nodes), workers) for at in range(workers)]
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        jobs = [
            pool.submit(_write_share, plan, folder, share, fillings, at == workers - 1)
            for at, share in enumerate(shares)
        ]
        for job in jobs:
            counts.update(job.result())
    expected = plan.expected()
    promised = plan.counts()
    assert {kind: counts[kind] for kind in promised} == promised, (counts, promised)
    assert sum(counts.values()) == plan.lines, (sum(counts.values()), plan.lines)
    expected["kinds"] = dict(sorted(counts.items()))
    (folder / EXPECTED).write_text(json.dumps(expected, indent=1) + "\n")
    return expected


def _share_filling(plan: Plan) -> list[Filling]:
    """How many of the lines that fill up each node has: as its share of all deliveries."""
    lines = plan.lines - sum(plan.counts().values())
    deliveries = [plan.due(node) for node in range(len(plan.nodes))]
    total = sum(deliveries)
    fillings = []
    before = 0
    for each in deliveries:
        after = before + each
        fillings.append(Filling(lines * after // total - lines * before // total, each))
        before = after
    return fillings


def _write_share(
    plan: Plan, folder: Path, share: range, fillings: list[Filling], with_driver: bool
) -> Counter[str]:
    """Write the traces of some of the nodes: what one worker does."""
    nodes = [NodeTrace(plan, node, folder, fillings[node]) for node in share]
    counts: Counter[str] = Counter()
    for number in range(-(-plan.slots // ERA)):
        era = Era(plan, number)
        for node in nodes:
            node.play(era)
    for node in nodes:
        node.end()
        counts.update(node.counts)
    if with_driver:
        counts.update(_write_driver(plan, folder))
    return counts


def _write_driver(plan: Plan, folder: Path) -> Counter[str]:
    """Write the trace of who drives the load, and does the faults."""
    segments = Segments(folder, DRIVER)
    beginning = (
        f'{{"schema_version":{trace.SCHEMA_VERSION},"run_id":"{plan.run_id}",'
        f'"node_id":"{DRIVER}","incarnation":1,"seq":'
    )
    topics = [f'"{cid_text(topic.cid)}"' for topic in plan.topics]
    faults = _faults(plan)
    counts: Counter[str] = Counter()
    seq = 0

    def write(kind: str, text: str) -> None:
        nonlocal seq
        seq += 1
        counts[kind] += 1
        mono_ns = (slot + 1) * SLOT_NS
        segments.write(f'{beginning}{seq},"wall_ns":{START_NS + mono_ns},"mono_ns":{mono_ns}{text}')

    for slot in range(plan.slots + _ACKNOWLEDGED_LATER):
        for fault in faults.get(slot, ()):
            write("fault", fault)
        if slot < plan.slots:
            topic = plan.pattern[slot % PATTERN][0]
            author = plan.names[plan.asker(topic, slot)]
            write(
                "injected",
                f',"kind":"injected","topic":{topics[topic]},"injection":"{slot + 1}",'
                f'"author":"{author}"}}\n',
            )
        if slot >= _ACKNOWLEDGED_LATER:
            write("acknowledged", acknowledged(plan, slot - _ACKNOWLEDGED_LATER))
    segments.close()
    return counts


def _faults(plan: Plan) -> dict[int, list[str]]:
    """What the driver did to nodes, by slot."""
    faults: dict[int, list[str]] = {}
    for node, each in enumerate(plan.nodes):
        for life, death in enumerate(each.deaths, 1):
            if not death.returns:
                actions = ["lose"]
            else:
                actions = ["kill", "restart" if death.keeps_disk else "restart_empty"]
            faults.setdefault(death.slot, []).extend(
                f',"kind":"fault","action":"{action}","target":"{plan.names[node]}","detail":"",'
                f'"target_incarnation":{life}}}\n'
                for action in actions
            )
    return faults
