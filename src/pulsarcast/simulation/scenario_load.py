"""Load: ten nodes that all publish are asked for half to eight times of what they can carry.

What they can is measured first, with two events of each in flight. The model of their hardware
(`hardware`) makes them slow; links take next to no time.
"""

from __future__ import annotations

import struct
from bisect import insort
from typing import Final

import msgspec

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid
from pulsarcast.model.topic_types import DeliveryOrder, Dissemination, TopicSettings
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import CreateTopic, Now, Publish, Subscribe
from pulsarcast.simulation.hardware.machines import Hardware
from pulsarcast.simulation.hosts import MakeNode, make_node
from pulsarcast.simulation.links import Links
from pulsarcast.simulation.loads import DRAIN_S_MAX, QUIET_S, Heard, Load, Outcome, outcome
from pulsarcast.simulation.options import Options
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.run import Progress, no_progress
from pulsarcast.simulation.world import World

TIMES: Final = (0.5, 1, 2, 4, 8)
CAPACITY_IN_FLIGHT: Final = 2
IN_FLIGHT_MAX: Final = 64
PAYLOAD_BYTES: Final = 256
SECONDS: Final = 4.0
NODES: Final = 10
JOIN_GAP_S: Final = 0.1
SETTLE_S: Final = 30.0
MARK: Final = struct.Struct("<HI")


def run_load(options: Options, *, progress: Progress = no_progress) -> Result:
    """Play every load in a world of its own."""
    nodes = NODES if options.nodes is None else options.nodes
    hardware, links = options.hardware(), options.links()
    closed = Load(
        nodes, nodes, options.dissemination, PAYLOAD_BYTES, SECONDS, 0.0, CAPACITY_IN_FLIGHT
    )
    result = Result(
        scenario=options.scenario, seed=options.seed, nodes=nodes, replay=options.replay_command()
    )
    progress("loads", 0, 1 + len(TIMES))
    capacity = play(closed, hardware=hardware, links=links, seed=options.seed)
    rows = [("capacity", capacity)]
    for number, times in enumerate(TIMES, 1):
        progress("loads", number, 1 + len(TIMES))
        offered = closed._replace(rate=times * capacity.goodput_per_s, in_flight=IN_FLIGHT_MAX)
        rows.append(
            (f"{times:g} times", play(offered, hardware=hardware, links=links, seed=options.seed))
        )
    for name, came in rows:
        result.events += came.accepted
        result.due += came.due
        result.delivered += came.arrived
        result.table.append((name, _in_words(came), ""))
    return result


def _in_words(came: Outcome) -> str:
    return (
        f"{came.goodput_per_s} events/s, p50 {came.p50_s} s, p99 {came.p99_s} s, "
        f"{came.refused} of {came.offered} refused, {came.arrived} of {came.due} delivered, "
        f"{came.cpu_ms_per_delivery} ms CPU a delivery"
    )


def play(
    load: Load,
    *,
    hardware: Hardware,
    links: Links,
    seed: int,
    make_node: MakeNode = make_node,
) -> Outcome:
    """Play one load on simulated nodes."""
    world = World(seed, links=links, hardware=hardware, make_node=make_node)
    return _Play(load, world).run()


class _Member(msgspec.Struct):
    offered: int = 0
    refused: int = 0
    waiting: int = 0
    in_line: list[int] = []
    """Events that the node was too busy for, in their order."""
    called_s: list[float] = []
    accepted_s: list[float | None] = []
    arrivals: list[tuple[int, int, float]] = []


