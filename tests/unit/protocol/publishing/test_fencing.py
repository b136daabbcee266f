"""Epoch fencing: disks that went back in time, and keys that two nodes have (decision 0014)."""

from collections.abc import Iterable

import pytest

from pulsarcast.model import trace
from pulsarcast.model.errors import Halted, Rejection
from pulsarcast.model.events import EventDescriptor, Sequence, publish_own
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import DeliveryOrder, TopicSettings
from pulsarcast.protocol.inputs import PeerLost, Publish
from pulsarcast.protocol.messages import (
    EventMessage,
    FrontierPage,
    Join,
    Leave,
    Message,
    RequestAnswered,
    RequestToPublish,
    Role,
)
from pulsarcast.protocol.publishing.numbering import SavedNumbering
from pulsarcast.protocol.sequencing.intake import FENCED_BYTES_MAX
from pulsarcast.protocol.store import (
    RESTORED,
    Block,
    LoadBlock,
    MarkState,
    PutState,
    StateRow,
)
from pulsarcast.storage.memory import MemoryStore
from tests.support.people import (
    ALICE,
    BOB,
    CREATED_US,
    event_of,
    identity,
    largest_request,
    request_of,
    topic_of,
)
from tests.support.solo import Parent, Solo, below

VICTIM = identity("victim")
TOPIC = topic_of(ALICE)
IN_TOTAL = TopicSettings(
    order=DeliveryOrder.TOTAL,
    publishers=(VICTIM.peer_id,),
    sequencers=(VICTIM.peer_id,),
    request_to_publish=True,
)
ANSWER_S = 10.0


class Neighbour(Parent):
    """A parent that says what it holds of the victim's numbering, or nothing at all."""

    def __init__(self, who: str = "alice") -> None:
        super().__init__(who, [TOPIC.block])
        self.holds: dict[int, int] | None = None
        self.asked: list[FrontierPage] = []

    def __call__(self, message: Message) -> list[Message]:
        if isinstance(message, FrontierPage) and not any(mark.high for mark in message.marks):
            self.asked.append(message)
            if self.holds is not None:
                marks = [
                    MarkState(VICTIM.peer_id, epoch, 0, high, None)
                    for epoch, high in self.holds.items()
                ]
                return [FrontierPage(message.topic, tuple(marks), answer=False)]
        return super().__call__(message)


def first_life(parent: Parent) -> Solo:
    """A member that has published three events."""
    solo = below(parent)
    solo.subscribe(TOPIC.cid)
    for _ in range(3):
        solo.publish(TOPIC.cid)
    return solo


def start_again(store: MemoryStore, *parents: Parent, seed: int = 2) -> Solo:
    solo = Solo(store=store, contacts=[parent.peer for parent in parents], seed=seed)
    for parent in parents:
        solo.peers[parent.peer] = parent
    return solo.start()


def numbering_of(store: MemoryStore, topic: Cid | None = None) -> SavedNumbering:
    """What a disk remembers of the one numbering there is, or of that in a topic."""
    rows = [row for row in store.rows() if row.table == "numbering"]
    (value,) = [row.value for row in rows if topic in (None, row.key)]
    return SavedNumbering.read(value)


def sequence_of(solo: Solo, cid: Cid) -> Sequence:
    (record,) = [
        record
        for record in solo.records
        if isinstance(record, trace.Published) and record.event == cid
    ]
    return Sequence(record.epoch, record.number)


# Before the first event of a life.


def test_if_a_neighbour_knows_of_no_more_than_our_disk_we_go_on_at_once() -> None:
    parent = Neighbour()
    before = first_life(parent)
    epoch = numbering_of(before.store).epoch
    parent.holds = {epoch: 3}
    solo = start_again(before.store, parent)
    assert parent.asked == [], "whoever publishes nothing asks nothing"
    event = solo.publish(TOPIC.cid)
    assert sequence_of(solo, event) == (epoch, 4)
    assert solo.now_s == 0.0
    solo.publish(TOPIC.cid)
    assert len(parent.asked) == 1, "once in a life"


