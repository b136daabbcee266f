"""Attacks on memory, on time and on the stack."""

import sys
import time
from itertools import count

import pytest

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import (
    EVENT_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    Position,
    Sequence,
    decode_event,
    decode_request,
    sign_request,
)
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.pointers import decode_pointer
from pulsarcast.model.topics import AttributeRule, DeliveryOrder, TopicSettings, decode_topic
from pulsarcast.protocol.content import comparing, following
from pulsarcast.protocol.content.messages import CompareContent, ContentCompared
from pulsarcast.protocol.inputs import SubscribeContent
from pulsarcast.protocol.limits import FRAME_BYTES_MAX
from pulsarcast.protocol.messages import (
    EventMessage,
    FetchRange,
    FindPeers,
    FrontierPage,
    Message,
    Range,
    RequestAnswered,
    RequestToPublish,
    StoreBlocks,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.sequencing import entries, followers, sequencer
from pulsarcast.protocol.sequencing.configs import Config, Member, pack_config
from pulsarcast.protocol.sequencing.log import ENTRY_BYTES, Entry, EntryKind
from pulsarcast.protocol.sequencing.messages import Append
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.frontier import BEYOND_MAX, Frontier
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.wire import codec
from tests.support.lab import Lab
from tests.support.people import (
    ALICE,
    BOB,
    EPOCH,
    MALLORY,
    event_for,
    event_of,
    identity,
    meta_of,
    peer,
    request_of,
    topic_of,
    unordered,
    version_of,
)
from tests.support.sequencing import STORE, Pair
from tests.support.solo import Parent, Solo, below

OPEN = topic_of(ALICE)
DECODERS = (decode_event, decode_request, decode_topic, decode_pointer)


def member(settings: TopicSettings | None = None) -> tuple[Solo, Cid]:
    topic = topic_of(ALICE, settings)
    solo = below(Parent("alice", [topic.block, meta_of(ALICE).block]))
    solo.subscribe(topic.cid)
    solo.advance(5.0)
    return solo, topic.cid


# Oversize and nesting.


@pytest.mark.parametrize("decode", DECODERS, ids=lambda decode: decode.__name__)
def test_an_oversize_block_is_refused_before_it_is_read(decode: object) -> None:
    assert callable(decode)
    with pytest.raises(RemoteError, match="oversize"):
        decode(b"\xa0" + bytes(EVENT_BYTES_MAX))


def test_an_oversize_frame_is_refused_before_it_is_read() -> None:
    with pytest.raises(RemoteError, match="frame"):
        codec.decode(bytes(FRAME_BYTES_MAX + 1))


def test_a_payload_larger_than_the_topic_allows_is_refused() -> None:
    solo, topic = member(unordered(payload_bytes_max=10))
    event = event_of(MALLORY, solo.version(topic), payload=bytes(11))
    solo.hear(MALLORY.peer_id, EventMessage(event.block, 1))
    assert not solo.delivered
    assert solo.reasons() == ["oversize"]


def test_the_largest_payload_there_is_can_still_be_sent() -> None:
    event = event_of(MALLORY, OPEN, payload=bytes(PAYLOAD_BYTES_MAX))
    message = EventMessage(event.block, 1)
    assert codec.decode(codec.encode(message)) == message


@pytest.mark.parametrize("decode", DECODERS, ids=lambda decode: decode.__name__)
@pytest.mark.parametrize("depth", [17, 1_000, 100_000])
@pytest.mark.parametrize("opening", [b"\x81", b"\xa1\x61a"], ids=["lists", "maps"])
def test_deep_nesting_is_refused(decode: object, depth: int, opening: bytes) -> None:
    """Nested far beyond Python's stack, and the C stack's."""
    assert callable(decode)
    with pytest.raises(RemoteError):
        decode(opening * depth + b"\x00")


def test_deep_nesting_is_refused_where_an_application_has_raised_the_recursion_limit() -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        with pytest.raises(RemoteError):
            decode_event(b"\x81" * 50_000 + b"\x00")
    finally:
        sys.setrecursionlimit(limit)


# Memory.


def test_events_that_wait_for_others_are_bounded() -> None:
    """Held back: a publisher sends all numbers but the first."""
    settings = TopicSettings(open=True, order=DeliveryOrder.PER_PUBLISHER)
    topic = topic_of(ALICE, settings)
    parent = Parent("alice", [topic.block, meta_of(ALICE).block])
    solo = below(parent, parameters=Parameters(held_back_max=50))
    solo.subscribe(topic.cid)
    for number in range(2, 300):
        event = event_of(MALLORY, topic, number)
        solo.hear(MALLORY.peer_id, EventMessage(event.block, 1))
    assert solo.node.footprint()["held_back"] == 50


def test_events_that_wait_for_versions_are_bounded() -> None:
    """Parked: every event names another version that nobody has."""
    solo, _ = member()
    for number in range(1, 300):
        version = version_of(OPEN, signer=ALICE, created=1_700_000_000_000_000 + number)
        event = event_of(MALLORY, version, number)
        solo.hear(MALLORY.peer_id, EventMessage(event.block, 1))
        assert solo.node.footprint()["parked"] <= 64
    solo.advance(600.0)
    assert solo.node.footprint()["parked"] == 0


def test_requests_that_came_too_early_are_bounded_in_bytes() -> None:
    """A thousand of a megabyte each are a gigabyte: counting them is not enough."""
    solo = Solo(keep_effects=False).start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    payload = bytes(PAYLOAD_BYTES_MAX)
    held = []
    for number in range(2, 32):
        for author in (MALLORY, identity(f"author {number}")):
            signed = request_of(author, topic, number, payload=payload)
            message = RequestToPublish(signed.block, replicated=False, settled=0)
            solo.hear(author.peer_id, message)
        held.append(solo.node.footprint()["requests"])
    assert max(held) * PAYLOAD_BYTES_MAX <= 8 << 20
    assert held[-1] > 1, "there is room for some"


def test_what_a_leading_sequencer_has_proposed_is_bounded_in_bytes() -> None:
    """One author asks for a megabyte at a time, and nothing of it is committed."""
    pair = Pair(keep_effects=False).lead()
    pair.keeps = False
    payload = bytes(PAYLOAD_BYTES_MAX)
    for number in range(1, 25):
        signed = request_of(BOB, pair.topic, number, payload=payload)
        pair.solo.hear(BOB.peer_id, RequestToPublish(signed.block, replicated=False, settled=0))
    assert pair.sequencer.state.leads
    assert 15 <= pair.sequencer.log.last_position <= 16
    assert not pair.sequencer.may_propose
    pair.keeps = True
    pair.solo.advance(5.0)
    assert pair.sequencer.may_propose, "once it is committed there is room again"


def test_what_is_sent_to_a_sequencer_that_does_not_answer_is_bounded_in_bytes() -> None:
    """Up to 512 entries of a megabyte each would wait for it."""
    pair = Pair().lead()
    pair.keeps = False
    pair.solo.sent.clear()
    for number in range(1, 13):
        signed = request_of(BOB, pair.topic, number, payload=bytes(PAYLOAD_BYTES_MAX))
        pair.solo.hear(BOB.peer_id, RequestToPublish(signed.block, replicated=False, settled=0))
    assert pair.sequencer.log.last_position == 12
    sent = [
        entry for message in pair.solo.sent_to(MALLORY.peer_id, Append) for entry in message.entries
    ]
    size = sum(len(entry.body) for entry in sent)
    assert size <= followers.WINDOW_BYTES + EVENT_BYTES_MAX
    assert 3 <= len(sent) < 12
    pair.keeps = True
    pair.solo.advance(5.0)
    assert pair.sequencer.state.committed == pair.sequencer.log.last_index, "it gets all of them"


def test_a_leader_does_not_run_away_from_the_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is committed, and nobody gets it: what no history has stays in memory."""
    monkeypatch.setattr(sequencer, "UNSETTLED_BYTES_MAX", 4 << 20)
    pair = Pair(keep_effects=False).lead()
    for number in range(1, 8):
        signed = request_of(BOB, pair.topic, number, payload=bytes(PAYLOAD_BYTES_MAX))
        pair.solo.hear(BOB.peer_id, RequestToPublish(signed.block, replicated=False, settled=0))
    assert pair.sequencer.state.committed == pair.sequencer.log.last_index
    assert pair.sequencer.log.last_position == 4
    pair.sequencer.state.settled = 2
    assert pair.sequencer.may_propose, "once most histories have it there is room again"


class Leading:
    """Mallory leads a topic of two sequencers, and sends what she likes."""

    def __init__(self) -> None:
        self.pair = Pair()
        self.sequencer = self.pair.sequencer
        self.term, self.committed = 5, 0
        members = (
            Member(self.pair.solo.me, self.sequencer.state.store),
            Member(MALLORY.peer_id, STORE),
        )
        self.append(Entry(self.term, 0, EntryKind.MEMBERS, pack_config(Config(members))))

    def append(self, *entries: Entry, behind: int | None = None) -> None:
        """Send entries behind one that the victim has, or all."""
        before = self.sequencer.log.last_index if behind is None else behind
        before_term = self.sequencer.log.term_at(before) or 0
        message = Append(
            self.pair.topic,
            self.term,
            STORE,
            before,
            before_term,
            entries,
            self.committed,
            certify=1,
            settled=0,
            snapshot=None,
        )
        self.pair.solo.hear(MALLORY.peer_id, message)

    def append_event(self, behind: int | None = None) -> None:
        """Send a megabyte."""
        log = self.sequencer.log
        position = log.position_at(log.last_index if behind is None else behind) + 1
        event = event_of(
            MALLORY,
            self.pair.descriptor,
            position,
            epoch=0,
            payload=bytes(PAYLOAD_BYTES_MAX),
            position=Position(self.term, position),
        )
        self.append(Entry(self.term, position, EntryKind.EVENT, event.block), behind=behind)


def test_an_entry_that_says_nothing_has_nothing_to_carry() -> None:
    leading = Leading()
    for _ in range(3):
        leading.append(Entry(leading.term, 0, EntryKind.NOTHING, bytes(PAYLOAD_BYTES_MAX)))
    assert leading.sequencer.log.last_index == 1
    assert leading.pair.solo.reasons() == ["invalid_log"] * 3
    leading.append(Entry(leading.term, 0, EntryKind.NOTHING, b""))
    assert leading.sequencer.log.last_index == 2


def test_what_a_leader_lets_no_history_have_is_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In every term anew, too. That it is committed she may say as often as she likes."""
    monkeypatch.setattr(entries, "UNHELD_BYTES_MAX", 8 << 20)
    leading = Leading()
    for _ in range(12):
        leading.append_event()
        leading.term += 1
        leading.committed = leading.sequencer.log.last_index
    assert leading.sequencer.log.last_position == 7
    assert leading.pair.solo.reasons() == ["too_many"] * 5


def test_a_leader_that_left_too_much_does_not_keep_out_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entries, "UNHELD_BYTES_MAX", 4 << 20)
    leading = Leading()
    for _ in range(5):
        leading.append_event()
    assert leading.sequencer.log.last_position == 3
    leading.term += 1
    leading.append_event(behind=1)
    assert leading.sequencer.log.last_position == 1
    assert leading.sequencer.log.last_term == leading.term


