"""Upkeep: who holds copies of a place, when it changes hands, and when it is let go."""

import pytest

from pulsarcast.protocol.content import upkeep as upkeep_module
from pulsarcast.protocol.content.messages import PlaceState, Purpose
from pulsarcast.protocol.content.upkeep import NEEDLESS_ROUNDS, TENDED_MAX, Upkeep
from pulsarcast.protocol.parameters import Parameters
from tests.support.people import BOB, CAROL
from tests.unit.protocol.content.parts import Parts
from tests.unit.protocol.content.stage import AT, Stage, held_of

COPIES = Parameters().replicas - 1


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_the_next_closest_hold_copies_and_are_told_changes_only(stage: Stage) -> None:
    stage.meet(*stage.farther)
    stage.tend()
    told = stage.told(PlaceState)
    assert [each for each, _ in told] == stage.farther[:COPIES]
    assert all(state.purpose is Purpose.REPLICA and len(state.held) == 1 for _, state in told)
    stage.tend()
    assert stage.told(PlaceState) == [], "nothing has changed"
    stage.put(stage.place, held_of(CAROL))
    stage.tend()
    told = stage.told(PlaceState)
    assert [each for each, _ in told] == stage.farther[:COPIES]
    assert all(len(state.held) == 1 for _, state in told), "the new one alone"


def test_changes_go_out_soon_without_waiting_for_the_next_round(stage: Stage) -> None:
    stage.meet(*stage.farther)
    stage.pass_time(upkeep_module.FLUSH_S)
    assert [each for each, _ in stage.told(PlaceState)] == stage.farther[:COPIES]


def test_who_was_lost_and_comes_back_is_given_everything_again(stage: Stage) -> None:
    stage.meet(*stage.farther)
    stage.tend()
    stage.told(PlaceState)
    stage.content.upkeep.lost(stage.farther[0])
    stage.tend()
    assert [each for each, _ in stage.told(PlaceState)] == stage.farther[:1]


def test_a_closer_peer_is_given_the_place_once_and_we_serve_until_it_has_it(stage: Stage) -> None:
    home = stage.closer[0]
    stage.meet(home)
    stage.tend()
    stage.tend()
    ((to, state),) = stage.told(PlaceState)
    assert to == home
    assert state.purpose is Purpose.HAND_OVER
    assert stage.place.is_owner


@pytest.mark.parametrize("how", ["lost", "silent"])
def test_who_takes_a_place_and_never_says_so_is_asked_again(stage: Stage, how: str) -> None:
    home = stage.closer[0]
    stage.meet(home)
    stage.tend()
    stage.told(PlaceState)
    if how == "lost":
        stage.content.upkeep.lost(stage.closer[1])
        assert stage.place.handing is not None, "another one was lost"
        stage.content.upkeep.lost(home)
    else:
        stage.pass_time(2 * Parameters().rpc_timeout_s)
    assert stage.place.handing is None
    stage.tend()
    assert (home, Purpose.HAND_OVER) in [
        (each, state.purpose) for each, state in stage.told(PlaceState)
    ]


def test_an_old_timer_does_not_end_a_new_hand_over(stage: Stage) -> None:
    upkeep, home = stage.content.upkeep, stage.closer[0]
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
    stage.put(stage.place, held_of(CAROL))
    stage.meet(stage.closer[0])
    stage.tend()
    (_, first), (_, last) = stage.told(PlaceState)
    assert (first.purpose, first.token) == (Purpose.REPLICA, 0)
    assert last.purpose is Purpose.HAND_OVER
    assert last.token
    assert {*first.held, *last.held} == set(stage.place.all_held(0.0))


def test_a_copy_whose_home_is_gone_is_served_by_us(stage: Stage) -> None:
    stage.place.is_owner = False
    stage.meet(*stage.farther)
    stage.tend()
    assert stage.place.is_owner
    assert len(stage.told(PlaceState)) == COPIES


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
    stage.put(stage.place, held_of(CAROL), expires_s=5.0)
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


def test_what_a_split_place_still_had_to_send_goes_with_it(stage: Stage) -> None:
    """Nobody would ever say that it has it to one that holds the place no more."""
    stage.put(stage.place, held_of(CAROL))
    stage.meet(*stage.closer[:3])
    stage.content.homes.split(stage.place)
    assert stage.place.leaving
    stage.place.is_owner = False
    for _ in range(NEEDLESS_ROUNDS):
        stage.tend()
    assert not stage.is_held
    stage.told(PlaceState)
    for _ in range(3):
        stage.pass_time(60.0)
    told = [state for _, state in stage.told(PlaceState)]
    assert not [state for state in told if state.purpose is Purpose.TRANSFER]


def upkeep_of(parts: Parts) -> Upkeep:
    return Upkeep(
        parts.context, parts.routing, parts.trees, parts.places, parts.hints, parts.splitting
    )


def test_a_place_is_handed_over_once_at_a_time_and_again_where_no_answer_comes() -> None:
    parts = Parts()
    place = parts.hold(AT, held_of(BOB))
    upkeep = upkeep_of(parts)
    for _ in range(2):
        upkeep.hand_over(place, CAROL.peer_id)
    ((who, state),) = parts.core.sent()
    assert who == CAROL.peer_id
    assert isinstance(state, PlaceState)
    assert (state.purpose, len(state.held)) == (Purpose.HAND_OVER, 1)
    assert place.is_owner, "the node serves until the other has it"
    parts.core.fire()
    upkeep.hand_over(place, CAROL.peer_id)
    assert len(parts.core.sent()) == 1


def test_an_empty_place_that_no_peer_asks_for_is_let_go_and_a_full_one_kept() -> None:
    parts = Parts()
    empty, full = parts.hold(AT), parts.hold(AT + 1, held_of(BOB))
    upkeep = upkeep_of(parts)
    for place in (empty, full):
        upkeep.touched(place)
    parts.turn.now = Parameters().content_lease_s + 1
    parts.core.fire()
    assert list(parts.places.values()) == [full]
