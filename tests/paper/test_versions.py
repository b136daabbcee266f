"""New versions of a topic: thesis, 3.2.2 and 3.3.1, and docs/spec/pulsarcast.md, Versions."""

from collections.abc import Iterable

import pytest

from pulsarcast.model import trace
from pulsarcast.model.cbor import decode as decode_cbor
from pulsarcast.model.cbor import encode as encode_cbor
from pulsarcast.model.cbor import opaque
from pulsarcast.model.errors import Rejection, Verdict
from pulsarcast.model.events import Position, Sequence, publish_own
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import (
    TOPIC_BYTES_MAX,
    DeliveryOrder,
    Mark,
    Retention,
    TopicDescriptor,
    TopicSettings,
    decode_topic,
)
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import Now, Publish, Resolve, UpdateTopic
from pulsarcast.protocol.messages import EventMessage
from pulsarcast.simulation.checkers.coverage import check_coverage
from pulsarcast.simulation.observer import Observer
from tests.support.lab import Lab
from tests.support.people import (
    ALICE,
    BOB,
    CREATED_US,
    EPOCH,
    MALLORY,
    event_of,
    meta_of,
    nonce,
    topic_of,
    unordered,
    version_of,
)
from tests.support.solo import Parent, Solo, below

AUTHOR = 0
SIZE = 10
MEMBERS = list(range(1, SIZE))


def only(lab: Lab, *indices: int) -> TopicSettings:
    peers = tuple(lab.peer(index) for index in indices)
    return unordered(publishers=peers, request_to_publish=False)


def number_of(lab: Lab, index: int, topic: Cid) -> int:
    number: int = lab.world.node(index).topics[topic].descriptor.number
    return number


def test_a_new_version_reaches_every_subscriber_through_the_meta_topic_and_takes_effect() -> None:
    """3.2.2: the meta topic is used to disseminate changes for the original topic descriptor."""
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR)
    lab.subscribe(MEMBERS, topic)
    lab.publish(1, topic, b"before")
    lab.update(AUTHOR, topic, only(lab, AUTHOR, 2))
    lab.run(10.0)
    assert [number_of(lab, index, topic) for index in MEMBERS] == [1] * len(MEMBERS)
    refused = lab.ask(1, lambda call: Publish(call, topic, b"after"))
    assert refused.refusal is not None
    allowed = lab.publish(2, topic, b"after")
    assert lab.event(allowed).version != topic
    assert all(allowed in lab.delivered(index, topic) for index in MEMBERS)
    told = lab.records(trace.TopicVersion, 3)
    assert [(record.topic, record.number) for record in told] == [(topic, 1)]


def test_a_new_version_reaches_a_subscriber_that_was_away() -> None:
    """3.3.1 with promise 1: the meta topic has a history like any other."""
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR)
    lab.subscribe(MEMBERS, topic)
    lab.run(5.0)
    lab.world.kill(3)
    lab.update(AUTHOR, topic, only(lab, AUTHOR))
    lab.run(10.0)
    lab.world.restart(3)
    lab.run(60.0)
    assert number_of(lab, 3, topic) == 1


def test_a_version_outlives_a_restart() -> None:
    """Versions: versions are numbered, and a node that was told remembers."""
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR)
    lab.subscribe([1, 2], topic)
    lab.update(AUTHOR, topic, only(lab, AUTHOR))
    lab.run(10.0)
    lab.world.kill(1)
    lab.world.restart(1)
    lab.run(0.0)
    assert number_of(lab, 1, topic) == 1


def test_a_new_subscriber_learns_of_every_version() -> None:
    """3.3.2 fetches the topic by its first version's id; the meta topic leads to the newest."""
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR)
    for size in (100, 200, 300):
        lab.update(AUTHOR, topic, unordered(payload_bytes_max=size))
    lab.subscribe([5], topic)
    lab.run(30.0)
    assert number_of(lab, 5, topic) == 3


def test_the_newest_version_is_found_by_author_and_name() -> None:
    """6.2: a mutable pointer leads from author and name to the newest version."""
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR, name="news")
    lab.update(AUTHOR, topic, unordered(payload_bytes_max=100))
    lab.run(10.0)
    newest = lab.world.node(AUTHOR).topics[topic].descriptor.cid
    reply: Reply = lab.ask(7, lambda call: Resolve(call, lab.peer(AUTHOR), "news"))
    assert reply.cid == newest
    missing = lab.ask(7, lambda call: Resolve(call, lab.peer(AUTHOR), "no news"))
    assert missing.refusal is not None


