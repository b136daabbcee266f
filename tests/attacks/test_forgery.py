"""Attacks with what somebody did not say, or may not say (promise 3)."""

import pytest

from pulsarcast.model.cbor import decode as decode_cbor
from pulsarcast.model.cbor import encode as encode_cbor
from pulsarcast.model.cbor import opaque
from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor, decode_event, decode_request
from pulsarcast.model.ids import cid_of
from pulsarcast.model.pointers import pointer_key, sign_pointer
from pulsarcast.model.topics import DeliveryOrder, TopicSettings, create_topic, decode_topic
from pulsarcast.protocol.effects import Load, Send
from pulsarcast.protocol.inputs import MessageReceived, Now, Publish
from pulsarcast.protocol.messages import (
    EventMessage,
    FindPointer,
    PointerFound,
    RequestAnswered,
    RequestToPublish,
    Stored,
    StorePointer,
)
from pulsarcast.protocol.store import MarkState
from tests.support.people import (
    ALICE,
    BOB,
    CAROL,
    CREATED_US,
    EPOCH,
    MALLORY,
    event_for,
    event_of,
    meta_of,
    request_of,
    topic_of,
    unordered,
    version_of,
)
from tests.support.solo import Parent, Solo, below

SEVERAL = TopicSettings(publishers=(ALICE.peer_id, BOB.peer_id), requesters=(CAROL.peer_id,))
OPEN = topic_of(ALICE)
CLOSED = topic_of(ALICE, SEVERAL, name="closed")


def member(topic: bytes, *more: bytes) -> Solo:
    """A subscriber below Alice, who keeps these blocks."""
    metas = [meta_of(ALICE, name).block for name in ("news", "closed")]
    solo = below(Parent("alice", [topic, *metas, *more]))
    solo.subscribe(cid_of(topic))
    solo.advance(5.0)
    return solo


def hear(solo: Solo, *events: EventDescriptor) -> None:
    for event in events:
        solo.hear(MALLORY.peer_id, EventMessage(event.block, 1))


def resigned(event: EventDescriptor, **changes: object) -> bytes:
    """An event's bytes with other fields, and the old signature."""
    fields = decode_cbor(event.block, size_max=1 << 20)
    assert isinstance(fields, dict)
    return encode_cbor({**fields, **changes})


def assert_untouched(solo: Solo) -> None:
    """Nothing was delivered, passed on, or counted as held."""
    assert not solo.delivered
    assert not solo.said(EventMessage)
    assert solo.node.footprint()["marks"] == 0


def test_a_forged_publisher_is_refused() -> None:
    """Mallory signs, and says that Bob did."""
    solo = member(CLOSED.block)
    forged = resigned(event_of(MALLORY, CLOSED), p=BOB.peer_id)
    solo.hear(MALLORY.peer_id, EventMessage(forged, 1))
    own = decode_cbor(event_of(BOB, CLOSED).block, size_max=1 << 20)
    assert isinstance(own, dict)
    own.pop("s")
    stolen = encode_cbor({**own, "s": opaque(MALLORY.sign("event", encode_cbor(own)))})
    solo.hear(MALLORY.peer_id, EventMessage(stolen, 1))
    assert_untouched(solo)
    assert len(solo.reasons()) == 2
    assert "bad_signature" in solo.reasons()


def test_a_publisher_that_may_not_publish_is_refused() -> None:
    solo = member(CLOSED.block)
    hear(solo, event_of(MALLORY, CLOSED))
    assert_untouched(solo)
    assert solo.reasons() == ["not_allowed"]


def test_a_forged_author_is_refused() -> None:
    """Bob may publish, and puts words into Carol's mouth."""
    solo = member(CLOSED.block)
    said = event_for(BOB, request_of(CAROL, CLOSED.cid, payload=b"carol's words"), CLOSED)
    fields = decode_cbor(said.block, size_max=1 << 20)
    assert isinstance(fields, dict)
    request = fields["r"]
    assert isinstance(request, dict)
    request["b"] = opaque(b"bob's words")
    fields.pop("s")
    forged = encode_cbor({**fields, "s": opaque(BOB.sign("event", encode_cbor(fields)))})
    solo.hear(BOB.peer_id, EventMessage(forged, 1))
    assert_untouched(solo)
    assert solo.reasons() == ["bad_signature"]


