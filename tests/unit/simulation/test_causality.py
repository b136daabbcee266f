"""The checker of causal order: from what was published and delivered, not what nodes decide."""

from pulsarcast.model import trace
from pulsarcast.model.topic_types import DeliveryOrder, Mark
from pulsarcast.simulation.checkers.causality import settle_causality
from tests.unit.simulation.planted import EPOCH, TOPIC, Planted, event, peer


def talk(*subscribers: int) -> Planted:
    planted = Planted(DeliveryOrder.CAUSAL)
    planted.subscribe(*(subscribers or (0, 1, 2)))
    return planted


def found(planted: Planted) -> dict[str, int]:
    settle_causality(planted.observer)
    return planted.found()


def ask_and_answer(planted: Planted) -> None:
    """Node 0 says something, and node 1 answers it."""
    planted.publish(1)
    planted.deliver(0, 1)
    planted.deliver(1, 1)
    planted.publish(1, by=1, parents=(event(1),))
    planted.deliver(1, 1, by=1)


def test_an_answer_after_its_question_is_right() -> None:
    planted = talk()
    ask_and_answer(planted)
    for node in (0, 2):
        if node == 2:
            planted.deliver(node, 1)
        planted.deliver(node, 1, by=1)
    assert found(planted) == {}


def test_an_answer_before_its_question_is_found() -> None:
    planted = talk()
    ask_and_answer(planted)
    planted.deliver(2, 1, by=1)
    planted.deliver(2, 1)
    assert found(planted) == {"causal_order": 1}


def test_who_came_later_or_let_the_question_go_need_not_have_it() -> None:
    planted = talk(0, 1)
    ask_and_answer(planted)
    planted.subscribe(2, start=(Mark(peer(0), EPOCH, 1),))
    planted.deliver(2, 1, by=1)
    assert found(planted) == {}
    planted = talk()
    ask_and_answer(planted)
    planted.deliver(2, 1, by=1)
    # It may say so afterwards.
    planted.tell(2, trace.Retired(TOPIC, peer(0), EPOCH, 1))
    assert found(planted) == {}


def test_an_event_that_leaves_a_head_out_or_names_another_is_found() -> None:
    for parents in ((), (event(2),)):
        planted = talk()
        planted.publish(1)
        planted.deliver(0, 1)
        planted.publish(2, parents=(event(1),))
        planted.deliver(0, 2)
        planted.deliver(1, 1)
        planted.publish(1, by=1, parents=parents)
        planted.deliver(1, 1, by=1)
        assert found(planted)["causal_parents"] == 1, parents


def late_and_named(*, retired: bool, rolled_back: bool = False) -> Planted:
    """Node 2 got an answer to 2, then 1, which is before that; its next event names both."""
    planted = talk()
    for number in (1, 2):
        planted.publish(number, parents=(event(1),) if number == 2 else ())
        for node in (0, 1):
            planted.deliver(node, number)
    planted.publish(1, by=1, parents=(event(2),))
    planted.deliver(1, 1, by=1)
    if retired:
        planted.tell(2, trace.Retired(TOPIC, peer(0), EPOCH, 2))
    planted.deliver(2, 1, by=1)
    planted.deliver(2, 1)
    if rolled_back:
        planted.observer.rolled_back(2, planted.time_s, planted.observer.memory_of(2))
    planted.publish(1, by=2, parents=(event(1, publisher=1), event(1)))
    planted.deliver(2, 1, by=2)
    return planted


def test_what_was_retired_and_came_all_the_same_may_be_named() -> None:
    """Its node cannot tell that something followed it: what is between was never there."""
    assert "causal_parents" not in found(late_and_named(retired=True))
    assert found(late_and_named(retired=False))["causal_parents"] == 1


def test_what_came_late_before_a_disk_went_back_may_be_named_still() -> None:
    assert "causal_parents" not in found(late_and_named(retired=True, rolled_back=True))
    assert found(late_and_named(retired=False, rolled_back=True))["causal_parents"] == 1


def test_a_merge_may_leave_heads_for_the_next_and_names_no_others() -> None:
    planted = talk()
    for node in (0, 2):
        planted.publish(1, by=node)
        planted.deliver(node, 1, by=node)
        planted.deliver(1, 1, by=node)
    planted.publish(1, by=1, parents=(event(1),), merge=True)
    planted.deliver(1, 1, by=1)
    planted.publish(2, by=1, parents=(event(1, publisher=1), event(1, publisher=2)))
    planted.deliver(1, 2, by=1)
    assert found(planted) == {}
    planted.publish(3, by=1, parents=(event(1),), merge=True)
    planted.deliver(1, 3, by=1)
    assert found(planted) == {"causal_parents": 1}


def test_what_is_told_again_after_a_crash_is_judged_where_it_is_delivered() -> None:
    planted = talk()
    planted.publish(1)
    planted.deliver(0, 1)
    planted.crash(1)
    # Both were on the disk of node 1, and neither had been told.
    planted.publish(1, by=1, parents=(event(1),))
    planted.deliver(1, 1)
    planted.deliver(1, 1, by=1)
    assert found(planted) == {}


def test_who_publishes_while_still_given_old_events_is_judged_once_it_has_them() -> None:
    for parents, expected in (((event(2),), {}), ((event(1),), {"causal_parents": 1})):
        planted = talk(0)
        planted.publish(1)
        planted.deliver(0, 1)
        planted.publish(2, parents=(event(1),))
        planted.deliver(0, 2)
        planted.subscribe(1)
        planted.deliver(1, 1)
        # Its node holds event 2 already, its application does not.
        planted.publish(1, by=1, parents=parents)
        planted.deliver(1, 2)
        planted.deliver(1, 1, by=1)
        assert found(planted) == expected, parents
