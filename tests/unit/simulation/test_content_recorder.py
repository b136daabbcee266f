"""The ledger of content subscriptions knows by itself what was written after what."""

from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.simulation.content.recorder import Pasts

FIRST, SECOND, THIRD = (cid_of(name) for name in (b"1", b"2", b"3"))
ANN, BOB, CAROL = range(3)


def say(pasts: Pasts, node: int, event: Cid) -> None:
    pasts.write(node, str(event))
    pasts.publish(node, event, str(event))


def test_an_answer_before_its_question_is_upside_down() -> None:
    pasts = Pasts()
    say(pasts, ANN, FIRST)
    assert pasts.read(BOB, FIRST)
    say(pasts, BOB, SECOND)
    assert pasts.read(CAROL, SECOND)
    assert not pasts.read(CAROL, FIRST)


def test_what_nobody_has_connected_may_come_either_way() -> None:
    pasts = Pasts()
    say(pasts, ANN, FIRST)
    say(pasts, BOB, SECOND)
    for order in ((FIRST, SECOND), (SECOND, FIRST)):
        assert all(pasts.read(CAROL + (order[0] == FIRST), event) for event in order)


def test_an_answer_follows_all_that_its_question_followed() -> None:
    pasts = Pasts()
    say(pasts, ANN, FIRST)
    say(pasts, ANN, SECOND)
    assert pasts.read(BOB, SECOND)
    say(pasts, BOB, THIRD)
    assert pasts.read(CAROL, THIRD)
    assert not pasts.read(CAROL, FIRST)


def test_what_came_between_a_call_and_its_event_is_not_before_it() -> None:
    pasts = Pasts()
    say(pasts, ANN, FIRST)
    pasts.write(BOB, "second")
    assert pasts.read(BOB, FIRST)
    pasts.publish(BOB, SECOND, "second")
    assert pasts.read(CAROL, SECOND)
    assert pasts.read(CAROL, FIRST)
