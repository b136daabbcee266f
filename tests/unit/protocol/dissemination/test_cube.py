"""Dissemination cubes among simulated nodes: who gets what, in how many messages, come what may."""

from collections import Counter

import pytest

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import DeliveryOrder, Dissemination, TopicSettings
from pulsarcast.protocol.dissemination.cube import DisseminationCube
from pulsarcast.protocol.dissemination.overlay import CubeView
from pulsarcast.protocol.effects import Send
from pulsarcast.protocol.inputs import MessageReceived, Now, Publish, Subscribe
from pulsarcast.protocol.messages import EventMessage, Join, JoinRefused, Leave, Meet, Role
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.simulation.checkers.cubes import check_cubes
from pulsarcast.simulation.findings import Findings
from tests.support.lab import Lab

CUBE = TopicSettings(open=True, dissemination=Dissemination.CUBE, order=DeliveryOrder.PER_PUBLISHER)
SMALL = Parameters(cube_view=4, cube_bucket=2)
"""A view so small that a few members are a large topic."""


def cube_of(count: int, *, members: int, parameters: Parameters | None = None) -> tuple[Lab, Cid]:
    """A lab in which the first nodes are members of one cube, the very first its author."""
    lab = Lab(count, parameters=parameters, through_wire=True)
    topic = lab.create(0, CUBE)
    lab.subscribe(range(members), topic)
    lab.run(5.0)
    return lab, topic


def view(lab: Lab, index: int, topic: Cid) -> CubeView:
    found: CubeView = lab.world.node(index).cubes()[topic]
    return found


def live(lab: Lab, topic: Cid) -> list[int]:
    nodes = [index for index in range(lab.world.size) if lab.world.is_up(index)]
    return [index for index in nodes if topic in lab.world.node(index).cubes()]


def objections(lab: Lab, topic: Cid) -> dict[str, int]:
    findings = Findings()
    views = {lab.peer(index): {topic: view(lab, index, topic)} for index in live(lab, topic)}
    check_cubes(views, findings)
    return findings.by_kind()


def copies(lab: Lab, since: int) -> Counter[bytes]:
    """How often each event left a node."""
    sent = [said.message for said in lab.said[since:] if isinstance(said.message, EventMessage)]
    return Counter(message.block for message in sent)


def test_in_a_small_topic_everyone_knows_everyone() -> None:
    lab, topic = cube_of(14, members=12)
    for index in range(12):
        assert set(view(lab, index, topic).members) == {
            lab.peer(other) for other in range(12) if other != index
        }
    assert live(lab, topic) == list(range(12)), "and nobody else has to do with it"


def test_everyone_publishes_and_each_member_gets_each_event_once() -> None:
    lab, topic = cube_of(14, members=12)
    since = len(lab.said)
    for index in range(12):
        lab.publish(index, topic, b"from %d" % index, replicated=False, settle_s=0.5)
    events = {record.event for record in lab.records(trace.Published) if record.topic == topic}
    assert len(events) == 12
    for index in range(12):
        assert set(lab.delivered(index, topic)) == events
        assert len(lab.delivered(index, topic)) == 12
    assert set(copies(lab, since).values()) == {11}, "one message per member, none twice"


def test_every_publisher_is_the_root_of_its_own_tree() -> None:
    lab, topic = cube_of(14, members=12)
    for index in (3, 7):
        since = len(lab.said)
        lab.publish(index, topic, replicated=False)
        sent = [said for said in lab.said[since:] if isinstance(said.message, EventMessage)]
        mine = [said.receiver for said in sent if said.sender == index]
        assert mine == list(view(lab, index, topic).children)
        assert sent[0].sender == index


def test_in_a_large_topic_a_few_members_per_bucket_are_enough() -> None:
    lab, topic = cube_of(41, members=40, parameters=SMALL)
    assert objections(lab, topic) == {}
    assert max(len(view(lab, index, topic).members) for index in range(40)) < 20
    for index in (5, 17, 39):
        event = lab.publish(index, topic, replicated=False)
        for member in range(40):
            assert lab.delivered(member, topic)[-1] == event


