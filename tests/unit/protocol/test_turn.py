"""A turn: effects in the order in which they were asked for, and answers to those who wait."""

from random import Random

import pytest

from pulsarcast.protocol.effects import Load, Persist, Send, SetTimer
from pulsarcast.protocol.messages import Leave
from pulsarcast.protocol.store import Block, Keys, LoadBlock, PutState, StateRow
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, BOB, topic_of

TOPIC = topic_of(ALICE).cid
WRITE = PutState(StateRow("table", b"key", b"value"))


def turn() -> Turn:
    return Turn(ALICE, Random(1))


def test_effects_come_in_the_order_in_which_they_were_asked_for() -> None:
    ours = turn()
    ours.persist(WRITE)
    ours.send(BOB.peer_id, Leave(TOPIC))
    ours.after(1.0, lambda: None)
    ours.load(LoadBlock(TOPIC), Block, lambda answer: None)
    assert [type(effect) for effect in ours.effects] == [Persist, Send, SetTimer, Load]


def test_what_waits_for_the_end_of_a_turn_runs_once_whoever_asks_for_it() -> None:
    ours, ran = turn(), list[str]()

    def first() -> None:
        ran.append("first")
        ours.at_end(lambda: ran.append("second"))

    ours.at_end(first)
    assert not ran
    ours.end()
    ours.end()
    assert ran == ["first", "second"]


def test_a_timer_fires_once() -> None:
    ours, fired = turn(), list[int]()
    timer = ours.after(1.0, lambda: fired.append(1))
    ours.fired(timer)
    ours.fired(timer)
    assert fired == [1]
    assert ours.footprint()["timers"] == 0


def test_a_cancelled_timer_finds_nothing_to_do() -> None:
    ours, fired = turn(), list[int]()
    timer = ours.after(1.0, lambda: fired.append(1))
    ours.cancel(timer)
    ours.cancel(None)
    ours.fired(timer)
    assert not fired
    assert ours.footprint()["timers"] == 0


def test_whoever_waits_for_a_write_hears_of_it_with_every_sync_at_or_after_it() -> None:
    ours, heard = turn(), list[str]()
    ours.persist(WRITE, then=lambda: heard.append("first"))
    ours.persist(WRITE)
    ours.persist(WRITE, then=lambda: heard.append("third"))
    tokens = [effect.token for effect in ours.effects if isinstance(effect, Persist)]
    assert tokens == sorted(set(tokens))
    ours.persisted(tokens[1])
    assert heard == ["first"]
    ours.persisted(tokens[2])
    assert heard == ["first", "third"]
    ours.persisted(tokens[2])
    assert heard == ["first", "third"]


def test_nothing_that_waits_for_a_refused_write_ever_happens() -> None:
    ours, heard = turn(), list[str]()
    ours.persist(WRITE, then=lambda: heard.append("first"))
    ours.persist(WRITE, then=lambda: heard.append("second"))
    ours.persist(WRITE, then=lambda: heard.append("third"))
    tokens = [effect.token for effect in ours.effects if isinstance(effect, Persist)]
    ours.persist_failed(tokens[1])
    ours.persisted(tokens[2])
    assert heard == ["first"]
    assert ours.footprint()["syncs"] == 0


def test_a_write_asked_for_by_one_who_waits_comes_after() -> None:
    """A sync may ask for another one: it is a new write, not a part of the old one."""
    ours, heard = turn(), list[str]()

    def again() -> None:
        heard.append("first")
        ours.persist(WRITE, then=lambda: heard.append("second"))

    ours.persist(WRITE, then=again)
    first = ours.effects[0]
    assert isinstance(first, Persist)
    ours.persisted(first.token)
    assert heard == ["first"]


def test_an_answer_goes_to_the_one_who_asked_and_only_once() -> None:
    ours, answers = turn(), list[bytes | None]()
    ours.load(LoadBlock(TOPIC), Block, lambda answer: answers.append(answer.block))
    asked = ours.effects[0]
    assert isinstance(asked, Load)
    ours.loaded(asked.token + 1, Block(b"not asked for"))
    ours.loaded(asked.token, Block(b"block"))
    ours.loaded(asked.token, Block(b"again"))
    assert answers == [b"block"]


def test_a_disk_that_answers_another_question_is_a_broken_driver() -> None:
    ours = turn()
    ours.load(LoadBlock(TOPIC), Block, lambda answer: None)
    asked = ours.effects[0]
    assert isinstance(asked, Load)
    with pytest.raises(AssertionError):
        ours.loaded(asked.token, Keys(()))


def test_jitter_stays_within_a_quarter_and_does_spread() -> None:
    ours = turn()
    delays = [ours.jitter(8.0) for _ in range(200)]
    assert 6.0 <= min(delays) < 7.0
    assert 9.0 < max(delays) <= 10.0
