"""Recovery (design 6): who is asked for what we lack, in which order, and within which bounds."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.protocol.effects import Send, SetTimer
from pulsarcast.protocol.messages import FetchRange, Range
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic import recovery as recovery_module
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.recovery import DRAWN, FETCHES_KEPT, FETCHES_MAX, Recovery
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, BOB, CAROL, EPOCH, MALLORY, event_of, peer, topic_of

TOPIC = topic_of(ALICE)
LAST = cid_of(b"the last one")
AUTHOR, PARENT, LAZY, OTHER = (peer(name) for name in ("author", "parent", "lazy", "other"))


class Asked(NamedTuple):
    """A question that was sent."""

    peer: PeerId
    question: FetchRange


class Desk:
    """A `Recovery` with its surroundings played by the test."""

    def __init__(
        self,
        *,
        parent: PeerId | None = None,
        lazy: tuple[PeerId, ...] = (),
        neighbours: tuple[PeerId, ...] = (),
        members: tuple[PeerId, ...] = (),
        retires: bool = False,
    ) -> None:
        self.turn = Turn(BOB, Random(1))
        self.frontier = Frontier()
        self.looked_up: list[tuple[Cid, Callable[[bytes | None], None]]] = []
        self.retired: list[tuple[PeerId, int, int]] = []
        self.consulted: list[tuple[tuple[PeerId, ...], PeerId, int]] = []
        self.recovery = Recovery(
            TOPIC.cid,
            self.turn,
            Parameters(),
            self.frontier,
            author=AUTHOR,
            parent=lambda: parent,
            lazy=lambda: lazy,
            neighbours=lambda: neighbours,
            members=lambda: members,
            publishers_of=lambda publisher: (publisher,),
            take=self.take,
            find_block=lambda cid, then: self.looked_up.append((cid, then)),
            seen=self.frontier.highest,
            consult=lambda peers, *source: self.consulted.append((tuple(peers), *source)),
            retire=self._retire,
            retires=lambda: retires,
            needed=lambda publisher, epoch: 0,
            excuse=self._retire,
            counts={},
        )

    def take(self, block: bytes, sender: PeerId, certificate: bytes = b"") -> None:
        """Take an event in as a topic without order does: what comes ahead shows a gap."""
        number = int(block)
        gap = self.frontier.gap_before(ALICE.peer_id, EPOCH, number)
        self.frontier.add(ALICE.peer_id, EPOCH, number, None)
        if gap is not None:
            self.recovery.gap(ALICE.peer_id, EPOCH, gap, sender)

    def _retire(self, publisher: PeerId, epoch: int, number: int) -> None:
        self.retired.append((publisher, epoch, number))
        self.frontier.retire(publisher, epoch, number)

    def shows(
        self,
        who: PeerId,
        high: int,
        *,
        retired: int = 0,
        floor: int | None = None,
        publisher: PeerId = ALICE.peer_id,
        patience_s: float = 0.0,
    ) -> None:
        start = retired if floor is None else floor
        mark = MarkState(publisher, EPOCH, start, high, LAST, retired=retired)
        self.recovery.compare(who, [mark], patience_s=patience_s)

    def asked(self) -> list[Asked]:
        """The questions since the last look."""
        effects, self.turn.effects = self.turn.effects, []
        return [
            Asked(effect.peer, effect.message)
            for effect in effects
            if isinstance(effect, Send) and isinstance(effect.message, FetchRange)
        ]

    def answer(self, asked: Asked, *numbers: int, more: bool = False) -> None:
        blocks = tuple(b"%d" % number for number in numbers)
        message = Range(asked.question.request, TOPIC.cid, blocks, more)
        self.recovery.receive(asked.peer, message)

    def exhaust(self) -> list[PeerId]:
        """Answer every question with nothing; returns who was asked, in order."""
        order: list[PeerId] = []
        while asked := self.asked():
            for each in asked:
                assert len(order) < 100, "questions never end"
                order.append(each.peer)
                self.answer(each)
        return order

    def pass_time(self, seconds: float) -> None:
        """Fire what was set and not fired yet: these tests set few timers, all alike."""
        self.turn.now += seconds
        for timer in list(self.turn._timers):
            self.turn.fired(timer)


def test_whoever_shows_more_is_asked_for_exactly_what_we_lack() -> None:
    desk = Desk()
    desk.frontier.add(ALICE.peer_id, EPOCH, 1, None)
    desk.shows(CAROL.peer_id, 5)
    (asked,) = desk.asked()
    assert asked.peer == CAROL.peer_id
    assert (asked.question.first, asked.question.last) == (2, 5)


def test_a_peer_that_shows_nothing_new_is_not_asked() -> None:
    desk = Desk()
    desk.frontier.retire(ALICE.peer_id, EPOCH, 5)
    desk.shows(CAROL.peer_id, 5)
    assert desk.asked() == []
    assert len(desk.recovery) == 0


def test_a_gap_may_close_by_itself_before_it_is_asked_for() -> None:
    desk = Desk()
    desk.recovery.gap(ALICE.peer_id, EPOCH, (1, 2), CAROL.peer_id)
    assert desk.asked() == []
    for number in (1, 2):
        desk.frontier.add(ALICE.peer_id, EPOCH, number, None)
    desk.pass_time(Parameters().gap_delay_s)
    assert desk.asked() == []
    assert len(desk.recovery) == 0


def test_a_gap_that_stays_is_asked_for() -> None:
    desk = Desk()
    desk.recovery.gap(ALICE.peer_id, EPOCH, (1, 2), CAROL.peer_id)
    desk.asked()
    desk.pass_time(Parameters().gap_delay_s)
    (asked,) = desk.asked()
    assert (asked.question.first, asked.question.last) == (1, 2)


def test_first_the_one_who_showed_it_then_the_neighbours_then_the_dht() -> None:
    """Design 6: a missing event is asked for from the sender, other neighbours, then the DHT."""
    near = (peer("near"), peer("far"))
    desk = Desk(neighbours=near)
    desk.shows(CAROL.peer_id, 1)
    order = desk.exhaust()
    assert order[:3] == [CAROL.peer_id, *near]
    assert set(order[3:]) <= {ALICE.peer_id}, "and perhaps the publisher itself"
    assert [cid for cid, _ in desk.looked_up] == [LAST]
    desk.looked_up[0][1](b"1")
    assert desk.frontier.holds(ALICE.peer_id, EPOCH, 1)


def test_a_peer_that_does_not_answer_is_passed_over() -> None:
    desk = Desk(neighbours=(peer("near"),))
    desk.shows(CAROL.peer_id, 1)
    (silent,) = desk.asked()
    desk.pass_time(2 * Parameters().rpc_timeout_s)
    (asked,) = desk.asked()
    assert (silent.peer, asked.peer) == (CAROL.peer_id, peer("near"))
    desk.answer(silent, 1)
    assert not desk.frontier.holds(ALICE.peer_id, EPOCH, 1), "its time was up"
    desk.answer(asked, 1)
    assert len(desk.recovery) == 0


def test_a_peer_that_is_lost_is_passed_over_at_once() -> None:
    desk = Desk(neighbours=(peer("near"),))
    desk.shows(CAROL.peer_id, 1)
    desk.asked()
    desk.recovery.lost(CAROL.peer_id)
    (asked,) = desk.asked()
    assert asked.peer == peer("near")


def test_a_long_gap_is_fetched_in_pages_from_the_same_peer() -> None:
    desk = Desk()
    desk.shows(CAROL.peer_id, 5)
    (asked,) = desk.asked()
    desk.answer(asked, 1, 2, more=True)
    (again,) = desk.asked()
    assert (again.peer, again.question.first, again.question.last) == (CAROL.peer_id, 3, 5)
    desk.answer(again, 3, 4, 5)
    assert len(desk.recovery) == 0


def test_a_peer_that_says_more_and_gives_nothing_is_not_asked_for_ever() -> None:
    desk = Desk()
    desk.shows(MALLORY.peer_id, 5)
    order: list[PeerId] = []
    while asked := desk.asked():
        for each in asked:
            order.append(each.peer)
            assert len(order) < 10
            desk.answer(each, more=True)
    assert order.count(MALLORY.peer_id) == 1


def test_an_answer_nobody_asked_for_is_not_looked_at() -> None:
    desk = Desk()
    desk.recovery.receive(MALLORY.peer_id, Range(1, TOPIC.cid, (b"1",), more=False))
    assert not desk.frontier.holds(ALICE.peer_id, EPOCH, 1)
    desk.shows(CAROL.peer_id, 1)
    (asked,) = desk.asked()
    desk.answer(asked._replace(peer=MALLORY.peer_id), 1)
    assert not desk.frontier.holds(ALICE.peer_id, EPOCH, 1), "another peer was asked"
    desk.answer(asked, 1)
    assert desk.frontier.holds(ALICE.peer_id, EPOCH, 1)


def test_only_so_many_questions_are_in_flight() -> None:
    """So that catch-up never starves live events (design 6)."""
    desk = Desk()
    for number in range(3 * FETCHES_MAX):
        desk.shows(CAROL.peer_id, 1, publisher=peer(f"publisher {number}"))
    asked = desk.asked()
    assert len(asked) == FETCHES_MAX
    desk.answer(asked[0])
    assert len(desk.asked()) == 1, "one ended, one begins"


def claim(desk: Desk, who: PeerId, count: int) -> int:
    """A peer shows numberings of its own invention; returns how many of them are wanted."""
    before = len(desk.recovery)
    for number in range(count):
        publisher = peer(f"{who[-4:].hex()} invents {number}")
        desk.shows(who, 2**40, publisher=publisher, patience_s=1.0)
    return len(desk.recovery) - before


def test_only_so_many_numberings_are_wanted_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers in all half of it, each an eighth; and the parent leaves a quarter to others."""
    monkeypatch.setattr(recovery_module, "WANTS_MAX", 64)
    strangers = [peer(f"stranger {number}") for number in range(10)]
    desk = Desk(parent=PARENT)
    assert [claim(desk, stranger, 100) for stranger in strangers] == [8, 8, 8, 8, *([0] * 6)]
    assert claim(desk, PARENT, 100) == 32, "all that is left"
    desk = Desk(parent=PARENT)
    assert claim(desk, PARENT, 100) == 48
    assert [claim(desk, stranger, 100) for stranger in strangers] == [8, 8, *([0] * 8)]