def test_a_publisher_does_not_wait_and_its_order_is_kept() -> None:
    """The paper's publisher waits until everyone has the message before (section 3.2.2)."""
    lab, topic = cube_of(10, members=10)
    started_s = lab.world.now
    for number in range(50):
        lab.start(
            4,
            lambda call, number=number: Publish(call, topic, b"%d" % number),  # type: ignore[misc]
        )
    lab.run(1.0)
    sent = [record for record in lab.records(trace.Published, 4) if record.topic == topic]
    for index in range(10):
        assert lab.delivered(index, topic) == [record.event for record in sent]
    said_s = [said.time_s for said in lab.said if isinstance(said.message, EventMessage)]
    assert max(said_s) - started_s < 0.5, "50 messages, all in flight at once"


def test_the_dead_child_of_a_publisher_is_skipped() -> None:
    lab, topic = cube_of(12, members=12)
    (first, *_) = view(lab, 3, topic).children
    child = lab.world.index_of(first)
    lab.world.kill(child)
    lab.publish(3, topic, b"into the void", replicated=False, settle_s=0.0)
    lab.run(1.0)
    event = lab.publish(3, topic, b"past the dead", replicated=False)
    assert first not in view(lab, 3, topic).members
    for index in live(lab, topic):
        assert event in lab.delivered(index, topic)
        assert len(lab.delivered(index, topic)) == 2, "what the dead had yet to pass on is found"


def test_what_a_silent_child_swallows_is_found_by_comparing_frontiers() -> None:
    lab, topic = cube_of(12, members=12)
    (first, *_) = view(lab, 3, topic).children
    paused = lab.world.index_of(first)
    lab.world.pause(paused)
    event = lab.publish(3, topic, b"swallowed", replicated=False)
    others = [index for index in range(12) if index != paused]
    got = [index for index in others if event in lab.delivered(index, topic)]
    assert len(got) < len(others), "the test is void unless somebody misses it"
    lab.run(120.0)
    for index in others:
        assert lab.delivered(index, topic) == [event]
    assert first not in view(lab, 3, topic).members
    lab.world.resume(paused)
    lab.run(120.0)
    assert lab.delivered(paused, topic) == [event]
    assert objections(lab, topic) == {}


def test_a_late_joiner_starts_where_a_member_stands() -> None:
    lab, topic = cube_of(12, members=8)
    before = lab.publish(2, topic, b"before")
    lab.subscribe([9], topic)
    after = lab.publish(3, topic, b"after")
    (start,) = [each for each in lab.records(trace.Subscribed, 9) if each.topic == topic]
    assert [mark.number for mark in start.start] == [1]
    assert lab.delivered(9, topic) == [after]
    assert before in lab.delivered(4, topic)


def test_nothing_passes_a_newcomer_by() -> None:
    """What is published while it comes in, and reaches no one who knows it, it finds by itself."""
    lab, topic = cube_of(12, members=8)
    replies = lab.start(9, lambda call: Subscribe(call, topic))
    for _ in range(30):
        lab.publish(5, topic, replicated=False, settle_s=0.02)
    lab.run(60.0)
    assert replies
    (start,) = [each for each in lab.records(trace.Subscribed, 9) if each.topic == topic]
    floor = max((mark.number for mark in start.start), default=0)
    assert len(lab.delivered(9, topic)) == 30 - floor


def test_one_who_leaves_is_forgotten_by_all_and_passes_on_what_was_on_its_way() -> None:
    """The paper's temporary forwarders (section 3.3)."""
    lab, topic = cube_of(12, members=12)
    (first, *_) = view(lab, 3, topic).children
    leaver = lab.world.index_of(first)
    lab.start(3, lambda call: Publish(call, topic, b"on its way"))
    lab.unsubscribe(leaver, topic)
    lab.run(1.0)
    for index in live(lab, topic):
        assert index != leaver
        assert first not in view(lab, index, topic).members
        assert len(lab.delivered(index, topic)) == 1
    assert objections(lab, topic) == {}


