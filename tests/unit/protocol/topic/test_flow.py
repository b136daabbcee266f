"""Flow control: credit that is held back while a disk lags, and given once it has caught up."""

import pytest

from pulsarcast.model.topics import META, Dissemination
from pulsarcast.protocol.dissemination import overlay
from pulsarcast.protocol.dissemination.overlay import ENVELOPE_BYTES, LATELY_S, Link, size_of
from pulsarcast.protocol.effects import Send
from pulsarcast.protocol.inputs import LinkFree, LinkFull, Now
from pulsarcast.protocol.messages import Credit, EventMessage, FrontierPage
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.topic import flow
from pulsarcast.protocol.topic.flow import FlowControl
from tests.support.lab import Lab
from tests.support.people import ALICE, BOB, CAROL, MALLORY, event_of, meta_of, topic_of, unordered
from tests.support.solo import Parent, below
from tests.unit.protocol.topic.bench import Bench

AUTHOR, MEMBER = 0, 1
WINDOW = 7 * ENVELOPE_BYTES
"""Some events of these tests: each is charged for some 400 bytes and its envelope."""


def test_whose_disk_lags_gives_no_credit_until_it_has_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overlay, "DEBT_WINDOWS", 0)
    lab = Lab(4, parameters=Parameters(window_bytes=WINDOW, stall_s=0.0))
    topic = lab.create(AUTHOR)
    lab.subscribe([MEMBER], topic)
    monkeypatch.setattr(flow, "UNSYNCED_BYTES_MAX", 0)  # it never keeps up
    events = [lab.publish(AUTHOR, topic, b"%d" % number) for number in range(10)]
    lab.run(1.0)
    assert not lab.messages(Credit, MEMBER)
    monkeypatch.setattr(flow, "UNSYNCED_BYTES_MAX", 4096 * 1024)
    # There is no credit left for some of them: they come another way, and their sync makes amends.
    events.append(lab.publish(AUTHOR, topic, b"one more", settle_s=30.0))
    given = [credit for credit in lab.messages(Credit, MEMBER) if credit.topic == topic]
    assert WINDOW <= sum(credit.size for credit in given) < WINDOW + 2 * ENVELOPE_BYTES
    assert sorted(lab.delivered(MEMBER, topic)) == sorted(events)


def test_an_event_that_is_refused_has_used_credit_too() -> None:
    """Its publisher could else use up all that a neighbour has with us, for good."""
    elsewhere, topic = topic_of(ALICE, name="elsewhere"), topic_of(ALICE)
    parent = Parent("alice", [each.block for each in (elsewhere, topic, meta_of(ALICE))])
    solo = below(parent, parameters=Parameters(window_bytes=WINDOW))
    solo.subscribe(topic.cid)
    other = event_of(BOB, elsewhere)
    solo.hear(parent.peer, EventMessage(other.block, 1))
    used = 0
    for number in range(1, 9):
        event = event_of(BOB, topic, number, parents=[other.cid])
        used += size_of(event.block)
        solo.hear(parent.peer, EventMessage(event.block, 1))
    assert solo.reasons() == ["foreign_parent"] * 8
    given = sum(credit.size for credit in solo.sent_to(parent.peer, Credit))
    assert used - WINDOW // 2 < given <= used