def test_if_a_neighbour_lacks_our_last_events_we_go_on_too() -> None:
    parent = Neighbour()
    before = first_life(parent)
    epoch = numbering_of(before.store).epoch
    parent.holds = {epoch: 1}
    solo = start_again(before.store, parent)
    assert sequence_of(solo, solo.publish(TOPIC.cid)) == (epoch, 4)


def test_if_a_neighbour_knows_of_more_we_begin_a_new_epoch() -> None:
    parent = Neighbour()
    before = first_life(parent)
    epoch = numbering_of(before.store).epoch
    parent.holds = {epoch: 4}
    solo = start_again(before.store, parent)
    sequence = sequence_of(solo, solo.publish(TOPIC.cid))
    assert sequence.epoch != epoch
    assert sequence.number == 1


@pytest.mark.parametrize("holds", [None, {}, {7: 100}], ids=["silent", "nothing", "another"])
def test_if_nobody_can_say_we_begin_a_new_epoch_after_a_while(holds: dict[int, int] | None) -> None:
    parent = Neighbour()
    before = first_life(parent)
    epoch = numbering_of(before.store).epoch
    parent.holds = holds
    solo = start_again(before.store, parent)
    sequence = sequence_of(solo, solo.publish(TOPIC.cid))
    assert sequence.epoch != epoch
    assert sequence.number == 1
    assert solo.now_s <= ANSWER_S


def test_a_node_that_is_alone_does_not_wait() -> None:
    solo = Solo().start()
    topic = solo.create()
    solo.publish(topic)
    again = start_again(solo.store)
    event = again.publish(topic)
    assert sequence_of(again, event).number == 1
    assert again.now_s == 0.0


def test_whoever_is_lost_is_not_waited_for() -> None:
    parent = Neighbour()
    before = first_life(parent)
    solo = start_again(before.store, parent)
    solo.give(Publish(99, TOPIC.cid, b"x"))
    assert 99 not in solo.replies
    solo.give(PeerLost(parent.peer))
    assert solo.replies[99].refusal is None


def test_all_who_publish_meanwhile_are_answered_in_their_order() -> None:
    parent = Neighbour()
    before = first_life(parent)
    solo = start_again(before.store, parent)
    for call in (97, 98, 99):
        solo.give(Publish(call, TOPIC.cid, b"%d" % call))
    assert not solo.replies
    assert len(parent.asked) == 1
    solo.advance(ANSWER_S)
    cids = [solo.replies[call].cid for call in (97, 98, 99)]
    assert [sequence_of(solo, cid).number for cid in cids if cid is not None] == [1, 2, 3]


def test_those_who_heard_of_our_last_event_first_are_asked() -> None:
    """They know best, also if they are our neighbours no longer."""
    parent = Neighbour()
    before = first_life(parent)
    assert numbering_of(before.store).witnesses == (parent.peer,)
    other = Neighbour("carol")
    solo = start_again(before.store, other)
    solo.give(Publish(99, TOPIC.cid, b"x"))
    assert solo.sent_to(parent.peer, FrontierPage)


def test_only_those_are_believed_who_were_asked() -> None:
    parent = Neighbour()
    before = first_life(parent)
    epoch = numbering_of(before.store).epoch
    solo = start_again(before.store, parent)
    solo.give(Publish(99, TOPIC.cid, b"x"))
    stranger = FrontierPage(
        TOPIC.cid, (MarkState(VICTIM.peer_id, epoch, 0, 9, None),), answer=False
    )
    solo.hear(BOB.peer_id, stranger)
    assert 99 not in solo.replies


def test_some_parts_of_a_frontier_are_no_answer() -> None:
    parent = Parent("alice", [TOPIC.block])
    before = below(parent)
    before.subscribe(TOPIC.cid)
    before.publish(TOPIC.cid)
    before.advance(1.0)
    epoch = numbering_of(before.store).epoch
    solo = start_again(before.store, parent)
    solo.give(Publish(99, TOPIC.cid, b"x"))
    others = (MarkState(BOB.peer_id, 7, 0, 1, None),)
    for parts in ((b"\x01",), ()):
        assert 99 not in solo.replies
        page = FrontierPage(TOPIC.cid, others, answer=False, parts=parts)
        solo.hear(parent.peer, page)
    assert numbering_of(solo.store).epoch != epoch, "nobody who was asked holds the last event"


