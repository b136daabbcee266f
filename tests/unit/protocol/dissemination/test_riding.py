"""Riding: a meta topic's events travel in the overlay of its topic (decision 0061)."""

from dataclasses import replace
from typing import Any

import pytest

from pulsarcast.model.ids import Cid, cid_of, peer_key
from pulsarcast.model.topics import META, Dissemination, create_topic
from pulsarcast.protocol.dissemination.riding import RidingOverlay
from pulsarcast.protocol.inputs import LinkFree, LinkFull, Now, Publish, Unsubscribe
from pulsarcast.protocol.messages import (
    CompareFrontiers,
    EventMessage,
    FrontierPage,
    Join,
    JoinAccepted,
    Leave,
    Role,
    StartParts,
    Status,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.topic.life import NO_REASON, FollowReason
from pulsarcast.protocol.turn import Turn
from pulsarcast.simulation.hosts import Seat
from pulsarcast.simulation.process import Core
from pulsarcast.simulation.withholding import withholding
from tests.support.lab import Lab
from tests.support.people import ALICE, CREATED_US, MALLORY, nonce, topic_of, unordered
from tests.support.people import meta_of as of_author
from tests.support.solo import Parent, below

AUTHOR, MEMBER, OTHER, THIRD, FOURTH = range(5)
OF_A_MEMBER = (Join, JoinAccepted, Status, StartParts, Leave)


def meta_of(lab: Lab, topic: Cid) -> Cid:
    return lab.topic(topic).subtopics[META]


def riding(lab: Lab, index: int, meta: Cid) -> RidingOverlay:
    overlay = lab.world.node(index).topics[meta].overlay
    assert isinstance(overlay, RidingOverlay)
    return overlay


def newest(lab: Lab, index: int, topic: Cid) -> int:
    return lab.world.node(index).topics[topic].descriptor.number


def renew(lab: Lab, index: int, topic: Cid) -> None:
    """Make a new version, with the settings of the first."""
    travel = lab.topic(topic).dissemination
    lab.update(index, topic, unordered(dissemination=travel))


@pytest.fixture(params=Dissemination)
def lab_and_topic(request: pytest.FixtureRequest) -> tuple[Lab, Cid]:
    lab = Lab(5)
    return lab, lab.create(AUTHOR, unordered(dissemination=request.param))


def test_a_member_neither_joins_nor_beats_for_the_meta_topic(
    lab_and_topic: tuple[Lab, Cid],
) -> None:
    lab, topic = lab_and_topic
    lab.subscribe([MEMBER, OTHER, THIRD], topic)
    lab.run(300.0)
    meta = meta_of(lab, topic)
    said = [each.message for each in lab.said if isinstance(each.message, OF_A_MEMBER)]
    assert said
    assert not [each for each in said if each.topic == meta]
    for index in (AUTHOR, MEMBER, OTHER, THIRD):
        assert FollowReason.META in lab.world.node(index).followed.reasons(meta)
        assert riding(lab, index, meta).branch is None


def test_a_version_goes_to_every_member_at_once(lab_and_topic: tuple[Lab, Cid]) -> None:
    lab, topic = lab_and_topic
    lab.subscribe([MEMBER, OTHER, THIRD, FOURTH], topic)
    lab.run(30.0)
    lab.said.clear()
    renew(lab, AUTHOR, topic)
    lab.run(1.0)
    assert [newest(lab, index, topic) for index in range(5)] == 5 * [1]
    assert not lab.messages(FrontierPage)
    assert not lab.messages(CompareFrontiers)


def test_a_newcomer_learns_older_versions_from_its_parent(lab_and_topic: tuple[Lab, Cid]) -> None:
    lab, topic = lab_and_topic
    lab.subscribe([MEMBER], topic)
    renew(lab, AUTHOR, topic)
    renew(lab, AUTHOR, topic)
    lab.subscribe([OTHER], topic)
    lab.run(3.0)
    assert newest(lab, OTHER, topic) == 2
    meta = meta_of(lab, topic)
    assert not [each for each in lab.messages(Join, OTHER) if each.topic == meta]


def test_what_a_member_missed_of_the_meta_topic_is_found_by_the_topics_heartbeats() -> None:
    lab = Lab(3)
    topic = lab.create(AUTHOR)
    lab.subscribe([MEMBER, OTHER], topic)
    lab.run(5.0)
    author = lab.world.node(AUTHOR)
    for index in (MEMBER, OTHER):
        author.handle(LinkFull(lab.peer(index)), Now(lab.world.now, 0))
    renew(lab, AUTHOR, topic)
    lab.run(1.0)
    assert newest(lab, MEMBER, topic) == 0
    author.turn.full.clear()
    lab.run(40.0)
    assert [newest(lab, index, topic) for index in (MEMBER, OTHER)] == [1, 1]


def test_a_version_goes_out_while_payloads_have_to_wait_for_credit() -> None:
    lab = Lab(2)
    topic = lab.create(AUTHOR)
    lab.subscribe([MEMBER], topic)
    lab.run(5.0)
    link = lab.world.node(AUTHOR).topics[topic].overlay.links[lab.peer(MEMBER)]
    link.credit = 0
    refused = lab.ask(AUTHOR, lambda call: Publish(call, topic, b"waits")).refusal
    assert refused is not None
    assert refused.code == "busy"
    renew(lab, AUTHOR, topic)
    lab.run(0.5)
    assert newest(lab, MEMBER, topic) == 1


def test_control_events_without_end_run_out_of_the_topics_credit() -> None:
    lab = Lab(2)
    topic = lab.create(AUTHOR)
    lab.subscribe([MEMBER], topic)
    lab.run(5.0)
    link = lab.world.node(AUTHOR).topics[topic].overlay.links[lab.peer(MEMBER)]
    theirs = lab.world.node(MEMBER).topics[topic].overlay.links[lab.peer(AUTHOR)]
    renew(lab, AUTHOR, topic)
    lab.run(0.5)
    assert theirs.taken == Parameters().window_bytes - link.credit > 0
    link.credit = -link.debt
    renew(lab, AUTHOR, topic)
    lab.run(0.5)
    assert newest(lab, MEMBER, topic) == 1
    lab.run(60.0)
    assert newest(lab, MEMBER, topic) == 2


def test_a_link_that_was_full_shows_what_it_could_not_take_of_the_meta_topic() -> None:
    lab = Lab(2)
    topic = lab.create(AUTHOR)
    lab.subscribe([MEMBER], topic)
    lab.run(5.0)
    author, member = lab.world.node(AUTHOR), lab.peer(MEMBER)
    author.handle(LinkFull(member), Now(lab.world.now, 0))
    renew(lab, AUTHOR, topic)
    lab.start(AUTHOR, lambda call: LinkFree(member))  # type: ignore[arg-type,return-value]
    lab.run(4.0)
    assert newest(lab, MEMBER, topic) == 1


# Nodes that follow the meta topic alone.


def test_who_follows_the_meta_topic_alone_hangs_off_the_topics_root(
    lab_and_topic: tuple[Lab, Cid],
) -> None:
    lab, topic = lab_and_topic
    lab.subscribe([MEMBER, OTHER], topic)
    meta = meta_of(lab, topic)
    lab.subscribe([THIRD, FOURTH], meta)
    renew(lab, AUTHOR, topic)
    lab.run(2.0)
    for index in (THIRD, FOURTH):
        assert len(lab.delivered(index, meta)) == 1
        assert topic not in lab.world.node(index).topics
    branches = [riding(lab, index, meta).branch for index in (AUTHOR, MEMBER, OTHER)]
    assert [branch is not None for branch in branches] == [True, False, False]


def test_a_member_that_is_not_the_root_sends_such_a_node_there() -> None:
    lab = Lab(4)
    topic = lab.create(AUTHOR)
    lab.subscribe([MEMBER, OTHER], topic)
    meta, member = meta_of(lab, topic), lab.world.node(MEMBER)
    join = Join(meta, 7, Role.MEMBER, lab.peer(AUTHOR), handed_down=False, fresh=True)
    member.turn.effects = []
    member.topics[meta].overlay.receive(lab.peer(THIRD), join)
    (answer,) = member.turn.effects
    assert answer.message.contact.peer == lab.peer(AUTHOR)  # type: ignore[union-attr]
    assert answer.message.handed_down  # type: ignore[union-attr]


def test_with_the_author_gone_versions_of_a_recovery_key_reach_who_follows_them_alone() -> None:
    lab = Lab(5)
    settings = unordered(recovery_keys=(lab.peer(MEMBER),))
    topic = lab.create(AUTHOR, settings)
    meta = meta_of(lab, topic)
    lab.subscribe([MEMBER, OTHER], topic)
    lab.subscribe([THIRD], meta)
    lab.run(60.0)
    lab.world.kill(AUTHOR)
    lab.run(90.0)
    lab.update(MEMBER, topic, settings)
    lab.run(90.0)
    assert newest(lab, OTHER, topic) == 1
    assert len(lab.delivered(THIRD, meta)) == 1


# Coming and going.


def test_who_leaves_the_topic_and_goes_on_with_its_meta_topic_takes_a_place_in_the_tree() -> None:
    lab = Lab(3)
    topic = lab.create(AUTHOR)
    meta = meta_of(lab, topic)
    lab.subscribe([MEMBER], topic)
    lab.run(2.0)
    lab.subscribe([MEMBER], meta)
    lab.unsubscribe(MEMBER, topic)
    lab.run(10.0)
    renew(lab, AUTHOR, topic)
    lab.run(2.0)
    assert len(lab.delivered(MEMBER, meta)) == 1
    assert riding(lab, MEMBER, meta).trunk is None
    lab.subscribe([MEMBER], topic)
    lab.run(2.0)
    assert riding(lab, MEMBER, meta).trunk is not None
    renew(lab, AUTHOR, topic)
    lab.run(2.0)
    assert len(lab.delivered(MEMBER, meta)) == 2


def test_who_leaves_the_topic_leaves_its_meta_topic_and_both_come_back() -> None:
    lab = Lab(3)
    topic = lab.create(AUTHOR)
    meta = meta_of(lab, topic)
    lab.subscribe([MEMBER, OTHER], topic)
    lab.run(2.0)
    lab.unsubscribe(MEMBER, topic)
    lab.run(2.0)
    assert lab.world.node(MEMBER).topics == {}
    assert lab.world.node(MEMBER).followed.reasons(meta) == NO_REASON
    renew(lab, AUTHOR, topic)
    lab.subscribe([MEMBER], topic)
    lab.run(2.0)
    assert newest(lab, MEMBER, topic) == 1


def test_after_a_restart_a_member_rides_again_and_hears_what_it_missed() -> None:
    lab = Lab(3)
    topic = lab.create(AUTHOR)
    meta = meta_of(lab, topic)
    lab.subscribe([MEMBER, OTHER], topic)
    lab.run(2.0)
    lab.world.kill(MEMBER)
    renew(lab, AUTHOR, topic)
    lab.world.restart(MEMBER)
    lab.run(10.0)
    assert newest(lab, MEMBER, topic) == 1
    assert riding(lab, MEMBER, meta).branch is None


def test_a_keeper_passes_control_events_on() -> None:
    lab = Lab(8)
    root = peer_key(lab.peer(AUTHOR))
    keeper, holder, *members = sorted(
        range(1, 8), key=lambda index: peer_key(lab.peer(index)) ^ root
    )
    settings = unordered(recovery_keys=(lab.peer(holder),))
    topic = lab.create(AUTHOR, settings)
    meta = meta_of(lab, topic)
    lab.subscribe([holder, *members], topic)
    lab.run(60.0)
    lab.world.kill(AUTHOR)
    lab.run(90.0)
    assert lab.world.node(keeper).following.is_kept(topic)
    lab.said.clear()
    lab.update(holder, topic, settings)
    lab.run(0.5)
    assert [newest(lab, member, topic) for member in members] == len(members) * [1]
    passed = {lab.event(cid_of(each.block)).topic for each in lab.messages(EventMessage, keeper)}
    assert passed == {meta}
    for member in (holder, *members):
        lab.unsubscribe(member, topic)
    lab.run(600.0)
    assert not lab.world.node(keeper).topics, "it keeps the meta topic no longer than the topic"


# Attacks.


class Withholding(Lab):
    """A lab in which some nodes withhold events, and hide it."""

    def __init__(self, count: int, **more: Any) -> None:
        self.hostile: set[Turn] = set()
        super().__init__(count, **more)

    def _make(self, seat: Seat) -> Core:
        return super()._make(replace(seat, parts=withholding(seat.parts, self.hostile)))


def test_a_version_that_a_parent_hides_is_found_by_lazy_neighbours() -> None:
    lab = Withholding(5, parameters=Parameters(fanout=1))
    topic = lab.create(AUTHOR)
    lab.subscribe([MEMBER, OTHER, THIRD, FOURTH], topic)
    lab.run(60.0)
    parents = {index: lab.view(index, topic).parent for index in range(5)}
    hidden_from = next(index for index in range(5) if parents[index] == lab.peer(MEMBER))
    lab.hostile.add(lab.world.node(MEMBER).turn)
    renew(lab, AUTHOR, topic)
    lab.run(1.0)
    assert newest(lab, hidden_from, topic) == 0
    lab.run(90.0)
    assert [newest(lab, index, topic) for index in range(5)] == 5 * [1]


def test_a_topic_that_names_anothers_meta_topic_neither_carries_nor_ends_it() -> None:
    mine, meta = topic_of(ALICE), of_author(ALICE)
    trap = create_topic(
        MALLORY, "trap", unordered(), created=CREATED_US, nonce=nonce("trap"), meta=meta.cid
    )
    solo = below(Parent("alice", [mine.block, meta.block, trap.block]))
    solo.subscribe(trap.cid)
    assert solo.topic(meta.cid).carrier is None
    solo.subscribe(mine.cid)
    assert solo.topic(meta.cid).carrier is solo.topic(mine.cid)
    solo.ask(lambda call: Unsubscribe(call, trap.cid))
    assert FollowReason.META in solo.node.followed.reasons(meta.cid)
    assert solo.topic(meta.cid).carrier is solo.topic(mine.cid)
