"""Homes: where something for a node of a tree goes, and what its home does with it."""

import msgspec
import pytest
from msgspec import structs

from pulsarcast.model import trace
from pulsarcast.model.errors import RemoteError
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.model.subscriptions import sign_subscription
from pulsarcast.protocol.content import homes as homes_module
from pulsarcast.protocol.content.homes import NEW_S, Homes
from pulsarcast.protocol.content.messages import (
    Installed,
    MatchedEvent,
    PlaceState,
    PlaceSubscription,
    PlaceTaken,
    ProbeEvent,
    Purpose,
    Target,
)
from pulsarcast.protocol.content.messages import Stage as Sureness
from pulsarcast.protocol.content.place import LOAD_WINDOW_S
from pulsarcast.protocol.content.routing import HOPS_MAX
from pulsarcast.protocol.content.space import REACH, ROOT
from pulsarcast.protocol.content.spaces import WAITING_MAX
from pulsarcast.protocol.effects import Load, Trace
from pulsarcast.protocol.store import Block
from tests.support.marks import blocks_of, invented
from tests.support.people import BOB, CAROL, MALLORY, event_of, mark_of, version_of
from tests.unit.protocol.content.parts import Parts
from tests.unit.protocol.content.stage import AT, TOPIC, Stage, event_at, held_of

EMPTY = PlaceState(TOPIC.topic, "price", AT, Purpose.TRANSFER, False, ())


@pytest.fixture
def stage() -> Stage:
    return Stage()


def subscription(at: int = AT, stage: Sureness = Sureness.ASSURED) -> PlaceSubscription:
    return PlaceSubscription(TOPIC.topic, "price", at, stage, held_of(CAROL), 7, 3)


def probe(price: float = 10.0, at: int = AT, wanted: int = AT) -> ProbeEvent:
    return ProbeEvent(TOPIC.topic, event_at(price).block, (Target("price", at, wanted),), 3)


def rejections(stage: Stage) -> list[trace.Rejected]:
    said = [each.record for each in stage.node.turn.effects if isinstance(each, Trace)]
    return [each for each in said if isinstance(each, trace.Rejected)]


# Subscriptions.


def test_a_home_keeps_a_piece_and_says_so(stage: Stage) -> None:
    stage.content.homes.place(subscription(), None)
    ((to, answer),) = stage.told(Installed)
    assert to == CAROL.peer_id
    assert (answer.leaf, answer.hops) == (AT, 3)
    assert CAROL.peer_id in {key[0] for key in stage.place.kept}


def test_a_piece_for_another_home_travels_towards_it(stage: Stage) -> None:
    stage.place.is_owner = False
    stage.meet(*stage.closer)
    stage.content.homes.place(subscription(), None)
    ((to, passed_on),) = stage.told(PlaceSubscription)
    assert to == stage.closer[0]
    assert passed_on == msgspec.structs.replace(subscription(), hops=4)


def test_what_has_travelled_too_far_goes_nowhere(stage: Stage) -> None:
    stage.place.is_owner = False
    stage.meet(*stage.closer)
    stage.content.homes.place(msgspec.structs.replace(subscription(), hops=HOPS_MAX + 1), None)
    stage.content.homes.probe(msgspec.structs.replace(probe(), hops=HOPS_MAX + 1), None)
    stage.content.homes.route_state(msgspec.structs.replace(EMPTY, hops=HOPS_MAX + 1))
    assert stage.told(object) == []


def test_what_split_off_may_travel_as_far_as_anything(stage: Stage) -> None:
    stage.place.is_owner = False
    stage.meet(*stage.closer)
    stage.content.homes.route_state(structs.replace(EMPTY, hops=HOPS_MAX))
    assert [to for to, _ in stage.told(PlaceState)] == [stage.closer[0]]


def test_who_guessed_a_node_that_nobody_holds_is_kept_at_the_root(stage: Stage) -> None:
    stage.content.homes.places.clear()
    stage.content.homes.place(subscription(stage=Sureness.GUESSED), None)
    ((to, answer),) = stage.told(Installed)
    assert (to, answer.leaf) == (CAROL.peer_id, ROOT)


