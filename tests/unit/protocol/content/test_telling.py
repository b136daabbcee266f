"""Who is told a tree's shape by its homes, how often, and whose word is taken for it."""

from random import Random

import pytest

from pulsarcast.model.ids import PeerId, cid_of
from pulsarcast.protocol.content.homes import SAY_MAX, TELL_AGAIN_S, Homes
from pulsarcast.protocol.content.messages import TreeShape
from pulsarcast.protocol.content.place import Place
from pulsarcast.protocol.content.space import ROOT
from pulsarcast.protocol.effects import Send
from pulsarcast.protocol.messages import Contact
from pulsarcast.protocol.node import Node
from pulsarcast.protocol.parameters import Parameters
from tests.support.people import ALICE, peer

TOPIC = cid_of(b"topic")
PUBLISHER = peer("publisher")


@pytest.fixture
def node() -> Node:
    return Node(ALICE, Random(1), Parameters())


def told(node: Node, homes: Homes, at: int) -> list[tuple[PeerId, bytes]]:
    """What a peer that guessed hears of a place now."""
    before = len(node.turn.effects)
    homes.tell(PUBLISHER, Place(TOPIC, "price", at))
    sent = [effect for effect in node.turn.effects[before:] if isinstance(effect, Send)]
    return [(each.peer, each.message.shape) for each in sent if isinstance(each.message, TreeShape)]


def test_who_guessed_is_told_once_and_again_when_there_is_more(node: Node) -> None:
    homes, shape = node.content.homes, node.content.trees.shape(TOPIC, "price")
    assert told(node, homes, ROOT) == [(PUBLISHER, shape.to_bytes())]
    assert told(node, homes, ROOT) == []
    for leaf in range(8, 16):
        shape.split(leaf)
    assert told(node, homes, ROOT) == [(PUBLISHER, shape.to_bytes())]


def test_who_still_guesses_after_a_while_is_told_again(node: Node) -> None:
    homes = node.content.homes
    assert told(node, homes, ROOT)
    node.turn.now = TELL_AGAIN_S / 2
    assert not told(node, homes, ROOT)
    node.turn.now = TELL_AGAIN_S
    assert told(node, homes, ROOT)


def test_a_stranger_to_a_nodes_key_has_no_say_where_its_home_may_be_known(node: Node) -> None:
    homes = node.content.homes
    others = [peer(f"peer {number}") for number in range(20)]
    assert homes.may_tell(others[0], TOPIC, "price", ROOT), "we know nobody who knows better"
    for each in others:
        node.dht.saw(Contact(each))
    heard = [each for each in others if homes.may_tell(each, TOPIC, "price", ROOT)]
    assert len(heard) == SAY_MAX
    assert homes.may_tell(ALICE.peer_id, TOPIC, "price", ROOT), "we may be its home ourselves"
