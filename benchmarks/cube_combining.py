"""What messages that travel together save in a cube, simulated and on real nodes.

    python -m benchmarks.cube_combining simulated --bandwidth 100000
    python -m benchmarks.cube_combining real --out DIR --tree base=PATH --tree head=. --rounds 5
    python -m benchmarks.cube_combining real --out DIR --tree head=. --tree apart=. --apart apart
    python -m benchmarks.cube_combining codec

All members of one cube publish. `simulated` plays it twice, over links of some bytes a second: once
each message leaves by itself, once those that wait on one link leave together. `real` plays it on
nodes on loopback, on several checkouts in turns, and counts what the nodes wrote to their sockets
and committed to their disks, and their CPU seconds, from the first event to the last delivery.
With `--in-flight`, each node has so many events that are not acknowledged yet; with `--rate`, all
nodes together publish so many a second. In the checkout that `--apart` names every message leaves
by itself. `codec` says what one frame for 16 events saves. Prints lines of JSON, and the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path

from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.protocol.messages import EventMessage, Message, Range
from pulsarcast.simulation.applications import settings_for
from pulsarcast.simulation.lines import WRITE_BYTES, Line
from pulsarcast.simulation.links import Constant
from pulsarcast.simulation.options import Options
from pulsarcast.simulation.run import Run
from pulsarcast.wire.codec import decode, encode
from pulsarcast.wire.framing import FrameReader, write_frames

ROOT = Path(__file__).resolve().parents[1]
PAYLOAD = 256


# Simulated.


class ApartLine(Line):
    """A line on which every message leaves by itself, whatever waits."""

    __slots__ = ()

    def send(self, message: Message) -> None:
        """Put a message on its way, in a write of its own."""
        self.write_s = -1.0
        super().send(message)


def simulate(given: argparse.Namespace, *, apart: bool) -> dict[str, object]:
    """One cube, whose members publish at times drawn from the seed."""
    links = Constant(given.latency_ms / 1000, bandwidth=given.bandwidth)
    run = Run(Options(kind="tree", scenario="cube", seed=1), links=links)
    world = run.world
    if apart:
        world.use_lines(ApartLine)
    run.join(given.members)
    topics: list[Cid | None] = []
    settings = settings_for("per-publisher", world.peer(0), "cube")
    run.applications.create(0, "hot", settings, topics.append)
    world.run_until(lambda: bool(topics), world.now + 600)
    topic = topics[0]
    assert topic is not None
    for index in range(given.members):
        run.applications.subscribe(index, topic)
    run.settle()
    rng = world.stream("load")

    def publish(number: int) -> Callable[[], None]:
        member, said = number % given.members, b"x" * PAYLOAD
        return lambda: run.applications.publish(
            member, topic, said, injection=str(number), replicated=False
        )

    for number in range(given.events):
        world.at(world.now + rng.random() * given.within_s, publish(number))
    writes, messages, sizes = world.writes, world.messages, world.bytes
    due = given.events * given.members
    world.run_until(lambda: run.observer.deliveries >= due, world.now + 3600, 0.01)
    assert run.observer.deliveries == due
    writes = world.writes - writes
    sent = sum(world.messages.values()) - sum(messages.values())
    carried = sum(world.bytes.values()) - sum(sizes.values())
    run.settle()
    result = run.result()
    assert result.ok, result.details
    return {
        "apart": apart,
        "messages_a_delivery": round(sent / due, 4),
        "writes_a_delivery": round(writes / due, 4),
        "messages_a_write": round(sent / writes, 4),
        "bytes_a_delivery": round((carried + writes * WRITE_BYTES) / due, 1),
        "latency_p50_s": result.latency_p50_s,
        "latency_p99_s": result.latency_p99_s,
    }


# Real.

PLAY = """
import json, mmap, os, sys, time
from pathlib import Path
from pulsarcast.network import disk, link, neighbours
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.scenarios.compare import number_of, window_s
from pulsarcast.testbed.scenarios.steady import SteadyLoad
from pulsarcast.testbed.sessions import open_session

given = json.loads(sys.argv[1])
size, each = given["nodes"], given["events"] // given["nodes"]
NAMES = ("messages", "writes", "bytes", "commits", "persists")
PIDS = 1 << 16
counters = memoryview(mmap.mmap(-1, PIDS * len(NAMES) * 8)).cast("Q")  # nodes are forked from here

def count(owner, name, what):
    original = getattr(owner, name)
    def counted(self, *args):
        at = os.getpid() % PIDS * len(NAMES)
        for name, more in what(*args).items():
            counters[at + NAMES.index(name)] += more
        return original(self, *args)
    setattr(owner, name, counted)

count(neighbours.Neighbours, "send", lambda peer, frame: {"messages": 1})
count(link.Link, "_write", lambda data: {"writes": 1, "bytes": len(data)})
count(disk.Disk, "_commit", lambda persists, notes: {"commits": 1, "persists": len(persists)})

if given["is_apart"]:
    send = neighbours.Neighbours.send
    def send_apart(self, peer, frame):
        send(self, peer, frame)
        self.flush()
    neighbours.Neighbours.send = send_apart

def sums():
    return {name: sum(counters[at :: len(NAMES)]) for at, name in enumerate(NAMES)}

options = RunOptions(scenario="hot", out=Path(given["out"]), nodes=size, order="per-publisher",
                     dissemination=given["dissemination"], trace_level=None, ack=given["ack"],
                     payload_bytes=given["payload"])
