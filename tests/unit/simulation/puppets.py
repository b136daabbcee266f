"""Puppets: stand-ins for nodes, that do what a test says and remember what they were told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from pulsarcast.model import trace
from pulsarcast.model.ids import PeerId, cid_of
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.effects import Effect, Send
from pulsarcast.protocol.inputs import (
    Acknowledge,
    Input,
    MessageReceived,
    Now,
    PeerLost,
    PeerUp,
    Start,
)
from pulsarcast.protocol.messages import EventMessage, Message
from pulsarcast.simulation.hosts import Seat
from pulsarcast.simulation.links import Constant, Links
from pulsarcast.simulation.places import Place
from pulsarcast.simulation.world import World

NUDGE = Acknowledge(cid_of(b"nudge"), 0)


class Puppet:
    """A core without a will of its own."""

    def __init__(self, seat: Seat, heard: list[tuple[float, Input]], strings: Strings) -> None:
        self.seat = seat
        self.heard = heard
        self.todo: list[Effect] = []
        self.reach = Reach.UNKNOWN
        self.strings = strings

    def handle(self, given: Input, now: Now) -> list[Effect]:
        """Remember it, and do what was asked."""
        if given is NUDGE:
            todo, self.todo = self.todo, []
            self.strings.history[self.seat.index].extend(todo)
            return todo
        self.strings.history[self.seat.index].append(given)
        self.heard.append((self.strings.world.now, given))
        answer = self.strings.answer
        return [] if answer is None else answer(self, given, now)


class Notebook:
    """An observer that writes everything down."""

    def __init__(self) -> None:
        self.records: list[tuple[float, int, int, Now, trace.Record]] = []

    def record(
        self, time_s: float, index: int, incarnation: int, now: Now, record: trace.Record
    ) -> None:
        self.records.append((time_s, index, incarnation, now, record))


class Strings:
    """A world of puppets, and the strings that move them."""

    world: World

    def __init__(
        self,
        count: int,
        *,
        links: Links | None = None,
        seed: int = 1,
        answer: Callable[[Puppet, Input, Now], list[Effect]] | None = None,
        places: Sequence[Place] = (),
        **options: Any,
    ) -> None:
        self.heard: defaultdict[int, list[tuple[float, Input]]] = defaultdict(list)
        """What each node was told in all of its lives, and when."""
        self.history: defaultdict[int, list[Input | Effect]] = defaultdict(list)
        """What each node was told, and what it did because a test said so."""
        self.answer = answer
        self.world = World(
            seed,
            links=Constant(0.1) if links is None else links,
            make_node=lambda seat: Puppet(seat, self.heard[seat.index], self),
            **options,
        )
        for index in range(count):
            self.world.add_node(place=places[index] if places else None)

    def puppet(self, index: int) -> Puppet:
        node: Any = self.world.node(index)
        assert isinstance(node, Puppet)
        return node

    def act(self, index: int, *effects: Effect) -> None:
        """Let a node do something, later in this instant."""

        def nudge() -> None:
            if self.world.is_up(index):
                self.puppet(index).todo.extend(effects)
                self.world.command(index, lambda _: NUDGE)

        self.world.after(0.0, nudge)

    def say(self, speaker: int, listener: int, *words: int) -> None:
        """Let a node send numbers to another."""
        peer = self.world.peer(listener)
        self.act(speaker, *(Send(peer, word(number)) for number in words))

    def connect(self, a: int, b: int) -> None:
        """Let two nodes be connected, and forget how they came to be."""
        self.say(a, b, 0)
        self.world.run(self.world.now + 1.0)
        assert any(isinstance(given, PeerUp) for _, given in self.heard[b])
        for heard in self.heard.values():
            heard.clear()

    def words(self, listener: int) -> list[int]:
        """The numbers that a node was sent."""
        return [number_of(message) for _, message in self._messages(listener)]

    def times(self, listener: int) -> list[float]:
        """When a node was sent numbers."""
        return [round(time_s, 6) for time_s, _ in self._messages(listener)]

    def told(self, index: int) -> list[tuple[float, str]]:
        """What a node was told, in short: `+1` node 1 is up, `-1` it is lost, `1:7` it said 7."""
        return [
            (round(time_s, 6), self._short(given))
            for time_s, given in self.heard[index]
            if not isinstance(given, Start)
        ]

    def _messages(self, listener: int) -> list[tuple[float, Message]]:
        return [
            (time_s, given.message)
            for time_s, given in self.heard[listener]
            if isinstance(given, MessageReceived)
        ]

    def _short(self, given: Input) -> str:
        match given:
            case PeerUp(contact):
                return f"+{self._name(contact.peer)}"
            case PeerLost(peer):
                return f"-{self._name(peer)}"
            case MessageReceived(sender, message):
                return f"{self._name(sender)}:{number_of(message)}"
            case _:
                return type(given).__name__

    def _name(self, peer: PeerId) -> str:
        try:
            return str(self.world.index_of(peer))
        except KeyError:
            return "?"


def word(number: int) -> EventMessage:
    """A message that carries a number."""
    return EventMessage(b"%d" % number, 0)


def number_of(message: Message) -> int:
    """The number that a message carries."""
    assert isinstance(message, EventMessage)
    return int(message.block)
