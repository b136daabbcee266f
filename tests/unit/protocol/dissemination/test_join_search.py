"""The way into an overlay: a node that is out comes in again, whatever it was looking for."""

from collections.abc import Callable
from random import Random
from typing import cast

from pulsarcast.model.ids import PeerId, cid_of
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.join_search import JoinSearch
from pulsarcast.protocol.effects import SetTimer
from pulsarcast.protocol.messages import Contact
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, BOB
from tests.support.reach import reachability_of


class Overlay:
    """An overlay of which we are the only member that we know, and a DHT that takes its time."""

    open = True
    leaving = False
    attached = True
    is_root = True

    def __init__(self) -> None:
        self.turn = Turn(BOB, Random(1))
        self.lookups: list[Callable[[list[Contact]], None]] = []
        self.times_root = 0
        context = Context(self.turn, Parameters())
        self.reachability = reachability_of(context)
        dht = cast(Kademlia, self)
        self.search = JoinSearch(cid_of(b"a topic"), ALICE.peer_id, context, dht, self)

    def closest_known(
        self, key: int, count: int, exclude: dict[PeerId, None] | None = None
    ) -> list[Contact]:
        return []

    def lookup(self, key: int, then: Callable[[list[Contact]], None]) -> None:
        self.lookups.append(then)

    def become_root(self) -> None:
        self.times_root += 1

    def go_on(self) -> None:
        """Let all timers run out, and lookups find nobody."""
        timers = [each for each in self.turn.effects if isinstance(each, SetTimer)]
        self.turn.effects = []
        for timer in timers:
            self.turn.now += timer.delay_s
            self.turn.fired(timer.timer)

    def find_nobody(self) -> None:
        lookups, self.lookups = self.lookups, []
        for then in lookups:
            then([])


def test_who_loses_all_others_while_it_looks_for_more_comes_in_again() -> None:
    """Else nobody could come in through it, who is the closest to the root's key."""
    overlay = Overlay()
    overlay.search.keep_a_lookout()
    overlay.go_on()
    assert len(overlay.lookups) == 1, "it looks whether others are in"
    overlay.attached = overlay.is_root = False
    overlay.search.begin()
    for _ in range(8):
        overlay.find_nobody()
        overlay.go_on()
    assert overlay.times_root > 0


def test_an_acting_root_that_finds_no_closer_peer_stays_where_it_is() -> None:
    overlay = Overlay()
    overlay.search.keep_a_lookout()
    for _ in range(4):
        overlay.go_on()
        assert len(overlay.lookups) == 1
        overlay.find_nobody()
    assert overlay.times_root == 0
