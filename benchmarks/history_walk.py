"""The history up to an event, rebuilt by a node that has nothing but its content id.

    python benchmarks/history_walk.py [--events 10000] [--publishers 1] [--case whole] [--nodes 12]

Real nodes on loopback, half of them in a process of their own. Four follow the topic. A node that
follows nothing then joins and calls `rebuild`. Cases:

    whole            all nodes are alive, and keep everything
    half-gone        the second process is killed before: half of all nodes, members and replicas
    retention        the topic keeps half of the events, and replicas have expired
    retention-dht    the topic keeps half of the events, and replicas still have the others

Prints one line of JSON: events, whether they are in order and verified, gaps by their reason,
seconds, messages and bytes of the reader, and the CPU seconds of its process, which
is that of the first half of the nodes, too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import trio

from pulsarcast import LocalError, Node, Parameters, Publication, Retention, TopicSettings
from pulsarcast.network.insight import Insight

BATCH = 500
EXPIRY_S = 30.0
"""How long replicas keep an event where they are to lose it."""
FOLLOWERS = 2
"""Members in each process."""


def main() -> None:
    """Publish, take away what the case takes away, rebuild, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--publishers", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=12)
    cases = ("whole", "half-gone", "retention", "retention-dht")
    parser.add_argument("--case", choices=cases, default="whole")
    given = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        half = given.nodes // 2
        process = multiprocessing.get_context("fork").Process(
            target=lambda: trio.run(stand_by, Path(folder, "there"), half, given.case, theirs)
        )
        process.start()
        try:
            print(json.dumps(trio.run(play, Path(folder, "here"), half, given, ours)))
        finally:
            process.kill()
            process.join(10)


def parameters(case: str) -> Parameters:
    """Short intervals where something is to expire while the script waits."""
    if case == "retention":
        return Parameters(retention_interval_s=5.0, block_expiry_s=EXPIRY_S, repair_interval_s=5.0)
    return Parameters(retention_interval_s=5.0)


async def open_nodes(
    stack: AsyncExitStack, folder: Path, count: int, case: str, bootstrap: Iterable[str]
) -> list[Node]:
    """Nodes that know each other by the first."""
    nodes: list[Node] = []
    known = tuple(bootstrap)
    for place in range(count):
        opening = Node.open(folder / f"{place}", bootstrap=known, parameters=parameters(case))
        nodes.append(await stack.enter_async_context(opening))
        known = known or tuple(nodes[0].addresses)
    return nodes


async def stand_by(folder: Path, count: int, case: str, pipe: Connection) -> None:
    """The second process: nodes that keep replicas, some of them members."""
    bootstrap, topic = await trio.to_thread.run_sync(pipe.recv)
    async with AsyncExitStack() as stack:
        nodes = await open_nodes(stack, folder, count, case, bootstrap)
        for node in nodes[:FOLLOWERS]:
            await node.follow(topic)
        pipe.send("ready")
        await trio.sleep_forever()


async def play(
    folder: Path, count: int, given: argparse.Namespace, pipe: Connection
) -> dict[str, object]:
    """The first process: the author, the publishers, and the reader at the end."""
    keeps_half = given.case.startswith("retention")
    settings = TopicSettings(
        retention=Retention(count=given.events // 2) if keeps_half else Retention(),
        open=True,
    )
    async with AsyncExitStack() as stack:
        nodes = await open_nodes(stack, folder, count, given.case, ())
        author = nodes[0]
        topic = await author.create_topic("history", settings)
        for node in nodes[: max(given.publishers, FOLLOWERS + 1)]:
            await node.follow(topic)
        pipe.send((author.addresses, topic.id))
        await trio.to_thread.run_sync(pipe.recv)
        last = await publish(nodes[: given.publishers], topic.id, given.events)
        if given.case == "retention":
            await trio.sleep(EXPIRY_S + 15.0)
            last = await publish(nodes[:1], topic.id, 1)
        elif keeps_half:
            await trio.sleep(15.0)
        if given.case == "half-gone":
            (child,) = multiprocessing.active_children()
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
            await trio.sleep(1.0)
        return await rebuild(folder / "reader", nodes[count - 1].addresses, last, given)


async def publish(nodes: list[Node], topic: str, count: int) -> str:
    """Publish in turn, some hundred at a time; the id of the last event."""
    last = ""
    for first in range(0, count, BATCH):
        some = range(first, min(first + BATCH, count))
        events = [Publication(payload=b"event %d" % number) for number in some]
        node = nodes[first // BATCH % len(nodes)]
        for result in await node.publish_many(topic, events):
            assert not isinstance(result, LocalError), result
            last = result.id
    return last


async def rebuild(
    home: Path, bootstrap: Iterable[str], event: str, given: argparse.Namespace
) -> dict[str, object]:
    """Join, rebuild, and say what it took."""
    async with Node.open(home, bootstrap=bootstrap, parameters=parameters(given.case)) as reader:
        insight = Insight(reader)
        before, began_s, cpu_s = insight.counters, time.monotonic(), time.process_time()
        messages = before.messages_in + before.messages_out
        size = before.bytes_in + before.bytes_out
        found = await reader.rebuild(event, limit=given.events)
        took_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
        after = insight.counters
        place = {each.id: at for at, each in enumerate(found.events)}
        in_order = all(
            place.get(parent, -1) < place[each.id]
            for each in found.events
            for parent in each.parents
        )
        gaps: Counter[str] = Counter()
        for gap in found.gaps:
            # A parent that is missing is named by its id, too.
            gaps[gap.reason] += gap.count if gap.last else 0
        return {
            "case": given.case,
            "publishers": given.publishers,
            "events": len(found.events),
            "in_order": in_order,
            "missing": dict(gaps),
            "whole": not found.cursor,
            "seconds": round(took_s, 2),
            "cpu_seconds": round(cpu_s, 2),
            "messages": after.messages_in + after.messages_out - messages,
            "bytes": after.bytes_in + after.bytes_out - size,
        }


if __name__ == "__main__":
    main()