def test_a_neighbour_gets_credit_for_part_of_a_window_and_a_stranger_none() -> None:
    bench = Bench(topic_of(ALICE), parameters=Parameters(window_bytes=WINDOW))
    control = FlowControl(bench.state, bench.members.overlay, bench)
    bench.members.add_neighbour(CAROL.peer_id)
    for sender in (CAROL.peer_id, ALICE.peer_id, CAROL.peer_id):
        control.took_from(sender, WINDOW // 8)
    assert bench.sent() == [(CAROL.peer_id, Credit(bench.state.id, WINDOW // 4))]
    assert bench.members.strangers == [ALICE.peer_id]


def pressed() -> tuple[Bench, FlowControl]:
    """ALICE's events are passed on to two members without room: CAROL and MALLORY."""
    bench = Bench(topic_of(ALICE), parameters=Parameters(window_bytes=WINDOW))
    control = FlowControl(bench.state, bench.members.overlay, bench)
    for who in (ALICE, CAROL, MALLORY):
        bench.members.add_neighbour(who.peer_id)
    for _ in range(4):
        control.took_from(ALICE.peer_id, WINDOW // 4)
    assert bench.sent() == []
    return bench, control


def test_who_sends_gets_credit_once_half_of_the_members_further_on_have_room() -> None:
    bench, control = pressed()
    control.receive(CAROL.peer_id, Credit(bench.state.id, WINDOW // 4))
    assert bench.sent() == [(ALICE.peer_id, Credit(bench.state.id, 4 * (WINDOW // 4)))]
    control.took_from(ALICE.peer_id, WINDOW // 4)
    assert len(bench.sent()) == 1


def test_members_further_on_that_take_nothing_are_waited_for_a_while_only() -> None:
    bench, _ = pressed()
    bench.turn.now = flow.HANDED_ON_S
    (timer,) = bench.turn._timers
    bench.turn.fired(timer)
    assert len(bench.sent()) == 1


@pytest.mark.parametrize("kind", [Dissemination.TREE, Dissemination.CUBE])
def test_a_slow_subtree_slows_the_publisher_and_a_cube_waits_for_nobody(
    kind: Dissemination,
) -> None:
    """An inner member whose children give no credit."""
    lab = Lab(4, parameters=Parameters(window_bytes=WINDOW, fanout=1))
    topic = lab.create(AUTHOR, unordered(dissemination=kind))
    lab.subscribe([MEMBER, 2, 3], topic)
    node = lab.world.node(MEMBER).topics[topic]
    author, *others = lab.peer(AUTHOR), lab.peer(2), lab.peer(3)
    for peer in others:
        if peer in node.overlay.links:
            node.overlay.links[peer].credit = 0
            node.overlay.links[peer].dry_s = lab.world.now
    hearers = node.overlay.first_to_hear(flow.HEARERS_MAX, author)
    assert bool(node.work.flow.pauses_s(author)) == (kind is Dissemination.TREE) == bool(hearers)


@pytest.mark.parametrize(("slow", "is_narrow"), [(1, False), (2, True), (3, True)])
def test_where_most_members_take_seconds_to_give_credit_the_line_is_narrow(
    slow: int, is_narrow: bool
) -> None:
    bench = Bench(topic_of(ALICE), parameters=Parameters(window_bytes=WINDOW))
    control = FlowControl(bench.state, bench.members.overlay, bench)
    links = [bench.members.add_neighbour(who.peer_id) for who in (ALICE, CAROL, MALLORY)]
    for link in links:
        link.credit = WINDOW
    for link in links[:slow]:
        link.credit = 0
    bench.turn.now = flow.NARROW_PAUSE_S
    control.receive(ALICE.peer_id, Credit(bench.state.id, WINDOW // 4))
    assert bench.members.narrowed == is_narrow
    bench.turn.now += LATELY_S
    links[0].credit = 0
    links[0].dry_s = bench.turn.now
    control.receive(ALICE.peer_id, Credit(bench.state.id, WINDOW // 4))
    assert bench.members.narrowed == is_narrow, "it gave credit at once"


def test_a_neighbour_that_missed_events_is_shown_what_there_is_once_it_has_credit() -> None:
    bench = Bench(topic_of(ALICE), parameters=Parameters(window_bytes=WINDOW))
    control = FlowControl(bench.state, bench.members.overlay, bench)
    link = bench.members.add_neighbour(CAROL.peer_id)
    link.behind = True
    for _ in range(2):
        control.receive(CAROL.peer_id, Credit(bench.state.id, WINDOW))
    ((shown_to, page),) = bench.sent()
    assert (shown_to, type(page)) == (CAROL.peer_id, FrontierPage)
    assert link.credit == WINDOW, "and never more"


def test_the_largest_event_needs_no_more_than_any_credit() -> None:
    link = Link(1, 0.0)
    assert link.spend(1_000_000, 5.0)
    assert not link.spend(1, 6.0)
    assert link.behind
    link.earn(4, 2, 8.0)
    assert (link.credit, link.pause_s) == (-999_995, 0.0)
    link.earn(1_000_000, 2, 9.0)
    assert (link.credit, link.pause_s) == (2, 4.0)


def test_events_of_others_may_go_beyond_the_credit() -> None:
    link = Link(100, 0.0)
    sent = 0
    while link.spend(10, 1.0):
        sent += 10
    assert sent == 100 * (1 + overlay.DEBT_WINDOWS)
    assert link.behind
    assert link.dry_s == 1.0


def test_a_neighbour_whose_link_is_full_is_told_what_it_lacks_once_there_is_room() -> None:
    bench = Bench(topic_of(ALICE), parameters=Parameters(window_bytes=WINDOW))
    control = FlowControl(bench.state, bench.members.overlay, bench)
    link = bench.members.add_neighbour(CAROL.peer_id)
    link.behind = True
    bench.state.context.turn.filled(CAROL.peer_id)
    control.receive(CAROL.peer_id, Credit(bench.state.id, WINDOW))
    assert bench.sent() == []
    bench.state.context.turn.freed(CAROL.peer_id)
    control.freed(CAROL.peer_id)
    control.freed(CAROL.peer_id)
    ((shown_to, page),) = bench.sent()
    assert (shown_to, type(page)) == (CAROL.peer_id, FrontierPage)


def test_a_full_link_gets_no_events_and_answers_wait_for_it() -> None:
    lab = Lab(3, parameters=Parameters(stall_s=0.0))
    topic = lab.create(AUTHOR)
    lab.subscribe([MEMBER], topic)
    author, member = lab.world.node(AUTHOR), lab.peer(MEMBER)
    author.handle(LinkFull(member), Now(lab.world.now, 0))
    lab.publish(AUTHOR, topic, b"held back", replicated=False, settle_s=1.0)
    assert not lab.messages(EventMessage, AUTHOR)
    assert author.topics[topic].overlay.links[member].behind
    asked: list[str] = []
    author.turn.when_room(member, lambda: asked.append("answered"))
    assert asked == []
    effects = author.handle(LinkFree(member), Now(lab.world.now, 0))
    assert asked == ["answered"]
    pages = [each.message for each in effects if isinstance(each, Send)]
    meta = lab.topic(topic).subtopics[META]
    assert [page.topic for page in pages if isinstance(page, FrontierPage)] == [topic, meta]
    assert len(pages) == 2
    assert not author.turn.full