class _Play:
    """One world under one load; it is the observer of its nodes."""

    def __init__(self, load: Load, world: World) -> None:
        self.load = load
        self.world = world
        world.observer = self
        self.members = [_Member() for _ in range(load.members)]
        self.begun_s = 0.0
        self.arrived = 0
        self.topic: Cid | None = None
        self._numbers: dict[Cid, tuple[int, int]] = {}
        """Publisher and number of what was published since the load began."""
        self._early: dict[Cid, list[tuple[int, float]]] = {}
        """Deliveries of events that their publisher was not told of yet."""
        self._padding = b"\x00" * max(0, load.payload - MARK.size)

    def run(self) -> Outcome:
        """Join, load, wait for what is still to come."""
        world, load = self.world, self.load
        topic = self._join()
        self.begun_s = world.now
        before_s = [world.cpu_s(index) for index in range(load.members)]
        for index in range(load.publishers):
            if load.rate:
                gap_s = load.publishers / load.rate
                count = int(load.seconds / gap_s)
                for each in range(count):
                    due_s = self.begun_s + gap_s * (each + index / load.publishers)
                    world.at(due_s, lambda index=index: self._offer(index, topic))  # type: ignore[misc]
            else:
                for _ in range(load.in_flight):
                    self._offer(index, topic)
        world.run(self.begun_s + load.seconds)
        used_s = [world.cpu_s(index) - before_s[index] for index in range(load.members)]
        self._drain()
        return outcome(
            load,
            [
                Heard(
                    member.offered,
                    member.refused,
                    member.called_s,
                    member.accepted_s,
                    member.arrivals,
                    used_s[index],
                    dict(world.node(index).counts),
                )
                for index, member in enumerate(self.members)
            ],
        )

    def record(
        self, time_s: float, index: int, incarnation: int, now: Now, record: trace.Record
    ) -> None:
        """Note what is delivered."""
        if isinstance(record, trace.Delivered):
            self.arrived += 1
            if record.event in self._numbers:
                self._note(index, record.event, time_s)
            else:
                self._early.setdefault(record.event, []).append((index, time_s))

    def _note(self, index: int, event: Cid, time_s: float) -> None:
        arrival = (*self._numbers[event], time_s - self.begun_s)
        self.members[index].arrivals.append(arrival)

    def _join(self) -> Cid:
        world = self.world
        for index in range(self.load.members):
            world.add_node(contacts=[0] if index else ())
            world.run(world.now + JOIN_GAP_S)
        settings = TopicSettings(
            open=True,
            order=DeliveryOrder.NONE,
            dissemination=Dissemination(self.load.dissemination),
        )
        topics: list[Reply] = []
        world.command(0, lambda call: CreateTopic(call, "load", settings), topics.append)
        assert world.run_until(lambda: bool(topics), world.now + SETTLE_S)
        topic = topics[0].cid
        assert topic is not None, "a topic is made without help"
        joined: list[Reply] = []
        for index in range(self.load.members):
            world.command(index, lambda call: Subscribe(call, topic), joined.append)
            world.run(world.now + JOIN_GAP_S)
        assert world.run_until(lambda: len(joined) == self.load.members, world.now + SETTLE_S)
        world.run(world.now + SETTLE_S)
        return topic

    def _offer(self, index: int, topic: Cid) -> None:
        member, world = self.members[index], self.world
        member.offered += 1
        if member.waiting >= self.load.in_flight:
            member.refused += 1
            return
        member.waiting += 1
        member.called_s.append(world.now - self.begun_s)
        member.accepted_s.append(None)
        number = len(member.called_s) - 1
        if member.in_line:
            member.in_line.append(number)
        else:
            self._ask(index, topic, number)

    def _ask(self, index: int, topic: Cid, number: int) -> None:
        member, world = self.members[index], self.world
        payload = MARK.pack(index, number) + self._padding

        def again() -> None:
            self._ask(index, topic, member.in_line[0])

        def answered(reply: Reply) -> None:
            after_s = 0.0 if reply.refusal is None else reply.refusal.after_s
            if after_s:
                # As the library does: the first in line tries again, the others stand behind it.
                if number not in member.in_line:
                    insort(member.in_line, number)
                if member.in_line[0] == number:
                    world.after(after_s, again)
                return
            if member.in_line and member.in_line[0] == number:
                member.in_line.pop(0)
                if member.in_line:
                    world.after(0.0, again)
            member.waiting -= 1
            if reply.refusal is None and reply.cid is not None:
                member.accepted_s[number] = world.now - self.begun_s
                self._numbers[reply.cid] = (index, number)
                for each, time_s in self._early.pop(reply.cid, ()):
                    self._note(each, reply.cid, time_s)
            else:
                member.refused += 1
            if not self.load.rate and world.now < self.begun_s + self.load.seconds:
                self._offer(index, topic)

        world.command(index, lambda call: Publish(call, topic, payload), answered)

    def _drain(self) -> None:
        until_s = self.world.now + DRAIN_S_MAX
        seen = -1
        while self.arrived != seen and self.world.now < until_s:
            seen = self.arrived
            self.world.run(self.world.now + QUIET_S)