def test_only_the_author_makes_new_versions() -> None:
    """3.2.2: the author is the peer responsible for maintaining the descriptor."""
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR)
    lab.subscribe([1], topic)
    reply = lab.ask(1, lambda call: UpdateTopic(call, topic, unordered()))
    assert reply.refusal is not None


def member() -> Solo:
    """A subscriber of Alice's open topic."""
    topic, meta = topic_of(ALICE), meta_of(ALICE)
    solo = below(Parent("alice", [topic.block, meta.block]))
    solo.subscribe(topic.cid)
    solo.advance(5.0)
    assert set(solo.node.topics) == {topic.cid, meta.cid}
    return solo


OPEN = topic_of(ALICE)
META_TOPIC = meta_of(ALICE)
ONLY_ALICE = unordered(publishers=(ALICE.peer_id,))


def announce(solo: Solo, block: bytes, number: int = 1) -> None:
    """Alice tells of a version in the meta topic."""
    event = publish_own(
        ALICE,
        topic=META_TOPIC.cid,
        version=META_TOPIC.cid,
        payload=block,
        created=CREATED_US,
        nonce=nonce(f"announcement {number}"),
        sequence=Sequence(EPOCH, number),
        parents=(),
    )
    solo.hear(ALICE.peer_id, EventMessage(event.block, 1))


def test_a_version_by_another_author_is_rejected() -> None:
    """Versions: REJECT, whoever announces it."""
    solo = member()
    theirs = version_of(topic_of(MALLORY, name="theirs"), signer=MALLORY)
    forged = topic_of(MALLORY)
    announce(solo, theirs.block, 1)
    announce(solo, version_of(forged, signer=MALLORY).block, 2)
    announce(solo, b"no version at all", 3)
    assert solo.version(OPEN.cid) == OPEN
    good = version_of(OPEN, ONLY_ALICE, signer=ALICE)
    announce(solo, good.block, 4)
    assert solo.version(OPEN.cid) == good


def test_nobody_but_the_author_is_heard_in_a_meta_topic() -> None:
    """Versions: only the author publishes in a meta topic."""
    solo = member()
    version = version_of(OPEN, ONLY_ALICE, signer=ALICE)
    event = event_of(MALLORY, META_TOPIC, payload=version.block)
    solo.hear(MALLORY.peer_id, EventMessage(event.block, 1))
    assert solo.version(OPEN.cid) == OPEN
    assert solo.reasons() == ["not_allowed"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["lower first", "higher first"])
def test_of_two_versions_with_one_number_the_lower_cid_wins(order: tuple[int, int]) -> None:
    """Versions: the lower CID wins, and both are kept as proof."""
    twins = sorted(
        (version_of(OPEN, unordered(payload_bytes_max=size), signer=ALICE) for size in (100, 200)),
        key=lambda version: version.cid,
    )
    solo = member()
    for place, twin in enumerate(order, start=1):
        announce(solo, twins[twin].block, place)
    assert solo.version(OPEN.cid) == twins[0]
    kept = {row.value for row in solo.store.rows() if row.table == "topic"}
    assert {twin.block for twin in twins} <= kept


def test_an_event_under_a_revoked_right_is_ignored_by_all_and_history_stays_valid() -> None:
    """Versions: each version names the frontier up to which the previous one is valid."""
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR)
    lab.subscribe(MEMBERS, topic)
    before = [lab.publish(1, topic, b"%d" % number) for number in range(3)]
    # Node 1 does not hear of the new version, and publishes under the old one.
    lab.world.cut([[1]])
    lab.run(20.0)
    lab.update(AUTHOR, topic, only(lab, AUTHOR))
    lab.run(10.0)
    late = lab.ask(1, lambda call: Publish(call, topic, b"too late"))
    assert late.refusal is None, "it cannot know"
    lab.world.heal()
    lab.run(120.0)
    for index in (*MEMBERS[1:], AUTHOR):
        assert late.cid not in lab.delivered(index, topic)
    for index in MEMBERS[1:]:
        assert lab.delivered(index, topic) == before
    verdicts = {record.verdict for record in lab.records(trace.Rejected)}
    assert verdicts <= {Verdict.IGNORE}, "no one is to blame"
    # Whoever comes later, from the start, gets what was published by right, and only that.
    lab.world.add_node(contacts=[AUTHOR])
    lab.run(10.0)
    lab.subscribe([SIZE], topic, from_start=True)
    lab.run(60.0)
    assert sorted(lab.delivered(SIZE, topic)) == sorted(before)


