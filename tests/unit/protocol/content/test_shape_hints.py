"""Shape hints: which peers get one, how often, and which peers may report a split."""

from functools import partial
from random import Random

import pytest
from msgspec import structs

from pulsarcast.model.ids import Cid, PeerId, cid_of, peer_key
from pulsarcast.model.topic_types import AttributeRule
from pulsarcast.protocol.content.messages import TreeHint
from pulsarcast.protocol.content.place import Place
from pulsarcast.protocol.content.shape_hints import SAY_MAX, TELL_AGAIN_S, ShapeHints
from pulsarcast.protocol.content.space import ROOT, key_of_node, level
from pulsarcast.protocol.effects import Send
from pulsarcast.protocol.inputs import SubscribeContent
from pulsarcast.protocol.messages import Contact
from pulsarcast.protocol.node import Node
from pulsarcast.protocol.parameters import Parameters
from tests.support.lab import Lab
from tests.support.people import ALICE, peer, unordered
from tests.unit.protocol.content.parts import Parts, closest_to
from tests.unit.protocol.content.stage import AT, Stage
from tests.unit.protocol.content.stage import TOPIC as STAGED

TOPIC = cid_of(b"topic")
PUBLISHER = peer("publisher")


@pytest.fixture
def node() -> Node:
    return Node(ALICE, Random(1), Parameters())


def told(node: Node, hints: ShapeHints, at: int) -> list[PeerId]:
    """What a peer that guessed hears of a place now."""
    before = len(node.turn.effects)
    hints.tell(PUBLISHER, Place(TOPIC, "price", at))
    sent = [effect for effect in node.turn.effects[before:] if isinstance(effect, Send)]
    hint = TreeHint(TOPIC, "price", at)
    return [each.peer for each in sent if each.message == hint]


def test_who_guessed_is_told_once_and_again_when_there_is_more(node: Node) -> None:
    hints, shape = node.content.homes.shape_hints, node.content.trees.shape(TOPIC, "price")
    assert told(node, hints, ROOT) == [PUBLISHER]
    assert told(node, hints, ROOT) == []
    for split in range(1, 16):
        shape.split(split)
    assert told(node, hints, ROOT) == [PUBLISHER]


def test_who_still_guesses_after_a_while_is_told_again(node: Node) -> None:
    hints = node.content.homes.shape_hints
    assert told(node, hints, ROOT)
    node.turn.now = TELL_AGAIN_S / 2
    assert not told(node, hints, ROOT)
    node.turn.now = TELL_AGAIN_S
    assert told(node, hints, ROOT)


def test_a_stranger_to_a_nodes_key_has_no_say_where_its_home_may_be_known(node: Node) -> None:
    hints = node.content.homes.shape_hints
    others = [peer(f"peer {number}") for number in range(20)]
    assert hints.may_tell(others[0], TOPIC, "price", ROOT), "we know nobody who knows better"
    for each in others:
        node.dht.saw(Contact(each))
    heard = [each for each in others if hints.may_tell(each, TOPIC, "price", ROOT)]
    assert len(heard) == SAY_MAX
    assert hints.may_tell(ALICE.peer_id, TOPIC, "price", ROOT), "we may be its home ourselves"


def test_a_hint_for_another_home_travels_towards_it() -> None:
    stage = Stage()
    stage.place.is_owner = False
    stage.meet(*stage.closer)
    hint = TreeHint(STAGED.topic, "price", 2 * AT, AT, 3)
    stage.content.homes.shape_hints.hear(hint)
    assert stage.told(TreeHint) == [(stage.closer[0], structs.replace(hint, hops=4))]


def test_homes_of_nodes_that_are_halved_in_passing_know_of_it() -> None:
    made = Lab(5, seed=1, parameters=Parameters(content_capacity=2))
    rule = AttributeRule("price", "float", 0.0, 100.0)
    topic = made.create(0, unordered(attributes=(rule,), content_routing=True))
    made.subscribe([0], topic)
    for sid, low in enumerate((90, 91, 92)):
        where = f"price >= {low} and price < {low + 1}"
        made.ask(1, partial(SubscribeContent, topic=topic, where=where, sid=sid))
    # Long before anyone makes itself known to the home above it.
    made.run(3.0)
    places = [
        place for node in range(5) for place in made.world.node(node).content.homes.places.values()
    ]
    leaves = {place.at for place in places if place.kept}
    assert min(leaves) > 8, "the first to split has no leaf of its own among its children"
    above = {leaf >> up for leaf in leaves for up in range(1, level(leaf) + 1)}
    assert {place.at for place in places if place.is_split and place.is_owner} == above


def test_a_tree_outlives_a_network_that_grows_at_once() -> None:
    """Old homes are far from their nodes' keys by the time that they hand them over."""
    made = Lab(4, seed=4, parameters=Parameters(content_capacity=3))
    rule = AttributeRule("price", "float", 0.0, 100.0)
    topic = made.create(0, unordered(attributes=(rule,), content_routing=True))
    made.subscribe([0], topic)
    for sid in range(20):
        where = f"price >= {4 * sid} and price < {4 * sid + 1}"
        made.ask(1, partial(SubscribeContent, topic=topic, where=where, sid=sid))
    made.run(20.0)
    shape = made.world.node(1).content.trees.shape(topic, "price")
    inner = [at for at in range(1, 16) if shape.is_split(at)]
    assert len(inner) > 4
    for newcomer in range(50):
        made.world.add_node(contacts=[0, newcomer % 4])
    made.run(40.0)
    for at in inner:
        key = key_of_node(topic, "price", at)
        home = min(range(54), key=lambda each: peer_key(made.peer(each)) ^ key)
        place = made.world.node(home).content.homes.places.get((topic, "price", at))
        assert place is None or place.is_split, at


class Halved:
    """Plays the places: begins none, and remembers which have split."""

    def __init__(self) -> None:
        self.halved: list[int] = []

    def begin(self, topic: Cid, attribute: str, at: int) -> Place | None:
        return None

    def halve(self, place: Place) -> None:
        place.is_split = True
        self.halved.append(place.at)

    def heard_line(self, topic: Cid, attribute: str) -> None:
        """Nothing of this node is cut by a line."""


def test_a_place_splits_where_the_home_of_its_child_has_answered_and_no_other() -> None:
    parts, owner = Parts(), Halved()
    hints = ShapeHints(parts.context, parts.routing, parts.trees, parts.places, owner)
    parts.hold(AT)
    where = (STAGED.topic, "price", AT)
    hints.learnt(where, 2 * AT + 2)
    assert owner.halved == []
    hints.learnt(where, 2 * AT + 1)
    hints.learnt(where, 2 * AT)
    assert owner.halved == [AT]


def test_a_split_is_told_to_the_home_above_once_and_soon() -> None:
    above = closest_to(AT >> 1)
    parts = Parts(above)
    hints = ShapeHints(parts.context, parts.routing, parts.trees, parts.places, Halved())
    place = parts.hold(AT)
    hints.tell_up(place)
    hints.tell_up(place)
    assert parts.core.sent() == []
    assert len(parts.core.fire()) == 1
    hint = TreeHint(STAGED.topic, "price", AT, AT >> 1, 1)
    assert parts.core.sent() == [(above, hint)]
