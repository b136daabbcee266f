"""Handing in: our own events, however large they are, after a restart and when we leave."""

from collections import Counter
from typing import cast

import pytest

from pulsarcast.model import trace
from pulsarcast.model.events import PAYLOAD_BYTES_MAX, EventDescriptor, decode_event
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.dht import placing
from pulsarcast.protocol.effects import Effect, Load, Persist
from pulsarcast.protocol.following import handing_in
from pulsarcast.protocol.following.handing_in import HandingIn
from pulsarcast.protocol.inputs import Input, PeerLost, PeerUp, Publish, Unsubscribe
from pulsarcast.protocol.messages import (
    Contact,
    EventMessage,
    FetchRange,
    Message,
    Range,
    StoreBlocks,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.publishing.numbering import Numbering
from pulsarcast.protocol.store import Block, DropBlock, DropEvents, LoadBlock
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.storage.memory import MemoryStore
from tests.support.parts import Core
from tests.support.people import ALICE, BOB, event_of, meta_of, topic_of
from tests.support.solo import Parent, Solo, below

TOPIC = topic_of(ALICE)


@pytest.fixture(autouse=True)
def _no_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a publisher have more on its way to replicas than it would wait for."""
    monkeypatch.setattr(placing, "BUSY_BYTES", 1 << 30)


class Keeper(Parent):
    """A peer that keeps replicas, or stops to answer whether it does."""

    keeps = True

    def __call__(self, message: Message) -> list[Message]:
        """Answer, but for that."""
        return (
            [] if isinstance(message, StoreBlocks) and not self.keeps else super().__call__(message)
        )


def beside(keepers: list[Keeper], store: MemoryStore | None = None) -> Solo:
    """A node that knows these."""
    solo = Solo(contacts=[keeper.peer for keeper in keepers], store=store)
    solo.peers.update({keeper.peer: keeper for keeper in keepers})
    return solo.start()


def publish(solo: Solo, topic: Cid, count: int) -> None:
    """Publish as large events as there may be, or nearly; no time passes."""
    for number in range(count):
        payload = bytes([number]) * (PAYLOAD_BYTES_MAX - 1000)
        solo.give(Publish(1000 + number, topic, payload))
        assert solo.replies[1000 + number].refusal is None


def restarted(count: int, *, keeps: bool, dropped: int = 0) -> tuple[Solo, Numbering]:
    """A publisher that was killed before anybody had kept a replica, in its next life."""
    keepers = [Keeper(f"keeper {number}") for number in range(4)]
    before = beside(keepers)
    topic = before.create()
    for keeper in keepers:
        keeper.keeps = False
    publish(before, topic, count)
    before.store.apply([DropEvents(topic, dropped)])
    for keeper in keepers:
        keeper.keeps = keeps
    solo = beside(keepers, before.store)
    numbering = solo.node.numberings.resumed(topic)
    assert numbering is not None
    return solo, numbering


def stored(solo: Solo) -> list[EventDescriptor]:
    """The events that somebody was asked to keep."""
    blocks = {block: None for said in solo.said(StoreBlocks) for block in said.blocks}
    return [decode_event(block) for block in blocks if len(block) > 1000]


def test_after_a_restart_the_newest_events_too_are_said_and_replicated_again() -> None:
    """They are more bytes than are read at a time."""
    solo, numbering = restarted(20, keeps=True)
    said = [record.number for record in solo.records if isinstance(record, trace.Published)]
    assert said == [*range(1, 21)]
    assert {event.sequence.number for event in stored(solo)} == {*range(1, 21)}
    assert numbering.replicated == 20


def test_after_a_restart_no_event_counts_as_replicated_before_it_is() -> None:
    solo, numbering = restarted(20, keeps=False)
    assert [*numbering.replicating] == [*range(1, 21)]
    assert {event.sequence.number for event in stored(solo)} <= {*range(1, 17)}, "piece by piece"
    solo.advance(600.0)
    assert numbering.replicated == 20, "as far as anybody is there to keep it"


def test_what_retention_took_before_it_was_replicated_holds_up_nothing_after_a_restart() -> None:
    solo, numbering = restarted(4, keeps=False, dropped=2)
    assert numbering.replicated == 2
    solo.advance(600.0)
    assert numbering.replicated == 4


def test_who_leaves_a_topic_hands_its_newest_events_in_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they are more bytes than are read at a time."""
    monkeypatch.setattr(handing_in, "PIECE_BYTES_MAX", PAYLOAD_BYTES_MAX)
    solo = below(
        Parent("alice", [TOPIC.block, meta_of(ALICE).block]), parameters=Parameters(stall_s=0.0)
    )
    solo.subscribe(TOPIC.cid)
    publish(solo, TOPIC.cid, 5)
    assert solo.ask(lambda call: Unsubscribe(call, TOPIC.cid)).refusal is None
    offered = [decode_event(row.value) for row in solo.store.rows() if row.table == "offer"]
    assert sorted(event.sequence.number for event in offered) == [*range(1, 6)]


def test_who_leaves_a_topic_sees_so_many_of_its_newest_events_handed_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handing_in, "OWN_KEPT_MAX", 3)
    solo = below(Parent("alice", [TOPIC.block, meta_of(ALICE).block]))
    solo.subscribe(TOPIC.cid)
    for _ in range(5):
        solo.publish(TOPIC.cid)
    assert solo.ask(lambda call: Unsubscribe(call, TOPIC.cid)).refusal is None
    offered = [decode_event(row.value) for row in solo.store.rows() if row.table == "offer"]
    assert sorted(event.sequence.number for event in offered) == [3, 4, 5]