with open_session(options, size=size, events=each * size, number_of=number_of) as session:
    load, fleet = SteadyLoad(session, topics=1, progress=lambda *_: None), session.fleet
    load.set_up()
    before, cpu_s, began_s = sums(), fleet.cpu_s(), time.monotonic()
    left = [each] * size

    def publish(author):
        if left[author]:
            left[author] -= 1
            load.publish(lambda number: publish(load.authors[number]), author=author)

    def publish_at_a_rate(number=0):
        if number < each * size:
            left[number % size] -= 1
            load.publish(author=number % size)
            due_s = began_s + (number + 1) / given["rate"]
            fleet.after(max(0.0, due_s - time.monotonic()), lambda: publish_at_a_rate(number + 1))

    if given["rate"]:
        publish_at_a_rate()
    else:
        for author in [*range(size)] * given["in_flight"]:
            publish(author)
    fleet.run_until(lambda: not any(left), s_max=float("inf"))
    load.run_dry()
    wall_s = window_s(session.ledger, began_s)
    cpu_s = fleet.cpu_s() - cpu_s
    done = {name: count - before[name] for name, count in sums().items()}
    account = load.account()
    due = account.due
    assert account.delivered == due and not session.ledger.duplicates, account
    print(json.dumps({
        **{f"{name}_a_delivery": done[name] / due for name in NAMES[:-1]},
        "messages_a_write": done["messages"] / done["writes"],
        "persists_a_commit": done["persists"] / done["commits"],
        "cpu_ms_a_delivery": cpu_s * 1000 / due,
        "deliveries_a_s": due / wall_s,
        "latency_ms_p50": load.latency_ms(range(load.count), 0.5),
        "latency_ms_p99": load.latency_ms(range(load.count), 0.99),
    }))
"""


def play(tree: Path, given: argparse.Namespace, *, is_apart: bool) -> dict[str, float]:
    """One run on one checkout, in processes of its own."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    folder = given.out / "run"
    shutil.rmtree(folder, ignore_errors=True)
    asked = {**vars(given), "out": str(folder), "is_apart": is_apart}
    words = [sys.executable, "-c", PLAY, json.dumps(asked)]
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {name: round(value, 4) for name, value in answer.items()}


def play_in_turns(given: argparse.Namespace) -> None:
    """Play every checkout, round after round."""
    named = [tree.partition("=") for tree in given.tree or [f"head={ROOT}"]]
    runs: dict[str, list[dict[str, float]]] = {name: [] for name, _, _ in named}
    for _ in range(given.rounds):
        for name, _, path in named:
            runs[name].append(play(Path(path).resolve(), given, is_apart=name == given.apart))
            print(json.dumps({"tree": name, **runs[name][-1]}), flush=True)
    for name, rows in runs.items():
        medians = {key: round(statistics.median(row[key] for row in rows), 4) for key in rows[0]}
        print(json.dumps({"median": name, **medians}))


# The codec.


def measure_codec(count: int = 16) -> dict[str, list[float]]:
    """Bytes and µs of CPU an event: in frames of its own, and in one frame with the others."""
    blocks = tuple(os.urandom(500) for _ in range(count))
    # A Range is the frame of many events that there is.
    frames: list[list[Message]] = [
        [EventMessage(block, 3) for block in blocks],
        [Range(1, cid_of(b""), blocks, False)],
    ]

    def write(messages: list[Message]) -> bytes:
        return b"".join(write_frames([encode(message)]) for message in messages)

    def read(data: bytes) -> None:
        for frame in FrameReader().feed(data):
            decode(frame)

    def cost_us(act: Callable[[], object]) -> float:
        times_s = timeit.repeat(act, number=200, repeat=30, timer=time.process_time)
        return round(min(times_s) / 200 / count * 1e6, 2)

    written = [write(messages) for messages in frames]
    return {
        "bytes": [round(len(data) / count, 1) for data in written],
        "write_us": [cost_us(lambda each=each: write(each)) for each in frames],  # type: ignore[misc]
        "read_us": [cost_us(lambda each=each: read(each)) for each in written],  # type: ignore[misc]
    }


def main() -> None:
    """Measure, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    simulated = parts.add_parser("simulated")
    simulated.add_argument("--members", type=int, default=64)
    simulated.add_argument("--events", type=int, default=640)
    simulated.add_argument("--within-s", type=float, default=1.0)
    simulated.add_argument("--latency-ms", type=float, default=50.0)
    simulated.add_argument("--bandwidth", type=float, help="Bytes a second of a link; no limit.")
    real = parts.add_parser("real")
    real.add_argument("--out", type=Path, required=True, help="Folder for the nodes' homes.")
    real.add_argument("--tree", action="append", help="NAME=PATH of a checkout; this one.")
    real.add_argument("--apart", help="NAME of the checkout whose messages leave by themselves.")
    real.add_argument("--rounds", type=int, default=1, help="Runs of each checkout.")
    real.add_argument("--nodes", type=int, default=10)
    real.add_argument("--events", type=int, default=1000, help="Of all nodes together.")
    real.add_argument("--in-flight", type=int, default=4, help="Of each node.")
    real.add_argument("--rate", type=float, default=0.0, help="Of all nodes together.")
    real.add_argument("--ack", choices=("accepted", "replicated"), default="accepted")
    real.add_argument("--payload", type=int, default=PAYLOAD)
    real.add_argument("--dissemination", choices=("cube", "tree"), default="cube")
    parts.add_parser("codec")
    given = parser.parse_args()
    if given.part == "simulated":
        for apart in (True, False):
            print(json.dumps(simulate(given, apart=apart)), flush=True)
    elif given.part == "real":
        given.out = given.out.resolve()
        play_in_turns(given)
    else:
        print(json.dumps(measure_codec()))


if __name__ == "__main__":
    main()