def test_who_subscribes_by_what_the_schema_lacks_is_rejected(stage: Stage) -> None:
    record = sign_subscription(
        CAROL,
        topic=TOPIC.topic,
        version=TOPIC.cid,
        sid=1,
        number=1,
        lease_s=60,
        where="colour = 'red'",
    )
    held = held_of(CAROL)._replace(record=record.block)
    stage.content.homes.place(structs.replace(subscription(), held=held), stage.farther[0])
    (rejected,) = rejections(stage)
    assert (rejected.peer, rejected.topic) == (CAROL.peer_id, TOPIC.topic)
    assert stage.told(Installed) == []


def test_who_is_closer_and_asks_for_what_it_does_not_have_is_given_the_place(stage: Stage) -> None:
    """We serve meanwhile; nobody told us that it is closer but itself."""
    newcomer = stage.closer[0]
    stage.place.is_owner = False
    stage.content.homes.place(subscription(stage=Sureness.PASSED), newcomer)
    told = stage.told(object)
    assert [(to, type(each)) for to, each in told] == [
        (newcomer, PlaceState),
        (CAROL.peer_id, Installed),
    ]
    assert stage.place.is_owner


def test_who_is_farther_and_asks_is_given_nothing(stage: Stage) -> None:
    stage.content.homes.place(subscription(stage=Sureness.PASSED), stage.farther[0])
    assert stage.told(PlaceState) == []


@pytest.mark.parametrize(
    ("up_s", "passed_on"), [(NEW_S - 1, Sureness.PASSED_4_ASSURED), (NEW_S, Sureness.NOBODY)]
)
def test_who_is_new_and_holds_nothing_asks_beyond_others_that_may_be_new(
    stage: Stage, up_s: float, passed_on: Sureness
) -> None:
    stage.content.homes.places.clear()
    stage.meet(stage.closer[0], *stage.farther)
    stage.content.homes.began_s = 100.0
    stage.node.turn.now = 100.0 + up_s
    asked = subscription(stage=Sureness.PASSED_3_ASSURED)
    stage.content.homes.place(asked, stage.closer[0])
    ((to, message),) = stage.told(PlaceSubscription)
    assert message.stage is passed_on
    assert to == (stage.farther[0] if up_s < NEW_S else stage.closer[0])
    last = subscription(stage=Sureness.PASSED_6_ASSURED)
    stage.content.homes.place(last, stage.closer[0])
    ((to, message),) = stage.told(PlaceSubscription)
    assert (to, message.stage) == (stage.closer[0], Sureness.NOBODY), "not for ever"


# Events.


def test_an_event_comes_to_those_whose_pieces_it_falls_into_once(stage: Stage) -> None:
    stage.content.homes.probe(probe(), None)
    stage.content.homes.probe(probe(), None)
    assert stage.told(MatchedEvent) == [(BOB.peer_id, MatchedEvent(event_at(10.0).block, 4))]
    stage.content.homes.probe(probe(60.0), None)
    assert stage.told(MatchedEvent) == []


def test_an_event_that_its_publisher_may_not_publish_is_rejected(stage: Stage) -> None:
    block = event_at(10.0, publisher=MALLORY).block
    stage.content.homes.probe(msgspec.structs.replace(probe(), block=block), stage.farther[0])
    (rejected,) = rejections(stage)
    assert rejected.peer == MALLORY.peer_id
    assert stage.told(MatchedEvent) == []


def test_an_event_of_another_topic_is_refused(stage: Stage) -> None:
    elsewhere = msgspec.structs.replace(probe(), topic=cid_of(b"another"))
    target = Target("price", ROOT, ROOT, Sureness.NOBODY)
    with pytest.raises(RemoteError, match="another topic"):
        stage.content.homes.probe(msgspec.structs.replace(elsewhere, targets=(target,)), None)


