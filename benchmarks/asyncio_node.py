"""What a node costs a program: under Trio, inside an asyncio program, and in a daemon beside it.

    python -m benchmarks.asyncio_node [--events 1000] [--openings 9]

Opens a home several times. Then publishes events of 256 bytes one after the other, each with
`ack="accepted"`, to one node alone, and reads them back with one subscription. Prints one line of
JSON for each way; the CPU is that of the program and of its daemon together.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import trio

from benchmarks.daemon_readers import cpu_of
from benchmarks.prometheus_ten import DAEMON
from pulsarcast import Node, asyncio_node
from pulsarcast.client import AsyncClient

PAYLOAD = b"x" * 256
WARM_UP = 50


def main() -> None:
    """Measure each way in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--openings", type=int, default=9)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for way in (under_trio, under_asyncio, beside_a_daemon):
            found = way(Path(folder, way.__name__), given)
            print(json.dumps({"way": way.__name__, **found}), flush=True)


def under_trio(home: Path, given: argparse.Namespace) -> dict[str, float]:
    """A `Node`."""
    return trio.run(measure, lambda: Node.open(home), given, time.process_time)


def under_asyncio(home: Path, given: argparse.Namespace) -> dict[str, float]:
    """A node inside an asyncio program."""
    return asyncio.run(measure(lambda: asyncio_node(home), given, time.process_time))


def beside_a_daemon(home: Path, given: argparse.Namespace) -> dict[str, float]:
    """A client under asyncio; to open is to start the daemon."""
    began_s = time.perf_counter()
    daemon = subprocess.Popen([sys.executable, "-c", DAEMON, str(home)])
    try:
        while not (home / "http").exists():
            time.sleep(0.01)
        open_s = time.perf_counter() - began_s

        def cpu_s() -> float:
            return time.process_time() + cpu_of(daemon.pid)

        found = asyncio.run(measure(lambda: AsyncClient(home=home), given, cpu_s))
        return found | {"open_ms": round(1000 * open_s)}
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(20)


async def measure(
    opening: Callable[[], AbstractAsyncContextManager[Any]],
    given: argparse.Namespace,
    cpu_s: Callable[[], float],
) -> dict[str, float]:
    """Open some times, then publish and read."""
    openings: list[float] = []
    for _ in range(given.openings):
        began_s = time.perf_counter()
        async with opening():
            openings.append(time.perf_counter() - began_s)
    took: list[float] = []
    async with opening() as node:
        topic = await node.create_topic("measured")
        for _ in range(WARM_UP):
            await node.publish(topic, PAYLOAD, ack="accepted")
        before_s, began_s = cpu_s(), time.perf_counter()
        for _ in range(given.events):
            call_s = time.perf_counter()
            await node.publish(topic, PAYLOAD, ack="accepted")
            took.append(time.perf_counter() - call_s)
        published_s, middle_s = cpu_s(), time.perf_counter()
        async with await node.subscribe(topic, start=WARM_UP + 1) as events:
            for _ in range(given.events):
                await anext(events)
        read_s, end_s = cpu_s(), time.perf_counter()
    took.sort()
    return {
        "open_ms": round(1000 * statistics.median(openings)),
        "publish_ms_p50": round(1000 * took[len(took) // 2], 2),
        "publish_ms_p99": round(1000 * took[int(0.99 * len(took))], 2),
        "publish_cpu_ms": round(1000 * (published_s - before_s) / given.events, 2),
        "publish_a_second": round(given.events / (middle_s - began_s)),
        "read_cpu_ms": round(1000 * (read_s - published_s) / given.events, 3),
        "read_a_second": round(given.events / (end_s - middle_s)),
    }


if __name__ == "__main__":
    main()
