"""A crowd: many nodes join one topic within a second.

    python -m benchmarks.crowd [--nodes 1000 10000] [--free]
    python -m benchmarks.crowd --real 200

Simulated: a settled network (`World.add_settled`), every link 50 ms. Each node has a core of its
own, on which an input takes as long as it does on a real node; `--free`: inputs take no time. Real:
a process for each node, on loopback; they share the cores of this machine. One node creates the
topic, and all others subscribe at times drawn from one second.

One line of JSON for each size: how long a subscription took, messages for each join, and the share
of all joins, and of all messages, that came to the node that got most of them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Final

import trio

from pulsarcast import Node
from pulsarcast.model.topics import TopicSettings
from pulsarcast.network.insight import Insight
from pulsarcast.protocol.effects import Effect, Reply, Send
from pulsarcast.protocol.inputs import CreateTopic, Input, Now, Subscribe
from pulsarcast.protocol.messages import FindBlock, Join
from pulsarcast.simulation.hardware.costs import MEASURED, read_costs
from pulsarcast.simulation.hardware.machines import Hardware
from pulsarcast.simulation.links import Constant
from pulsarcast.simulation.loop import few_collections
from pulsarcast.simulation.world import World

LATENCY_S: Final = 0.05
WITHIN_S: Final = 1.0
SETTLED_S: Final = 30.0
JOINED_S_MAX: Final = 300.0
FORKING = multiprocessing.get_context("forkserver")
"""Processes that share what they import: 200 of them fit into the same machine."""


class _Counts:
    """What was said in a world, by kind and by receiver."""

    def __init__(self) -> None:
        self.messages = 0
        self.joins = Counter[bytes]()
        self.lookups = Counter[bytes]()

    def clear(self) -> None:
        """Begin anew."""
        self.messages = 0
        self.joins.clear()
        self.lookups.clear()

    def watch(self, core: Any) -> None:
        """Count what a node sends."""
        handle = core.handle

        def counted(given: Input, now: Now) -> list[Effect]:
            effects: list[Effect] = handle(given, now)
            for effect in effects:
                if isinstance(effect, Send):
                    self.messages += 1
                    if isinstance(effect.message, Join):
                        self.joins[effect.peer] += 1
                    elif isinstance(effect.message, FindBlock):
                        self.lookups[effect.peer] += 1
            return effects

        core.handle = counted


@few_collections()
def simulated(nodes: int, *, free: bool, seed: int = 1) -> dict[str, Any]:
    """Let all nodes of a settled network but one join a topic."""
    began_s = time.process_time()
    counts = _Counts()
    hardware = Hardware() if free else Hardware(read_costs(MEASURED))
    links = Constant(LATENCY_S)
    world = World(seed, links=links, hardware=hardware, prepare=counts.watch)
    world.add_settled(nodes)
    world.run(world.now + SETTLED_S)
    rng = Random(seed)
    author = rng.randrange(nodes)
    made: list[Reply] = []
    world.command(author, lambda call: CreateTopic(call, "crowd", TopicSettings()), made.append)
    assert world.run_until(lambda: bool(made), world.now + 60.0, 0.1)
    topic = made[0].cid
    assert topic is not None, made[0].refusal
    world.run(world.now + SETTLED_S)
    counts.clear()
    took_s: list[float] = []

    def subscribe(index: int) -> None:
        began = world.now

        def answered(reply: Reply) -> None:
            assert reply.refusal is None, reply.refusal
            took_s.append(world.now - began)

        world.command(index, lambda call: Subscribe(call, topic), answered)

    for index in range(nodes):
        if index != author:
            world.after(WITHIN_S * rng.random(), partial(subscribe, index))
    joiners = nodes - 1
    assert world.run_until(lambda: len(took_s) == joiners, world.now + JOINED_S_MAX, 0.5), (
        f"{len(took_s)} of {joiners} joined"
    )
    views = [world.node(index).topics[topic].view() for index in range(nodes)]
    return {
        "simulated": nodes,
        "costs": not free,
        **_times(took_s),
        "roots": sum(view.root for view in views),
        "messages_per_join": round(counts.messages / joiners, 1),
        "busiest_share_of_joins": round(max(counts.joins.values()) / joiners, 4),
        "busiest_share_of_lookups": round(max(counts.lookups.values()) / joiners, 4),
        "author_share_of_joins": round(counts.joins[world.peer(author)] / joiners, 4),
        "cpu_s": round(time.process_time() - began_s, 1),
    }


def _times(took_s: Sequence[float]) -> dict[str, float]:
    ordered = sorted(took_s)
    at = {"join_p50_s": 0.5, "join_p99_s": 0.99}
    found = {name: ordered[int(part * (len(ordered) - 1))] for name, part in at.items()}
    return {name: round(each, 3) for name, each in {**found, "join_max_s": ordered[-1]}.items()}


# Real nodes.


def real(nodes: int, seed: int = 1) -> dict[str, Any]:
    """The same with a process for each node."""
    FORKING.set_forkserver_preload(["pulsarcast.network.insight", "pulsarcast.network.node"])
    rng = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        pipes: list[Connection] = []
        processes = []
        for index in range(nodes):
            ours, theirs = FORKING.Pipe()
            home = Path(folder, str(index))
            processes.append(FORKING.Process(target=_one, args=(home, theirs), daemon=True))
            pipes.append(ours)
        try:
            addresses: list[str] = []
            for process, pipe in zip(processes, pipes, strict=True):
                process.start()
                pipe.send(rng.sample(addresses, min(3, len(addresses))))
                addresses.append(_hear(pipe))
            time.sleep(SETTLED_S)
            author, *joiners = pipes
            author.send("create")
            topic = _hear(author)
            time.sleep(1.0)
            begin_s = time.monotonic() + 2.0
            for pipe in joiners:
                pipe.send((topic, begin_s + WITHIN_S * rng.random()))
            took_s = [_hear(pipe) for pipe in joiners]
            author.send("count")
            heard = [_hear(author)]
            for pipe in joiners:
                pipe.send("count")
                heard.append(_hear(pipe))
        finally:
            for process in processes:
                if process.pid is not None:
                    process.kill()
                    process.join()
    return {
        "real": nodes,
        **_times(took_s),
        "messages_per_join": round(sum(heard) / len(joiners), 1),
        "busiest_share_of_messages": round(max(heard) / sum(heard), 4),
        "author_share_of_messages": round(heard[0] / sum(heard), 4),
    }


def _hear(pipe: Connection) -> Any:
    if not pipe.poll(JOINED_S_MAX):
        raise TimeoutError("a node says nothing")
    return pipe.recv()


def _one(home: Path, pipe: Connection) -> None:
    trio.run(_live, home, pipe)


async def _live(home: Path, pipe: Connection) -> None:
    bootstrap = pipe.recv()
    async with Node.open(home, bootstrap=bootstrap) as node:
        pipe.send(node.addresses[0])
        before = 0
        while True:
            match await trio.to_thread.run_sync(pipe.recv):
                case "create":
                    topic = await node.create_topic("crowd")
                    before = Insight(node).counters.messages_in
                    pipe.send(topic.id)
                case (str(topic_id), float(at_s)):
                    before = Insight(node).counters.messages_in
                    await trio.sleep(max(0.0, at_s - time.monotonic()))
                    began_s = time.monotonic()
                    await node.subscribe(topic_id)
                    pipe.send(time.monotonic() - began_s)
                case _:
                    pipe.send(Insight(node).counters.messages_in - before)


def main() -> None:
    """Measure each size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--free", action="store_true")
    parser.add_argument("--real", type=int)
    chosen = parser.parse_args()
    if chosen.real:
        print(json.dumps(real(chosen.real)), flush=True)
        return
    for nodes in chosen.nodes:
        print(json.dumps(simulated(nodes, free=chosen.free)), flush=True)


if __name__ == "__main__":
    main()