def test_a_node_that_has_split_sends_an_event_on_to_its_leaves(stage: Stage) -> None:
    root = stage.hold(ROOT)
    stage.put(root, held_of(CAROL, low=0.1))
    stage.meet(*stage.farther, *stage.closer)
    stage.content.homes.split(root)
    stage.told(object)
    stage.content.homes.probe(probe(at=ROOT, wanted=ROOT), None)
    leaves = stage.content.trees.shape(TOPIC.topic, "price").leaves(0.1, ROOT, REACH)
    sent = stage.told(ProbeEvent)
    assert sorted(target.at for _, each in sent for target in each.targets) == sorted(leaves)
    for _, each in sent:
        assert (each.topic, each.block, each.hops) == (TOPIC.topic, probe().block, 5)
        assert all(target.stage is Sureness.ASSURED for target in each.targets)


def test_a_leaf_is_named_once_however_often_an_event_was_sent_above_it(stage: Stage) -> None:
    root = stage.hold(ROOT)
    stage.put(root, held_of(CAROL, low=0.1))
    stage.meet(*stage.farther, *stage.closer)
    stage.content.homes.split(root)
    stage.told(object)
    once = probe(at=ROOT, wanted=ROOT)
    stage.content.homes.probe(once, None)
    expected = [len(each.targets) for _, each in stage.told(ProbeEvent)]
    assert expected
    sure = Target("price", ROOT, ROOT, Sureness.ASSURED)
    often = msgspec.structs.replace(once, targets=(*once.targets, sure) * 1000)
    stage.content.homes.probe(often, None)
    assert [len(each.targets) for _, each in stage.told(ProbeEvent)] == expected


def test_only_a_leaf_splits_under_load(stage: Stage) -> None:
    homes = stage.content.homes
    homes.splitting.load_max = 0.5
    stage.put(stage.place, held_of(CAROL, low=0.1))
    for number in range(20):
        block = event_at(20.0, number=number + 1).block
        homes.probe(msgspec.structs.replace(probe(), block=block), None)
        stage.node.turn.now += LOAD_WINDOW_S / 4
    assert stage.place.is_split
    assert stage.node.counts["content_load_split"] == 1


# What other homes hand us.


def test_what_split_off_travels_to_its_home_and_names_who_is_to_hear_of_it(stage: Stage) -> None:
    stage.place.is_owner = False
    stage.meet(*stage.closer)
    stage.content.homes.route_state(EMPTY, stage.farther[0])
    ((to, passed_on),) = stage.told(PlaceState)
    assert to == stage.closer[0]
    assert passed_on == msgspec.structs.replace(EMPTY, home=stage.node.turn.me, hops=1)
    stage.content.homes.route_state(passed_on, stage.farther[0])
    ((_, again),) = stage.told(PlaceState)
    assert again.home == stage.node.turn.me, "the first who passed it on, not the last"


def test_a_home_keeps_what_split_off_though_somebody_is_closer(stage: Stage) -> None:
    """It hands the whole place over, not what comes for it."""
    stage.meet(*stage.closer)
    stage.content.homes.route_state(EMPTY, stage.farther[0])
    assert stage.told(PlaceState) == []


@pytest.mark.parametrize("purpose", [Purpose.REPLICA, Purpose.HAND_OVER])
def test_copies_and_places_are_for_us_whoever_is_closer(stage: Stage, purpose: Purpose) -> None:
    stage.place.is_owner = False
    stage.meet(*stage.closer)
    state = msgspec.structs.replace(EMPTY, purpose=purpose, held=(held_of(CAROL),))
    stage.content.homes.route_state(state, stage.farther[0])
    assert CAROL.peer_id in {key[0] for key in stage.place.kept}
    assert stage.place.is_owner is (purpose is Purpose.HAND_OVER)


