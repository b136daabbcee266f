"""What a node sends while nothing happens, by the number of topics that it is a member of.

    python -m benchmarks.many_topics [--topics 10 100 1000 3000] [--nodes 1000] [--seconds 600]

A settled network (`World.add_settled`). One node is a member of all topics; the sizes of these
follow Zipf's law, and their other members are drawn from all nodes. All join, with messages that
take no time. Then links take 50 ms, and time passes until the topics have fallen asleep. Prints,
for each number of topics, what the node then sends and receives in a second by kind, its
neighbours, and the CPU that its core takes. One line of JSON each.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from functools import partial
from random import Random
from time import process_time
from typing import Any

from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import TopicSettings
from pulsarcast.protocol.effects import Effect, Reply, Send
from pulsarcast.protocol.inputs import CreateTopic, Input, MessageReceived, Now, Subscribe
from pulsarcast.simulation.links import Constant
from pulsarcast.simulation.world import World

LATENCY_S = 0.05
AT_ONCE = 100
"""Topics that are made together."""
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
    world.add_settled(nodes)
    member = nodes - 1
    members = topics
    with world.instantly():
        for first in range(0, topics, AT_ONCE):
            # The size of the k-th of n topics is n/k, between two members and `SIZE_MAX`.
            sizes = [topics // (first + number + 1) for number in range(AT_ONCE)][: topics - first]
            people = [
                rng.sample(range(member), min(max(2, size), SIZE_MAX, nodes - 1) - 1)
                for size in sizes
            ]
            made: dict[int, Cid] = {}
            for number, (author, *_) in enumerate(people):
                world.command(
                    author,
                    partial(CreateTopic, name=f"{first + number}", settings=TopicSettings()),
                    partial(_note, made, number),
                )
            assert world.run_until(lambda: len(made) == len(people), world.now + 60, 0.05)  # noqa: B023
            joined: list[Reply] = []
            for number, (_, *others) in enumerate(people):
                for index in (*others, member):
                    world.command(index, partial(Subscribe, topic=made[number]), joined.append)
            joiners = sum(map(len, people))
            assert world.run_until(lambda: len(joined) == joiners, world.now + 60, 0.05)  # noqa: B023
            members += joiners
    world.run(world.now + SETTLED_S)
    tap = taps[member]
    tap.clear()
    world.run(world.now + seconds)
    sent, heard = sum(tap.sent.values()), sum(tap.heard.values())
    return {
        "topics": topics,
        "members": members,
        "sent_s": round(sent / seconds, 2),
        "heard_s": round(heard / seconds, 2),
        "neighbours": len(tap.peers),
        "sent_s_per_neighbour": round(sent / seconds / max(1, len(tap.peers)), 3),
        "core_cpu_ms_s": round(1e3 * tap.cpu_s / seconds, 3),
        "awake": len(world.node(member).quiet.awake),
        "by_kind_s": {kind: round(n / seconds, 2) for kind, n in tap.sent.most_common(5)},
    }


def _note(made: dict[int, Cid], number: int, reply: Reply) -> None:
    assert reply.cid is not None, reply.refusal
    made[number] = reply.cid


def main() -> None:
    """Measure each number of topics."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, nargs="+", default=[10, 100, 1_000, 3_000])
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=600.0)
    chosen = parser.parse_args()
    for topics in chosen.topics:
        print(json.dumps(measure(topics, chosen.nodes, chosen.seconds)), flush=True)


if __name__ == "__main__":
    main()