def test_what_we_said_from_outside_is_handed_in_from_outside_if_we_leave_before_it_is_in() -> None:
    solo = below(Parent("alice", [TOPIC.block, meta_of(ALICE).block]))
    said = solo.publish(TOPIC.cid, b"from outside")
    solo.subscribe(TOPIC.cid)
    solo.sent.clear()
    assert solo.ask(lambda call: Unsubscribe(call, TOPIC.cid)).refusal is None
    solo.advance(1.0)
    (given,) = solo.sent_to(ALICE.peer_id, EventMessage)
    assert decode_event(given.block).cid == said


def test_who_follows_a_topic_hands_its_newest_events_in_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who took them from us when we were no member may have lost them since."""
    monkeypatch.setattr(handing_in, "PIECE_BYTES_MAX", PAYLOAD_BYTES_MAX)
    solo = below(Parent("alice", [TOPIC.block, meta_of(ALICE).block]))
    solo.subscribe(TOPIC.cid)
    solo.ask(lambda call: Unsubscribe(call, TOPIC.cid))
    publish(solo, TOPIC.cid, 5)
    solo.node.outside.forget(TOPIC.cid)
    solo.subscribe(TOPIC.cid)
    assert len(solo.node.handing_in._own_offers[TOPIC.cid]) == 5


def test_what_finds_no_room_is_handed_in_again_a_few_times_and_our_own_always(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solo = below(Parent("alice", [TOPIC.block, meta_of(ALICE).block]))
    solo.subscribe(TOPIC.cid)
    tried: Counter[PeerId] = Counter()
    monkeypatch.setattr(Topic, "receive", lambda _, event, *__: tried.update([event.publisher]))
    replicas = tuple(event_of(who, TOPIC).block for who in (BOB, solo.identity))
    solo.hear(ALICE.peer_id, StoreBlocks(2, replicas))
    solo.advance(20 * Parameters().offer_delay_s)
    assert tried[BOB.peer_id] == handing_in.LATE_TRIES
    assert tried[solo.me] > 2 * handing_in.LATE_TRIES
    assert solo.node.counts["replica_handed_in"] == 2


def test_what_we_said_from_outside_is_still_our_own_after_a_restart() -> None:
    """It goes to a member at once, and not when a replica's publisher has had its time."""
    alice = Parent("alice", [TOPIC.block, meta_of(ALICE).block], takes_in=False)
    before = below(alice)
    before.publish(TOPIC.cid)
    alice.joins.clear()
    solo = Solo(contacts=(alice.peer,), store=before.store.copy())
    solo.peers[alice.peer] = alice
    solo.start().advance(1.0)
    assert solo.node.outside.has_own(TOPIC.cid)
    assert [join.topic for join in alice.joins] == [TOPIC.cid]


# What we said before we followed a topic that we leave again.