def test_who_sent_it_hears_that_we_have_it_or_who_it_names(stage: Stage) -> None:
    sender, home = stage.farther[:2]
    state = msgspec.structs.replace(EMPTY, token=7)
    stage.content.homes.route_state(state, sender)
    stage.content.homes.route_state(msgspec.structs.replace(state, home=home), sender)
    taken = PlaceTaken(TOPIC.topic, "price", AT, 7)
    assert stage.told(PlaceTaken) == [(sender, taken), (home, taken)]


def test_a_place_that_something_came_for_was_used(stage: Stage) -> None:
    stage.node.turn.now = 100.0
    stage.content.homes.route_state(EMPTY, stage.farther[0])
    assert stage.place.used_s == 100.0
    stage.node.turn.now = 200.0
    stage.content.homes.place(subscription(), None)
    assert stage.place.used_s == 200.0


def test_what_changed_during_a_hand_over_is_handed_over_again(stage: Stage) -> None:
    home = stage.closer[0]
    stage.meet(home)
    stage.tend()
    ((_, first),) = stage.told(PlaceState)
    stage.put(stage.place, held_of(CAROL))
    taken = PlaceTaken(TOPIC.topic, "price", AT, first.token)
    stage.content.homes.state_taken(taken, stage.farther[0])
    assert stage.told(PlaceState) == [], "another one says so"
    stage.content.homes.state_taken(taken, home)
    ((_, second),) = stage.told(PlaceState)
    assert second.token != first.token
    stage.content.homes.state_taken(msgspec.structs.replace(taken, token=second.token), home)
    assert not stage.place.is_owner
    assert stage.node.counts["content_hand_over"] == 2


def test_a_place_is_handed_over_once_its_new_home_says_that_it_has_it(stage: Stage) -> None:
    home = stage.closer[0]
    stage.meet(home)
    stage.tend()
    ((_, state),) = stage.told(PlaceState)
    stage.content.receive(home, PlaceTaken(TOPIC.topic, "price", AT, state.token))
    assert not stage.place.is_owner


def test_the_footprint_tells_what_content_holds(stage: Stage) -> None:
    footprint = stage.content.footprint()
    assert footprint == {
        "content_places": 1,
        "content_kept": 1,
        "content_trees": 0,
        "content_questions": 0,
        "content_marks": 0,
    }


def test_a_shape_that_is_none_is_refused_before_anything_waits(stage: Stage) -> None:
    """Else it was found out in a turn of a timer's or an honest peer's, and ended our node."""
    neighbour = stage.farther[0]
    stage.meet(*stage.farther)
    made_up = sign_subscription(
        MALLORY,
        topic=TOPIC.topic,
        version=cid_of(b"none"),
        sid=1,
        number=1,
        lease_s=60,
        where="price < 50",
    )
    held = structs.replace(EMPTY, purpose=Purpose.REPLICA, is_split=True, shape=b"\xff\xff")
    held = structs.replace(held, held=(held_of(BOB)._replace(record=made_up.block),))
    with pytest.raises(RemoteError, match="does not end"):
        stage.content.receive(neighbour, held)
    for _ in range(10):
        stage.pass_time(60.0)


def test_who_takes_one_part_of_a_leaf_cannot_say_that_the_others_have_theirs(stage: Stage) -> None:
    stage.meet(*stage.closer, *stage.farther)
    for sid, low in enumerate((0.0, 0.1, 0.2, 0.3, 0.4)):
        stage.put(stage.place, held_of(CAROL, sid=sid, low=low))
    stage.content.homes.splitting.split(stage.place, 1)
    parts = len(stage.place.leaving)
    assert parts > 1
    seen = min(stage.place.leaving)
    for token in range(seen, seen + 100):
        taken = PlaceTaken(TOPIC.topic, "price", 2 * AT, token)
        stage.content.homes.state_taken(taken, stage.farther[0])
    assert len(stage.place.leaving) == parts - 1