def test_what_is_in_a_followers_history_was_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that was restarted may not know; nobody must be stuck for that."""
    monkeypatch.setattr(entries, "UNHELD_BYTES_MAX", 4 << 20)
    leading = Leading()
    for _ in range(5):
        leading.append_event()
    assert leading.sequencer.log.last_position == 3
    monkeypatch.setattr(leading.sequencer.state.events, "held", lambda: 2)
    for _ in range(5):
        leading.append_event()
    assert leading.sequencer.log.last_position == 2 + 3


def test_entries_without_a_body_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "UNHELD_BYTES_MAX", 1 << 20)
    leading = Leading()
    for _ in range(20):
        leading.append(*[Entry(leading.term, 0, EntryKind.NOTHING, b"")] * 256)
    assert 3000 < leading.sequencer.log.last_index < (1 << 20) // ENTRY_BYTES


def test_events_that_wait_for_others_are_bounded_in_bytes() -> None:
    settings = TopicSettings(open=True, order=DeliveryOrder.PER_PUBLISHER)
    topic = topic_of(ALICE, settings)
    solo = Solo(contacts=(ALICE.peer_id,), keep_effects=False)
    solo.peers[ALICE.peer_id] = Parent("alice", [topic.block, meta_of(ALICE).block])
    solo.start()
    solo.subscribe(topic.cid)
    payload = bytes(PAYLOAD_BYTES_MAX)
    for number in range(2, 32):
        event = event_of(MALLORY, topic, number, payload=payload)
        solo.hear(MALLORY.peer_id, EventMessage(event.block, 1))
    waiting = solo.topic(topic.cid).ordering._waiting.values()
    size = sum(len(event.block) for held in waiting for event, _ in held.values())
    assert size <= 16 << 20


def test_requests_that_are_never_finished_do_not_pile_up() -> None:
    """Each asks for replicas that cannot be had: what waits for them is bounded."""
    silent = [peer(f"silent {number}") for number in range(5)]
    solo = Solo(contacts=silent, keep_effects=False).start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    for number in range(1, 1301):
        signed = request_of(MALLORY, topic, number)
        solo.hear(MALLORY.peer_id, RequestToPublish(signed.block, replicated=True, settled=0))
    assert solo.node.footprint()["requests"] <= 1024


def test_a_request_from_another_calendar_does_not_hold_up_the_others() -> None:
    """No replica keeps what claims to be 56 years old: trying would keep later ones waiting."""
    silent = [peer(f"silent {number}") for number in range(5)]
    solo = Solo(contacts=silent).start()
    topic = solo.create(TopicSettings(publishers=(solo.me,)))
    solo.sent.clear()
    old = sign_request(
        MALLORY, topic=topic, payload=b"", created=0, nonce=bytes(16), sequence=Sequence(EPOCH, 1)
    )
    solo.hear(MALLORY.peer_id, RequestToPublish(old.block, replicated=True, settled=0))
    (answer,) = solo.sent_to(MALLORY.peer_id, RequestAnswered)
    assert (answer.event is not None, answer.replicas) == (True, 0)
    assert not solo.said(StoreBlocks)
    assert not solo.said(FindPeers), "nor is anybody looked for"


def test_the_memory_of_requests_is_seen_in_the_footprint() -> None:
    """Which requests were published is remembered by author and epoch: operators must see it."""
    allowed = TopicSettings(publishers=(ALICE.peer_id,))
    solo, cid = member(allowed)
    before = sum(solo.node.footprint().values())
    count = 500
    for number in range(1, count + 1):
        signed = request_of(MALLORY, cid, 1, epoch=EPOCH + number)
        event = event_for(ALICE, signed, solo.version(cid), number)
        solo.hear(ALICE.peer_id, EventMessage(event.block, 1))
    assert len(solo.delivered) == count
    assert len(solo.topic(cid).requests) <= sum(solo.node.footprint().values()) - before


def test_replicas_of_topics_that_nobody_knows_leave_nothing_behind() -> None:
    """Well signed events of invented topics: kept on the disk for a time, not in memory."""
    solo = Solo(contacts=(MALLORY.peer_id,), keep_effects=False)
    solo.peers[MALLORY.peer_id] = Parent("mallory")
    solo.start()
    before = solo.node.footprint()
    for number in range(1000):
        topic = topic_of(MALLORY, name=f"invented {number}")
        event = event_of(MALLORY, topic)
        solo.hear(MALLORY.peer_id, StoreBlocks(2 * number, (event.block,)))
    solo.advance(600.0)
    after = solo.node.footprint()
    after.pop("dht_held")
    before.pop("dht_held")
    assert sum(after.values()) <= sum(before.values()) + 8
    assert not solo.node.descriptors._looking


def test_large_events_that_we_hand_in_are_given_in_answers_that_fit_a_frame() -> None:
    """Whoever stores them here and then fetches all at once must not end our node."""
    solo = below(Parent("alice", [OPEN.block, meta_of(ALICE).block], takes_in=False))
    largest = bytes(PAYLOAD_BYTES_MAX)
    events = [event_of(MALLORY, OPEN, number, payload=largest) for number in range(1, 8)]
    for event in events:
        solo.hear(MALLORY.peer_id, StoreBlocks(2 * event.sequence.number, (event.block,)))
    assert solo.node.footprint()["offers"] == len(events)
    fetched: list[bytes] = []
    for request in range(len(events)):
        first = len(fetched) + 1
        fetch = FetchRange(request, OPEN.cid, MALLORY.peer_id, EPOCH, first, 64)
        solo.hear(MALLORY.peer_id, fetch)
        answer = solo.sent_to(MALLORY.peer_id, Range)[-1]
        codec.encode(answer)
        fetched += answer.blocks
        assert answer.more == (len(fetched) < len(events))
    assert fetched == [event.block for event in events]


def test_a_publisher_that_skips_numbers_does_not_fill_memory() -> None:
    """In a topic without order every second number is a new exception to the frontier.

    What is too far ahead is neither kept nor passed on until the gap is closed.
    """
    solo, cid = member()
    for number in range(2, 5000, 2):
        event = event_of(MALLORY, solo.version(cid), number)
        solo.hear(MALLORY.peer_id, EventMessage(event.block, 1))
    (mark,) = [m for m in solo.topic(cid).frontier.marks() if m.publisher == MALLORY.peer_id]
    assert len(mark.beyond) == BEYOND_MAX
    assert len(solo.delivered) == len(solo.sent_to(ALICE.peer_id, EventMessage)) == BEYOND_MAX


def test_what_came_too_far_ahead_comes_again_once_the_gap_is_closed() -> None:
    """Turned away for its own good: nothing is lost by it."""
    topic = topic_of(ALICE)
    solo = below(Parent("alice", [topic.block, meta_of(ALICE).block]))
    solo.subscribe(topic.cid)
    events = [event_of(BOB, topic, number) for number in range(1, BEYOND_MAX + 50)]
    for event in events[1:]:
        solo.hear(ALICE.peer_id, EventMessage(event.block, 1))
    assert len(solo.delivered) == BEYOND_MAX
    parent = solo.peers[ALICE.peer_id]

    def serve(message: Message) -> list[Message]:
        if isinstance(message, FetchRange):
            blocks = tuple(e.block for e in events[message.first - 1 : message.last])
            return [Range(message.request, topic.cid, blocks, more=False)]
        return list(parent(message))

    solo.peers[ALICE.peer_id] = serve
    last = events[-1]
    mark = MarkState(BOB.peer_id, EPOCH, 0, len(events), last.cid)
    solo.hear(ALICE.peer_id, FrontierPage(topic.cid, (mark,), answer=False))
    solo.advance(60.0)
    assert sorted(solo.cids()) == sorted(event.cid for event in events)


def test_an_event_ahead_of_a_long_gap_costs_no_more_time_than_another() -> None:
    """The frontier's exceptions must not be sorted and copied again for ever more of them."""
    frontier = Frontier()
    count = 1500

    def seconds(numbers: range) -> float:
        """As a topic takes them in: what is too far ahead is left out."""
        began = time.perf_counter()
        for number in numbers:
            if not frontier.is_full(MALLORY.peer_id, EPOCH, number):
                frontier.add(MALLORY.peer_id, EPOCH, number, None)
        return time.perf_counter() - began

    first_s = seconds(range(2, 2 + 2 * count, 2))
    for start in range(1, 4):
        at = 2 + 2 * count * start
        last_s = seconds(range(at, at + 2 * count, 2))
    assert last_s < 3 * first_s + 0.02, "four times as many: linear is twice as long on average"


