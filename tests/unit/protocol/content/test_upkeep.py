"""Upkeep: who holds copies of a place, when it changes hands, and when it is let go."""

from random import Random

import pytest

from pulsarcast.model.ids import PeerId, peer_key
from pulsarcast.protocol.content import upkeep as upkeep_module
from pulsarcast.protocol.content.messages import PlaceState, Purpose
from pulsarcast.protocol.content.place import Place
from pulsarcast.protocol.content.upkeep import NEEDLESS_ROUNDS, TENDED_MAX
from pulsarcast.protocol.effects import Send
from pulsarcast.protocol.messages import Contact
from pulsarcast.protocol.node import Node
from pulsarcast.protocol.parameters import Parameters
from tests.support.people import ALICE, BOB, CAROL, peer
from tests.unit.protocol.content.test_place import SCHEMA, TOPIC, kept

AT = 9
COPIES = Parameters().replicas - 1


class Stage:
    """A node that holds one place, and peers by their distance to the place's key."""

    def __init__(self) -> None:
        self.node = Node(ALICE, Random(1), Parameters())
        self.place = self.hold(AT)
        ours = peer_key(self.node.turn.me) ^ self.place.key
        peers = sorted((peer(f"peer {number}") for number in range(40)), key=self._far)
        self.closer = [each for each in peers if self._far(each) < ours]
        self.farther = [each for each in peers if self._far(each) > ours]

    def _far(self, who: PeerId) -> int:
        return peer_key(who) ^ self.place.key

    def hold(self, at: int) -> Place:
        place = Place(TOPIC, "price", at)
        self.node.content.homes.places[TOPIC, "price", at] = place
        place.is_owner = True
        place.put(kept(BOB, "price < 50", 0.0, 0.5, expires_s=1e9), SCHEMA)
        self.node.content.upkeep.touched(place)
        return place

    @property
    def is_held(self) -> bool:
        return (TOPIC, "price", AT) in self.node.content.homes.places

    def meet(self, *peers: PeerId) -> None:
        for each in peers:
            self.node.dht.saw(Contact(each))

    def tend(self) -> None:
        """A round of upkeep."""
        timer = self.node.content.upkeep._timer
        assert timer is not None
        self.node.turn.fired(timer)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, for all but the rounds."""
        upkeep = self.node.content.upkeep
        self.node.turn.now += seconds
        for timer in list(self.node.turn._timers):
            if timer != upkeep._timer:
                self.node.turn.fired(timer)

    def told(self) -> list[tuple[PeerId, PlaceState]]:
        """What went out since the last look."""
        effects, self.node.turn.effects = self.node.turn.effects, []
        return [
            (effect.peer, effect.message)
            for effect in effects
            if isinstance(effect, Send) and isinstance(effect.message, PlaceState)
        ]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_the_next_closest_hold_copies_and_are_told_changes_only(stage: Stage) -> None:
    stage.meet(*stage.farther)
    stage.tend()
    told = stage.told()
    assert [each for each, _ in told] == stage.farther[:COPIES]
    assert all(state.purpose is Purpose.REPLICA and len(state.held) == 1 for _, state in told)
    stage.tend()
    assert stage.told() == [], "nothing has changed"
    stage.place.put(kept(CAROL, "price < 50", 0.0, 0.5, expires_s=1e9), SCHEMA)
    stage.tend()
    told = stage.told()
    assert [each for each, _ in told] == stage.farther[:COPIES]
    assert all(len(state.held) == 1 for _, state in told), "the new one alone"


def test_changes_go_out_soon_without_waiting_for_the_next_round(stage: Stage) -> None:
    stage.meet(*stage.farther)
    stage.pass_time(upkeep_module.FLUSH_S)
    assert [each for each, _ in stage.told()] == stage.farther[:COPIES]


def test_who_was_lost_and_comes_back_is_given_everything_again(stage: Stage) -> None:
    stage.meet(*stage.farther)
    stage.tend()
    stage.told()
    stage.node.content.upkeep.lost(stage.farther[0])
    stage.tend()
    assert [each for each, _ in stage.told()] == stage.farther[:1]


def test_a_closer_peer_is_given_the_place_once_and_we_serve_until_it_has_it(stage: Stage) -> None:
    home = stage.closer[0]
    stage.meet(home)
    stage.tend()
    stage.tend()
    ((to, state),) = stage.told()
    assert to == home
    assert state.purpose is Purpose.HAND_OVER
    assert stage.place.is_owner


@pytest.mark.parametrize("how", ["lost", "silent"])
def test_who_takes_a_place_and_never_says_so_is_asked_again(stage: Stage, how: str) -> None:
    home = stage.closer[0]
    stage.meet(home)
    stage.tend()
    stage.told()
    if how == "lost":
        stage.node.content.upkeep.lost(stage.closer[1])
        assert stage.place.handing is not None, "another one was lost"
        stage.node.content.upkeep.lost(home)
    else:
        stage.pass_time(2 * Parameters().rpc_timeout_s)
    assert stage.place.handing is None
    stage.tend()
    assert (home, Purpose.HAND_OVER) in [(each, state.purpose) for each, state in stage.told()]


def test_an_old_timer_does_not_end_a_new_hand_over(stage: Stage) -> None:
    upkeep, home = stage.node.content.upkeep, stage.closer[0]
    upkeep.hand_over(stage.place, home)
    upkeep.lost(home)
    timers = list(stage.node.turn._timers)
    upkeep.hand_over(stage.place, home)
    for timer in timers:
        if timer != upkeep._timer:
            stage.node.turn.fired(timer)
    assert stage.place.handing is not None


def test_a_place_in_several_messages_changes_hands_with_the_last(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep_module, "HELD_MAX", 1)
    stage.place.put(kept(CAROL, "price < 50", 0.0, 0.5, expires_s=1e9), SCHEMA)
    stage.meet(stage.closer[0])
    stage.tend()
    (_, first), (_, last) = stage.told()
    assert (first.purpose, first.token) == (Purpose.REPLICA, 0)
    assert last.purpose is Purpose.HAND_OVER
    assert last.token
    assert {*first.held, *last.held} == set(stage.place.all_held(0.0))


def test_a_copy_whose_home_is_gone_is_served_by_us(stage: Stage) -> None:
    stage.place.is_owner = False
    stage.meet(*stage.farther)
    stage.tend()
    assert stage.place.is_owner
    assert len(stage.told()) == COPIES


def test_a_copy_is_dropped_once_enough_others_were_closer_for_some_rounds(stage: Stage) -> None:
    stage.place.is_owner = False
    stage.meet(*stage.closer)
    for _ in range(NEEDLESS_ROUNDS):
        assert stage.is_held
        stage.tend()
    assert not stage.is_held


def test_rounds_in_which_a_copy_was_needed_begin_the_count_anew(stage: Stage) -> None:
    stage.place.is_owner = False
    stage.meet(stage.closer[0])
    stage.place.needless = NEEDLESS_ROUNDS - 1
    stage.tend()
    assert stage.place.needless == 0
    stage.meet(*stage.closer)
    for _ in range(NEEDLESS_ROUNDS - 1):
        stage.tend()
    assert stage.is_held


def test_a_place_without_pieces_that_nobody_asks_for_is_let_go(stage: Stage) -> None:
    ((key, _),) = stage.place.kept.items()
    stage.place.drop(key)
    stage.place.used_s = stage.node.turn.now
    stage.node.turn.now += Parameters().content_lease_s
    stage.tend()
    assert stage.is_held
    stage.node.turn.now += 1.0
    stage.tend()
    assert not stage.is_held


def test_a_lease_that_ran_out_is_forgotten(stage: Stage) -> None:
    stage.place.put(kept(CAROL, "price < 50", 0.0, 0.5, expires_s=5.0), SCHEMA)
    stage.node.turn.now += 5.0
    stage.tend()
    assert [key[0] for key in stage.place.kept] == [BOB.peer_id]


def test_however_many_places_we_hold_each_has_its_turn(stage: Stage) -> None:
    """And a round does not take longer for all that strangers have us hold."""
    places = [stage.place, *(stage.hold(at) for at in range(100, 100 + 2 * TENDED_MAX))]
    stage.meet(*stage.farther, *stage.closer)
    for _ in range(4):
        before = sum(place.handing is not None or bool(place.copies) for place in places)
        stage.tend()
        after = sum(place.handing is not None or bool(place.copies) for place in places)
        assert after - before <= TENDED_MAX
    assert all(place.handing is not None or place.copies for place in places)
