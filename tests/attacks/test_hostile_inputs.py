"""Many hostile inputs in a row: nothing is raised, nothing hangs, nothing grows, nothing is forged.

Half are mutated bytes, for the wire's decoder and the descriptors' decoders; what still decodes is
said to a node. Half are well-formed messages, well signed by hostile identities, and wrong in all
other ways: topics, versions, rights, numbers, parents, answers to questions nobody asked. The node
follows topics of every order, two of them authored by a hostile peer that is its parent there.

How many: the environment variable PULSARCAST_HOSTILE_INPUTS, 10,000 by default.
"""

import gc
import os
import time
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from pulsarcast.model import ids
from pulsarcast.model.errors import LocalError, RemoteError
from pulsarcast.model.events import decode_event, decode_request
from pulsarcast.model.listings import decode_listing, keys_of, search_for
from pulsarcast.model.pointers import decode_pointer
from pulsarcast.model.subscriptions import decode_subscription
from pulsarcast.model.topics import (
    DeliveryOrder,
    Dissemination,
    Retention,
    TopicDescriptor,
    TopicSettings,
    check_event,
    decode_topic,
)
from pulsarcast.protocol.content.space import area, key_of_node
from pulsarcast.protocol.content.spaces import known_filter
from pulsarcast.protocol.effects import Deliver, Effect, Send
from pulsarcast.protocol.inputs import FindTopics, Publish, Subscribe
from pulsarcast.protocol.messages import Join, Meet, Message, Role
from pulsarcast.protocol.store import AnyWrite, PutState
from pulsarcast.storage.memory import MemoryStore
from pulsarcast.wire import codec
from tests.attacks.hostile import HOSTILES, Hostile
from tests.support.people import ALICE, meta_of, topic_of, unordered
from tests.support.solo import Parent, Solo

COUNT = int(os.environ.get("PULSARCAST_HOSTILE_INPUTS", "10000"))
COUNT_SLOW = 200_000
ANSWERS_MAX = 6
"""Questions of the node that are answered, falsely, after each input."""
INPUT_S_MAX = 2.0
"""One input on a loaded machine, collector and all; the mean is a thousandth of it."""
QUIET_S = 2 * 3600.0
"""After this time without inputs, whatever waits should have run out."""
GROWTH_BYTES_MAX = 2 << 20
"""From the middle of the inputs, when bounded tables have had time to fill, to the very end."""
FOOTPRINT_MAX = 3_000
SLOW_GROWTH_BYTES_MAX = 16 << 20
SLOW_FOOTPRINT_MAX = 16_384
"""Ten times as many fill more of the bounded tables: 1,024 events held back for each topic, say."""

DECODERS: tuple[Callable[[bytes], object], ...] = (
    decode_event,
    decode_request,
    decode_topic,
    decode_pointer,
    decode_listing,
    codec.decode,
)
CACHES = (
    ids.peer_key,
    ids.cid_key,
    ids.peer_text,
    ids.cid_text,
    area,
    decode_listing,
    decode_subscription,
    key_of_node,
    keys_of,
    known_filter,
)


class Report(NamedTuple):
    """What came of it all."""

    inputs: int
    raised: list[str]
    unsayable: Counter[str]
    forged: list[str]
    deliveries: int
    decoded: int
    slowest_s: float
    total_s: float
    growth_bytes: int
    footprint: dict[str, int]
    footprint_max: int


class ForgetfulDisk(MemoryStore):
    """A disk that is not memory: what peers had us write is forgotten after a while."""

    __slots__ = ("_writes",)

    def __init__(self) -> None:
        super().__init__()
        self._writes = 0

    def apply(self, writes: Iterable[AnyWrite]) -> tuple[int, ...]:
        """AnyWrite, and now and then begin anew with nothing but what the node itself needs."""
        refused = super().apply(writes)
        self._writes += 1
        if self._writes % 500 == 0:
            kept: list[AnyWrite] = [PutState(row) for row in self.rows() if row.table == "follow"]
            fresh = MemoryStore()
            fresh.apply(kept)
            for name in MemoryStore.__slots__:
                setattr(self, name, getattr(fresh, name))
        return refused


