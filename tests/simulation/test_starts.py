"""Starts that are loaded in parts: members that come, go, and lose what they had."""

from collections.abc import Sequence

import pytest

from pulsarcast.model import trace
from pulsarcast.model.ids import PEER_ID_PREFIX, Cid, PeerId
from pulsarcast.model.topics import DeliveryOrder, Dissemination, TopicSettings
from pulsarcast.protocol.messages import FetchStart, Join, PartHash, StartParts
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic import starting
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.wire import codec
from tests.support.lab import Lab

AUTHOR, JOINER, NEXT = 0, 3, 4
QUIET = 2000


def quiet(number: int) -> MarkState:
    publisher = PeerId(PEER_ID_PREFIX + number.to_bytes(32, "big"))
    return MarkState(publisher, 1, 5, 5, None)


def large(
    members: Sequence[int] = (),
    *,
    order: DeliveryOrder = DeliveryOrder.NONE,
    dissemination: Dissemination = Dissemination.TREE,
    parameters: Parameters | None = None,
) -> tuple[Lab, Cid]:
    """A topic with many publishers that are quiet by now."""
    lab = Lab(6, parameters=parameters)
    settings = TopicSettings(order=order, open=True, dissemination=dissemination)
    topic = lab.create(AUTHOR, settings)
    at_author = member(lab, AUTHOR, topic)
    for number in range(QUIET):
        at_author.frontier.adopt(quiet(number))
    lab.subscribe(members, topic)
    lab.run(60.0)
    return lab, topic


def member(lab: Lab, node: int, topic: Cid) -> Topic:
    return lab.world.node(node).topics[topic]


SLOWLY = Parameters(frontier_page=16)


def told(lab: Lab, node: int, topic: Cid) -> dict[PeerId, int]:
    """Where a node said that it starts; what it said once never changes."""
    starts: dict[PeerId, int] = {}
    begun = [(each.topic, each.start) for each in lab.records(trace.Subscribed, node)]
    begun += [(each.topic, each.start) for each in lab.records(trace.StartLoaded, node)]
    for publisher, _, number in (mark for of, start in begun if of == topic for mark in start):
        assert starts.setdefault(publisher, number) == number
    return starts


def is_whole(lab: Lab, node: int, topic: Cid) -> bool:
    return not member(lab, node, topic).frontier.missing


def test_a_newcomer_is_let_in_at_once_and_loads_its_start_by_and_by() -> None:
    lab, topic = large()
    began_s = lab.world.now
    lab.subscribe([JOINER], topic)
    assert lab.world.now - began_s < 1.0
    assert not is_whole(lab, JOINER, topic)
    (first, *_) = [each for each in lab.messages(StartParts) if each.topic == topic]
    assert len(codec.encode(first)) < 50_000
    lab.run(30.0)
    assert is_whole(lab, JOINER, topic)
    assert member(lab, JOINER, topic).digest() == member(lab, AUTHOR, topic).digest()
    assert set(told(lab, JOINER, topic).values()) == {5}
    assert len(told(lab, JOINER, topic)) == QUIET
    assert not rows(lab, JOINER)
    sent = [each for each in lab.messages(StartParts, AUTHOR) if each.topic == topic]
    assert sum(len(each.marks) for each in sent) == QUIET, "each mark is sent once"


def rows(lab: Lab, node: int) -> list[bytes]:
    """What a node's disk says of starts."""
    return [row.key for row in lab.world.store(node).rows() if row.table == starting.TABLE]


@pytest.mark.parametrize("order", [DeliveryOrder.NONE, DeliveryOrder.CAUSAL])
def test_what_was_published_before_the_start_is_not_delivered_and_the_rest_is(
    order: DeliveryOrder,
) -> None:
    lab, topic = large([1, 2], order=order, parameters=SLOWLY)
    for number in range(3):
        lab.publish(1, topic, b"before %d" % number)
    lab.subscribe([JOINER], topic)
    due = [lab.publish(node, topic, b"after", settle_s=0.2) for node in (1, 2, 1)]
    assert not is_whole(lab, JOINER, topic)
    lab.run(60.0)
    assert lab.delivered(JOINER, topic) == due
    assert is_whole(lab, JOINER, topic)
    assert told(lab, JOINER, topic)[lab.peer(1)] == 3


