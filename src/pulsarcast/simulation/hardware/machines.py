"""Machines: cores that processes take turns on.

A process does one thing at a time. What comes for it meanwhile waits, and is taken together in its
next turn, as a real node reads at once all that its sockets hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.identity import Identity
from pulsarcast.model.remembering import (
    REMEMBERED_BYTES_MAX,
    REMEMBERED_MAX,
    RememberedVerification,
)
from pulsarcast.protocol.effects import Deliver, Effect, Persist, Send
from pulsarcast.protocol.inputs import Input, MessageReceived, Persisted, Publish
from pulsarcast.protocol.messages import EventMessage, Message, Range, RequestToPublish
from pulsarcast.protocol.store import PutEvent
from pulsarcast.simulation.hardware.costs import Costs
from pulsarcast.simulation.process import Process
from pulsarcast.wire.codec import size_of

INPUTS_MAX = 64
"""Inputs of one turn: a real node lets its programs have theirs in between."""


class Hardware(NamedTuple):
    """What the nodes of a world run on; without anything, nothing takes time."""

    costs: Costs | None = None
    cores: int | None = None
    """Shared by all nodes, as on one machine; None: every node has one of its own."""
    uplink: float | None = None
    """Bytes a second that leave a node, whoever they are for."""

    def machine(self) -> Machine | None:
        """The machine that all nodes share, if they do."""
        return None if self.cores is None else Machine(self.cores)


class Machine:
    """Cores, and the processes that wait for one."""

    def __init__(self, cores: int) -> None:
        self._free = cores
        self._waiting: deque[Callable[[], None]] = deque()

    def ask(self, begin: Callable[[], None]) -> None:
        """Call `begin` once a core is free, and take it; in the order of asking."""
        if self._free:
            self._free -= 1
            begin()
        else:
            self._waiting.append(begin)

    def give_back(self) -> None:
        """A core is free again."""
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._free += 1


class Meter:
    """Counts the signatures that a node makes and verifies, and the time it takes."""

    __slots__ = ("cpu_s", "signed", "verified")

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self.signed = 0
        self.verified = 0

    def identity(self, identity: Identity) -> Identity:
        """The same identity, whose signatures are counted."""
        return _MeteredIdentity(identity.seed, self)

    def decoder(self, decode_event: Callable[[bytes], EventDescriptor]) -> RememberedVerification:
        """Decodes events as a real node does: those that it has made or verified cost nothing."""

        def count(block: bytes) -> EventDescriptor:
            self.verified += 1
            return decode_event(block)

        return RememberedVerification(count, REMEMBERED_MAX, REMEMBERED_BYTES_MAX)


class _MeteredIdentity(Identity):
    __slots__ = ("_meter",)

    def __init__(self, seed: bytes, meter: Meter) -> None:
        super().__init__(seed)
        self._meter = meter

    def sign(self, kind: str, body: bytes) -> bytes:
        """Sign a body as this kind of thing."""
        self._meter.signed += 1
        return super().sign(kind, body)


class BusyProcess(Process):
    """A process that is busy with one turn while the inputs of the next one wait."""

    __slots__ = (
        "_asked",
        "_costs",
        "_inputs",
        "_machine",
        "_measured",
        "_meter",
        "_size",
        "_verification",
    )

    def __init__(
        self,
        *,
        machine: Machine,
        costs: Costs,
        meter: Meter,
        verification: RememberedVerification,
        **given: Any,
    ) -> None:
        super().__init__(**given)
        self._verification = verification
        self._machine = machine
        self._costs = costs
        self._meter = meter
        self._inputs: deque[Input] = deque()
        self._asked = False
        """Whether a turn is asked for, or under way."""
        self._measured: Message | None = None
        self._size = 0

    def take(self, given: Input) -> None:
        """Handle an input once a core is free, and once the process runs."""
        if self.running:
            self._inputs.append(given)
            self._ask()
        else:
            self.hold(self.take, given)

    def resume(self) -> None:
        """Go on, with what waited before what came meanwhile."""
        super().resume()
        self._ask()

    def end(self) -> None:
        """It is gone, and what waits with it."""
        super().end()
        self._inputs.clear()

    def _ask(self) -> None:
        if self._inputs and self.running and not self._asked:
            self._asked = True
            self._machine.ask(self._begin)

    def _begin(self) -> None:
        """Let the core handle what has come; what it wants happens when the time is spent."""
        meter, costs = self._meter, self._costs
        signed, verified = meter.signed, meter.verified
        spent_s = costs.turn_s
        effects: list[Effect] = []
        now = self.clock.read(self._loop.now)
        for _ in range(min(len(self._inputs), INPUTS_MAX) if self.running else 0):
            given = self._inputs.popleft()
            spent_s += self._price(given)
            effects += self._handle(given, now)
        for effect in effects:
            spent_s += self._price_of(effect)
        spent_s += (meter.signed - signed) * costs.sign_s
        spent_s += (meter.verified - verified) * costs.verify_s
        if not self.running:
            spent_s = 0.0
        meter.cpu_s += spent_s
        self._loop.after(spent_s, self._end_turn, effects)

    def _end_turn(self, effects: list[Effect]) -> None:
        self._asked = False
        self._machine.give_back()
        self._do(effects)
        self._ask()

    def _do(self, effects: list[Effect]) -> None:
        if self.running:
            self.carry_out(effects, self.clock.read(self._loop.now))
        else:
            self.hold(self._do, effects)

    def _price(self, given: Input) -> float:
        costs = self._costs
        if isinstance(given, MessageReceived):
            message = given.message
            events = events_of(message)
            return (
                costs.input_s
                + costs.message_s
                + events * costs.event_s
                + size_of(message) * costs.byte_s
            )
        if isinstance(given, Publish):
            return costs.input_s + costs.event_s + len(given.payload) * costs.byte_s
        if isinstance(given, Persisted):
            return costs.input_s + costs.commit_s
        return costs.input_s

    def _price_of(self, effect: Effect) -> float:
        costs = self._costs
        if isinstance(effect, Send):
            if effect.message is not self._measured:
                self._measured, self._size = effect.message, size_of(effect.message)
            return costs.message_s + self._size * costs.byte_s
        if isinstance(effect, Persist):
            for write in effect.writes:
                if isinstance(write, PutEvent):
                    self._verification.know(write.event)
            return len(effect.writes) * costs.write_s
        return costs.deliver_s if isinstance(effect, Deliver) else 0.0


def events_of(message: Message) -> int:
    """How many events a message carries."""
    if isinstance(message, Range):
        return len(message.blocks)
    return 1 if isinstance(message, (EventMessage, RequestToPublish)) else 0