class Victim(Solo):
    """A node that follows topics of every order, and looks at each of its own effects."""

    def __init__(self) -> None:
        super().__init__(contacts=[who.peer_id for who in HOSTILES], keep_effects=False)
        self.store = ForgetfulDisk()
        self.unsayable: Counter[str] = Counter()
        self.forged: list[str] = []
        self.deliveries = 0
        self.asked: list[int] = []
        self.versions: dict[bytes, TopicDescriptor] = {}

    def _carry_out(self, effect: Effect):  # type: ignore[no-untyped-def]
        if isinstance(effect, Send):
            request = getattr(effect.message, "request", None)
            if request is not None:
                self.asked.append(request)
                del self.asked[:-16]
            try:
                codec.decode(codec.encode(effect.message))
            except (RemoteError, LocalError) as error:
                self.unsayable[f"{type(effect.message).__name__}: {error}"] += 1
        elif isinstance(effect, Deliver):
            self.deliveries += 1
            self._check(effect)
        return super()._carry_out(effect)

    def _check(self, effect: Deliver) -> None:
        """Whatever is delivered was published by right, and is what its bytes say."""
        event = effect.event
        topic = self.node.topics.get(event.topic)
        try:
            assert topic is not None
            assert decode_event(event.block) == event
            check_event(topic.versions.by_cid[event.version], event)
        except (RemoteError, AssertionError, KeyError) as error:
            self.forged.append(repr(error))


def following() -> tuple[Victim, list[TopicDescriptor]]:
    """The victim, and the topics that it follows or knows."""
    author = HOSTILES[0]
    victim = Victim()
    shared = TopicSettings(
        order=DeliveryOrder.TOTAL,
        sequencers=(author.peer_id, HOSTILES[1].peer_id, victim.me),
    )
    total = TopicSettings(
        order=DeliveryOrder.TOTAL,
        publishers=(author.peer_id,),
        sequencers=(author.peer_id,),
    )
    causal = TopicSettings(open=True, order=DeliveryOrder.CAUSAL)
    theirs = [
        topic_of(author, name="open"),
        topic_of(author, total, name="total"),
        topic_of(author, TopicSettings(publishers=(author.peer_id,)), name="asked"),
        topic_of(author, shared, name="shared"),
    ]
    alices = [
        topic_of(ALICE, TopicSettings(open=True, order=DeliveryOrder.PER_PUBLISHER), name="each"),
        topic_of(ALICE, TopicSettings(publishers=(ALICE.peer_id,)), name="closed"),
        topic_of(ALICE, unordered(retention=Retention(count=20)), name="kept"),
        topic_of(ALICE, unordered(dissemination=Dissemination.CUBE), name="hot"),
        topic_of(ALICE, causal, name="talk"),
    ]
    metas = [meta_of(author, topic.name) for topic in theirs]
    metas += [meta_of(ALICE, topic.name) for topic in alices]
    everything = [descriptor.block for descriptor in (*theirs, *alices, *metas)]
    for who in HOSTILES:
        victim.peers[who.peer_id] = Parent(f"hostile {HOSTILES.index(who)}", everything)
    victim.start()
    own = [
        victim.create(name="mine"),
        victim.create(causal, name="mine too"),
        victim.create(
            unordered(dissemination=Dissemination.CUBE, tags=("weather",)), name="mine and hot"
        ),
    ]
    for topic in (*theirs[:2], theirs[3], *alices):
        victim.ask(lambda call, cid=topic.cid: Subscribe(call, cid))  # type: ignore[misc]
    # Something in the outbox, something to hand in, and two children.
    victim.give(Publish(900, theirs[2].cid, b"please"))
    for topic_cid in own:
        for child in HOSTILES[2:]:
            victim.hear(child.peer_id, Join(topic_cid, 1, Role.MEMBER, victim.me, False, False))
            victim.hear(child.peer_id, Meet(topic_cid, 0, 64))
    mine = [victim.version(cid) for cid in own]
    return victim, [*theirs, *alices, *mine, *metas[:2]]


