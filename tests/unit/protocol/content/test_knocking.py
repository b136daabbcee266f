"""Knocking: how long members are looked for before nobody is found."""

from random import Random

from pulsarcast.model.ids import PeerId, cid_of
from pulsarcast.protocol.content.knocking import Knocking
from pulsarcast.protocol.effects import SetTimer
from pulsarcast.protocol.messages import Contact
from pulsarcast.protocol.node import Node
from pulsarcast.protocol.parameters import Parameters
from tests.support.people import ALICE, BOB


def test_who_does_not_answer_in_twice_the_time_of_an_answer_is_no_member() -> None:
    parameters = Parameters(rpc_timeout_s=3.0)
    node = Node(ALICE, Random(1), parameters)
    node.dht.saw(Contact(BOB.peer_id))
    node.turn.effects.clear()
    found: list[list[PeerId]] = []
    knocking = Knocking(node.context, node.dht)
    knocking.find(cid_of(b"topic"), BOB.peer_id, found.append)
    (timer,) = [each for each in node.turn.effects if isinstance(each, SetTimer)]
    assert timer.delay_s == 6.0
    assert not found
    node.turn.fired(timer.timer)
    assert found == [[]]