def test_a_neighbour_that_is_asked_about_one_numbering_does_not_tell_of_all() -> None:
    parent = Parent("alice", [TOPIC.block])
    solo = below(parent)
    solo.subscribe(TOPIC.cid)
    for who in (BOB, ALICE):
        solo.hear(parent.peer, EventMessage(event_of(who, TOPIC).block, 1))
    question = MarkState(BOB.peer_id, 7, 0, 0, None)
    solo.sent.clear()
    solo.hear(parent.peer, FrontierPage(TOPIC.cid, (question,), answer=True))
    (page,) = solo.sent_to(parent.peer, FrontierPage)
    assert [mark.publisher for mark in page.marks] == [BOB.peer_id]


@pytest.mark.parametrize(("high", "goes_on"), [(1, True), (2, False)])
def test_who_publishes_from_outside_asks_a_member_how_much_it_holds_of_the_last_epoch(
    high: int, goes_on: bool
) -> None:
    parent = Neighbour()
    before = below(parent)
    before.publish(TOPIC.cid)
    before.advance(1.0)
    epoch = numbering_of(before.store).epoch
    handed_in = MarkState(VICTIM.peer_id, epoch, 0, 1, None)
    before.hear(parent.peer, FrontierPage(TOPIC.cid, (handed_in,), answer=False))
    parent.holds = {epoch: high, 7: 100}
    solo = start_again(before.store, parent)
    sequence = sequence_of(solo, solo.publish(TOPIC.cid))
    assert (sequence == (epoch, 2)) is goes_on
    assert solo.now_s < ANSWER_S


def test_if_the_topic_lacks_what_we_said_from_outside_we_begin_a_new_epoch_at_once() -> None:
    """What is not in the topic yet, nobody there can tell us of."""
    parent = Neighbour()
    before = below(parent)
    before.publish(TOPIC.cid)
    epoch = numbering_of(before.store).epoch
    before.subscribe(TOPIC.cid)
    solo = start_again(before.store.copy(), parent)
    sequence = sequence_of(solo, solo.publish(TOPIC.cid))
    assert sequence.epoch != epoch
    assert sequence.number == 1
    assert solo.now_s == 0.0


def test_a_request_waits_too_and_is_then_published() -> None:
    settings = TopicSettings(publishers=(VICTIM.peer_id,), request_to_publish=True)
    parent = Parent("bob")
    solo = below(parent)
    topic = solo.create(settings)
    solo.publish(topic)
    again = start_again(solo.store, parent)
    again.sent.clear()
    signed = request_of(BOB, topic)
    again.hear(parent.peer, RequestToPublish(signed.block, False, 0))
    again.advance(ANSWER_S)
    (answer,) = again.sent_to(parent.peer, RequestAnswered)
    assert answer.event is not None


def test_requests_that_wait_are_bounded_in_bytes() -> None:
    """A thousand of the largest would be a gigabyte; who has no answer asks again."""
    settings = TopicSettings(publishers=(VICTIM.peer_id,), request_to_publish=True)
    parent = Parent("bob")
    solo = below(parent)
    topic = solo.create(settings)
    solo.hear(parent.peer, Join(topic, 1, Role.MEMBER, solo.me, False, False))
    solo.publish(topic)
    again = start_again(solo.store, Parent("bob"))
    signed = [largest_request(identity(f"author {number}"), topic) for number in range(20)]
    for request in signed:
        again.hear(parent.peer, RequestToPublish(request.block, False, 0))
    waiting = again.node.fencing.waiting_count(topic)
    assert waiting == FENCED_BYTES_MAX // len(signed[0].block)
    again.advance(ANSWER_S)
    assert len(again.sent_to(parent.peer, RequestAnswered)) == waiting
    again.hear(parent.peer, RequestToPublish(signed[-1].block, False, 0))
    assert len(again.sent_to(parent.peer, RequestAnswered)) == waiting + 1