def test_what_the_parent_shows_too_is_wanted_on_its_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery_module, "WANTS_MAX", 16)
    desk = Desk(parent=PARENT)
    for who in (CAROL.peer_id, PARENT):
        for number in range(2):
            desk.shows(who, 5, publisher=peer(f"publisher {number}"), patience_s=1.0)
    assert len(desk.recovery) == 2
    assert claim(desk, CAROL.peer_id, 5) == 2, "it has its room back"
    desk.recovery.stop()
    assert not desk.recovery._wanted_by


def test_some_questions_are_kept_for_what_the_parent_shows() -> None:
    desk = Desk(parent=PARENT)
    for number in range(3 * FETCHES_MAX):
        desk.shows(CAROL.peer_id, 1, publisher=peer(f"publisher {number}"))
    assert [asked.peer for asked in desk.asked()] == [CAROL.peer_id] * (FETCHES_MAX - FETCHES_KEPT)
    desk.shows(PARENT, 1)
    assert [asked.peer for asked in desk.asked()] == [PARENT], "at once"


def test_whoever_showed_us_something_gets_its_turn() -> None:
    """Not the oldest first: one who shows much must not keep another waiting who shows little."""
    desk = Desk()
    for number in range(5 * FETCHES_MAX):
        desk.shows(MALLORY.peer_id, 1, publisher=peer(f"invented {number}"))
    silent = desk.asked()
    assert len(silent) == FETCHES_MAX
    desk.shows(CAROL.peer_id, 1)
    assert desk.asked() == []
    desk.recovery._timed_out(silent[0].question.request)
    (asked,) = desk.asked()
    assert (asked.peer, asked.question.publisher) == (CAROL.peer_id, ALICE.peer_id)


