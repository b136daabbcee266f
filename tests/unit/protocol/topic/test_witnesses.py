"""Witnesses (design 6): whose word makes a member skip what nobody gives it, and whose does not."""

from collections.abc import Collection

import pytest

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.recovery import SOURCES_MAX
from pulsarcast.protocol.topic.witnesses import DRAWN
from tests.support.people import ALICE, BOB, CAROL, EPOCH, MALLORY, peer
from tests.unit.protocol.topic.recovery_desk import (
    AUTHOR,
    LAZY,
    OTHER,
    PARENT,
    Desk,
)


def gap_below_six(
    *,
    lazy: Collection[PeerId] = (LAZY,),
    neighbours: tuple[PeerId, ...] = (),
    members: tuple[PeerId, ...] = (),
    retires: bool = True,
) -> Desk:
    """A member of a topic with retention that holds event 6, and lacks those before it."""
    desk = Desk(parent=PARENT, lazy=lazy, neighbours=neighbours, members=members, retires=retires)
    desk.frontier.add(ALICE.peer_id, EPOCH, 6, None)
    return desk


def test_what_parent_and_lazy_neighbours_have_retired_is_given_up() -> None:
    """As far as all of them say so."""
    desk = gap_below_six(lazy=(LAZY, OTHER))
    desk.shows(PARENT, 9, retired=4, patience_s=1.0)
    desk.shows(LAZY, 9, retired=3, patience_s=1.0)
    desk.shows(OTHER, 9, retired=4, patience_s=1.0)
    desk.pass_time(1.0)
    desk.exhaust()
    assert desk.retired == [(ALICE.peer_id, EPOCH, 3)]


def test_neighbours_that_keep_showing_the_same_do_not_keep_us_asking() -> None:
    """Heartbeats come more often than answers where the way is long."""
    desk = gap_below_six()
    desk.shows(PARENT, 9, retired=4, patience_s=1.0)
    desk.shows(LAZY, 9, retired=4, patience_s=1.0)
    desk.pass_time(1.0)
    for _ in range(20):
        for each in desk.asked():
            desk.shows(PARENT, 9, retired=4)
            desk.shows(LAZY, 9, retired=4)
            desk.answer(each)
    assert (ALICE.peer_id, EPOCH, 4) in desk.retired


def test_who_shows_what_it_lacked_is_asked_again() -> None:
    desk = Desk(parent=PARENT, lazy=(LAZY,))
    desk.shows(LAZY, 9, floor=5)
    (first,) = desk.asked()
    assert first.peer == LAZY
    desk.answer(first)
    (second,) = desk.asked()
    assert second.peer == PARENT
    desk.shows(LAZY, 9, floor=0)
    desk.answer(second)
    (third,) = desk.asked()
    assert third.peer == LAZY


@pytest.mark.parametrize(
    "who", [PARENT, LAZY, MALLORY.peer_id], ids=["the parent", "a lazy neighbour", "a stranger"]
)
def test_one_peer_alone_makes_us_give_up_nothing(who: PeerId) -> None:
    desk = gap_below_six()
    desk.shows(who, 9, retired=4)
    desk.exhaust()
    assert desk.retired == []
    assert desk.consulted == [((ALICE.peer_id, AUTHOR), ALICE.peer_id, EPOCH)], (
        "those who can say it alone are asked"
    )


def test_any_number_of_strangers_makes_us_give_up_nothing() -> None:
    desk = gap_below_six()
    for who in (PARENT, *(peer(f"stranger {number}") for number in range(20))):
        desk.shows(who, 9, retired=4, patience_s=1.0)
    desk.pass_time(1.0)
    desk.exhaust()
    assert desk.retired == []


@pytest.mark.parametrize("who", [ALICE.peer_id, AUTHOR], ids=["the publisher", "the author"])
def test_the_publisher_or_the_author_can_say_it_alone(who: PeerId) -> None:
    desk = gap_below_six()
    desk.shows(who, 9, retired=4)
    desk.exhaust()
    assert desk.retired == [(ALICE.peer_id, EPOCH, 4)]


def test_another_publisher_cannot() -> None:
    desk = gap_below_six()
    desk.shows(CAROL.peer_id, 9, retired=4)
    desk.shows(CAROL.peer_id, 9, publisher=CAROL.peer_id)
    desk.exhaust()
    assert desk.retired == []