@pytest.mark.parametrize("dissemination", list(Dissemination))
def test_who_published_before_begins_once_it_knows_its_own_part(
    dissemination: Dissemination,
) -> None:
    lab, topic = large([1], dissemination=dissemination, parameters=SLOWLY)
    first = lab.event(lab.publish(JOINER, topic, b"from outside", settle_s=30.0))
    lab.subscribe([JOINER], topic)
    assert member(lab, JOINER, topic).frontier.high(lab.peer(JOINER), first.sequence.epoch) == 1
    assert not is_whole(lab, JOINER, topic)
    second = lab.event(lab.publish(JOINER, topic, b"as a member"))
    assert second.sequence == (first.sequence.epoch, 2)
    lab.run(60.0)
    assert lab.delivered(JOINER, topic) == [second.cid]
    assert lab.delivered(1, topic) == [first.cid, second.cid]


def test_who_loses_its_giver_starts_what_it_misses_at_another_member() -> None:
    lab, topic = large([1], parameters=SLOWLY)
    lab.subscribe([JOINER], topic)
    lab.run(1.0)
    giver = member(lab, JOINER, topic).overlay.upstream
    assert giver is not None
    assert not is_whole(lab, JOINER, topic)
    other = 1 if giver == lab.peer(AUTHOR) else AUTHOR
    lab.world.kill(lab.world.index_of(giver))
    lab.run(200.0)
    assert is_whole(lab, JOINER, topic)
    due = lab.publish(other, topic, b"after", replicated=False, settle_s=10.0)
    assert lab.world.node(JOINER).counts["start_elsewhere"] > 0
    assert len(told(lab, JOINER, topic)) >= QUIET
    assert lab.delivered(JOINER, topic) == [due]