def test_numberings_that_a_member_made_up_are_bounded_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A content subscriber believes a member that is alone, but remembers no more than so much."""
    for module in (comparing, following):
        monkeypatch.setattr(module, "START_MARKS_MAX", 100)
    lab = Lab(4)
    rules = (AttributeRule("price", "float", 0.0, 100.0),)
    topic = lab.create(0, unordered(attributes=rules, content_routing=True))
    lab.subscribe([0], topic)
    liar, reader = lab.world.node(0), lab.world.node(2)
    epochs = count()

    def lie(sender: PeerId, message: CompareContent, topic: Topic | None) -> None:
        made_up = [next(epochs) for _ in range(60)]
        marks = tuple(MarkState(MALLORY.peer_id, epoch, 0, 1, None) for epoch in made_up)
        answer = ContentCompared(message.request, message.topic, 5, 10, 10, b"", (), marks, False)
        liar.turn.send(sender, answer)

    monkeypatch.setattr(liar.content.members, "answer", lie)
    lab.ask(2, lambda call: SubscribeContent(call, topic, "price < 10", 1))
    counts = []
    for _ in range(20):
        lab.run(40.0)
        counts.append(reader.footprint()["content_marks"])
    assert next(epochs) > 1000, "it was asked often"
    assert counts[0] >= 60, "they are seen"
    assert max(counts) <= 7 * 100
