"""Flow control: credit that is held back while a disk lags, and given once it has caught up."""

import pytest

from pulsarcast.protocol.messages import Credit, EventMessage, FrontierPage
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.topic import flow
from pulsarcast.protocol.topic.flow import FlowControl
from pulsarcast.protocol.topic.sharing import Sharing
from tests.support.lab import Lab
from tests.support.people import ALICE, BOB, CAROL, event_of, meta_of, topic_of
from tests.support.solo import Parent, below
from tests.unit.protocol.topic.bench import Bench

AUTHOR, MEMBER = 0, 1
WINDOW = 4


def test_whose_disk_lags_gives_no_credit_until_it_has_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab(4, parameters=Parameters(window=WINDOW))
    topic = lab.create(AUTHOR)
    lab.subscribe([MEMBER], topic)
    monkeypatch.setattr(flow, "UNSYNCED_MAX", 0)  # it never keeps up
    events = [lab.publish(AUTHOR, topic, b"%d" % number) for number in range(WINDOW)]
    lab.run(1.0)
    assert not lab.messages(Credit, MEMBER)
    monkeypatch.setattr(flow, "UNSYNCED_MAX", 4096)
    # There is no credit left for this one: it comes another way, and its sync makes amends.
    events.append(lab.publish(AUTHOR, topic, b"one more", settle_s=30.0))
    given = lab.messages(Credit, MEMBER)
    assert sum(credit.count for credit in given if credit.topic == topic) == WINDOW
    assert lab.delivered(MEMBER, topic) == events


def test_an_event_that_is_refused_has_used_credit_too() -> None:
    """Its publisher could else use up all that a neighbour has with us, for good."""
    elsewhere, topic = topic_of(ALICE, name="elsewhere"), topic_of(ALICE)
    parent = Parent("alice", [each.block for each in (elsewhere, topic, meta_of(ALICE))])
    solo = below(parent, parameters=Parameters(window=WINDOW))
    solo.subscribe(topic.cid)
    other = event_of(BOB, elsewhere)
    solo.hear(parent.peer, EventMessage(other.block, 1))
    for number in range(1, WINDOW + 1):
        event = event_of(BOB, topic, number, parents=[other.cid])
        solo.hear(parent.peer, EventMessage(event.block, 1))
    assert solo.reasons() == ["foreign_parent"] * WINDOW
    assert sum(credit.count for credit in solo.sent_to(parent.peer, Credit)) == WINDOW


def test_a_neighbour_gets_credit_for_half_a_window_and_a_stranger_none() -> None:
    bench = Bench(topic_of(ALICE), parameters=Parameters(window=WINDOW))
    control = FlowControl(bench.state, bench.members.overlay, Sharing(bench.state))
    bench.members.add_neighbour(CAROL.peer_id)
    for sender in (CAROL.peer_id, ALICE.peer_id, CAROL.peer_id):
        control.took_from(sender)
    assert bench.sent() == [(CAROL.peer_id, Credit(bench.state.id, WINDOW // 2))]
    assert bench.members.strangers == [ALICE.peer_id]


def test_a_neighbour_that_missed_events_is_shown_what_there_is_once_it_has_credit() -> None:
    bench = Bench(topic_of(ALICE), parameters=Parameters(window=WINDOW))
    control = FlowControl(bench.state, bench.members.overlay, Sharing(bench.state))
    link = bench.members.add_neighbour(CAROL.peer_id)
    link.behind = True
    for _ in range(2):
        control.receive(CAROL.peer_id, Credit(bench.state.id, WINDOW))
    ((shown_to, page),) = bench.sent()
    assert (shown_to, type(page)) == (CAROL.peer_id, FrontierPage)
    assert link.credit == WINDOW, "and never more"
