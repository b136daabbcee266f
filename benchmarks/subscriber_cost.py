"""What a delivery costs: one topic on real nodes, each a process of this machine.

    python benchmarks/subscriber_cost.py [--nodes 5] [--fanout 2] [--seconds 8] [--in-flight 5]
                                         [--rate EVENTS_PER_S] [--batch EVENTS] [--profile FILE]
    python benchmarks/subscriber_cost.py --nodes 10 --fanout 6 --in-flight 30

Real links and disks; payloads of 256 bytes. One node publishes, the others subscribe. Five nodes
with a fan-out of 2 have an inner node, and as many peers as replication asks for; with two nodes
every event costs a search for peers. Without `--rate` the publisher is as fast as the nodes let it
be; with `--batch` it publishes that many events at a time. `--profile` writes the profile of the
subscriber with the most children, in CPU time, which makes that process slower.

Prints a line of JSON per process, the publisher last, and one for all: CPU milliseconds (user and
system), commits, messages and bytes per delivery of that process, and latency from publication to
delivery. Everything is measured from after a warm-up to the last delivery. A publication is
acknowledged from the publisher's disk, and `acknowledged_s` is how long the publisher published.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import trio

from pulsarcast import DeliveryOrder, Node, Publication, Topic, TopicSettings
from pulsarcast.network.collecting import collect_seldom
from pulsarcast.network.insight import Insight
from pulsarcast.protocol.parameters import Parameters

PAYLOAD_BYTES: Final = 256
STAMP: Final = 20
WARM_UP_S: Final = 2.0
QUIET_S: Final = 15.0
"""Subscribers that get nothing for so long have got all that they will get."""
START_S_MAX: Final = 60.0


def main() -> None:
    """Fork the subscribers, publish, print what it cost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--fanout", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--in-flight", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--profile", type=Path)
    given = parser.parse_args()
    collect_seldom()  # As a daemon does.
    fork = multiprocessing.get_context("fork")
    delivered = fork.Array("q", given.nodes - 1, lock=False)
    pipes: list[Connection] = []
    processes = []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for place in range(given.nodes - 1):
            ours, theirs = multiprocessing.Pipe()
            home = Path(folder, f"subscriber-{place}")
            listen = partial(_listen, home, given.fanout, place, delivered, theirs)
            processes.append(fork.Process(target=trio.run, args=(listen,), daemon=True))
            pipes.append(ours)
            processes[-1].start()
        try:
            for line in trio.run(_conduct, given, Path(folder, "publisher"), pipes, delivered):
                print(json.dumps(line))
        finally:
            for process in processes:
                process.join(0.5)
                process.kill()


class Meter:
    """What a process used between two looks at it."""

    def __init__(self, node: Node) -> None:
        self._insight = Insight(node)
        self._before = self._now()

    def _now(self) -> dict[str, float]:
        used, counted = resource.getrusage(resource.RUSAGE_SELF), self._insight.counters
        return {
            "cpu_ms": 1000 * (used.ru_utime + used.ru_stime),
            "waits": used.ru_nvcsw,
            "commits": counted.commits,
            "messages_out": counted.messages_out,
            "messages_in": counted.messages_in,
            "bytes_out": counted.bytes_out,
        }

    def read(self) -> dict[str, float]:
        """What was used since the last time."""
        before, self._before = self._before, self._now()
        return {name: now - before[name] for name, now in self._before.items()}


async def _listen(home: Path, fanout: int, place: int, delivered: Any, pipe: Connection) -> None:
    """Take what comes, and answer the conductor."""
    latencies: list[float] = []
    profile: cProfile.Profile | None = None

    async def take() -> None:
        async for event in events:
            delivered[place] += 1
            latencies.append(time.time() - float(event.payload[:STAMP]))

    bootstrap, topic = await trio.to_thread.run_sync(pipe.recv)
    async with Node.open(home, bootstrap=bootstrap, parameters=_parameters(fanout)) as node:
        events = await node.subscribe(topic)
        meter = Meter(node)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            pipe.send("ready")
            while (asked := await trio.to_thread.run_sync(pipe.recv)) != "end":
                if isinstance(asked, Path) and profile is not None:
                    profile.disable()
                    profile.dump_stats(asked)
                    pipe.send(None)
                elif asked == "children":
                    pipe.send(_children(node, topic))
                else:
                    pipe.send((meter.read(), latencies.copy()))
                    latencies.clear()
                    if asked == "profile":
                        profile = cProfile.Profile(time.thread_time)
                        profile.enable()
            nursery.cancel_scope.cancel()