@pytest.mark.parametrize("who", [ALICE.peer_id, AUTHOR], ids=["publisher", "author"])
def test_one_who_can_say_it_alone_may_say_it_of_a_single_event(who: PeerId) -> None:
    desk = gap_below_six()
    desk.shows(who, 9, retired=1)
    desk.exhaust()
    assert desk.retired == [(ALICE.peer_id, EPOCH, 1)]


def test_nothing_is_given_up_that_one_of_them_claims_to_hold() -> None:
    desk = gap_below_six(lazy=(LAZY, OTHER))
    desk.shows(PARENT, 9, retired=4, patience_s=1.0)
    desk.shows(LAZY, 9, retired=4, patience_s=1.0)
    desk.shows(OTHER, 9, retired=0, patience_s=1.0)
    desk.pass_time(1.0)
    desk.exhaust()
    assert desk.retired == []


def test_whoever_began_behind_the_gap_says_nothing_about_it() -> None:
    """Neither yes nor no: its floor is where it started, not what is gone for good."""
    for others, given_up in (((PARENT,), []), ((PARENT, OTHER), [(ALICE.peer_id, EPOCH, 4)])):
        desk = gap_below_six(lazy=(LAZY, OTHER))
        for who in others:
            desk.shows(who, 9, retired=4, patience_s=1.0)
        desk.shows(LAZY, 9, retired=0, floor=5, patience_s=1.0)
        desk.pass_time(1.0)
        desk.exhaust()
        assert desk.retired == given_up


def test_whoever_lacks_it_too_says_nothing_about_it() -> None:
    """It holds later ones, as we do, and waits as we do."""
    desk = gap_below_six(lazy=(LAZY, OTHER))
    desk.shows(PARENT, 9, retired=4, patience_s=1.0)
    desk.shows(LAZY, 9, retired=4, patience_s=1.0)
    waiting = MarkState(ALICE.peer_id, EPOCH, 0, 0, None, beyond=(6, 7))
    desk.recovery.compare(OTHER, [waiting], patience_s=1.0)
    desk.pass_time(1.0)
    desk.exhaust()
    assert desk.retired == [(ALICE.peer_id, EPOCH, 4)]


MEMBERS = tuple(peer(f"member {number}") for number in range(12))


def drew(desk: Desk) -> tuple[PeerId, ...]:
    """Whom the member drew last, beside those who can say it alone."""
    asked, *_ = desk.consulted[-1]
    return tuple(who for who in asked if who not in {ALICE.peer_id, AUTHOR})


def test_where_neighbours_know_too_little_members_are_drawn_and_have_a_say() -> None:
    """Those who had it may be few, and none of them our neighbours."""
    desk = gap_below_six(members=(BOB.peer_id, PARENT, *MEMBERS))
    desk.shows(PARENT, 9, retired=4)
    desk.exhaust()
    assert desk.retired == []
    drawn = drew(desk)
    assert len(set(drawn)) == DRAWN
    assert set(drawn) < set(MEMBERS), "neither ourselves nor whom we ask anyway"
    for who in drawn[:2]:
        desk.shows(who, 9, retired=4, patience_s=1.0)
    desk.pass_time(1.0)
    order = desk.exhaust()
    assert set(order) >= {PARENT, LAZY, *drawn}, "all of them were asked for it first"
    assert desk.retired == [(ALICE.peer_id, EPOCH, 4)]


def test_members_that_were_not_drawn_have_no_say() -> None:
    """Or whoever wants us to skip something only has to be many."""
    desk = gap_below_six(members=MEMBERS)
    desk.shows(PARENT, 9, retired=4)
    desk.exhaust()
    for who in set(MEMBERS) - set(drew(desk)):
        desk.shows(who, 9, retired=4, patience_s=1.0)
    desk.pass_time(1.0)
    desk.exhaust()
    assert desk.retired == []


def test_a_drawn_member_that_claims_to_hold_it_keeps_the_gap_open() -> None:
    desk = gap_below_six(members=MEMBERS)
    desk.shows(PARENT, 9, retired=4)
    desk.exhaust()
    first, second, third = drew(desk)
    desk.shows(first, 9, retired=4, patience_s=1.0)
    desk.shows(second, 9, retired=4, patience_s=1.0)
    desk.shows(third, 9, patience_s=1.0)
    desk.pass_time(1.0)
    desk.exhaust()
    assert desk.retired == []