def test_an_author_that_may_not_request_is_refused() -> None:
    """Bob may publish, but not for Mallory."""
    solo = member(CLOSED.block)
    hear(solo, event_for(BOB, request_of(MALLORY, CLOSED.cid), CLOSED))
    assert_untouched(solo)
    assert solo.reasons() == ["not_allowed"]


def test_a_signature_under_a_request_is_no_signature_under_an_event() -> None:
    """Signed bytes say what they are: one kind cannot be shown as another."""
    event = event_of(BOB, OPEN)
    fields = decode_cbor(event.block, size_max=1 << 20)
    assert isinstance(fields, dict)
    fields.pop("s")
    shown = encode_cbor({**fields, "s": opaque(BOB.sign("request", encode_cbor(fields)))})
    with pytest.raises(RemoteError, match="signature"):
        decode_event(shown)


def test_a_replayed_event_is_delivered_once_and_not_passed_on_again() -> None:
    solo = member(OPEN.block)
    event = event_of(BOB, OPEN)
    hear(solo, *([event] * 50))
    assert solo.cids() == [event.cid]
    assert len(solo.said(EventMessage)) == 1, "to the parent, once"


def test_an_event_replayed_into_another_topic_is_refused() -> None:
    """The topic is a part of what was signed."""
    solo = member(OPEN.block)
    other = topic_of(ALICE, name="closed")
    hear(solo, event_of(BOB, other))
    moved = event_of(BOB, other, topic_cid=OPEN.cid)
    hear(solo, moved)
    solo.advance(60.0)
    assert_untouched(solo)


def test_a_replayed_request_is_published_once() -> None:
    """Whoever overheard a request can send it again, to the same publisher or to others."""
    solo = Solo().start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    signed = request_of(BOB, topic)
    for sender in (BOB, MALLORY, MALLORY, CAROL):
        message = RequestToPublish(signed.block, replicated=False, settled=0)
        solo.hear(sender.peer_id, message)
    solo.advance(60.0)
    assert solo.topic(topic).frontier.marks()[0].high == 1


# Equivocation.


@pytest.mark.parametrize(
    "order", [DeliveryOrder.NONE, DeliveryOrder.PER_PUBLISHER], ids=["none", "per publisher"]
)
def test_two_events_with_one_number_are_kept_as_proof_and_one_is_delivered(
    order: DeliveryOrder,
) -> None:
    """Equivocation (design 5): the publisher lied to somebody, and its own signatures show it."""
    topic = topic_of(ALICE, TopicSettings(open=True, order=order))
    solo = member(topic.block)
    first, second = (event_of(BOB, topic, payload=payload) for payload in (b"yes", b"no"))
    hear(solo, first, second)
    assert solo.cids() == [first.cid]
    assert solo.reasons() == ["equivocation"]
    (proof,) = [row for row in solo.store.rows() if row.table == "proof"]
    shown = decode_event(proof.value)
    assert (shown.publisher, shown.sequence) == (first.publisher, first.sequence)
    assert {shown.cid, proof.key} == {first.cid, second.cid}


def test_equivocation_is_noticed_also_under_an_older_number() -> None:
    """Not only under the newest: the log remembers what stood there."""
    solo = member(OPEN.block)
    events = [event_of(BOB, OPEN, number) for number in (1, 2, 3)]
    hear(solo, *events)
    hear(solo, event_of(BOB, OPEN, 1, payload=b"rewritten"))
    solo.advance(1.0)
    assert [row for row in solo.store.rows() if row.table == "proof"]


def test_equivocation_is_noticed_also_while_the_first_one_waits_for_its_turn() -> None:
    topic = topic_of(ALICE, TopicSettings(open=True, order=DeliveryOrder.PER_PUBLISHER))
    solo = member(topic.block)
    hear(solo, event_of(BOB, topic, 2), event_of(BOB, topic, 2, payload=b"other"))
    solo.advance(0.1)
    assert [row for row in solo.store.rows() if row.table == "proof"]


def test_equivocation_does_not_fill_the_disk() -> None:
    """One proof is enough, under one number or under many."""
    solo = member(OPEN.block)
    hear(solo, *(event_of(BOB, OPEN, payload=b"%d" % n) for n in range(100)))
    assert len([row for row in solo.store.rows() if row.table == "proof"]) == 1
    hear(solo, *(event_of(BOB, OPEN, number) for number in range(2, 50)))
    hear(solo, *(event_of(BOB, OPEN, number, payload=b"rewritten") for number in range(2, 50)))
    assert len([row for row in solo.store.rows() if row.table == "proof"]) == 1
    hear(solo, *(event_of(CAROL, OPEN, payload=b"%d" % n) for n in range(3)))
    assert len([row for row in solo.store.rows() if row.table == "proof"]) == 2, "of each liar"