# A disk that says that it was restored.


def restored(store: MemoryStore) -> MemoryStore:
    twin = store.copy()
    twin.apply([PutState(RESTORED)])
    return twin


def test_a_restored_node_asks_nobody_and_takes_a_new_epoch() -> None:
    parent = Neighbour()
    before = first_life(parent)
    epoch = numbering_of(before.store).epoch
    parent.holds = {epoch: 3}
    solo = start_again(restored(before.store), parent)
    sequence = sequence_of(solo, solo.publish(TOPIC.cid))
    assert parent.asked == []
    assert sequence.epoch != epoch
    assert sequence.number == 1


def test_what_a_restored_node_has_seen_to_it_remembers() -> None:
    """Also if it stops before it publishes anything."""
    parent = Neighbour()
    before = first_life(parent)
    epoch = numbering_of(before.store).epoch
    parent.holds = {epoch: 3}
    store = restored(before.store)
    start_again(store, parent)
    assert RESTORED not in store.rows()
    assert numbering_of(store).is_abandoned
    solo = start_again(store, parent, seed=3)
    assert sequence_of(solo, solo.publish(TOPIC.cid)).epoch != epoch


def test_a_restored_node_numbers_its_requests_anew() -> None:
    settings = TopicSettings(publishers=(ALICE.peer_id,), request_to_publish=True)
    topic = topic_of(ALICE, settings)
    parent = Parent("alice", [topic.block])
    solo = below(parent)
    solo.subscribe(topic.cid)
    solo.give(Publish(1001, topic.cid, b"open when the backup was made"))
    store = restored(solo.store)
    again = start_again(store, parent)
    again.give(Publish(1002, topic.cid, b"new"))
    assert not [row for row in store.rows() if row.table == RESTORED.table]
    (asked,) = [row.value for row in store.rows() if row.table == "asked"]
    assert int.from_bytes(asked[8:], "big") == 1
    assert len([row for row in store.rows() if row.table == "outbox"]) == 2
    again.advance(5.0)
    requests = again.sent_to(parent.peer, RequestToPublish)
    assert {request.settled for request in requests} == {0}


def test_a_sequencer_goes_on_behind_what_others_hold_and_it_forgot() -> None:
    solo = Solo().start()
    topic = solo.create(IN_TOTAL)
    solo.publish(topic)
    old = solo.store.copy()
    forgotten = [solo.publish(topic), solo.publish(topic)]
    epoch = numbering_of(old).epoch
    again = start_again(restored(old))
    again.give(Publish(99, topic, b"x"))
    again.advance(60.0)
    assert 99 not in again.replies, "nobody is there to ask, and it must know"
    assert RESTORED in again.store.rows()
    for cid in forgotten:
        again.hear(BOB.peer_id, EventMessage(block_of(solo, cid), 1))
    again.advance(60.0)
    behind = again.replies[99].cid
    assert behind is not None
    assert sequence_of(again, behind) == (epoch, 4)
    assert RESTORED not in again.store.rows()


def test_a_sequencer_that_catches_up_waits_once_however_often_it_is_shown_more() -> None:
    bob = Parent("bob")
    before = below(bob)
    topic = before.create(IN_TOTAL)
    before.hear(bob.peer, Join(topic, 1, Role.MEMBER, before.me, False, False))
    before.publish(topic)
    epoch = numbering_of(before.store).epoch
    solo = start_again(before.store, bob)
    solo.give(Publish(99, topic, b"x"))
    mark = MarkState(solo.me, epoch, 0, 3, None)
    page = FrontierPage(topic, (mark,), answer=False, parts=(b"\x01",))
    timers = []
    for _ in range(5):
        solo.hear(bob.peer, page)
        timers.append(solo.node.footprint()["timers"])
    assert 99 not in solo.replies, "it waits for what it lacks"
    assert timers == 5 * timers[:1]


def block_of(solo: Solo, cid: Cid) -> bytes:
    answer = solo.store.answer(LoadBlock(cid))
    assert isinstance(answer, Block)
    assert answer.block is not None
    return answer.block