@pytest.mark.parametrize("kept", [0, starting.KEPT_MAX])
def test_a_giver_has_to_keep_the_frontier_as_it_was(
    monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """Without it parts start later than the newcomer came, and what is due is skipped."""
    monkeypatch.setattr(starting, "KEPT_MAX", kept)
    lab, topic = large([1, 2], parameters=SLOWLY)
    lab.subscribe([JOINER], topic)
    due = [lab.publish(node, topic, b"after", settle_s=0.5) for node in (1, 2, 5)]
    lab.run(100.0)
    assert is_whole(lab, JOINER, topic)
    lacks = set(due) - set(lab.delivered(JOINER, topic))
    assert bool(lacks) == (kept == 0)


def test_a_restart_in_the_middle_goes_on_where_it_was() -> None:
    lab, topic = large([1], parameters=SLOWLY)
    lab.publish(1, topic, b"before")
    lab.subscribe([JOINER], topic)
    lab.run(1.0)
    assert rows(lab, JOINER)
    known = len(member(lab, JOINER, topic).frontier)
    assert 0 < known < QUIET
    lab.world.kill(JOINER)
    lab.world.restart(JOINER)
    assert len(member(lab, JOINER, topic).frontier) >= known
    due = lab.publish(1, topic, b"after", settle_s=60.0)
    assert is_whole(lab, JOINER, topic)
    assert not rows(lab, JOINER)
    assert lab.delivered(JOINER, topic) == [due]
    assert len(told(lab, JOINER, topic)) == QUIET + 1


def test_what_is_missing_has_to_be_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without those rows a restart takes what came before the start for new."""
    go_on = starting.StartLoader.moved
    monkeypatch.setattr(starting.StartLoader, "moved", lambda loader: (go_on(loader), [])[1])
    lab, topic = large([1, 2], parameters=SLOWLY)
    old = [lab.publish(node, topic, b"before") for node in (1, 2)]
    lab.subscribe([JOINER], topic)
    lab.run(0.5)
    lab.world.kill(JOINER)
    lab.world.restart(JOINER)
    lab.run(60.0)
    assert set(lab.delivered(JOINER, topic)) & set(old)


def test_a_newcomer_lets_others_in_before_it_knows_all_of_its_own_start() -> None:
    lab, topic = large(parameters=Parameters(frontier_page=16, fanout=1))
    lab.publish(AUTHOR, topic, b"before")
    lab.subscribe([JOINER, NEXT], topic)
    assert member(lab, NEXT, topic).overlay.upstream == lab.peer(JOINER)
    assert not is_whole(lab, JOINER, topic)
    due = lab.publish(AUTHOR, topic, b"after", settle_s=100.0)
    for node in (JOINER, NEXT):
        assert is_whole(lab, node, topic)
        assert lab.delivered(node, topic) == [due]
        assert len(told(lab, node, topic)) == QUIET + 1


def test_who_leaves_in_the_middle_leaves_nothing_on_its_disk() -> None:
    lab, topic = large(parameters=SLOWLY)
    lab.subscribe([JOINER], topic)
    lab.run(1.0)
    lab.unsubscribe(JOINER, topic)
    lab.run(10.0)
    assert not rows(lab, JOINER)
    lab.subscribe([JOINER], topic)
    lab.run(30.0)
    assert is_whole(lab, JOINER, topic)


def test_where_nobody_has_a_frontier_any_more_what_is_missing_starts_at_nothing() -> None:
    lab, topic = large(parameters=SLOWLY)
    lab.subscribe([JOINER], topic)
    lab.run(1.0)
    for node in (AUTHOR, 1, 2, NEXT, 5):
        lab.world.kill(node)
    lab.run(2 * starting.ALONE_S + 60.0)
    assert is_whole(lab, JOINER, topic)
    assert lab.world.node(JOINER).counts["start_alone"] == 1
    own = lab.publish(JOINER, topic, b"alone", replicated=False)
    assert lab.delivered(JOINER, topic) == [own]


def test_members_that_all_miss_the_same_get_over_it() -> None:
    lab, topic = large(parameters=Parameters(frontier_page=16, fanout=1))
    lab.subscribe([JOINER, NEXT], topic)
    for node in (AUTHOR, 1, 2, 5):
        lab.world.kill(node)
    lab.run(2 * starting.ALONE_S + 120.0)
    for node in (JOINER, NEXT):
        assert is_whole(lab, node, topic)
    own = lab.publish(NEXT, topic, b"alone", replicated=False, settle_s=10.0)
    for node in (JOINER, NEXT):
        assert lab.delivered(node, topic) == [own]


def test_no_number_of_publishers_closes_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of members hold a tenth of the frontier, and what is published comes through."""
    monkeypatch.setattr(starting, "LOADED_MAX", QUIET // 10)
    lab, topic = large(parameters=Parameters(frontier_page=16, fanout=1))
    lab.publish(1, topic, b"before")
    lab.subscribe([JOINER, NEXT], topic)
    lab.run(60.0)
    for node in (JOINER, NEXT):
        assert len(member(lab, node, topic).frontier) <= QUIET // 10 + 16
    due = [lab.publish(node, topic, b"%d" % node, settle_s=5.0) for node in (1, 2, 5, 1)]
    lab.run(60.0)
    for node in (JOINER, NEXT):
        assert sorted(lab.delivered(node, topic)) == sorted(due)
    idle = len(lab.messages(FetchStart))
    lab.run(300.0)
    assert len(lab.messages(FetchStart)) == idle, "nobody goes on asking"


def test_a_neighbour_that_was_not_asked_starts_nothing() -> None:
    lab, topic = large(parameters=SLOWLY)
    lab.subscribe([JOINER], topic)
    lab.run(0.5)
    held = member(lab, JOINER, topic)
    before = dict(held.frontier.missing)
    part = next(iter(before))
    held.receive_start(
        lab.peer(5), StartParts(topic, bytes(16), (PartHash(part, bytes(16)),), (), ())
    )
    assert dict(held.frontier.missing) == before
    asked = lab.messages(FetchStart, JOINER)
    assert asked
    assert lab.messages(Join, JOINER)