def test_a_numbering_that_nobody_answers_for_does_not_come_first_again() -> None:
    desk = Desk(neighbours=(peer("near"),))
    for number in range(FETCHES_MAX + 1):
        desk.shows(CAROL.peer_id, 1, publisher=peer(f"publisher {number}"))
    first, *_ = desk.asked()
    desk.recovery._timed_out(first.question.request)
    (asked,) = desk.asked()
    assert asked.question.publisher == peer(f"publisher {FETCHES_MAX}")


def test_strangers_that_claim_to_have_it_do_not_keep_us_from_asking_our_own() -> None:
    desk = Desk(parent=PARENT, lazy=(LAZY,))
    desk.recovery.gap(ALICE.peer_id, EPOCH, (1, 1), PARENT)
    for number in range(100):
        desk.shows(peer(f"stranger {number}"), 1, patience_s=1.0)
    desk.pass_time(1.0)
    assert desk.exhaust()[1:3] == [PARENT, LAZY]


def test_a_node_never_asks_itself() -> None:
    """What the DHT gave us comes from ourselves; the gap before it must not be asked of us.

    A driver cannot dial its own node: the simulator's asserts that nobody tries.
    """
    desk = Desk()
    desk.shows(CAROL.peer_id, 3)
    desk.exhaust()
    (_, found), *_ = desk.looked_up
    found(b"3")
    desk.pass_time(Parameters().gap_delay_s)
    assert BOB.peer_id not in [asked.peer for asked in desk.asked()]


