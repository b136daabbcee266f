"""Real nodes under a load: processes of this machine, one a member, that publish and listen."""

from __future__ import annotations

import multiprocessing
import resource
import struct
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import trio

from pulsarcast import DeliveryOrder, Dissemination, Node, TopicSettings
from pulsarcast.model.errors import LocalError
from pulsarcast.simulation.loads import DRAIN_S_MAX, QUIET_S, Heard, Load, Outcome, outcome

MARK = struct.Struct("<HI")
"""What a payload begins with: who published it, and which of its events it is."""
WARM_S = 6.0
"""Members of a cube have met by then."""


def play(load: Load) -> Outcome:
    """Start members, load them, say what came of it."""
    forked = multiprocessing.get_context("fork")
    pipes: list[Connection] = []
    processes = []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for index in range(load.members):
            ours, theirs = multiprocessing.Pipe()
            process = forked.Process(
                target=_main, args=(index, Path(folder, str(index)), load, theirs), daemon=True
            )
            process.start()
            pipes.append(ours)
            processes.append(process)
        try:
            first = _receive(pipes[0])
            for pipe in pipes[1:]:
                pipe.send(first)
                _receive(pipe)
            begin_s = time.monotonic() + WARM_S
            for pipe in pipes:
                pipe.send(begin_s)
            heard = [_receive(pipe) for pipe in pipes]
        finally:
            for process in processes:
                process.kill()
                process.join(5)
    return outcome(load, heard)


def _receive(pipe: Connection) -> Any:
    if not pipe.poll(120):
        raise TimeoutError("a member says nothing")
    return pipe.recv()


def _main(index: int, home: Path, load: Load, pipe: Connection) -> None:
    trio.run(_member, index, home, load, pipe)


async def _member(index: int, home: Path, load: Load, pipe: Connection) -> None:
    bootstrap, name = ((), "") if not index else pipe.recv()
    async with Node.open(home, bootstrap=bootstrap) as node:
        if not index:
            settings = TopicSettings(
                open=True, order=DeliveryOrder.NONE, dissemination=Dissemination(load.dissemination)
            )
            name = (await node.create_topic("load", settings)).id
        events = await node.subscribe(name)
        await node.publish(name, b"warm", ack="accepted")
        pipe.send((node.addresses, name))
        begin_s = await trio.to_thread.run_sync(pipe.recv)
        pipe.send(await _Member(index, node, name, load, begin_s).run(events))


class _Member:
    """One member, while there is load."""

    def __init__(self, index: int, node: Node, topic: str, load: Load, begin_s: float) -> None:
        self.index = index
        self.node = node
        self.topic = topic
        self.load = load
        self.begin_s = begin_s
        self.offered = self.refused = self.waiting = 0
        self.called_s: list[float] = []
        self.accepted_s: list[float | None] = []
        self.arrivals: list[tuple[int, int, float]] = []
        self.padding = b"\x00" * max(0, load.payload - MARK.size)

    async def run(self, events: Any) -> Heard:
        """Publish and listen until the end, then wait for what is still to come."""
        end_s = self.begin_s + self.load.seconds
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, events)
            await _sleep_until(self.begin_s)
            before_s, counted = _cpu_s(), self._counts()
            with trio.move_on_at(trio.current_time() + end_s - time.monotonic()):
                if self.index < self.load.publishers:
                    await (self._offer() if self.load.rate else self._fill())
                else:
                    await trio.sleep_forever()
            cpu_s = _cpu_s() - before_s
            await self._drain()
            nursery.cancel_scope.cancel()
        return Heard(
            self.offered,
            self.refused,
            self.called_s,
            self.accepted_s,
            self.arrivals,
            cpu_s,
            self._counts() - counted,
        )

    def _counts(self) -> Counter[str]:
        return Counter(self.node._running.core.counts)

    async def _listen(self, events: Any) -> None:
        async for event in events:
            if len(event.payload) >= MARK.size:
                self.arrivals.append((*MARK.unpack_from(event.payload), self._now_s()))

    def _now_s(self) -> float:
        return time.monotonic() - self.begin_s

    async def _offer(self) -> None:
        gap_s = self.load.publishers / self.load.rate
        due_s = self.begin_s + gap_s * self.index / self.load.publishers
        async with trio.open_nursery() as nursery:
            while True:
                await _sleep_until(due_s)
                while due_s <= time.monotonic():  # A busy node is late, its programs are not.
                    due_s += gap_s
                    self.offered += 1
                    if self.waiting < self.load.in_flight:
                        self.waiting += 1
                        nursery.start_soon(self._publish)
                    else:
                        self.refused += 1

    async def _fill(self) -> None:
        async def go_on() -> None:
            while True:
                await trio.lowlevel.checkpoint()
                self.offered += 1
                self.waiting += 1
                await self._publish()

        async with trio.open_nursery() as nursery:
            for _ in range(self.load.in_flight):
                nursery.start_soon(go_on)

    async def _publish(self) -> None:
        number = len(self.accepted_s)
        self.called_s.append(self._now_s())
        self.accepted_s.append(None)
        payload = MARK.pack(self.index, number) + self.padding
        try:
            # What is under way at the end is heard of all the same.
            with trio.CancelScope(deadline=trio.current_time() + DRAIN_S_MAX, shield=True):
                await self.node.publish(self.topic, payload, ack="accepted")
                self.accepted_s[number] = self._now_s()
        except LocalError:
            self.refused += 1
            await trio.sleep(0.01)
        finally:
            self.waiting -= 1

    async def _drain(self) -> None:
        seen, since_s = -1, time.monotonic()
        end_s = since_s + DRAIN_S_MAX
        while time.monotonic() < end_s:
            if len(self.arrivals) != seen:
                seen, since_s = len(self.arrivals), time.monotonic()
            elif time.monotonic() - since_s > QUIET_S:
                return
            await trio.sleep(0.2)


async def _sleep_until(time_s: float) -> None:
    await trio.sleep(max(0.0, time_s - time.monotonic()))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