def test_a_peer_that_is_no_member_hands_its_event_to_one() -> None:
    lab, topic = cube_of(12, members=8)
    event = lab.publish(10, topic, b"from outside", settle_s=5.0)
    for index in range(8):
        assert lab.delivered(index, topic) == [event]
    assert topic not in lab.world.node(10).cubes()


def test_a_member_that_restarts_is_a_member_again_and_catches_up() -> None:
    lab, topic = cube_of(12, members=12)
    lab.publish(2, topic, b"before", replicated=False)
    lab.world.kill(5)
    lab.run(2.0)
    missed = lab.publish(2, topic, b"missed", replicated=False)
    lab.world.restart(5)
    lab.run(30.0)
    assert missed in lab.delivered(5, topic)
    event = lab.publish(5, topic, b"back", replicated=False)
    for index in range(12):
        assert event in lab.delivered(index, topic)
    assert objections(lab, topic) == {}


@pytest.mark.parametrize("members", [2, 9])
def test_when_the_author_is_gone_others_still_come_in(members: int) -> None:
    lab, topic = cube_of(14, members=members)
    lab.world.kill(0)
    lab.run(40.0)
    lab.subscribe([11], topic)
    lab.run(60.0)
    event = lab.publish(1, topic, b"without its author", replicated=False)
    assert event in lab.delivered(11, topic)
    assert objections(lab, topic) == {}


def test_parts_that_lost_each_other_find_each_other_again() -> None:
    lab, topic = cube_of(12, members=12)
    lab.world.cut([set(range(6)), set(range(6, 12))])
    lab.run(200.0)
    for index in range(6):
        lab.start(index, lambda call: Publish(call, topic, b"here"))
        lab.start(11 - index, lambda call: Publish(call, topic, b"there"))
    lab.run(10.0)
    assert objections(lab, topic) != {}, "they have given each other up"
    lab.world.heal()
    lab.run(300.0)
    assert objections(lab, topic) == {}
    for index in range(12):
        assert len(lab.delivered(index, topic)) == 12


def test_a_slow_member_does_not_hold_up_those_behind_it() -> None:
    """One who is out of credit is skipped like one who is gone, and recovers by history."""
    lab, topic = cube_of(12, members=12, parameters=Parameters(window_bytes=2_000, stall_s=0.0))
    (first, *_) = view(lab, 3, topic).children
    slow = lab.world.index_of(first)
    lab.world.pause(slow)
    for number in range(12):
        lab.publish(3, topic, b"%d" % number, replicated=False, settle_s=0.1)
    others = [index for index in range(12) if index != slow]
    assert all(len(lab.delivered(index, topic)) >= 8 for index in others)
    lab.world.resume(slow)
    lab.run(120.0)
    assert all(len(lab.delivered(index, topic)) == 12 for index in range(12))


def test_who_is_no_member_says_so_when_it_is_met() -> None:
    lab, topic = cube_of(6, members=4)
    met = MessageReceived(lab.peer(1), Meet(topic, 0, 1))
    effects = lab.world.node(5).handle(met, Now(lab.world.now, 0))
    assert effects == [Send(lab.peer(1), Leave(topic))]


def test_who_is_leaving_refuses_and_says_to_which_question() -> None:
    lab, topic = cube_of(6, members=4)
    node = lab.world.node(3)
    cube = node.topics[topic].overlay
    assert isinstance(cube, DisseminationCube)
    cube.leaving = True
    for attempt in (7, 8):
        asked = Join(topic, attempt, Role.MEMBER, lab.peer(0), False, True)
        effects = node.handle(MessageReceived(lab.peer(5), asked), Now(lab.world.now, 0))
        assert effects == [Send(lab.peer(5), JoinRefused(topic, attempt, "leaving"))]