async def _conduct(
    given: argparse.Namespace, home: Path, pipes: Sequence[Connection], delivered: Sequence[int]
) -> list[dict[str, Any]]:
    """Publish twice, and measure the second time."""
    async with Node.open(home, parameters=_parameters(given.fanout)) as node:
        topic = await node.create_topic("load", TopicSettings(order=DeliveryOrder.NONE))
        for pipe in pipes:  # One after another: joins that race exceed the fan-out.
            await _ask([pipe], (node.addresses, topic.id))
        so_far = await _publish(node, topic, given, WARM_UP_S)
        await _wait_for(so_far, delivered)
        children = await _ask(pipes, "children")
        busiest = children.index(max(children))
        for place, pipe in enumerate(pipes):
            profiled = given.profile is not None and place == busiest
            await _ask([pipe], "profile" if profiled else "measure")
        meter, got_before, began_s = Meter(node), sum(delivered), time.monotonic()
        published = await _publish(node, topic, given, given.seconds)
        published_s = time.monotonic() - began_s
        await _wait_for(so_far + published, delivered)
        lines, late = [], []
        for place, (used, latencies) in enumerate(await _ask(pipes, "measure")):
            role = {"node": place, "children": children[place], "events": len(latencies)}
            lines.append({**role, **_per_event(used, len(latencies)), **_quantiles(latencies)})
            late += latencies
        used = meter.read()
        role = {"node": "publisher", "children": _children(node, topic.id), "events": published}
        lines.append({**role, **_per_event(used, published)})
        if given.profile is not None:
            await _ask([pipes[busiest]], given.profile)
        for pipe in pipes:
            pipe.send("end")
    got = sum(delivered) - got_before
    cpu_ms = sum(line["cpu_ms"] * line["events"] for line in lines)
    asked = {name: vars(given)[name] for name in ("nodes", "fanout", "in_flight", "rate", "batch")}
    everything = {
        **asked,
        "delivered_of_due": f"{got} of {published * len(pipes)}",
        "acknowledged_s": round(published_s, 2),
        "published_per_s": round(published / published_s, 1),
        "cpu_ms_per_delivery": round(cpu_ms / max(1, got), 3),
        **_quantiles(late),
    }
    return [*lines, everything]


async def _publish(node: Node, topic: Topic, given: argparse.Namespace, seconds: float) -> int:
    """Publish for so long, and say how much it was."""
    began_s = time.monotonic()
    padding = os.urandom(PAYLOAD_BYTES - STAMP)
    count = 0

    async def some() -> None:
        nonlocal count
        while time.monotonic() < began_s + seconds:
            count += given.batch
            if given.rate:
                await trio.sleep(max(0.0, began_s + count / given.rate - time.monotonic()))
            payload = f"{time.time():0{STAMP}.7f}".encode() + padding
            if given.batch == 1:
                await node.publish(topic, payload, ack="accepted")
            else:
                some = [Publication(payload=payload)] * given.batch
                await node.publish_many(topic, some, ack="accepted")

    async with trio.open_nursery() as nursery:
        for _ in range(given.in_flight):
            nursery.start_soon(some)
    return count


async def _wait_for(count: int, delivered: Sequence[int]) -> None:
    """Wait until every subscriber was given so many, or no more come."""
    last, since_s = sum(delivered), time.monotonic()
    while min(delivered) < count and time.monotonic() - since_s < QUIET_S:
        await trio.sleep(0.02)
        if sum(delivered) != last:
            last, since_s = sum(delivered), time.monotonic()


async def _ask(pipes: Sequence[Connection], question: object) -> list[Any]:
    """What each of some subscribers answers."""
    for pipe in pipes:
        pipe.send(question)
    with trio.fail_after(START_S_MAX):
        return [await trio.to_thread.run_sync(pipe.recv) for pipe in pipes]


def _parameters(fanout: int) -> Parameters:
    return Parameters(fanout=fanout)


def _children(node: Node, topic: str) -> int:
    """How many nodes a node hands its events down to."""
    return sum(len(each.children) for each in node.topics() if each.id == topic)


def _per_event(used: dict[str, float], events: int) -> dict[str, float]:
    return {name: round(value / max(1, events), 3) for name, value in used.items()}


def _quantiles(latencies: list[float]) -> dict[str, float]:
    ordered = sorted(latencies) or [0.0]
    return {
        "p50_ms": round(1000 * ordered[len(ordered) // 2], 1),
        "p99_ms": round(1000 * ordered[int(len(ordered) * 0.99)], 1),
    }


if __name__ == "__main__":
    main()
