"""Attacks by peers that lie about what they hold: invented publishers, starts and floors."""

from functools import partial
from random import Random

import pytest

from pulsarcast.model.errors import Rejection
from pulsarcast.model.events import EventDescriptor, Position, decode_event
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import CID_PREFIX, PEER_ID_PREFIX, Cid, PeerId
from pulsarcast.model.topics import (
    DeliveryOrder,
    Mark,
    Retention,
    TopicDescriptor,
    TopicSettings,
    next_version,
)
from pulsarcast.protocol.effects import Effect, Send
from pulsarcast.protocol.inputs import Subscribe, TimerFired, UpdateTopic
from pulsarcast.protocol.limits import (
    PARTS_MAX,
    PARTS_OF_ONE,
    ROW_BYTES,
    SMALL_PARTS_MAX,
    STEPS_MAX,
)
from pulsarcast.protocol.messages import (
    CompareFrontiers,
    EventMessage,
    FetchRange,
    FetchStart,
    FrontierPage,
    FrontierPart,
    Join,
    Message,
    PartHash,
    Range,
    StartParts,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic import starting
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.recovery import WANTS_MAX
from pulsarcast.wire import codec
from tests.support.lab import Lab
from tests.support.people import (
    ALICE,
    BOB,
    CAROL,
    CREATED_US,
    EPOCH,
    MALLORY,
    event_of,
    identity,
    meta_of,
    peer,
    topic_of,
    unordered,
)
from tests.support.solo import Parent, Solo, below, start_at

FAR = 2**62
LEAVES_MAX = Parameters().frontier_list
SECOND, THIRD = (identity(name) for name in ("second liar", "third liar"))
OPEN = topic_of(ALICE)
KEEPING = topic_of(ALICE, unordered(retention=Retention(count=1000)), name="keeping")
ROOTED = topic_of(
    ALICE, unordered(retention=Retention(count=1000), root=CAROL.peer_id), name="rooted"
)


def member(topic: bytes = OPEN.block, marks: tuple[MarkState, ...] = ()) -> Solo:
    metas = [meta_of(ALICE, name).block for name in ("news", "keeping")]
    solo = below(Parent("alice", [topic, *metas], marks=marks))
    solo.subscribe(OPEN.cid if topic == OPEN.block else KEEPING.cid)
    solo.advance(5.0)
    solo.sent.clear()
    return solo


def invented(number: int, high: int = FAR, floor: int = 0) -> MarkState:
    publisher = PeerId(PEER_ID_PREFIX + number.to_bytes(32, "big"))
    return MarkState(publisher, number, floor, high, Cid(CID_PREFIX + number.to_bytes(32, "big")))


def page(*marks: MarkState, topic: Cid = OPEN.cid) -> FrontierPage:
    return FrontierPage(topic, marks, answer=False)


def test_frontier_pages_with_thousands_of_invented_publishers_leave_memory_bounded() -> None:
    """What nobody has is asked for once around, and forgotten."""
    solo = member()
    before = solo.node.footprint()
    for start in range(0, 20_480, 1024):
        solo.hear(MALLORY.peer_id, page(*(invented(n) for n in range(start, start + 1024))))
        assert solo.node.footprint()["wants"] <= WANTS_MAX
    assert solo.node.footprint()["marks"] == before["marks"]
    solo.advance(8 * 3600.0)
    assert solo.node.footprint()["wants"] == 0
    after = solo.node.footprint()
    assert sum(after.values()) <= sum(before.values()) + 16, after


def test_invented_publishers_do_not_keep_us_from_fetching_what_is_real() -> None:
    """Mallory fills all wants and answers nothing; what our parent shows is fetched still."""
    solo = member()
    solo.hear(MALLORY.peer_id, page(*(invented(n) for n in range(WANTS_MAX))))
    events = [event_of(BOB, OPEN, number) for number in (1, 2, 3)]
    parent = solo.peers[ALICE.peer_id]

    def serve(message: Message) -> list[Message]:
        if isinstance(message, FetchRange):
            wanted = [e for e in events if message.publisher == e.publisher]
            blocks = tuple(event.block for event in wanted)
            return [Range(message.request, OPEN.cid, blocks, more=False)]
        return list(parent(message))

    solo.peers[ALICE.peer_id] = serve
    solo.advance(5.0)
    solo.hear(ALICE.peer_id, page(MarkState(BOB.peer_id, EPOCH, 0, 3, events[-1].cid)))
    solo.advance(120.0)
    assert sorted(solo.cids()) == sorted(event.cid for event in events)


def test_a_frontier_without_end_does_not_fill_a_new_subscribers_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hostile parent makes up numberings, and its hashes are right: it has ever more."""
    monkeypatch.setattr(starting, "LOADED_MAX", 2048)
    parent = Parent("alice", [OPEN.block, meta_of(ALICE).block])
    made_up = Frontier(invented(number) for number in range(10_000)).snapshot()
    root = made_up.digest()

    def endless(message: Message) -> list[Message]:
        match message:
            case Join(topic=OPEN.cid):
                start = StartParts(OPEN.cid, root, (PartHash(b"", root),), (), ())
                return [parent(message)[0], start]
            case FetchStart(OPEN.cid, _, parts):
                content = made_up.content(parts, 256, PARTS_MAX)
                rows = tuple(FrontierPart(*row) for row in content.rows)
                return [StartParts(OPEN.cid, root, (), rows, tuple(content.marks))]
            case _:
                return parent(message)

    solo = Solo(contacts=(ALICE.peer_id,))
    solo.peers[ALICE.peer_id] = endless
    solo.start()
    solo.subscribe(OPEN.cid)
    solo.advance(60.0)
    assert 2048 <= solo.node.footprint()["marks"] <= 2048 + 256
    real = event_of(BOB, OPEN)
    solo.hear(ALICE.peer_id, EventMessage(real.block, 1))
    solo.advance(5.0)
    assert solo.cids() == [real.cid], "what nobody made up is loaded once it is needed"


def test_a_start_frontier_of_a_stranger_is_not_taken() -> None:
    """Only the parent that took us in says where we start."""
    parent = Parent("alice", [OPEN.block, meta_of(ALICE).block])
    solo = Solo(contacts=(ALICE.peer_id,))

    def slow(message: Message) -> list[Message]:
        if isinstance(message, Join) and message.topic == OPEN.cid:
            return parent(message)[:1]
        return parent(message)

    solo.peers[ALICE.peer_id] = slow
    solo.start()
    solo.give(Subscribe(77, OPEN.cid))
    solo.hear(MALLORY.peer_id, start_at(OPEN.cid, [invented(1)]))
    assert solo.node.footprint()["marks"] == 0
    assert 77 not in solo.replies
    solo.hear(ALICE.peer_id, start_at(OPEN.cid, [invented(2, high=3)]))
    assert solo.replies[77].refusal is None
    assert solo.node.footprint()["marks"] == 1


def test_a_forged_start_frontier_makes_us_miss_what_it_claims_and_nothing_else() -> None:
    """Said aloud: a hostile parent decides where a *new* subscription starts, for each publisher.

    Claiming numbers that do not exist yet, it hides a publisher from its child (docs/spec/threats:
    withholding parents). It cannot hide one that it did not name, and a new epoch undoes it.
    """
    forged = MarkState(BOB.peer_id, EPOCH, 0, FAR, None)
    solo = member(marks=(forged,))
    hidden, shown, later = (
        event_of(BOB, OPEN, 1),
        event_of(CAROL, OPEN, 1),
        event_of(BOB, OPEN, 1, epoch=EPOCH + 1),
    )
    for event in (hidden, shown, later):
        solo.hear(CAROL.peer_id, EventMessage(event.block, 1))
    assert solo.cids() == [shown.cid, later.cid]


# Floors.


@pytest.mark.parametrize("liar", [MALLORY, ALICE], ids=["a stranger", "the parent"])
def test_a_forged_floor_does_not_silence_a_publisher(liar: Identity) -> None:
    """A peer shows that Bob's numbers up to far are retired. What he publishes next must come.

    One peer's word must not retire what nobody has seen.
    """
    solo = member(KEEPING.block)
    solo.hear(ALICE.peer_id, EventMessage(event_of(BOB, KEEPING, 1).block, 1))
    forged = MarkState(BOB.peer_id, EPOCH, FAR, FAR, None, retired=FAR)
    solo.hear(liar.peer_id, page(forged, topic=KEEPING.cid))
    solo.advance(300.0)
    assert solo.topic(KEEPING.cid).frontier.high(BOB.peer_id, EPOCH) == 1
    solo.hear(ALICE.peer_id, EventMessage(event_of(BOB, KEEPING, 2).block, 1))
    assert len(solo.delivered) == 2


def below_carol() -> Solo:
    """A member of Alice's topic whose parent is Carol: neither author nor publisher."""
    solo = below(Parent("carol", [ROOTED.block, meta_of(ALICE, "rooted").block]))
    solo.subscribe(ROOTED.cid)
    solo.advance(5.0)
    assert solo.topic(ROOTED.cid).overlay.upstream == CAROL.peer_id
    return solo


@pytest.mark.parametrize(
    "liars",
    [(MALLORY,), (CAROL,), (MALLORY, SECOND, THIRD)],
    ids=["a stranger", "the parent", "three"],
)
def test_a_forged_floor_does_not_make_us_skip_what_was_withheld(
    liars: tuple[Identity, ...],
) -> None:
    """Bob's third event is here, the second is kept from us and said to be retired."""
    solo = below_carol()
    first, second, third = (event_of(BOB, ROOTED, number) for number in (1, 2, 3))
    for event in (first, third):
        solo.hear(CAROL.peer_id, EventMessage(event.block, 1))
    forged = MarkState(BOB.peer_id, EPOCH, 2, 3, third.cid, retired=2)
    for _ in range(5):
        for liar in liars:
            solo.hear(liar.peer_id, page(forged, topic=ROOTED.cid))
        solo.advance(60.0)
    assert solo.topic(ROOTED.cid).frontier.high(BOB.peer_id, EPOCH) == 1
    solo.hear(CAROL.peer_id, EventMessage(second.block, 1))
    assert sorted(solo.cids()) == sorted([first.cid, second.cid, third.cid])
    asked = solo.sent_to(ALICE.peer_id, FrontierPage)
    assert asked, "the author could have said so, and is asked"


@pytest.mark.parametrize("who", [ALICE, BOB], ids=["the author", "the publisher"])
def test_what_the_author_or_the_publisher_says_is_retired_is_skipped(who: Identity) -> None:
    """Either could have kept us from it anyway: by a flush, or by saying nothing."""
    solo = below_carol()
    third = event_of(BOB, ROOTED, 3)
    mark = MarkState(BOB.peer_id, EPOCH, 2, 3, third.cid, retired=2)

    def answer(message: Message) -> list[Message]:
        if isinstance(message, FrontierPage) and message.answer:
            return [page(mark, topic=ROOTED.cid)]
        if isinstance(message, FetchRange):
            return [Range(message.request, ROOTED.cid, (), more=False)]
        return []

    solo.peers[who.peer_id] = answer
    solo.hear(CAROL.peer_id, EventMessage(third.block, 1))
    solo.advance(120.0)
    assert solo.topic(ROOTED.cid).frontier.high(BOB.peer_id, EPOCH) == 3


def test_a_late_subscribers_start_is_not_taken_for_retention() -> None:
    """No attack needed: a new subscriber's floor is where it started, not what is gone for good.

    Node 2 misses events while it is cut off. A new subscriber starts after them. When the others
    are down, node 2 meets only the new one: it must go on wanting what it missed.
    """
    lab = Lab(6)
    topic = lab.create(0, unordered(retention=Retention(count=1000)))
    lab.subscribe([1, 2], topic)
    first = lab.publish(1, topic, b"all get this")
    lab.world.cut([[2]])
    lab.run(20.0)
    missed = [lab.publish(1, topic, b"missed %d" % number) for number in range(3)]
    lab.subscribe([3], topic)
    for index in (0, 1, 4, 5):
        lab.world.kill(index)
    lab.world.heal()
    lab.run(300.0)
    for index in (0, 1, 4, 5):
        lab.world.restart(index)
    lab.run(300.0)
    assert sorted(lab.delivered(2, topic)) == sorted([first, *missed])


# Gaps that are skipped, and what waits behind them.

CHAIN = topic_of(
    ALICE,
    TopicSettings(
        order=DeliveryOrder.TOTAL,
        sequencers=(BOB.peer_id,),
        retention=Retention(count=1000),
    ),
    name="chain",
)


def link(number: int, position: int | None = None) -> EventDescriptor:
    """One of the chain's events; nobody has the one before it."""
    parents = [] if number == 1 else [Cid(CID_PREFIX + number.to_bytes(32, "big"))]
    place = Position(0, number if position is None else position)
    return event_of(BOB, CHAIN, number, parents=parents, position=place)


def waiting_for_a_gap() -> tuple[Solo, TopicDescriptor]:
    """A member of a total order that holds Bob's first event, and a fifth that is no fifth."""
    meta = meta_of(ALICE, "chain")
    solo = below(Parent("alice", [CHAIN.block, meta.block]))
    solo.subscribe(CHAIN.cid)
    solo.advance(5.0)
    for event in (link(1), link(5, position=9)):
        solo.hear(ALICE.peer_id, EventMessage(event.block, 1))
    assert solo.cids() == [link(1).cid]
    assert solo.node.footprint()["held_back"] == 1
    return solo, meta


def assert_goes_on_behind_the_gap(solo: Solo) -> None:
    topic = solo.topic(CHAIN.cid)
    assert topic.frontier.high(BOB.peer_id, EPOCH) == 4
    assert Rejection.INVALID_EVENT in solo.reasons()
    assert solo.node.footprint()["held_back"] == 0
    solo.hear(ALICE.peer_id, EventMessage(link(5).block, 1))
    assert solo.cids() == [link(1).cid, link(5).cid]


def test_an_event_out_of_place_behind_a_retired_gap_does_not_end_our_node() -> None:
    """Its sequencer lets us wait for its turn, and then says that all before it is retired."""
    solo, _ = waiting_for_a_gap()
    mark = MarkState(BOB.peer_id, EPOCH, 4, 5, link(5).cid, retired=4)

    def answer(message: Message) -> list[Message]:
        if isinstance(message, FrontierPage) and message.answer:
            return [page(mark, topic=CHAIN.cid)]
        if isinstance(message, FetchRange):
            return [Range(message.request, CHAIN.cid, (), more=False)]
        return []

    solo.peers[BOB.peer_id] = answer
    solo.advance(120.0)
    assert_goes_on_behind_the_gap(solo)


def test_an_event_out_of_place_behind_a_flush_does_not_keep_the_version_off_our_disk() -> None:
    """The version is announced once: taken over by half, it would be gone with the next start."""
    solo, meta = waiting_for_a_gap()
    flush = (Mark(BOB.peer_id, EPOCH, 4),)
    version = next_version(
        ALICE, CHAIN, CHAIN.settings, created=CREATED_US, valid_until=(), flushed=flush
    )
    solo.hear(ALICE.peer_id, EventMessage(event_of(ALICE, meta, payload=version.block).block, 1))
    assert solo.version(CHAIN.cid).cid == version.cid
    assert version.cid in [row.key for row in solo.store.rows() if row.table == "topic"]
    assert_goes_on_behind_the_gap(solo)


# Hashes.


def in_a_large_topic() -> Solo:
    """Thousands of publishers."""
    solo = member()
    for number in range(5000):
        solo.topic(OPEN.cid).frontier.add(invented(number).publisher, 1, 1, None)
    return solo


def made_up(parts: int) -> CompareFrontiers:
    rng = Random(1)
    return CompareFrontiers(
        OPEN.cid,
        tuple(
            FrontierPart(bytes((rng.randrange(16), rng.randrange(16))), rng.randbytes(ROW_BYTES))
            for _ in range(parts)
        ),
    )


def test_a_strangers_hashes_are_not_compared() -> None:
    solo = in_a_large_topic()
    solo.hear(peer("stranger"), made_up(1))
    assert not solo.sent_to(peer("stranger"), FrontierPage)
    assert not solo.sent_to(peer("stranger"), CompareFrontiers)


def test_a_part_that_is_named_a_thousand_times_is_shown_once() -> None:
    """The empty name is all of the frontier, and holds every other part."""
    solo = in_a_large_topic()
    for parts in ((b"",) * SMALL_PARTS_MAX, tuple(bytes(depth) for depth in range(STEPS_MAX))):
        solo.sent.clear()
        solo.hear(ALICE.peer_id, FrontierPage(OPEN.cid, (), answer=True, parts=parts))
        shown = solo.sent_to(ALICE.peer_id, FrontierPage)
        assert sum(len(each.marks) for each in shown) <= LEAVES_MAX
        compared = solo.sent_to(ALICE.peer_id, CompareFrontiers)
        assert sum(len(each.parts) for each in compared) < STEPS_MAX


def test_hashes_that_a_neighbour_made_up_cost_no_more_than_the_parts_that_it_names() -> None:
    solo = in_a_large_topic()
    for parts in (1, PARTS_MAX):
        solo.sent.clear()
        solo.hear(ALICE.peer_id, made_up(parts))
        pages = solo.sent_to(ALICE.peer_id, FrontierPage)
        assert 0 < sum(len(each.marks) for each in pages) <= LEAVES_MAX * PARTS_OF_ONE * parts
        for message in pages:
            codec.decode(codec.encode(message))
        solo.hear(
            ALICE.peer_id, CompareFrontiers(OPEN.cid, (FrontierPart(b"\x63", b"\x01" * 256),))
        )


def test_a_comparison_that_never_ends_goes_no_deeper_than_a_place_is_long() -> None:
    """Alice asks ever deeper: there is a last step."""
    solo = in_a_large_topic()
    for depth in range(STEPS_MAX + 1):
        solo.sent.clear()
        part = FrontierPart(bytes(depth), bytes(range(256)))
        solo.hear(ALICE.peer_id, CompareFrontiers(OPEN.cid, (part,)))
    assert not solo.sent


# Numbers.


def test_numbers_with_holes_do_not_make_us_say_what_nobody_may_say() -> None:
    """A publisher that skips numbers makes our frontier long: pages must stay within the wire."""
    solo = member()
    frontier = solo.topic(OPEN.cid).frontier
    # As if 70,000 such events had come: signing that many would take long.
    frontier.adopt(MarkState(MALLORY.peer_id, EPOCH, 0, 0, None, tuple(range(2, 140_002, 2))))
    effects: list[Effect] = []
    solo.node.turn.effects = effects
    solo.topic(OPEN.cid).work.sharing.compare(ALICE.peer_id)
    messages = [effect.message for effect in effects if isinstance(effect, Send)]
    assert messages
    for message in messages:
        codec.decode(codec.encode(message))


def test_an_event_with_the_highest_number_is_taken_and_asked_about_once() -> None:
    """Numbers huge: the gap before it cannot be filled, and must not keep us busy."""
    solo = member()
    event = event_of(BOB, OPEN, 2**63 - 1)
    solo.hear(ALICE.peer_id, EventMessage(event.block, 1))
    assert solo.cids() == [event.cid]
    solo.advance(120.0)
    assert len(solo.said(FetchRange)) <= 2 + len(list(solo.topic(OPEN.cid).neighbours()))
    assert solo.node.footprint()["wants"] == 0


def test_a_request_for_all_numbers_there_are_is_answered_with_a_bounded_message() -> None:
    solo = Solo().start()
    topic = solo.create()
    for _ in range(300):
        solo.publish(topic, b"x" * 4096)
    (mark,) = solo.topic(topic).frontier.marks()
    fetch = FetchRange(1, topic, solo.me, mark.epoch, 1, 2**63 - 1)
    solo.hear(MALLORY.peer_id, fetch)
    (answer,) = solo.sent_to(MALLORY.peer_id, Range)
    limit = Parameters().range_bytes_max
    assert 0 < sum(len(block) for block in answer.blocks) <= limit
    assert answer.more


def test_who_publishes_under_very_many_epochs_is_forbidden_to_all_the_same() -> None:
    """A version that held all their marks would be too large to be made: it names an index."""
    solo = Solo().start()
    topic = solo.create()
    frontier = solo.topic(topic).frontier
    for epoch in range(30_000):
        frontier.adopt(MarkState(MALLORY.peer_id, FAR + epoch, 0, 1, None))
    for bob in (EPOCH, EPOCH + 1):
        frontier.adopt(MarkState(BOB.peer_id, bob, 0, 7, None))
    frontier.adopt(MarkState(CAROL.peer_id, EPOCH, 0, 3, None))
    only = unordered(publishers=(CAROL.peer_id,))
    reply = solo.ask(lambda call: UpdateTopic(call, topic, only))
    assert reply.refusal is None, reply.refusal
    version = solo.version(topic)
    assert not version.may_publish(MALLORY.peer_id)
    assert len(version.block) < 1000
    index = version.valid_until
    assert not isinstance(index, tuple)
    found: list[bool] = []
    publishers = {BOB.peer_id: 7, MALLORY.peer_id: 0, CAROL.peer_id: 0}
    for publisher in publishers:
        numbering = (publisher, EPOCH)
        find = partial(solo.node.dht.marks.find, [index], numbering, found.append)
        solo.give(TimerFired(solo.node.turn.after(0.0, find)))
    assert found == [True] * 3
    # Carol may go on, so nobody looks for how far she had come.
    marks = solo.node.dht.marks
    assert {each: marks.number(index, (each, EPOCH)) for each in publishers} == publishers


# Epochs.

CAUSAL = topic_of(ALICE, TopicSettings(order=DeliveryOrder.CAUSAL, open=True), name="causal")


def flood(topic: TopicDescriptor, epochs: int, numbers: int) -> tuple[Solo, int]:
    """A member that got events of Mallory's, and the messages that it sent meanwhile."""
    solo = below(Parent("alice", [topic.block, meta_of(ALICE, topic.name).block]))
    solo.subscribe(topic.cid)
    solo.advance(5.0)
    solo.sent.clear()
    for epoch in range(epochs):
        for number in range(1, numbers + 1):
            event = event_of(MALLORY, topic, number, epoch=FAR + epoch)
            solo.hear(ALICE.peer_id, EventMessage(event.block, 1))
    assert len(solo.cids()) == epochs * numbers
    return solo, len(solo.sent)


def test_epochs_without_end_cost_a_member_a_mark_each_and_no_message_more_than_events_do() -> None:
    """Identities without end would cost the same: what bounds either is the right to publish."""
    many_events, sent = flood(OPEN, epochs=1, numbers=600)
    many_epochs, sent_for_epochs = flood(OPEN, epochs=600, numbers=1)
    assert sent_for_epochs <= sent
    marks = many_epochs.node.footprint()["marks"] - many_events.node.footprint()["marks"]
    assert marks == 599
    bob = event_of(BOB, OPEN)
    many_epochs.hear(ALICE.peer_id, EventMessage(bob.block, 1))
    assert many_epochs.cids()[-1] == bob.cid


def test_epochs_without_end_cost_a_causal_publisher_a_merge_for_many_of_them() -> None:
    """Each is a head, as events of so many publishers would be; merges join 64 at a time."""
    solo, _ = flood(CAUSAL, epochs=600, numbers=1)
    solo.publish(CAUSAL.cid, b"mine")
    barrier_max = Parameters().barrier_max
    published = [decode_event(each.block) for each in solo.said(EventMessage)]
    own = [event for event in published if event.publisher == solo.me]
    merges = [event for event in own if event.is_merge]
    assert own[-1].payload == b"mine"
    assert 0 < len(merges) <= -(-600 // (barrier_max - 1))
    assert solo.node.footprint()["heads"] == 1
