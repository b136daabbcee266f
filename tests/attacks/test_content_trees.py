"""A peer that lies about a content tree: it grows none, and subscribers have their events."""

from collections.abc import Iterator
from functools import partial

from pulsarcast.model.ids import Cid, PeerId, peer_key
from pulsarcast.model.topic_types import AttributeRule
from pulsarcast.protocol.content.homes import NEW_S
from pulsarcast.protocol.content.messages import (
    AskShape,
    PlaceState,
    ProbeEvent,
    Purpose,
    TreeHint,
    TreeShape,
)
from pulsarcast.protocol.content.place import Place
from pulsarcast.protocol.content.shape import Shape
from pulsarcast.protocol.content.shape_hints import SAY_MAX
from pulsarcast.protocol.content.space import ROOT, Line, key_of_node, level
from pulsarcast.protocol.inputs import Publish, SubscribeContent
from pulsarcast.protocol.messages import FindPeers, Message, Peers
from tests.support.lab import Lab
from tests.support.people import unordered
from tests.unit.protocol.content.stage import TOPIC, Stage

NODES, LIAR = 20, 19
PRICE = AttributeRule("price", "float", 0.0, 100.0)


def grown(below: int, levels: int = 11) -> bytes:
    """Some two thousand splits, in a quarter of a kilobyte."""
    shape = Shape()
    waiting = [below]
    for identifier in waiting:
        shape.split(identifier)
        if level(identifier) - level(below) < levels - 1:
            waiting += (2 * identifier, 2 * identifier + 1)
    return shape.to_bytes(below)


def homes_of(lab: Lab, topic: Cid, at: int) -> list[PeerId]:
    key = key_of_node(topic, "price", at)
    return sorted(map(lab.peer, range(NODES)), key=lambda each: peer_key(each) ^ key)


def is_far(lab: Lab, topic: Cid, who: PeerId) -> bool:
    """Whether a peer is no neighbour of the root's key, nor the home of its children."""
    near = (*homes_of(lab, topic, ROOT)[:SAY_MAX], *(homes_of(lab, topic, at)[0] for at in (2, 3)))
    return who not in near


def publish(lab: Lab, node: int, topic: Cid) -> Cid:
    event = lab.ask(node, lambda call: Publish(call, topic, b"", attributes={"price": 5.0})).cid
    assert event is not None
    lab.run(2.0)
    return event


def names_next_to(lab: Lab, topic: Cid, who: PeerId) -> Iterator[int]:
    """Nodes that nobody has split anything for, whose home a peer would be."""
    for at in range(1 << 12, 1 << 20):
        if homes_of(lab, topic, at)[0] == who:
            yield at


def splits(lab: Lab, topic: Cid) -> int:
    """How many nodes have split, by all that the honest ones know from the root downwards."""
    shapes = [lab.world.node(node).content.trees.shape(topic, "price") for node in range(LIAR)]
    return max(sum(1 for _ in shape.all_leaves()) - 1 for shape in shapes)


def test_a_stranger_grows_no_tree() -> None:
    lab = Lab(NODES, puppets=[LIAR])
    liar = lab.puppets[LIAR]
    settings = unordered(attributes=(PRICE,), content_routing=True)
    topics = (lab.create(0, settings, name=f"prices {number}") for number in range(20))
    topic = next(each for each in topics if is_far(lab, each, liar.peer))
    lab.subscribe([0], topic)
    for reader in (1, 2, 3):
        where = f"price < {10 * reader}"
        lab.ask(reader, partial(SubscribeContent, topic=topic, where=where, sid=reader))
    for publisher in (4, 5):
        publish(lab, publisher, topic)
    assert splits(lab, topic) == 0

    def lie(sender: PeerId, message: Message) -> list[tuple[PeerId, Message]]:
        match message:
            case FindPeers(request, _):
                return [(sender, Peers(request, ()))]
            case AskShape(cid, attribute, at, token, asker):
                return [(asker or sender, TreeShape(cid, attribute, at, grown(at), token))]
            case _:
                return []

    lab.run(NEW_S)
    liar.answer = lie
    made_up = names_next_to(lab, topic, liar.peer)
    for node in range(LIAR):
        at = next(made_up)
        lab.say(
            LIAR,
            lab.peer(node),
            TreeShape(topic, "price", ROOT, grown(ROOT), 0),
            TreeShape(topic, "price", ROOT, grown(ROOT), 1),
            TreeHint(topic, "price", at),
            TreeHint(topic, "price", at, at >> 1),
            TreeHint(topic, "price", 0b10, ROOT),
            TreeHint(topic, "price", ROOT, 0b10),
            TreeHint(topic, "price", at, 2 * at),
            PlaceState(topic, "price", ROOT, Purpose.REPLICA, True, (), grown(ROOT)),
            PlaceState(topic, "price", ROOT, Purpose.TRANSFER, True, (), grown(ROOT), 9),
            PlaceState(topic, "price", ROOT, Purpose.HAND_OVER, True, (), grown(ROOT), 7),
            PlaceState(topic, "price", at, Purpose.TRANSFER, True, (), grown(at), 8),
        )
    lab.run(30.0)
    assert any(isinstance(message, AskShape) for _, message in liar.heard), "it was asked"
    assert splits(lab, topic) == 0

    before = len(lab.messages(ProbeEvent))
    event = publish(lab, 6, topic)
    assert all(event in lab.delivered(reader, topic) for reader in (1, 2, 3))
    assert len(lab.messages(ProbeEvent)) - before < 40, "a guess of some nodes, not thousands"


def root_of(stage: Stage) -> Place:
    place = stage.hold(ROOT)
    place.is_split = True
    stage.node.turn.now += NEW_S + 1
    return place


def line_told(purpose: Purpose) -> PlaceState:
    return PlaceState(TOPIC.topic, "price", ROOT, purpose, True, (), cut=6, reach=6, token=7)


def test_a_stranger_moves_no_line() -> None:
    """A line that is too low makes hundreds of pieces of a range, and hides pieces from events."""
    stage = Stage()
    place = root_of(stage)
    place.is_owner = False
    stage.meet(*stage.closer, *stage.farther)
    key = key_of_node(TOPIC.topic, "price", ROOT)
    far = max((*stage.closer, *stage.farther), key=lambda each: peer_key(each) ^ key)
    stage.content.receive(far, line_told(Purpose.REPLICA))
    assert place.line == Line()
    near = min((*stage.closer, *stage.farther), key=lambda each: peer_key(each) ^ key)
    stage.content.receive(near, line_told(Purpose.REPLICA))
    assert place.line == Line(6, 6), "copies know the line of the home"


def test_a_copy_does_not_tell_the_home_its_line() -> None:
    stage = Stage()
    place = root_of(stage)
    stage.meet(stage.farther[0])
    stage.content.receive(stage.farther[0], line_told(Purpose.REPLICA))
    assert place.line == Line()


def test_a_line_that_nobody_asked_for_is_not_believed() -> None:
    stage = Stage()
    told = TreeShape(TOPIC.topic, "price", ROOT, Shape().to_bytes(), 5, cut=6, reach=6)
    stage.content.receive(stage.farther[0], told)
    assert stage.content.trees.shape(TOPIC.topic, "price").line == Line()