# Somebody else with our key.


def made_by_another(
    number: int, epoch: int, *, created: int = CREATED_US, parents: Iterable[Cid] = ()
) -> EventDescriptor:
    return publish_own(
        VICTIM,
        topic=TOPIC.cid,
        version=TOPIC.cid,
        payload=b"not by us",
        created=created,
        nonce=bytes(16),
        sequence=Sequence(epoch, number),
        parents=tuple(parents),
    )


def meet(solo: Solo, sender: PeerId, event: EventDescriptor) -> None:
    solo.hear(sender, EventMessage(event.block, 1))


def is_refused(solo: Solo) -> bool:
    reply = solo.ask(lambda call: Publish(call, TOPIC.cid, b"x"))
    assert reply.refusal is None or reply.refusal.code == Halted.code
    return reply.refusal is not None


def test_whoever_goes_on_in_our_numbering_has_our_key() -> None:
    parent = Neighbour()
    solo = first_life(parent)
    epoch = numbering_of(solo.store).epoch
    meet(solo, parent.peer, made_by_another(4, epoch))
    assert solo.reasons() == [Rejection.KEY_IN_USE]
    assert is_refused(solo)
    assert numbering_of(solo.store).is_abandoned
    assert len(solo.delivered) == 4, "it is a valid event all the same"


def test_whoever_gives_one_of_our_numbers_to_another_event_has_our_key() -> None:
    parent = Neighbour()
    solo = first_life(parent)
    epoch = numbering_of(solo.store).epoch
    for number in (3, 2):
        meet(solo, parent.peer, made_by_another(number, epoch))
    assert solo.reasons().count(Rejection.KEY_IN_USE) == 1
    assert is_refused(solo)


def test_whoever_names_an_event_of_this_life_as_a_parent_lives_too() -> None:
    parent = Neighbour()
    solo = first_life(parent)
    last = numbering_of(solo.store).cid
    meet(solo, parent.peer, made_by_another(1, 77, parents=[last]))
    assert solo.reasons() == [Rejection.KEY_IN_USE]
    assert is_refused(solo)


def test_whoever_made_an_event_since_our_start_lives_too() -> None:
    parent = Neighbour()
    solo = first_life(parent)
    meet(solo, parent.peer, made_by_another(1, 77, created=CREATED_US + 1))
    assert solo.reasons() == [Rejection.KEY_IN_USE]
    assert is_refused(solo)


def test_an_event_from_a_life_that_we_forgot_is_said_once_and_no_reason_to_stop() -> None:
    parent = Neighbour()
    solo = first_life(parent)
    for number in (1, 2, 3):
        meet(solo, parent.peer, made_by_another(number, 77))
    assert solo.reasons() == [Rejection.UNKNOWN_OWN_EVENT]
    assert not is_refused(solo)


def test_our_own_events_that_come_back_are_nothing_new() -> None:
    parent = Neighbour()
    solo = first_life(parent)
    for cid in [record.event for record in solo.records if isinstance(record, trace.Published)]:
        solo.hear(parent.peer, EventMessage(block_of(solo, cid), 1))
    assert solo.reasons() == []
    assert not is_refused(solo)


def test_an_event_that_we_forgot_tells_that_our_disk_went_back() -> None:
    """It comes before we publish: nobody needs to be asked then."""
    parent = Neighbour()
    before = first_life(parent)
    epoch = numbering_of(before.store).epoch
    parent.holds = {epoch: 3}
    solo = start_again(before.store, parent)
    meet(solo, parent.peer, made_by_another(4, epoch))
    assert solo.reasons() == [Rejection.UNKNOWN_OWN_EVENT]
    assert sequence_of(solo, solo.publish(TOPIC.cid)).epoch != epoch