class Committing(Solo):
    """Its disk does as a real one: it commits all that it was given, then answers questions."""

    def give(self, given: Input) -> list[Effect]:
        """Hand the node an input, and let the disk work."""
        effects = self.node.handle(given, self._read_clock())
        todo = list(effects)
        while todo:
            writes = [each for each in todo if isinstance(each, Persist)]
            loads = [each for each in todo if isinstance(each, Load)]
            others = [each for each in todo if not isinstance(each, Persist | Load)]
            now = self._read_clock()
            each_in_turn = (*writes, *loads, *others)
            answers = [answer for each in each_in_turn for answer in self._carry_out(each)]
            todo = [each for answer in answers for each in self.node.handle(answer, now)]
        return effects


def outsider_that_joins_nobody() -> tuple[Committing, Parent, Cid]:
    """It has published from outside, before it followed the topic as the only one who does."""
    topic = topic_of(ALICE)
    alice = Parent("alice", [topic.block, meta_of(ALICE).block], takes_in=False)
    solo = Committing(contacts=(alice.peer,))
    solo.peers[alice.peer] = alice
    solo.start()
    given = Publish(99, topic.cid, b"from outside", idempotency_key=b"key")
    solo.give(given)
    solo.advance(1.0)
    solo.give(PeerLost(alice.peer))
    solo.subscribe(topic.cid)
    solo.advance(60.0)
    event = solo.replies[99].cid
    assert event is not None
    solo.store.apply([DropBlock(event)])  # In a larger network, others keep its replicas.
    return solo, alice, event


def test_what_we_said_before_we_followed_a_topic_is_handed_in_after_we_have_left_it() -> None:
    """No member has it but we: its row on our disk alone would have waited for a restart."""
    solo, alice, event = outsider_that_joins_nobody()
    topic = topic_of(ALICE).cid
    solo.give(PeerUp(Contact(alice.peer), reach=Reach.PUBLIC))
    alice.takes_in = True
    assert solo.ask(lambda call: Unsubscribe(call, topic)).refusal is None
    assert solo.node.outside.has_own(topic)
    solo.advance(30.0)
    handed = [decode_event(each.block).cid for each in solo.sent_to(alice.peer, EventMessage)]
    assert event in handed
    epoch = solo.node.decode(block_of(solo, event)).sequence.epoch
    solo.sent.clear()
    solo.hear(alice.peer, FetchRange(1, topic, solo.me, epoch, 1, 1))
    assert [len(each.blocks) for each in solo.sent_to(alice.peer, Range)] == [1]


def test_what_we_said_before_we_followed_a_topic_is_known_by_its_key_after_we_have_left_it() -> (
    None
):
    solo, _, event = outsider_that_joins_nobody()
    topic = topic_of(ALICE).cid
    for again in (False, True):
        if again:
            solo.publish(topic, b"as a member")
        assert solo.ask(lambda call: Unsubscribe(call, topic)).refusal is None
        same = solo.ask(lambda call: Publish(call, topic, b"", idempotency_key=b"key"))
        assert same.cid == event
        solo.subscribe(topic)


def block_of(solo: Solo, cid: Cid) -> bytes:
    found = solo.store.answer(LoadBlock(cid))
    assert isinstance(found, Block)
    assert found.block is not None
    return found.block


class Late:
    """Plays a topic whose reorder buffer has no room."""

    id = TOPIC.cid

    def __init__(self) -> None:
        self.received: list[int] = []

    def holds(self, event: EventDescriptor) -> bool:
        return False

    def receive(self, event: EventDescriptor, sender: PeerId, hops: int) -> None:
        self.received.append(event.sequence.number)


def handing_in_of(core: Core) -> HandingIn:
    return HandingIn(
        core.context, core.followed, core.descriptors, core.outside, core.fencing, core.publisher
    )


def test_replicas_are_handed_in_by_number_and_a_bounded_number_of_times() -> None:
    core, late = Core(BOB), Late()
    core.followed.members[TOPIC.cid] = cast("Topic", late)
    part = handing_in_of(core)
    for number in (2, 1):
        part.hand_in(event_of(ALICE, TOPIC, number), ALICE.peer_id)
    assert late.received == [], "the tree has time to bring them"
    while core.fire():
        pass
    assert late.received == [1, 2] * handing_in.LATE_TRIES


def test_a_replica_of_a_topic_that_is_not_followed_is_offered_to_its_members() -> None:
    core = Core(BOB)
    part = handing_in_of(core)
    part.hand_in(event_of(ALICE, TOPIC), ALICE.peer_id)
    assert len(core.outside) == 0, "the node does not know the root of the topic"
    core.network.found(TOPIC.block)
    assert len(core.outside) == 1