def test_an_honest_event_that_comes_again_proves_nothing() -> None:
    """Under the newest number, under an older one, and while it waits for its turn."""
    topic = topic_of(ALICE, TopicSettings(open=True, order=DeliveryOrder.PER_PUBLISHER))
    solo = member(topic.block)
    events = [event_of(BOB, topic, number) for number in (1, 2, 3, 5)]
    hear(solo, *events, *events)
    solo.advance(1.0)
    assert not [row for row in solo.store.rows() if row.table == "proof"]
    assert "equivocation" not in solo.reasons()


def test_replayed_events_do_not_keep_the_disk_busy() -> None:
    """Each could be compared with what the disk has: one at a time is."""
    solo = member(OPEN.block)
    events = [event_of(BOB, OPEN, number) for number in range(1, 51)]
    hear(solo, *events)
    assert len(loads(solo, *events)) == 1


def test_what_was_before_our_start_is_not_looked_for_when_it_is_replayed() -> None:
    start = MarkState(BOB.peer_id, EPOCH, 0, 2, None)
    solo = below(Parent("alice", [OPEN.block], marks=(start,)))
    solo.subscribe(OPEN.cid)
    events = [event_of(BOB, OPEN, number) for number in range(1, 5)]
    hear(solo, *events[2:])
    assert solo.cids() == [event.cid for event in events[2:]]
    assert [len(loads(solo, event)) for event in events] == [0, 0, 1, 0]


def loads(solo: Solo, *events: EventDescriptor) -> list[Load]:
    """What the disk is asked when these come again; it does not answer."""
    now = Now(solo.now_s, CREATED_US)
    replays = [MessageReceived(MALLORY.peer_id, EventMessage(each.block, 1)) for each in events]
    effects = [effect for replay in replays for effect in solo.node.handle(replay, now)]
    return [effect for effect in effects if isinstance(effect, Load)]


# Parents.


def test_a_parent_of_another_topic_is_refused() -> None:
    """Design 5: REJECT (parent of another topic), where we hold what the parent really is."""
    elsewhere = event_of(BOB, CLOSED)
    solo = member(OPEN.block, CLOSED.block)
    solo.subscribe(CLOSED.cid)
    hear(solo, elsewhere)
    assert solo.cids() == [elsewhere.cid]
    hear(solo, event_of(BOB, OPEN, parents=(elsewhere.cid,)))
    solo.advance(10.0)
    assert solo.cids() == [elsewhere.cid]


def test_more_than_one_parent_is_refused_where_the_last_seen_is_the_only_one() -> None:
    solo = member(OPEN.block)
    parents = (event_of(BOB, OPEN, 1).cid, event_of(BOB, OPEN, 2).cid)
    hear(solo, event_of(CAROL, OPEN, parents=parents))
    assert_untouched(solo)


# Versions and pointers.


def test_a_version_signed_by_a_stranger_is_refused() -> None:
    stolen = decode_cbor(version_of(OPEN, signer=ALICE).block, size_max=1 << 20)
    assert isinstance(stolen, dict)
    stolen.pop("s")
    stolen["signer"] = MALLORY.peer_id
    block = encode_cbor({**stolen, "s": opaque(MALLORY.sign("topic", encode_cbor(stolen)))})
    forged = decode_topic(block)  # Its own bytes are in order: only the succession is not.
    solo = member(OPEN.block, forged.block)
    hear(solo, event_of(MALLORY, forged))
    solo.advance(10.0)
    assert solo.version(OPEN.cid) == OPEN
    assert_untouched(solo)
    assert "not_allowed" in solo.reasons()


def test_a_topic_that_claims_anothers_name_is_another_topic() -> None:
    """Names are not ids: a topic is its first version's CID."""
    twin = create_topic(MALLORY, "news", unordered(), created=CREATED_US, meta=None)
    solo = member(OPEN.block, twin.block)
    hear(solo, event_of(MALLORY, twin))
    assert_untouched(solo)