def test_an_answer_with_a_hole_in_it_is_survived_when_all_slots_are_taken() -> None:
    """Blocks 1 and 3 of 1..9, with `more`: the hole is a reason to ask the same peer again.

    Meanwhile an older want has become due and takes the slot. A hostile peer can arrange all of it.
    """
    desk = Desk()
    desk.recovery.gap(peer("older"), EPOCH, (1, 1), MALLORY.peer_id)
    for number in range(FETCHES_MAX - 1):
        desk.shows(MALLORY.peer_id, 1, publisher=peer(f"invented {number}"))
    desk.shows(CAROL.peer_id, 9)
    asked = next(each for each in desk.asked() if each.peer == CAROL.peer_id)
    desk.turn.now += Parameters().gap_delay_s
    desk.answer(asked, 1, 3, more=True)
    assert desk.frontier.holds(ALICE.peer_id, EPOCH, 3)


# Gaps that nobody fills.


def gap_below_six(
    *,
    lazy: tuple[PeerId, ...] = (LAZY,),
    members: tuple[PeerId, ...] = (),
    retires: bool = True,
) -> Desk:
    """A member of a topic with retention that holds event 6, and lacks those before it."""
    desk = Desk(parent=PARENT, lazy=lazy, members=members, retires=retires)
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


def test_nothing_is_given_up_before_all_that_we_chose_were_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One may have become a neighbour after the others were asked."""
    monkeypatch.setattr(recovery_module, "SOURCES_MAX", 1)
    desk = gap_below_six()
    desk.shows(PARENT, 9, retired=4, patience_s=1.0)
    desk.shows(LAZY, 9, retired=4, patience_s=1.0)
    desk.pass_time(1.0)
    assert desk.exhaust() == [LAZY]
    assert desk.retired == []


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


def test_leaving_a_topic_ends_all_questions() -> None:
    desk = Desk()
    desk.shows(CAROL.peer_id, 1)
    desk.recovery.gap(MALLORY.peer_id, EPOCH, (1, 2), CAROL.peer_id)
    (asked,) = desk.asked()
    desk.recovery.stop()
    assert len(desk.recovery) == 0
    assert desk.turn.footprint()["timers"] == 0
    desk.answer(asked, 1)
    assert not desk.frontier.holds(ALICE.peer_id, EPOCH, 1)


def test_questions_and_answers_leave_nothing_behind() -> None:
    desk = Desk()
    for number in range(100):
        desk.shows(CAROL.peer_id, 1, publisher=peer(f"publisher {number}"))
    for _ in range(1000):
        asked = desk.asked()
        if not asked:
            break
        for each in asked:
            desk.answer(each)
    assert len(desk.recovery) == 0
    assert desk.turn.footprint() == {"timers": 0, "loads": 0, "syncs": 0}
    assert not [e for e in desk.turn.effects if isinstance(e, SetTimer)]


def test_an_event_of_the_topic_is_what_the_tests_above_stand_for() -> None:
    """The numbers above stand for real events: one travels the same way here."""
    event = event_of(ALICE, TOPIC, 1)
    desk = Desk()
    taken: list[bytes] = []
    desk.recovery.take = lambda block, sender, certificate: taken.append(block)
    desk.shows(CAROL.peer_id, 1)
    (asked,) = desk.asked()
    desk.recovery.receive(
        asked.peer, Range(asked.question.request, TOPIC.cid, (event.block,), more=False)
    )
    assert taken == [event.block]
