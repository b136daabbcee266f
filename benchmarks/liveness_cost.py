"""What it costs a node to know that its idle neighbours live.

    python benchmarks/liveness_cost.py [--neighbours 100] [--seconds 30] [--without]

One real node is the parent of all others in one topic, over real links; the others share a second
process. Nothing is published. Prints the share of a core that the parent's process takes, and the
messages that it sends and receives per second and neighbour, as one line of JSON. `--without`:
nobody is asked for signs of life, so that the difference is their cost.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import trio

from pulsarcast import Node
from pulsarcast.network.insight import Insight
from pulsarcast.protocol import liveness
from pulsarcast.protocol.parameters import Parameters

SETTLE_S: Final = 40.0
"""Until first heartbeats are over."""


async def _surround(folder: Path, count: int, parameters: Parameters, pipe: Connection) -> None:
    """Be the neighbours."""
    bootstrap, topic = await trio.to_thread.run_sync(pipe.recv)
    async with AsyncExitStack() as stack:
        for number in range(count):
            node = await stack.enter_async_context(
                Node.open(folder / f"n{number}", bootstrap=bootstrap, parameters=parameters)
            )
            await node.subscribe(topic)
        pipe.send("ready")
        await trio.to_thread.run_sync(pipe.recv)


async def _measure(
    folder: Path, given: argparse.Namespace, parameters: Parameters, pipe: Connection
) -> dict[str, Any]:
    async with Node.open(folder / "parent", parameters=parameters) as node:
        topic = await node.create_topic("idle")
        pipe.send((node.addresses, topic.id))
        await trio.to_thread.run_sync(pipe.recv)
        await trio.sleep(SETTLE_S)
        counted = Insight(node).counters
        before = _cpu_s(), counted.messages_out, counted.messages_in
        await trio.sleep(given.seconds)
        counted = Insight(node).counters
        cpu_s = _cpu_s() - before[0]
        each = given.seconds * given.neighbours
        result = {
            "neighbours": given.neighbours,
            "connections": len(node.peers()),
            "without": given.without,
            "core_share": round(cpu_s / given.seconds, 4),
            "messages_out": round((counted.messages_out - before[1]) / each, 3),
            "messages_in": round((counted.messages_in - before[2]) / each, 3),
        }
        pipe.send("end")
        return result


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Fork the neighbours, and measure the parent."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--neighbours", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--without", action="store_true")
    given = parser.parse_args()
    if given.without:
        vars(liveness)["BEAT_S"] = 1e9
    parameters = Parameters(fanout=given.neighbours)
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        surround = partial(_surround, folder, given.neighbours, parameters, theirs)
        others = multiprocessing.get_context("fork").Process(
            target=trio.run, args=(surround,), daemon=True
        )
        others.start()
        try:
            print(json.dumps(trio.run(_measure, folder, given, parameters, ours)))
        finally:
            others.join(10.0)
            others.kill()


if __name__ == "__main__":
    main()