def assault(count: int, seed: int = 1) -> Report:
    """Say hostile things until there were `count`, then be silent for a while."""
    rng = Random(seed)
    victim, topics = following()
    hostile = Hostile(rng, topics, victim.me)
    hostile.requests = victim.asked
    patience = 0

    def answer(message: Message) -> list[Message]:
        """Answer falsely, but not without end: a turn of the node has to come to an end."""
        nonlocal patience
        patience -= 1
        return hostile.answers(message) if patience > 0 else []

    for who in HOSTILES:
        victim.peers[who.peer_id] = answer
    raised: list[str] = []
    slowest_s = total_s = 0.0
    decoded = footprint_max = 0
    baseline = 0

    def throw(number: int) -> None:
        nonlocal decoded, patience
        patience = ANSWERS_MAX
        sender = hostile.who().peer_id if number % 5 else hostile.peer()
        if sender == victim.me:
            sender = HOSTILES[1].peer_id
        if number % 2:
            victim.hear(sender, hostile.message())
            return
        made: bytes
        if rng.random() < 0.5:
            made = hostile.mutated(rng.choice(hostile.frames))
            with suppress(RemoteError):
                message = codec.decode(made)
                decoded += 1
                victim.hear(sender, message)
        else:
            made = hostile.mutated(hostile.block())
        for decode in DECODERS:
            with suppress(RemoteError):
                decode(made)

    for number in range(count):
        if number == count // 2:
            baseline = measure()
        began = time.perf_counter()
        try:
            throw(number)
            if number % 20 == 0:
                victim.advance(rng.random())
            if number % 100 == 0:
                victim.give(FindTopics(901, search_for("hostile t", ("weather",), None), 100))
        except Exception as error:
            raised.append(f"input {number}: {error!r} {where(error)}")
            if len(raised) >= 10:
                break
        took_s = time.perf_counter() - began
        slowest_s, total_s = max(slowest_s, took_s), total_s + took_s
        if number % 500 == 0:
            footprint_max = max(footprint_max, sum(victim.node.footprint().values()))
    victim.peers.clear()
    try:
        victim.advance(QUIET_S)
    except Exception as error:
        raised.append(f"afterwards: {error!r} {where(error)}")
    growth = measure() - baseline
    tracemalloc.stop()
    return Report(
        count,
        raised,
        victim.unsayable,
        victim.forged,
        victim.deliveries,
        decoded,
        slowest_s,
        total_s,
        growth,
        victim.node.footprint(),
        footprint_max,
    )


def where(error: Exception) -> str:
    """The innermost lines of a traceback."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))


def measure() -> int:
    """Bytes in use, without caches of bounded size that any traffic fills."""
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    for cache in CACHES:
        cache.cache_clear()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.fixture(scope="module")
def report() -> Report:
    """What came of a default number of inputs."""
    return assault(COUNT)


def test_no_hostile_input_raises_anything(report: Report) -> None:
    """Decoders raise RemoteError and nothing else; a node raises nothing at all."""
    assert report.raised == []
    assert report.decoded > report.inputs // 100, "or the mutations are too coarse to be of use"


def test_no_hostile_input_takes_long(report: Report) -> None:
    assert report.slowest_s < INPUT_S_MAX
    assert report.total_s / report.inputs < INPUT_S_MAX / 100


def test_memory_is_unchanged_after_all_hostile_inputs(report: Report) -> None:
    """Bounded while they come, and unchanged once timers have run out."""
    assert report.footprint_max < FOOTPRINT_MAX
    assert sum(report.footprint.values()) < FOOTPRINT_MAX
    for kind in ("wants", "parked", "dht_placements", "dht_pulls"):
        assert report.footprint[kind] == 0, kind
    for kind in ("dht_calls", "dht_lookups"):
        assert report.footprint[kind] <= 12, "the DHT tends its table, and never more than that"
    assert report.growth_bytes < GROWTH_BYTES_MAX


def test_nothing_forged_is_delivered(report: Report) -> None:
    """Promise 3; and some are delivered: a hostile peer may publish in an open topic."""
    assert report.forged == []
    assert report.deliveries > report.inputs // 100


def test_nothing_is_said_that_an_honest_peer_would_refuse(report: Report) -> None:
    """Else a hostile peer could make honest ones break off with each other."""
    assert report.unsayable == Counter()


@pytest.mark.slow
def test_two_hundred_thousand_hostile_inputs() -> None:
    """The same, ten times as many, from another seed."""
    report = assault(COUNT_SLOW, seed=2)
    assert report.raised == []
    assert report.slowest_s < INPUT_S_MAX
    assert report.footprint_max < SLOW_FOOTPRINT_MAX
    assert sum(report.footprint.values()) < SLOW_FOOTPRINT_MAX
    assert report.growth_bytes < SLOW_GROWTH_BYTES_MAX
    assert report.forged == []
    assert report.unsayable == Counter()
