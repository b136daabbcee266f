"""What a real node takes that is a member of many topics: memory, CPU, connections and time.

    python benchmarks/real_topics.py [--topics 100 1000 10000] [--nodes 50] [--processes 5]
                                     [--settle 300] [--seconds 120] [--profile FOLDER]

`--nodes` real nodes on loopback, some to a process, create the topics and are their members. The
sizes of the topics follow Zipf's law; author and members are drawn from all nodes. One node more, a
process of its own, starts empty, subscribes to all topics as a program does that has `--in-flight`
calls open at a time, and is idle. It is stopped, and started again on the same home. Memory and CPU
are those of its whole process.

Prints, for each number of topics, a line of JSON as each phase ends:
- `empty`, `joined`, `idle`: RSS, and what is above the empty node, also for each topic;
- `joined`: seconds, wall and CPU, until all subscriptions stand, and until all topics that the node
  follows have a place in their trees; `idle`: share of a core and messages a second over
  `--seconds`, after `--settle` for the first heartbeats; the connections, and the most there were;
- `again`: seconds from the start of the process until the node is open, and until all topics that
  it followed have a place.
`--profile` has the member write a profile of each phase, in CPU time, which makes it slower.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import trio

from pulsarcast import Node
from pulsarcast.model.errors import TopicNotFound
from pulsarcast.network.insight import Insight

SPAWN = multiprocessing.get_context("spawn")
"""Processes that begin empty: what one takes is its own."""
EMPTY_S: Final = 10.0
"""Until an empty node is measured: it has found its peers."""
LOOK_S: Final = 0.25
SMALLER: Final = 10
"""The k-th largest of n topics has n / 10 k members, but two at least: so the nodes around fit into
the same machine."""
SURROUND_IN_FLIGHT: Final = 8
"""Of a process: a machine that is full answers too late."""
TRIES_MAX: Final = 10
END_S_MAX: Final = 60.0
ATTACHED_S_MAX: Final = 1200.0
"""Bounds the wait for topics without a place."""


class Step(NamedTuple):
    """One order to a process, and its answer."""

    name: str
    given: Any = None


async def _told(pipe: Connection) -> Step:
    return await trio.to_thread.run_sync(pipe.recv)


async def _each(work: Sequence[Any], in_flight: int, do: Callable[[Any], Awaitable[None]]) -> None:
    """Do all work, so many at a time."""
    left = iter(work)

    async def go_on() -> None:
        for item in left:
            await do(item)

    async with trio.open_nursery() as nursery:
        for _ in range(in_flight):
            nursery.start_soon(go_on)


async def _patiently(do: Callable[[], Awaitable[Any]]) -> int:
    """Ask again where a topic was not found in time; returns how often."""
    for again in range(TRIES_MAX):
        with suppress(TopicNotFound):
            await do()
            return again
    raise SystemExit("a topic was never found")


# The nodes around.


async def _surround(homes: list[Path], bootstrap: list[str], pipe: Connection) -> None:
    """Be some of the other nodes: create topics, and join those of others."""
    async with AsyncExitStack() as stack:
        nodes: list[Node] = []
        for home in homes:
            known = [*bootstrap, *(nodes[0].addresses if nodes else ())]
            nodes.append(await stack.enter_async_context(Node.open(home, bootstrap=known)))
        pipe.send([address for node in nodes for address in node.addresses])
        made: dict[int, str] = {}

        async def create(job: tuple[int, int]) -> None:
            index, topic = job
            made[topic] = (await nodes[index].create_topic(f"topic {topic}")).id

        async def join(job: tuple[int, str]) -> None:
            index, cid = job
            await _patiently(partial(nodes[index].follow, cid))

        while (step := await _told(pipe)).name != "end":
            made.clear()
            do = create if step.name == "create" else join
            await _each(step.given, SURROUND_IN_FLIGHT, do)  # type: ignore[arg-type]
            pipe.send(dict(made))


class _Surroundings:
    """The processes of the nodes around."""

    def __init__(self, folder: Path, nodes: int, processes: int) -> None:
        self.nodes = nodes
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []
        self.bootstrap: list[str] = []
        self.share = -(-nodes // processes)
        for first in range(0, nodes, self.share):
            homes = [folder / f"n{index}" for index in range(first, min(first + self.share, nodes))]
            ours, theirs = SPAWN.Pipe()
            given = partial(_surround, homes, self.bootstrap[:3], theirs)
            self.processes.append(_started(given))
            self.pipes.append(ours)
            self.bootstrap += ours.recv()

    def tell(self, name: str, jobs: list[tuple[int, Any]]) -> dict[int, str]:
        """Have nodes do something, each its own; returns what they made."""
        for number, pipe in enumerate(self.pipes):
            first = number * self.share
            own = [(node - first, what) for node, what in jobs if node // self.share == number]
            pipe.send(Step(name, own))
        made: dict[int, str] = {}
        for pipe in self.pipes:
            made |= pipe.recv()
        return made

    def make(self, topics: int, rng: Random) -> list[str]:
        """Create topics, and have members join them."""
        creators: list[tuple[int, Any]] = []
        joiners: list[tuple[int, int]] = []
        for topic in range(topics):
            size = topics / (SMALLER * (topic + 1))
            author, *others = rng.sample(range(self.nodes), min(max(2, int(size)), self.nodes) - 1)
            creators.append((author, topic))
            joiners += [(member, topic) for member in others]
        made = self.tell("create", creators)
        self.tell("join", [(member, made[topic]) for member, topic in joiners])
        self.memberships = len(creators) + len(joiners)
        return [made[topic] for topic in range(topics)]

    def end(self) -> None:
        """End all processes."""
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            _end(pipe, process)


# The node that is measured.


@contextmanager
def _profiled(folder: str | None, name: str) -> Iterator[None]:
    if folder is None:
        yield
        return
    profile = cProfile.Profile(time.process_time)
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        profile.dump_stats(Path(folder, f"{name}.prof"))


async def _member(
    home: Path, number: int, bootstrap: list[str], profiles: str | None, pipe: Connection
) -> None:
    """Be the member that is measured, in its life of this number."""
    async with AsyncExitStack() as stack:
        with _profiled(profiles, f"open-{number}"):
            node = await stack.enter_async_context(Node.open(home, bootstrap=bootstrap))
        core = node._running.core
        held: list[Any] = []

        def seen() -> dict[str, Any]:
            counters = Insight(node).counters
            return {
                "asked_again": asked_again,
                "followed": len(core.topics),
                "without_place": sum(not each.overlay.attached for each in core.topics.values()),
                "awake": len(core.quiet.awake),
                "connections": len(node.peers()),
                "messages_out": counters.messages_out,
                "messages_in": counters.messages_in,
                "bytes_out": counters.bytes_out,
            }

        asked_again = 0

        async def subscribe(cid: str) -> None:
            nonlocal asked_again

            async def once() -> None:
                held.append(await node.subscribe(cid, "reader"))

            asked_again += await _patiently(once)

        pipe.send(seen())
        for turn in count():
            step = await _told(pipe)
            with _profiled(profiles, f"{step.name}-{number}-{turn}"):
                match step.name:
                    case "join":
                        topics, in_flight = step.given
                        await _each(topics, in_flight, subscribe)
                    case "sleep":
                        await trio.sleep(step.given)
                    case "end":
                        break
            pipe.send(seen())


class _Life:
    """One life of the measured node, seen from outside."""

    def __init__(self, home: Path, number: int, bootstrap: list[str], profiles: str | None) -> None:
        self.began_s = time.monotonic()
        self._pipe, theirs = SPAWN.Pipe()
        self._process = _started(partial(_member, home, number, bootstrap, profiles, theirs))
        self.connections_max = 0
        self.seen = self._answer()

    def _answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = self._pipe.recv()
        self.connections_max = max(self.connections_max, answer["connections"])
        return answer

    def tell(self, name: str, given: Any = None) -> dict[str, Any]:
        """Have the node do something; returns how it stands afterwards."""
        self._pipe.send(Step(name, given))
        self.seen = self._answer()
        return self.seen

    def sleep(self, seconds: float) -> dict[str, Any]:
        """Let time pass, and look every few seconds."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            self.tell("sleep", min(left_s, 10.0))
        return self.seen

    def wait_for_places(self, topics: int) -> None:
        """Wait until all topics that the node follows have a place, and it follows enough."""
        until_s = time.monotonic() + ATTACHED_S_MAX
        while self.seen["without_place"] or self.seen["followed"] < topics:
            if time.monotonic() > until_s:
                raise SystemExit(f"topics without a place: {self.seen}")
            self.tell("sleep", LOOK_S)

    @property
    def rss_bytes(self) -> int:
        """What of its memory is in use."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def cpu_s(self) -> float:
        """What it has used, in user and system mode."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Stop the node in good order."""
        _end(self._pipe, self._process)


