"""What a node sends while nothing happens, by the number of topics that it is a member of.

    python -m benchmarks.many_topics [--topics 10 100 1000 3000] [--nodes 300] [--seconds 600]

Simulated nodes, every link 50 ms. One node is a member of all topics; the sizes of these follow
Zipf's law, and their other members are drawn from all nodes. All join, and time passes until the
topics have fallen asleep. Prints, for each number of topics, what the node then sends and receives
in a second by kind, its neighbours, and the CPU that its core takes. One line of JSON each.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from random import Random
from time import process_time
from typing import Any

from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import TopicSettings
from pulsarcast.protocol.effects import Effect, Send
from pulsarcast.protocol.inputs import CreateTopic, Input, MessageReceived, Now, Subscribe
from pulsarcast.simulation.links import Constant
from pulsarcast.simulation.world import World

LATENCY_S = 0.05
JOIN_GAP_S = 0.02
SETTLED_S = 400.0
"""Heartbeats of 20, 40 and 60 s, and the first turns."""
SIZE_MAX = 64
"""Bounds the members of a topic: more cost its members, and not the node."""


class _Tap:
    """What one node says and hears, and the CPU that it takes."""

    def __init__(self, core: Any) -> None:
        self._handle = core.handle
        core.handle = self.handle
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.sent, self.heard = Counter[str](), Counter[str]()
        self.peers = set[bytes]()
        self.cpu_s = 0.0

    def handle(self, given: Input, now: Now) -> list[Effect]:
        """Take one input."""
        began_s = process_time()
        effects: list[Effect] = self._handle(given, now)
        self.cpu_s += process_time() - began_s
        if isinstance(given, MessageReceived):
            self.heard[type(given.message).__name__] += 1
        for effect in effects:
            if isinstance(effect, Send):
                self.sent[type(effect.message).__name__] += 1
                self.peers.add(effect.peer)
        return effects


def measure(topics: int, nodes: int, seconds: float, seed: int = 1) -> dict[str, Any]:
    """Let one node be a member of so many topics, and nothing happen."""
    rng = Random(seed)
    taps: list[_Tap] = []
    world = World(seed, links=Constant(LATENCY_S), prepare=lambda core: taps.append(_Tap(core)))
    for index in range(nodes):
        world.add_node(contacts=rng.sample(range(index), min(index, 3)))
        world.run(world.now + JOIN_GAP_S)
    world.run(world.now + 60)
    member = nodes - 1
    made: list[Cid] = []
    joined: list[None] = []
    members = 0
    for number in range(topics):
        # The size of the k-th of n topics is n/k, between two members and `SIZE_MAX`.
        size = min(max(2, topics // (number + 1)), SIZE_MAX, nodes - 1)
        author, *others = rng.sample(range(member), size - 1)
        name = f"topic {number}"
        world.command(
            author,
            lambda call, name=name: CreateTopic(call, name, TopicSettings()),  # type: ignore[misc]
            lambda reply: made.append(reply.cid),
        )
        assert world.run_until(lambda: len(made) > number, world.now + 60, 0.05)  # noqa: B023
        for index in (*others, member):
            members += 1
            world.command(
                index,
                lambda call: Subscribe(call, made[-1]),
                lambda _: joined.append(None),
            )
            world.run(world.now + JOIN_GAP_S)
        world.run_until(lambda: len(joined) == members, world.now + 60, 0.05)  # noqa: B023
    world.run(world.now + SETTLED_S)
    tap = taps[member]
    tap.clear()
    world.run(world.now + seconds)
    sent, heard = sum(tap.sent.values()), sum(tap.heard.values())
    return {
        "topics": topics,
        "members": members + topics,
        "sent_s": round(sent / seconds, 2),
        "heard_s": round(heard / seconds, 2),
        "neighbours": len(tap.peers),
        "sent_s_per_neighbour": round(sent / seconds / max(1, len(tap.peers)), 3),
        "core_cpu_ms_s": round(1e3 * tap.cpu_s / seconds, 3),
        "awake": len(world.node(member).quiet.awake),
        "by_kind_s": {kind: round(n / seconds, 2) for kind, n in tap.sent.most_common(5)},
    }


def main() -> None:
    """Measure each number of topics."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, nargs="+", default=[10, 100, 1_000, 3_000])
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=600.0)
    chosen = parser.parse_args()
    for topics in chosen.topics:
        print(json.dumps(measure(topics, chosen.nodes, chosen.seconds)), flush=True)


if __name__ == "__main__":
    main()