def test_a_void_event_leaves_no_gap_behind() -> None:
    """Versions: what nobody delivers still takes its number, or it would be asked for for ever."""
    solo = member()
    until = (Mark(BOB.peer_id, EPOCH, 1),)
    announce(solo, version_of(OPEN, ONLY_ALICE, signer=ALICE, until=until).block)
    for number in (1, 2):
        solo.hear(ALICE.peer_id, EventMessage(event_of(BOB, OPEN, number).block, 1))
    solo.advance(60.0)
    assert [event.sequence.number for event in solo.delivered if event.topic == OPEN.cid] == [1]
    assert solo.topic(OPEN.cid).frontier.high(BOB.peer_id, EPOCH) == 2
    assert solo.node.footprint()["wants"] == 0


def test_an_event_that_names_an_unknown_version_waits_for_it() -> None:
    """Versions: an event names its version; the DHT keeps versions, also those in between."""
    second = version_of(OPEN, signer=ALICE)
    third = version_of(second, ONLY_ALICE, signer=ALICE)
    blocks = [OPEN.block, META_TOPIC.block, second.block, third.block]
    solo = below(Parent("alice", blocks))
    solo.subscribe(OPEN.cid)
    event = event_of(ALICE, third)
    solo.hear(ALICE.peer_id, EventMessage(event.block, 1))
    solo.advance(10.0)
    assert solo.version(OPEN.cid) == third
    assert event.cid in solo.cids()
    assert solo.node.footprint()["parked"] == 0


def test_an_event_under_a_version_that_nobody_has_is_not_delivered() -> None:
    """Versions: nor does it wait for ever."""
    solo = member()
    unknown = version_of(version_of(OPEN, signer=ALICE), signer=ALICE)
    solo.hear(ALICE.peer_id, EventMessage(event_of(ALICE, unknown).block, 1))
    solo.advance(60.0)
    assert not solo.delivered
    assert solo.node.footprint()["parked"] == 0


def sequenced_by(sequencer: PeerId) -> TopicSettings:
    return TopicSettings(
        order=DeliveryOrder.TOTAL,
        publishers=(sequencer,),
        sequencers=(sequencer,),
    )


def test_a_version_cannot_change_the_delivery_order() -> None:
    """3.2.2: possible changes encompass changes to the topic metadata. Said aloud: not to this.

    Members hear of a version at different moments, and would order the same event differently.
    The author hears why not, and the topic goes on as it was.
    """
    lab = Lab(6)
    topic = lab.create(AUTHOR, sequenced_by(lab.peer(AUTHOR)))
    lab.subscribe([1, 2], topic)
    first = lab.publish(AUTHOR, topic, b"in order")
    reply = lab.ask(AUTHOR, lambda call: UpdateTopic(call, topic, unordered()))
    assert reply.refusal is not None
    assert "never change" in reply.refusal.message
    lab.run(10.0)
    second = lab.publish(1, topic, b"on request")
    assert lab.event(second).position is not None
    assert lab.delivered(2, topic) == [first, second]
    assert [number_of(lab, index, topic) for index in (AUTHOR, 1, 2)] == [0, 0, 0]


def test_a_version_from_elsewhere_that_changes_the_order_is_taken_by_nobody() -> None:
    """The same, where the author is another implementation, or means harm."""
    topic = topic_of(ALICE, sequenced_by(ALICE.peer_id))
    looser = unchecked_version(topic, leave_out=("order", "sequencers", "allow"))
    assert looser.delivery_order is DeliveryOrder.NONE
    solo = below(Parent("alice", [topic.block, META_TOPIC.block, looser.block]))
    solo.subscribe(topic.cid)
    solo.advance(5.0)
    announce(solo, looser.block)
    solo.hear(ALICE.peer_id, EventMessage(event_of(ALICE, looser).block, 1))
    solo.advance(10.0)
    reason = Rejection.INVALID_SUCCESSION
    assert solo.reasons() == [reason, reason], "once as announced, once as an event names it"
    assert solo.version(topic.cid) == topic
    event = event_of(ALICE, topic, position=Position(0, 1))
    solo.hear(ALICE.peer_id, EventMessage(event.block, 1))
    assert solo.cids() == [event.cid], "and the topic goes on as it was"


def unchecked_version(previous: TopicDescriptor, *, leave_out: Iterable[str]) -> TopicDescriptor:
    """Alice's next version without some fields: as one who does not check the succession."""
    fields = decode_cbor(version_of(previous, signer=ALICE).block, size_max=TOPIC_BYTES_MAX)
    assert isinstance(fields, dict)
    for key in ("s", *leave_out):
        del fields[key]
    return decode_topic(
        encode_cbor({**fields, "s": opaque(ALICE.sign("topic", encode_cbor(fields)))})
    )


