"""What a delivery costs a subscriber that is alone with a publisher: two processes in all.

    python benchmarks/subscriber_cost.py [--events 3000] [--in-flight 5]

Real nodes, links and disks; payloads of 256 bytes. The first 500 events are warm-up. Prints one
line of JSON: the subscriber's CPU time, its commits, and how often it waited, per event.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import trio

from pulsarcast import DeliveryOrder, Node, TopicSettings
from pulsarcast.network.insight import Insight

WARM_UP = 500


def main() -> None:
    """Fork a subscriber, publish, print what it says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=3000)
    parser.add_argument("--in-flight", type=int, default=5)
    given = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        process = multiprocessing.get_context("fork").Process(
            target=lambda: trio.run(listen, Path(folder, "subscriber"), given.events, theirs)
        )
        process.start()
        try:
            trio.run(publish, Path(folder, "publisher"), given.events, given.in_flight, ours)
            print(json.dumps({"in_flight": given.in_flight, **ours.recv()}))
        finally:
            process.join(10)
            process.kill()


async def publish(home: Path, count: int, in_flight: int, pipe: Connection) -> None:
    """Publish everything, then wait for the other side."""
    async with Node.open(home) as node:
        topic = await node.create_topic("load", TopicSettings(order=DeliveryOrder.NONE))
        pipe.send((node.addresses, topic.id))
        await trio.to_thread.run_sync(pipe.recv)

        async def some() -> None:
            for _ in range(count // in_flight):
                await node.publish(topic, os.urandom(256), ack="accepted")

        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(some)
        with trio.move_on_after(60):
            while not pipe.poll():
                await trio.sleep(0.1)


async def listen(home: Path, count: int, pipe: Connection) -> None:
    """Take everything, and measure ourselves meanwhile."""
    bootstrap, topic = pipe.recv()
    async with Node.open(home, bootstrap=bootstrap) as node:
        events = await node.subscribe(topic)
        pipe.send("ready")
        for _ in range(WARM_UP):
            await anext(events)
        insight = Insight(node)
        before, commits = resource.getrusage(resource.RUSAGE_SELF), insight.counters.commits
        for _ in range(count - WARM_UP):
            await anext(events)
        after = resource.getrusage(resource.RUSAGE_SELF)
        measured = count - WARM_UP
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        pipe.send(
            {
                "cpu_ms_per_delivery": round(1000 * cpu_s / measured, 3),
                "commits_per_delivery": round((insight.counters.commits - commits) / measured, 2),
                "waits_per_delivery": round((after.ru_nvcsw - before.ru_nvcsw) / measured, 2),
            }
        )


if __name__ == "__main__":
    main()