def test_an_event_that_we_forgot_tells_so_also_where_it_has_to_wait_for_others() -> None:
    """We do not hold it yet, and neither does anyone whom we ask."""
    topic = topic_of(ALICE, TopicSettings(open=True, order=DeliveryOrder.PER_PUBLISHER))
    parent = Neighbour()
    parent.blocks[topic.cid] = topic.block
    before = below(parent)
    before.subscribe(topic.cid)
    before.publish(topic.cid)
    epoch = numbering_of(before.store).epoch
    parent.holds = {epoch: 1}
    solo = start_again(before.store, parent)
    meet(solo, parent.peer, event_of(VICTIM, topic, 3, epoch=epoch))
    assert solo.topic(topic.cid).frontier.highest(solo.me, epoch) == 1
    assert sequence_of(solo, solo.publish(topic.cid)).epoch != epoch


def test_an_event_of_an_epoch_before_the_last_does_not_tell_that_our_disk_went_back() -> None:
    parent = Neighbour()
    before = first_life(parent)
    epoch = numbering_of(before.store).epoch
    parent.holds = {epoch: 3}
    solo = start_again(before.store, parent)
    meet(solo, parent.peer, made_by_another(9, 77))
    assert solo.reasons() == [Rejection.UNKNOWN_OWN_EVENT]
    assert sequence_of(solo, solo.publish(TOPIC.cid)) == (epoch, 4)


def test_after_the_next_start_we_publish_in_a_new_epoch() -> None:
    parent = Neighbour()
    solo = first_life(parent)
    epoch = numbering_of(solo.store).epoch
    parent.holds = {epoch: 4}
    meet(solo, parent.peer, made_by_another(4, epoch))
    again = start_again(solo.store, parent)
    assert sequence_of(again, again.publish(TOPIC.cid)).epoch != epoch


def test_while_we_refuse_we_take_no_requests() -> None:
    parent = Neighbour()
    solo = first_life(parent)
    settings = TopicSettings(publishers=(VICTIM.peer_id,), request_to_publish=True)
    own = solo.create(settings)
    epoch = numbering_of(solo.store, TOPIC.cid).epoch
    meet(solo, parent.peer, made_by_another(4, epoch))
    signed = request_of(BOB, own)
    solo.hear(BOB.peer_id, RequestToPublish(signed.block, False, 0))
    assert solo.sent_to(BOB.peer_id, RequestAnswered) == [], "others may take it, or we, later"


def test_two_events_with_one_number_are_shown_to_their_publisher_once() -> None:
    """It may have a clone, and neither passes on what the other said."""
    parent = Neighbour()
    solo = below(parent)
    solo.subscribe(TOPIC.cid)
    one, other, third = (event_of(BOB, TOPIC, payload=word) for word in (b"1", b"2", b"3"))
    for event in (one, other, third):
        meet(solo, parent.peer, event)
    blocks = [message.block for message in solo.sent_to(BOB.peer_id, EventMessage)]
    assert blocks == [one.block, other.block]
    assert solo.sent_to(BOB.peer_id, Leave) == []


def test_another_event_under_a_number_that_we_hold_is_looked_for() -> None:
    """Frontiers are alike then: only the content ids tell."""
    one, other = (event_of(BOB, TOPIC, payload=word) for word in (b"1", b"2"))
    parent = Neighbour()
    parent.blocks[other.cid] = other.block
    solo = below(parent)
    solo.subscribe(TOPIC.cid)
    meet(solo, parent.peer, one)
    claim = MarkState(BOB.peer_id, one.sequence.epoch, 0, 1, other.cid)
    solo.hear(parent.peer, FrontierPage(TOPIC.cid, (claim,), answer=False))
    assert "equivocation" in solo.reasons()


def test_what_our_disk_says_of_a_numbering_is_read_as_it_was_written() -> None:
    event = event_of(VICTIM, TOPIC)
    for is_abandoned in (False, True):
        for witnesses in ((), (ALICE.peer_id, BOB.peer_id)):
            saved = SavedNumbering((1 << 63) - 1, 9, 4, event.cid, witnesses, is_abandoned)
            write = saved.write(TOPIC.cid)
            assert isinstance(write, PutState)
            assert write.row[:2] == StateRow("numbering", TOPIC.cid, b"")[:2]
            assert SavedNumbering.read(write.row.value) == saved