def test_a_flush_forgets_what_was_before_it() -> None:
    """3.1: a special message per topic flushing all past events up to a specific one."""
    lab = Lab(6)
    topic = lab.create(AUTHOR)
    lab.subscribe([1, 2], topic)
    for number in range(5):
        lab.publish(1, topic, b"%d" % number)
    lab.update(AUTHOR, topic, unordered(), flush=True)
    lab.run(200.0)
    after = lab.publish(1, topic, b"after")
    assert [event.cid for event in lab.log(2, topic)] == [after]
    lab.subscribe([3], topic, from_start=True)
    lab.run(30.0)
    assert lab.delivered(3, topic) == [after]


def test_who_was_away_says_what_a_flush_let_go_of_and_nothing_is_called_lost() -> None:
    """3.1 with promise 1: what was flushed is due to nobody; what comes after is, to everyone."""
    lab = Lab(6)
    topic = lab.create(AUTHOR, TopicSettings(open=True, order=DeliveryOrder.PER_PUBLISHER))
    lab.subscribe([1, 2, 3], topic)
    events = [lab.publish(1, topic, b"seen", settle_s=5.0)]
    lab.world.kill(3)
    events += [lab.publish(1, topic, b"%d" % number) for number in range(4)]
    settings = TopicSettings(open=True, order=DeliveryOrder.PER_PUBLISHER)
    lab.update(AUTHOR, topic, settings, flush=True)
    lab.run(60.0)
    lab.world.restart(3)
    lab.run(60.0)
    after = lab.publish(1, topic, b"after", settle_s=5.0)
    assert list(dict.fromkeys(lab.delivered(3, topic))) == [events[0], after]
    for index in (AUTHOR, 1, 2, 3):
        (told,) = lab.records(trace.TopicVersion, index)
        assert told.flushed == (Mark(lab.peer(1), lab.event(after).sequence.epoch, len(events)),)
    observer = Observer()
    for time_s, index, record in lab.seen:
        observer.record(time_s, index, 1, Now(0, 0), record)
    coverage = check_coverage(observer, now_s=lab.world.now)
    assert coverage.findings.count("lost") == 0
    assert coverage.tally.retired == len(events) - 1


@pytest.mark.parametrize("order", [DeliveryOrder.PER_PUBLISHER, DeliveryOrder.CAUSAL])
@pytest.mark.parametrize("knew_it", [True, False], ids=["who knew the version", "who is new"])
def test_who_wants_all_there_is_after_a_flush_begins_behind_it(
    order: DeliveryOrder, knew_it: bool
) -> None:
    """3.1: what was flushed is before anybody's start, whoever asks, and nothing waits for it."""
    lab = Lab(8)
    settings = TopicSettings(open=True, order=order)
    topic = lab.create(AUTHOR, settings)
    newcomer = 3 if knew_it else 5
    lab.subscribe([1, 2, 3], topic)
    for number in range(5):
        lab.publish(1, topic, b"%d" % number)
    lab.update(AUTHOR, topic, settings, flush=True)
    lab.run(30.0)
    after = lab.publish(1, topic, b"after", settle_s=5.0)
    if knew_it:
        lab.unsubscribe(3, topic)
    had = len(lab.delivered(newcomer, topic))
    lab.subscribe([newcomer], topic, from_start=True)
    lab.run(60.0)
    last = lab.publish(1, topic, b"last", settle_s=5.0)
    assert lab.delivered(newcomer, topic)[had:] == [after, last]
    flushed = Mark(lab.peer(1), lab.event(after).sequence.epoch, 5)
    if knew_it:
        assert lab.records(trace.Subscribed, newcomer)[-1].start == (flushed,)
    else:  # it hears of the version once it follows the topic
        assert lab.records(trace.Retired, newcomer) == [trace.Retired(topic, *flushed)]


def test_retention_that_a_new_version_brings_takes_effect() -> None:
    """3.1: topic-specific temporal time-out, changed as 3.2.2 says."""
    lab = Lab(6)
    topic = lab.create(AUTHOR)
    lab.subscribe([1, 2], topic)
    for number in range(8):
        lab.publish(1, topic, b"%d" % number)
    lab.update(AUTHOR, topic, unordered(retention=Retention(count=3)))
    lab.run(200.0)
    assert len(lab.log(2, topic)) == 3