@pytest.mark.parametrize(("versions", "lookups"), [(1, 1), (1000, WAITING_MAX)])
def test_events_of_versions_that_nobody_made_do_not_fill_our_memory(
    stage: Stage, versions: int, lookups: int
) -> None:
    """Each waited for a lookup of its own, and there may be thousands of those."""
    stage.meet(*stage.farther)
    before = stage.node.footprint()["dht_lookups"]
    for number in range(1000):
        made_up = structs.replace(TOPIC, cid=cid_of(b"%d" % (number % versions)))
        at_ten = {"price": 10.0}
        event = event_of(BOB, made_up, number + 1, topic_cid=TOPIC.topic, attributes=at_ten)
        targets = (Target("price", AT, AT),)
        stage.content.homes.probe(ProbeEvent(TOPIC.topic, event.block, targets, 3), None)
    assert stage.node.footprint()["dht_lookups"] - before == lookups


class Subscribing:
    """Plays the node that holds the places, where it is a subscriber too."""

    def __init__(self) -> None:
        self.delivered: list[MatchedEvent] = []

    def deliver(self, message: MatchedEvent) -> None:
        self.delivered.append(message)

    def installed(self, sender: PeerId, message: Installed) -> None:
        """Only the leaves of others are looked at."""

    def heard_line(self, topic: Cid, attribute: str) -> None:
        """Nothing of this node is cut by a line."""


def homes_of(parts: Parts, owner: Subscribing) -> Homes:
    return Homes(
        parts.context, parts.routing, parts.spaces, parts.trees, parts.core.dht.marks, owner
    )


def test_a_leaf_says_that_it_keeps_a_piece_and_hands_out_what_matches_once() -> None:
    parts, owner = Parts(), Subscribing()
    homes = homes_of(parts, owner)
    homes.place(subscription(ROOT), None)
    ((who, answer),) = parts.core.sent()
    assert who == CAROL.peer_id
    assert isinstance(answer, Installed)
    assert (answer.leaf, answer.token) == (ROOT, 7)
    for _ in range(2):
        homes.probe(probe(10.0, ROOT, ROOT), None)
    homes.probe(probe(90.0, ROOT, ROOT), None)
    matched = [each for each in parts.core.sent() if isinstance(each[1], MatchedEvent)]
    assert matched == [(CAROL.peer_id, MatchedEvent(event_at(10.0).block, 4))]
    assert owner.delivered == []


@pytest.mark.parametrize("number", [1, 2])
def test_an_event_that_is_judged_by_marks_is_matched_once_they_are_found(number: int) -> None:
    parts, owner = Parts(), Subscribing()
    homes = homes_of(parts, owner)
    homes.place(subscription(ROOT), None)
    parts.core.sent()
    event = event_at(10.0, number=number)
    index, page = blocks_of([*invented(3), mark_of(event)._replace(number=1)])
    settings = structs.replace(TOPIC.settings, open=False, publishers=(MALLORY.peer_id,))
    version = version_of(TOPIC, settings, signer=BOB, until=cid_of(index))
    versions = parts.core.descriptors.get(TOPIC.cid)
    assert versions is not None
    versions.add(version)
    targets = (Target("price", ROOT, ROOT),)
    homes.probe(ProbeEvent(TOPIC.topic, event.block, targets, 3), None)
    for block in (index, page):
        (load,) = parts.core.wanted(Load)
        parts.turn.loaded(load.token, Block(None))
        assert parts.core.network.found(block) == cid_of(block)
    matched = [each for each in parts.core.sent() if isinstance(each[1], MatchedEvent)]
    assert len(matched) == (number == 1)


def test_a_node_holds_a_bounded_number_of_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes_module, "PLACES_MAX", 1)
    homes = homes_of(Parts(), Subscribing())
    assert homes.begin(TOPIC.topic, "price", 2) is not None
    assert homes.begin(TOPIC.topic, "price", 3) is None


def test_what_has_travelled_too_far_is_dropped() -> None:
    parts = Parts()
    homes = homes_of(parts, Subscribing())
    homes.place(structs.replace(subscription(ROOT), hops=HOPS_MAX + 1), None)
    assert (homes.places, parts.core.sent()) == ({}, [])
