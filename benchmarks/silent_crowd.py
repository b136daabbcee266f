"""What the others notice when a large part of a topic's members falls silent at once.

    python -m benchmarks.silent_crowd [--members 400] [--part 0.333] [--killed] [--seconds 60]

One tree in the simulator, every link 50 ms. Some members are paused, as SIGSTOP or a machine that
is put to sleep does it: their connections stand, and nobody is told. Or they are killed, which
their neighbours hear of. The root goes on. Others publish, before and after. Prints, for events
published afterwards, how late the members that are left have them, and what it took in messages.
One line of JSON.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from random import Random
from typing import Any

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import TopicSettings
from pulsarcast.protocol.inputs import CreateTopic, Now, Publish, Subscribe
from pulsarcast.simulation.links import Constant
from pulsarcast.simulation.world import World

LATENCY_S = 0.05
JOIN_S = 20.0
PUBLISH_EVERY_S = 0.5
SETTLE_S = 60.0
"""How long what was published last is waited for."""


class _Deliveries:
    """When each member delivered each event."""

    def __init__(self) -> None:
        self.at: dict[Cid, dict[int, float]] = {}

    def record(
        self, time_s: float, index: int, _incarnation: int, _now: Now, record: trace.Record
    ) -> None:
        """Take one record of one node."""
        if isinstance(record, trace.Delivered):
            self.at.setdefault(record.event, {}).setdefault(index, time_s)


def measure(
    members: int, part: float, *, killed: bool = False, seconds: float = 60.0, seed: int = 1
) -> dict[str, Any]:
    """Let a part of the members fall silent; what the others saw of it."""
    rng = Random(seed)
    deliveries = _Deliveries()
    world = World(seed, links=Constant(LATENCY_S), observer=deliveries)
    for index in range(members):
        world.add_node(contacts=rng.sample(range(index), min(index, 3)))
        world.run(world.now + 0.02)
    world.run(world.now + 30)
    topics: list[Cid | None] = []
    world.command(
        0,
        lambda call: CreateTopic(call, "crowd", TopicSettings()),
        lambda reply: topics.append(reply.cid),
    )
    world.run_until(lambda: bool(topics), world.now + 60)
    topic = topics[0]
    assert topic is not None
    joined: list[int] = []

    def join(member: int) -> None:
        world.command(member, lambda call: Subscribe(call, topic), lambda _: joined.append(member))

    for member in range(1, members):
        world.after(JOIN_S * rng.random(), partial(join, member))
    assert world.run_until(lambda: len(joined) == members - 1, world.now + 300)
    world.run(world.now + 20)

    silent = set(rng.sample(range(1, members), round(part * members)))
    others = [index for index in range(1, members) if index not in silent]
    published: list[tuple[Cid, float]] = []

    def publish() -> None:
        began_s = world.now
        world.command(
            rng.choice(others),
            lambda call: Publish(call, topic, b"x" * 200),
            lambda reply: published.append((reply.cid, began_s)) if reply.cid else None,
        )

    for index in silent:
        world.kill(index) if killed else world.pause(index)
    before = dict(world.messages)
    range_events = world.range_events
    count = round(seconds / PUBLISH_EVERY_S)
    for number in range(count):
        world.after(number * PUBLISH_EVERY_S, publish)
    world.run(world.now + seconds + SETTLE_S)
    late: list[float] = []
    missing = 0
    for cid, began_s in published:
        got = deliveries.at.get(cid, {})
        missing += sum(index not in got for index in others)
        late += [got[index] - began_s for index in others if index in got]
    late.sort()
    sent = {kind: n - before.get(kind, 0) for kind, n in world.messages.items()}
    live = sent.get("EventMessage", 0) + world.range_events - range_events
    for index in () if killed else silent:
        world.resume(index)
    world.run(world.now + 30)
    everybody = others if killed else range(1, members)
    missing_later = sum(
        index not in deliveries.at.get(cid, {}) for cid, _ in published for index in everybody
    )
    return {
        "members": members,
        "silent": len(silent),
        "killed": killed,
        "unanswered": count - len(published),
        "missing": missing,
        "missing_later": missing_later,
        "p50_s": round(late[len(late) // 2], 2),
        "p99_s": round(late[len(late) * 99 // 100], 2),
        "max_s": round(late[-1], 2),
        "events_per_delivery": round(live / max(len(late), 1), 3),
        "alive_per_member_s": round(sent.get("Alive", 0) / (seconds + SETTLE_S) / len(others), 2),
    }


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--members", type=int, default=400)
    parser.add_argument("--part", type=float, default=1 / 3)
    parser.add_argument("--killed", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(
        json.dumps(
            measure(
                given.members,
                given.part,
                killed=given.killed,
                seconds=given.seconds,
                seed=given.seed,
            )
        )
    )


if __name__ == "__main__":
    main()
