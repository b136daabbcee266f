"""Members to compare with: how long they are looked for before nobody is found, and where."""

from random import Random

from pulsarcast.model.ids import PeerId, cid_of
from pulsarcast.protocol.dissemination.member_finder import MemberFinder
from pulsarcast.protocol.effects import Send, SetTimer
from pulsarcast.protocol.messages import Contact, Join, JoinAccepted
from pulsarcast.protocol.node import Node
from pulsarcast.protocol.parameters import Parameters
from tests.support.people import ALICE, BOB, CAROL, MALLORY

TOPIC = cid_of(b"topic")


class Finder:
    """A finder at Alice, who knows Bob, and what it found."""

    def __init__(self) -> None:
        self.node = Node(ALICE, Random(1), Parameters(rpc_timeout_s=3.0))
        self.node.dht.saw(Contact(BOB.peer_id))
        self.node.turn.effects.clear()
        self.found: list[list[PeerId]] = []
        self.finder = MemberFinder(TOPIC, BOB.peer_id, self.node.context, self.node.dht)
        self.finder.find(self.found.append)

    def accept(self, sender: PeerId) -> None:
        """A peer says that it is a member, and names Carol, Alice, and Bob as its parent."""
        (join,) = [
            each.message
            for each in self.node.turn.effects
            if isinstance(each, Send) and isinstance(each.message, Join)
        ]
        members = (Contact(CAROL.peer_id), Contact(ALICE.peer_id))
        path = (sender, BOB.peer_id)
        self.finder.accepted(sender, JoinAccepted(TOPIC, join.attempt, path, members, b""))


def test_who_does_not_answer_in_twice_the_time_of_an_answer_is_no_member() -> None:
    finder = Finder()
    (timer,) = [each for each in finder.node.turn.effects if isinstance(each, SetTimer)]
    assert timer.delay_s == 6.0
    assert not finder.found
    finder.node.turn.fired(timer.timer)
    assert finder.found == [[]]


def test_a_member_and_those_that_it_names_are_found_but_not_ourselves() -> None:
    finder = Finder()
    finder.accept(BOB.peer_id)
    assert finder.found == [[BOB.peer_id, CAROL.peer_id]]


def test_a_peer_that_was_not_asked_names_no_members() -> None:
    finder = Finder()
    finder.accept(MALLORY.peer_id)
    assert not finder.found
