"""The way into a cube: whoever is out comes in again, whatever it was looking for at the time."""

from collections.abc import Callable
from random import Random
from typing import cast

from pulsarcast.model.ids import PeerId, cid_of
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.entrance import Entrance
from pulsarcast.protocol.effects import SetTimer
from pulsarcast.protocol.messages import Contact, JoinAccepted
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, BOB


class Cube:
    """A cube of which we are the only member that we know, and a DHT that takes its time."""

    fresh = False

    def __init__(self) -> None:
        self.turn = Turn(BOB, Random(1))
        self.lookups: list[Callable[[list[Contact]], None]] = []
        self.times_entered = 0
        self.entrance = Entrance(
            cid_of(b"a topic"),
            ALICE.peer_id,
            Context(self.turn, Parameters()),
            cast(Kademlia, self),
            self,
        )

    def closest_known(
        self, key: int, count: int, exclude: dict[PeerId, None] | None = None
    ) -> list[Contact]:
        return []

    def lookup(self, key: int, then: Callable[[list[Contact]], None]) -> None:
        self.lookups.append(then)

    def entered(self, by: PeerId | None, message: JoinAccepted | None) -> None:
        self.times_entered += 1

    def knows_closer(self) -> bool:
        return False

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
    cube = Cube()
    cube.entrance.watch()
    cube.go_on()
    assert len(cube.lookups) == 1, "it looks whether others are in"
    cube.entrance.enter()
    for _ in range(8):
        cube.find_nobody()
        cube.go_on()
    assert cube.times_entered > 0
