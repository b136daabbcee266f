"""What a large network costs: memory of a node, what it sends while idle, and events to all.

    python -m benchmarks.settled [--nodes 1000 10000 100000] [--events 20] [--idle-s 60]

Worlds that begin settled (`simulate tree --settled`), every link 50 ms, all nodes members of one
topic. The world is made; `SETTLE_S` pass, in which new neighbours compare; then nothing happens for
`--idle-s`; then four members publish events of 14 bytes in turns, four a second. All checkers of
the simulator have their say at the end. CPU per delivery is without what the nodes take while idle.
One line of JSON each.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from time import process_time
from typing import Any

import msgspec

from pulsarcast.simulation.loop import few_collections
from pulsarcast.simulation.options import load
from pulsarcast.simulation.run import Run
from pulsarcast.simulation.scenario_tree import begin_settled, publish

SETTLE_S = 5.0
PUBLISHERS = 4
EVENT_GAP_S = 0.25
SETTLE_S_MAX = 60.0
"""How long the last event is waited for, and for members that move just then."""
PAGE_BYTES = 4096


@few_collections()
def measure(nodes: int, events: int, idle_s: float, seed: int = 1) -> dict[str, Any]:
    """Make one world, leave it alone, and let its members publish."""
    before_bytes = rss_bytes()
    began_s = process_time()
    options = msgspec.structs.replace(
        load("tree"), nodes=nodes, subscribers=nodes, events=events, seed=seed, settled=True
    )
    run = Run(options)
    world, rng = run.world, run.world.stream("workload")
    # Nothing of a world that is being made is garbage.
    gc.disable()
    run.fleet.add_down(nodes)
    members = rng.sample(range(nodes), nodes)
    topic = begin_settled(run, rng.randrange(nodes), members)
    assert topic is not None, "nothing stands in the way"
    gc.freeze()
    gc.enable()
    made_s, made_bytes = process_time() - began_s, rss_bytes()
    figures: dict[str, Any] = {
        "nodes": nodes,
        "made_cpu_ms_node": round(1e3 * made_s / nodes, 2),
        "made_kb_node": round((made_bytes - before_bytes) / nodes / 1e3, 1),
    }
    tell(figures)
    world.run(world.now + SETTLE_S)

    before, began_s = snapshot(run), process_time()
    world.run(world.now + idle_s)
    idle_cpu_s = process_time() - began_s
    sent, sent_bytes = since(snapshot(run), before)
    figures |= {
        "idle_messages_s_node": round(sum(sent.values()) / idle_s / nodes, 3),
        "idle_bytes_s_node": round(sum(sent_bytes.values()) / idle_s / nodes, 1),
        "idle_by_kind_s_node": {
            kind: round(count / idle_s / nodes, 4) for kind, count in largest(sent)
        },
        "idle_cpu_us_s_node": round(1e6 * idle_cpu_s / idle_s / nodes, 1),
    }
    tell(figures)

    began_s, now_s = process_time(), world.now
    publish(run, topic, members[:PUBLISHERS], events, EVENT_GAP_S)
    world.run_until(run.is_settled, world.now + SETTLE_S_MAX)
    upkeep_cpu_s = idle_cpu_s / idle_s * (world.now - now_s)
    deliveries = run.observer.deliveries
    events_cpu_s = process_time() - began_s - upkeep_cpu_s
    run.expected_due = events * nodes
    result = run.result()
    gc.unfreeze()
    return {
        **figures,
        "events": events,
        "deliveries": deliveries,
        "due": result.due,
        "messages_per_delivery": result.messages_per_delivery,
        "hops_mean": result.hops_mean,
        "hops_max": result.hops_max,
        "latency_p50_s": result.latency_p50_s,
        "latency_p99_s": result.latency_p99_s,
        "latency_max_s": round(run.observer.latency_s(1.0), 3),
        "cpu_us_delivery": round(1e6 * events_cpu_s / max(1, deliveries), 1),
        "findings": result.findings,
        "end_kb_node": round((rss_bytes() - before_bytes) / nodes / 1e3, 1),
        "sim_s": round(world.now, 1),
        "cpu_s": round(result.cpu_s, 1),
        "wall_s": round(result.wall_s, 1),
        "peak_mb": result.rss_mb,
    }


def snapshot(run: Run) -> tuple[dict[str, int], dict[str, int]]:
    """What was sent so far: messages and bytes, by kind."""
    return dict(run.world.messages), dict(run.world.bytes)


def since(
    now: tuple[dict[str, int], dict[str, int]], before: tuple[dict[str, int], dict[str, int]]
) -> list[dict[str, int]]:
    """What was sent since."""
    return [
        {kind: count - then.get(kind, 0) for kind, count in counts.items()}
        for counts, then in zip(now, before, strict=True)
    ]


def largest(sent: Mapping[str, int]) -> list[tuple[str, int]]:
    """The kinds that are sent most."""
    return sorted(sent.items(), key=lambda each: -each[1])[:6]


def rss_bytes() -> int:
    """What this process has in memory now."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES


def tell(figures: Mapping[str, Any]) -> None:
    """Say what is known so far: a large world takes long."""
    print(json.dumps(figures), file=sys.stderr, flush=True)


def main() -> None:
    """Measure each size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--events", type=int, default=20)
    parser.add_argument("--idle-s", type=float, default=60.0)
    chosen = parser.parse_args()
    for nodes in chosen.nodes:
        print(json.dumps(measure(nodes, chosen.events, chosen.idle_s)), flush=True)


if __name__ == "__main__":
    main()