def test_members_are_drawn_anew_but_not_at_every_failure() -> None:
    """What those who are asked answer makes us ask again: that must not go round for ever."""
    desk = gap_below_six(members=MEMBERS)
    seen: set[PeerId] = set()
    for _ in range(30):
        for _ in range(5):
            desk.shows(PARENT, 9, retired=4)
            desk.exhaust()
        seen.update(drew(desk))
        desk.turn.now += Parameters().status_interval_s
    assert len(desk.consulted) == 30
    assert seen == set(MEMBERS)


def test_each_numbering_is_asked_about_between_two_draws() -> None:
    desk = gap_below_six(members=MEMBERS)
    desk.frontier.add(CAROL.peer_id, EPOCH, 6, None)
    for publisher in (ALICE.peer_id, CAROL.peer_id):
        desk.shows(PARENT, 9, retired=4, publisher=publisher)
        desk.exhaust()
    (alice, *_), (carol, *_) = desk.consulted
    assert set(alice) - {ALICE.peer_id} == set(carol) - {CAROL.peer_id}


def test_nothing_is_given_up_before_an_event_from_behind_the_gap_is_here() -> None:
    """However many say so: else they could silence a publisher for all time to come."""
    desk = Desk(parent=PARENT, lazy=(LAZY,), retires=True)
    desk.frontier.add(ALICE.peer_id, EPOCH, 1, None)
    for who in (PARENT, LAZY, ALICE.peer_id, AUTHOR):
        desk.shows(who, 2**62, retired=2**62, patience_s=1.0)
    desk.pass_time(1.0)
    desk.exhaust()
    assert desk.retired == []
    assert desk.consulted == [], "and there is nothing to ask about"
    desk.frontier.add(ALICE.peer_id, EPOCH, 6, None)
    for who in (PARENT, LAZY):
        desk.shows(who, 2**62, retired=2**62, patience_s=1.0)
    desk.pass_time(1.0)
    desk.exhaust()
    assert desk.retired == [(ALICE.peer_id, EPOCH, 5)], "up to that event and no further"


def test_all_that_we_chose_are_asked_however_many() -> None:
    """Else a gap would stay for ever where more are chosen than peers are asked."""
    lazy = tuple(peer(f"lazy {number}") for number in range(SOURCES_MAX + 2))
    strangers = tuple(peer(f"stranger {number}") for number in range(SOURCES_MAX))
    desk = gap_below_six(lazy=lazy, neighbours=strangers)
    desk.shows(PARENT, 9, retired=4, patience_s=1.0)
    desk.shows(lazy[-1], 9, retired=4, patience_s=1.0)
    desk.pass_time(1.0)
    assert set(desk.exhaust()) == {PARENT, *lazy}, "and no others than these"
    assert desk.retired == [(ALICE.peer_id, EPOCH, 4)]


def test_who_was_chosen_in_the_meantime_is_asked_before_anything_is_given_up() -> None:
    lazy = [peer(f"lazy {number}") for number in range(SOURCES_MAX)]
    desk = gap_below_six(lazy=lazy)
    desk.shows(PARENT, 9, retired=4, patience_s=1.0)
    desk.shows(lazy[0], 9, retired=4, patience_s=1.0)
    desk.pass_time(1.0)
    while len(desk.recovery) and OTHER not in desk.members.lazy:
        for each in desk.asked():
            if each.peer == lazy[-1]:
                desk.members.lazy[OTHER] = None
            desk.answer(each)
    assert desk.retired == []
    assert desk.exhaust() == [OTHER]
    assert desk.retired == [(ALICE.peer_id, EPOCH, 4)]


def test_what_somebody_still_has_is_not_given_up() -> None:
    desk = gap_below_six(lazy=(LAZY, OTHER))
    desk.shows(PARENT, 6, retired=4, patience_s=1.0)
    desk.shows(LAZY, 6, retired=4, patience_s=1.0)
    desk.pass_time(1.0)
    while asked := desk.asked():
        for each in asked:
            desk.answer(each, *((1, 2, 3, 4, 5) if each.peer == OTHER else ()))
    assert desk.retired == []
    assert desk.frontier.high(ALICE.peer_id, EPOCH) == 6


def test_nothing_is_given_up_in_a_topic_that_keeps_everything() -> None:
    desk = gap_below_six(retires=False)
    for who in (PARENT, LAZY, ALICE.peer_id):
        desk.shows(who, 9, retired=4, patience_s=1.0)
    desk.pass_time(1.0)
    desk.exhaust()
    assert desk.retired == []
    assert desk.consulted == []
    assert not desk.frontier.holds(ALICE.peer_id, EPOCH, 4)
