"""Recovery (design 6): who is asked for what we lack, in which order, and within which bounds."""

import pytest

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.effects import Send, SetTimer
from pulsarcast.protocol.messages import FetchRange, Range
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.topic import recovery as recovery_module
from pulsarcast.protocol.topic.recovery import FETCHES_KEPT, FETCHES_MAX
from tests.support.people import ALICE, BOB, CAROL, EPOCH, MALLORY, event_of, peer
from tests.unit.protocol.topic.recovery_desk import LAST, LAZY, PARENT, TOPIC, Desk


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


def test_whatever_is_due_first_is_asked_for_first() -> None:
    """And nothing before it is due, in whichever order it was shown."""
    desk = Desk()
    patience_s = {ALICE.peer_id: 3.0, MALLORY.peer_id: 1.0, BOB.peer_id: 5.0}
    for publisher, each_s in patience_s.items():
        desk.shows(CAROL.peer_id, 1, publisher=publisher, patience_s=each_s)
    asked: dict[PeerId, float] = {}
    while len(asked) < len(patience_s):
        timer = [effect for effect in desk.turn.effects if isinstance(effect, SetTimer)][-1]
        desk.turn.now += timer.delay_s
        desk.turn.effects = []
        desk.turn.fired(timer.timer)
        questions = [e.message for e in desk.turn.effects if isinstance(e, Send)]
        asked |= {e.publisher: desk.turn.now for e in questions if isinstance(e, FetchRange)}
    assert asked == patience_s


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
    desk.shows(CAROL.peer_id, 1)
    (asked,) = desk.asked()
    desk.recovery.receive(
        asked.peer, Range(asked.question.request, TOPIC.cid, (event.block,), more=False)
    )
    assert desk.taken == [event.block]