def test_a_pointer_with_a_lower_number_does_not_replace_a_newer_one() -> None:
    """Roll-back: an old pointer is well signed, and still not the newest."""
    solo = Solo().start()
    old, new = (sign_pointer(ALICE, "news", n, cid_of(b"%d" % n), topic=OPEN.cid) for n in (1, 2))
    solo.hear(MALLORY.peer_id, StorePointer(2, (new.block,)), StorePointer(4, (old.block,)))
    stored = [message.cids for message in solo.sent_to(MALLORY.peer_id, Stored)]
    assert stored == [(cid_of(new.block),), ()]
    solo.hear(BOB.peer_id, FindPointer(6, pointer_key(ALICE.peer_id, "news")))
    (found,) = solo.sent_to(BOB.peer_id, PointerFound)
    assert found.pointers == (new.block,)


def test_a_pointer_that_its_author_did_not_sign_is_refused() -> None:
    solo = Solo().start()
    good = sign_pointer(ALICE, "news", 1, OPEN.cid, topic=OPEN.cid)
    fields = decode_cbor(good.block, size_max=1 << 20)
    assert isinstance(fields, dict)
    forged = encode_cbor({**fields, "i": 99})
    solo.hear(MALLORY.peer_id, StorePointer(2, (forged,)))
    assert solo.reasons() == ["bad_signature"]
    assert solo.node.footprint()["dht_pointers"] == 0


# Answers to requests.


def test_a_forged_answer_to_a_request_is_not_believed() -> None:
    """Only those whom we asked are: else anyone could make an author believe it was published."""
    topic = topic_of(ALICE, TopicSettings(publishers=(ALICE.peer_id,)))
    solo = below(Parent("alice", [topic.block]))
    solo.give(Publish(99, topic.cid, b"please"))
    (asked,) = solo.sent_to(ALICE.peer_id, RequestToPublish)
    request_id = decode_request(asked.block).request_id
    for event, code in ((cid_of(b"published, I say"), ""), (None, "halted")):
        solo.hear(MALLORY.peer_id, RequestAnswered(topic.cid, request_id, event, 9, code))
    assert 99 not in solo.replies
    assert [row for row in solo.store.rows() if row.table == "outbox"]


def test_a_publisher_that_lies_about_a_request_is_believed_and_can_be_shown_to_lie() -> None:
    """Said aloud: whom the topic trusts to publish can claim that it did. The CID is its word."""
    topic = topic_of(ALICE, TopicSettings(publishers=(ALICE.peer_id,)))
    solo = below(Parent("alice", [topic.block]))
    solo.give(Publish(99, topic.cid, b"please"))
    (asked,) = solo.sent_to(ALICE.peer_id, RequestToPublish)
    lie = RequestAnswered(
        topic.cid, decode_request(asked.block).request_id, cid_of(b"nowhere"), 3, ""
    )
    solo.hear(ALICE.peer_id, lie)
    assert solo.replies[99].cid == cid_of(b"nowhere")


def test_a_request_cannot_be_made_in_anothers_name() -> None:
    solo = Solo().start()
    topic = solo.create(TopicSettings(publishers=(solo.me,), requesters=(BOB.peer_id,)))
    signed = request_of(MALLORY, topic)
    fields = decode_cbor(signed.block, size_max=1 << 20)
    assert isinstance(fields, dict)
    request = fields["r"]
    assert isinstance(request, dict)
    request["a"] = BOB.peer_id
    forged = RequestToPublish(encode_cbor(fields), replicated=False, settled=0)
    solo.hear(MALLORY.peer_id, forged)
    solo.advance(10.0)
    assert solo.node.footprint()["marks"] == 0
    assert solo.reasons() == ["bad_signature"]


def test_whatever_a_node_refuses_it_does_not_pass_on() -> None:
    """Else it would be blamed for what others forged."""
    solo = member(CLOSED.block)
    event = event_of(MALLORY, CLOSED)
    effects = solo.give(MessageReceived(ALICE.peer_id, EventMessage(event.block, 1)))
    assert not [effect for effect in effects if isinstance(effect, Send)]
    damaged = event_of(BOB, CLOSED).block[:-1] + b"\x02"
    effects = solo.give(MessageReceived(ALICE.peer_id, EventMessage(damaged, 1)))
    assert not [effect for effect in effects if isinstance(effect, Send)]