def _run(main: Callable[[], Any]) -> None:
    trio.run(main)


def _started(main: Callable[[], Any]) -> Any:
    process = SPAWN.Process(target=_run, args=(main,), daemon=True)
    process.start()
    return process


def _end(pipe: Connection, process: Any) -> None:
    """End a process, also one that has failed."""
    with suppress(OSError):
        pipe.send(Step("end"))
    process.join(END_S_MAX)
    process.kill()


def measure(topics: int, given: argparse.Namespace, folder: Path) -> None:
    """Measure one number of topics, in a world of its own."""

    def say(phase: str, **figures: Any) -> None:
        print(json.dumps({"topics": topics, "phase": phase, **figures}), flush=True)

    began_s = time.monotonic()
    around = _Surroundings(folder, given.nodes, given.processes)
    home = folder / "member" / "home"
    home.parent.mkdir(parents=True)
    life: _Life | None = None
    try:
        cids = around.make(topics, Random(given.seed))
        took_s = round(time.monotonic() - began_s, 1)
        say("made", nodes=given.nodes, memberships=around.memberships, seconds=took_s)
        life = _Life(home, 1, around.bootstrap[:3], given.profile)
        life.sleep(EMPTY_S)
        empty = life.rss_bytes

        def memory() -> dict[str, float]:
            assert life is not None
            above = life.rss_bytes - empty
            return {
                "above_empty_mb": round(above / 1e6, 1),
                "kb_each": round(above / 1e3 / topics, 2),
            }

        say("empty", rss_mb=round(empty / 1e6, 1), connections=life.seen["connections"])
        cpu_s, began_s = life.cpu_s, time.monotonic()
        life.tell("join", (cids, given.in_flight))
        subscribed_s = time.monotonic() - began_s
        life.wait_for_places(topics)
        say(
            "joined",
            subscribed_s=round(subscribed_s, 1),
            with_place_s=round(time.monotonic() - began_s, 1),
            cpu_s=round(life.cpu_s - cpu_s, 1),
            cpu_ms_each=round(1e3 * (life.cpu_s - cpu_s) / topics, 2),
            asked_again=life.seen["asked_again"],
            followed=life.seen["followed"],
            awake=life.seen["awake"],
            connections_max=life.connections_max,
            **memory(),
        )
        life.sleep(given.settle)
        before, cpu_s, began_s = life.seen, life.cpu_s, time.monotonic()
        life.sleep(given.seconds)
        passed_s = time.monotonic() - began_s
        say(
            "idle",
            core_share=round((life.cpu_s - cpu_s) / passed_s, 4),
            sent_s=round((life.seen["messages_out"] - before["messages_out"]) / passed_s, 2),
            heard_s=round((life.seen["messages_in"] - before["messages_in"]) / passed_s, 2),
            awake=life.seen["awake"],
            connections=life.seen["connections"],
            connections_max=life.connections_max,
            **memory(),
        )
        followed = life.seen["followed"]
        began_s = time.monotonic()
        life.end()
        stopped_s = time.monotonic() - began_s
        life = _Life(home, 2, around.bootstrap[:3], given.profile)
        opened_s = time.monotonic() - life.began_s
        life.wait_for_places(followed)
        say(
            "again",
            stopped_s=round(stopped_s, 1),
            open_s=round(opened_s, 1),
            ready_s=round(time.monotonic() - life.began_s, 1),
            cpu_s=round(life.cpu_s, 1),
            followed=life.seen["followed"],
            connections_max=life.connections_max,
            **memory(),
        )
    finally:
        if life is not None:
            life.end()
        around.end()


def main() -> None:
    """Measure each number of topics."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--settle", type=float, default=300.0)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", metavar="FOLDER")
    given = parser.parse_args()
    for topics in given.topics:
        with tempfile.TemporaryDirectory(dir=".") as name:
            measure(topics, given, Path(name))


if __name__ == "__main__":
    main()
