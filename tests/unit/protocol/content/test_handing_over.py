"""A place changes hands only once who takes it has all of it."""

from random import Random

import pytest

from pulsarcast.model.ids import PeerId, cid_of, peer_key
from pulsarcast.model.subscriptions import sign_subscription
from pulsarcast.protocol.content.messages import Held, PlaceState, PlaceTaken, Purpose
from pulsarcast.protocol.content.place import Place
from pulsarcast.protocol.effects import Send
from pulsarcast.protocol.messages import Contact
from pulsarcast.protocol.node import Node
from pulsarcast.protocol.parameters import Parameters
from tests.support.people import ALICE, BOB, peer

TOPIC = cid_of(b"topic")
AT = 9


@pytest.fixture
def node() -> Node:
    return Node(ALICE, Random(1), Parameters())


def by_distance(node: Node, place: Place) -> tuple[list[PeerId], list[PeerId]]:
    """Peers closer to a place's key than we are, and those farther from it, closest first."""
    ours = peer_key(node.turn.me) ^ place.key
    peers = sorted(
        (peer(f"peer {number}") for number in range(40)),
        key=lambda each: peer_key(each) ^ place.key,
    )
    return (
        [each for each in peers if peer_key(each) ^ place.key < ours],
        [each for each in peers if peer_key(each) ^ place.key > ours],
    )


def owned(node: Node) -> Place:
    place = node.content.homes.places[TOPIC, "price", AT] = Place(TOPIC, "price", AT)
    place.is_owner = True
    return place


def sent(node: Node, to: PeerId) -> list[object]:
    return [
        effect.message
        for effect in node.turn.effects
        if isinstance(effect, Send) and effect.peer == to
    ]


def test_a_newcomers_copy_does_not_depose_us_before_it_has_what_we_hold(node: Node) -> None:
    place = owned(node)
    newcomer = by_distance(node, place)[0][0]
    empty = PlaceState(TOPIC, "price", AT, Purpose.REPLICA, False, ())
    node.content.homes.route_state(empty, newcomer)
    assert place.is_owner
    (handed,) = [each for each in sent(node, newcomer) if isinstance(each, PlaceState)]
    assert handed.purpose is Purpose.HAND_OVER
    node.content.homes.state_taken(PlaceTaken(TOPIC, "price", AT, handed.token), newcomer)
    assert not place.is_owner


def test_a_copy_from_one_farther_from_the_key_changes_nothing(node: Node) -> None:
    place = owned(node)
    stranger = by_distance(node, place)[1][0]
    node.content.homes.route_state(
        PlaceState(TOPIC, "price", AT, Purpose.REPLICA, False, ()), stranger
    )
    assert place.is_owner
    assert not sent(node, stranger)


def test_what_we_could_not_keep_is_not_taken_over(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.content.spaces, "find", lambda topic, version, then: then(None))
    record = sign_subscription(
        BOB, topic=TOPIC, version=TOPIC, sid=1, number=1, lease_s=60, where="price < 1"
    )
    held = Held(record.block, 0, 0.0, 0.5, False, 60)
    old = peer("old home")
    state = PlaceState(TOPIC, "price", AT, Purpose.HAND_OVER, False, (held,), token=7)
    node.content.homes.route_state(state, old)
    assert not sent(node, old), "it goes on serving, and sends it again"
    assert not node.content.homes.places[TOPIC, "price", AT].is_owner


def test_who_asked_past_a_home_that_it_does_not_know_is_led_back_to_it(node: Node) -> None:
    place = Place(TOPIC, "price", AT)
    closer, farther = by_distance(node, place)
    newcomer, home = closer[:2]
    for each in (newcomer, home, *farther):
        node.dht.saw(Contact(each))
    routing = node.content.routing
    assert routing.farther(place.key, newcomer) == home
    assert routing.farther(place.key, None) == farther[0]
    # Nobody is asked by whom it was asked.
    assert routing.farther(place.key, farther[0]) == farther[1]
