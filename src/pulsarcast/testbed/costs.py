"""Costs: what a node's processor does, measured, for the simulator (`simulation.hardware`).

The pieces are measured each alone: signatures, codec, commits, and the core, which is timed in a
small simulated world. What is left of a real delivery, its sockets, the loop and the application,
is found by comparison: real nodes are loaded, first with one event at a time and then with as many
as they carry, and a turn and a delivery then cost what makes simulated nodes need as much.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from msgspec.structs import asdict, replace

from pulsarcast.model.events import EventDescriptor, Sequence, decode_event, publish_own
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import cid_of
from pulsarcast.network.noise import NoiseFraming
from pulsarcast.protocol.effects import Effect
from pulsarcast.protocol.inputs import Input, MessageReceived, Now, Persisted, Publish
from pulsarcast.protocol.messages import EventMessage
from pulsarcast.protocol.store import MarkState, PutEvent
from pulsarcast.simulation.hardware.costs import Costs
from pulsarcast.simulation.hardware.machines import Hardware, events_of
from pulsarcast.simulation.hosts import Seat, make_node
from pulsarcast.simulation.links import Constant
from pulsarcast.simulation.loads import Load, Outcome
from pulsarcast.simulation.process import Core
from pulsarcast.simulation.run import Progress, no_progress
from pulsarcast.simulation.scenario_load import CAPACITY_IN_FLIGHT, PAYLOAD_BYTES, play
from pulsarcast.storage.sqlite import SqliteStore
from pulsarcast.testbed import loaded
from pulsarcast.wire.codec import decode, encode
from pulsarcast.wire.framing import FrameReader, write_frames

TRIES: Final = 5
COUNT: Final = 512
COMPANY: Final = 64
"""Events that are committed together."""
EPOCH: Final = 7
LARGE_BYTES: Final = 50_000
MEMBERS: Final = 5
LATENCY_S: Final = 0.000_1
ALONE_PER_S: Final = 10.0
"""Events a second of which each has the nodes to itself."""
GUESS_S: Final = 0.000_1
ROUNDS: Final = 3
"""Simulations until a delivery costs what it costs real nodes: each changes who shares a turn."""


class Compared(NamedTuple):
    """CPU milliseconds of a delivery under one load, on real and on simulated nodes."""

    load: str
    real: float
    simulated: float


def measure_costs(
    seconds: float, *, progress: Progress = no_progress
) -> tuple[Costs, list[Compared]]:
    """Measure the pieces, then real nodes for `seconds` each way."""
    progress("measurements", 0, 4)
    pieces = _pieces()
    progress("measurements", 1, 4)
    full = Load(MEMBERS, MEMBERS, "tree", PAYLOAD_BYTES, seconds, 0.0, CAPACITY_IN_FLIGHT)
    alone = full._replace(rate=ALONE_PER_S)
    real_alone = loaded.play(alone).cpu_ms_per_delivery
    progress("measurements", 2, 4)
    real_full = loaded.play(full).cpu_ms_per_delivery
    progress("measurements", 3, 4)

    def simulate(load: Load, costs: Costs) -> float:
        return _simulate(load, Hardware(costs, os.cpu_count())).cpu_ms_per_delivery

    # With one event at a time, what turns cost is proportional to what one costs.
    least = simulate(alone, pieces)
    turns = (simulate(alone, replace(pieces, turn_s=GUESS_S)) - least) / GUESS_S
    # Its publisher is given every event as well, and that is not counted as a delivery.
    given = 1000 * MEMBERS / (MEMBERS - 1)

    def costs_with(deliver_s: float) -> Costs:
        turn_s = max(0.0, (real_alone - least - given * deliver_s) / turns)
        costs = replace(pieces, turn_s=turn_s, deliver_s=deliver_s)
        return Costs(**{name: _short(cost) for name, cost in asdict(costs).items()})

    deliver_s = 0.0
    for _ in range(ROUNDS):
        left_ms = real_full - simulate(full, costs_with(deliver_s))
        deliver_s = max(0.0, deliver_s + left_ms / given)
    costs = costs_with(deliver_s)
    progress("measurements", 4, 4)
    return costs, [
        Compared("one event at a time", real_alone, simulate(alone, costs)),
        Compared("as many as they carry", real_full, simulate(full, costs)),
    ]


def _short(cost: float) -> float:
    return float(f"{cost:.3g}")


def _simulate(load: Load, hardware: Hardware, **options: Any) -> Outcome:
    return play(load, hardware=hardware, links=Constant(LATENCY_S), seed=1, **options)


def _pieces() -> Costs:
    """All that is measured by itself; a turn and a delivery cost nothing yet."""
    identity = Identity.from_seed(bytes(32))
    events = _make_events(identity)
    sign_s = _cpu_s(lambda at: identity.sign("event", events[at].block))
    small_s, large_s = (_message_s(size) for size in (PAYLOAD_BYTES, LARGE_BYTES))
    byte_s = max(0.0, (large_s - small_s) / (LARGE_BYTES - PAYLOAD_BYTES))
    commit_s, write_s = _commit_s(events)
    verify_s = _cpu_s(lambda at: decode_event(events[at].block))
    input_s, event_s = _core_s(sign_s + verify_s)
    return Costs(
        turn_s=0.0,
        input_s=input_s,
        event_s=event_s,
        message_s=max(0.0, small_s - PAYLOAD_BYTES * byte_s),
        byte_s=byte_s,
        sign_s=sign_s,
        verify_s=verify_s,
        commit_s=commit_s,
        write_s=write_s,
        deliver_s=0.0,
    )


def _cpu_s(act: Callable[[int], object], count: int = COUNT) -> float:
    """The CPU seconds of one act, the median of several tries."""
    tries = []
    for _ in range(TRIES):
        begun_s = time.process_time()
        for at in range(count):
            act(at)
        tries.append((time.process_time() - begun_s) / count)
    return statistics.median(tries)


def _make_events(identity: Identity) -> list[EventDescriptor]:
    topic, rng = cid_of(b"a topic"), Random(1)
    events: list[EventDescriptor] = []
    for number in range(1, COUNT + 1):
        event = publish_own(
            identity,
            topic=topic,
            version=topic,
            payload=rng.randbytes(PAYLOAD_BYTES),
            created=1_700_000_000_000_000 + number,
            nonce=rng.randbytes(16),
            sequence=Sequence(EPOCH, number),
            parents=[events[-1].cid] if events else [],
        )
        events.append(event)
    return events


def _message_s(size: int) -> float:
    """What a message costs one of its ends: half of what it costs both, sockets apart."""
    ours, theirs = NoiseFraming(bytes(32), bytes(32)), NoiseFraming(bytes(32), bytes(32))
    reader = FrameReader()
    message = EventMessage(bytes(size), 1)

    def travel(_: int) -> None:
        for data in theirs.feed(ours.seal(write_frames([encode(message)]))):
            for frame in reader.feed(data):
                decode(frame)

    return _cpu_s(travel, COUNT if size <= PAYLOAD_BYTES else COUNT // 8) / 2


def _commit_s(events: list[EventDescriptor]) -> tuple[float, float]:
    """What a commit costs, and each write in it."""

    def put(at: int) -> PutEvent:
        event = events[at]
        mark = MarkState(event.publisher, EPOCH, 0, at + 1, event.cid)
        return PutEvent(at + 1, event, mark, 1)

    def commit(company: int) -> float:
        tries = []
        for number in range(TRIES):
            store = SqliteStore(Path(folder, f"{company}-{number}.sqlite"))
            begun_s = time.process_time()
            for at in range(0, COUNT, company):
                store.apply([put(each) for each in range(at, at + company)])
            tries.append((time.process_time() - begun_s) / (COUNT // company))
            store.close()
        return statistics.median(tries)

    with tempfile.TemporaryDirectory(dir=".") as folder:
        alone_s, together_s = commit(1), commit(COMPANY)
    write_s = max(0.0, (together_s - alone_s) / (COMPANY - 1))
    return max(0.0, alone_s - write_s), write_s


class _Timed:
    """A core whose turns are timed, by whether they are about an event."""

    def __init__(self, core: Core, spent: dict[bool, list[float]], events: list[int]) -> None:
        self._core = core
        self._spent = spent
        self._events = events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def handle(self, given: Input, now: Now) -> list[Effect]:
        """Time it."""
        begun_s = time.process_time()
        effects = self._core.handle(given, now)
        spent_s = time.process_time() - begun_s
        count = events_of(given.message) if isinstance(given, MessageReceived) else 0
        count += isinstance(given, Publish)
        self._events.append(count)
        self._spent[bool(count) or isinstance(given, Persisted)].append(spent_s)
        return effects


def _core_s(signature_s: float) -> tuple[float, float]:
    """What an input costs the core, and an event on top, without its `signature_s`.

    That is spent once an event: the nodes of one world share what one of them has verified.
    """
    spent: dict[bool, list[float]] = {False: [], True: []}
    events: list[int] = []
    load = Load(MEMBERS, MEMBERS, "tree", PAYLOAD_BYTES, 8.0, 50.0, COMPANY)

    def make(seat: Seat) -> Core:
        return _Timed(make_node(seat), spent, events)

    came = _simulate(load, Hardware(), make_node=make)
    input_s = statistics.fmean(spent[False])
    total_s = sum(spent[True]) - came.accepted * signature_s
    return input_s, max(0.0, total_s - input_s * len(spent[True])) / max(1, sum(events))
