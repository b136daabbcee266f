"""Deliveries: each thing that must not happen, planted and found; and histories that are clean."""

from pulsarcast.model.topic_types import DeliveryOrder, Mark
from tests.unit.simulation.planted import EPOCH, TOPIC, Planted, peer

PER_PUBLISHER, TOTAL = DeliveryOrder.PER_PUBLISHER, DeliveryOrder.TOTAL


def test_a_clean_history_passes() -> None:
    world = Planted(PER_PUBLISHER)
    world.subscribe(1, 2)
    for number in range(1, 40):
        world.publish(number)
        world.deliver(1, number)
        world.deliver(2, number)
    assert world.found() == {}
    assert world.observer.deliveries == 78


def test_an_event_that_nobody_published_is_forged() -> None:
    world = Planted()
    world.subscribe(1)
    world.deliver(1, 1)
    world.publish(1)
    world.deliver(1, 2)
    assert world.found() == {"forged": 2}


def test_an_event_other_than_the_one_published_is_forged() -> None:
    world = Planted()
    world.subscribe(1)
    world.publish(1)
    world.publish(2)
    world.deliver(1, 1)
    world.deliver(1, 2, variant="other")
    assert world.found() == {"forged": 1}


def test_the_same_event_twice_in_one_life_is_a_duplicate_even_if_marked() -> None:
    world = Planted()
    world.subscribe(1, 2)
    world.publish(1)
    world.deliver(1, 1, 1)
    world.deliver(2, 1)
    world.deliver(2, 1, redelivery=True)
    assert world.found() == {"duplicate": 2}


def test_a_marked_redelivery_after_a_crash_is_allowed_once() -> None:
    world = Planted(PER_PUBLISHER)
    world.subscribe(1)
    for number in (1, 2, 3):
        world.publish(number)
    world.deliver(1, 1, 2)
    world.crash(1)
    world.deliver(1, 1, 2, redelivery=True)
    world.deliver(1, 3)
    assert world.found() == {}
    assert world.observer.redeliveries == 2
    world.deliver(1, 2, redelivery=True)
    assert world.found() == {"duplicate": 1, "order": 1}


def test_a_second_delivery_after_a_crash_that_is_not_marked_is_a_duplicate() -> None:
    world = Planted()
    world.subscribe(1)
    world.publish(1)
    world.deliver(1, 1)
    world.crash(1)
    world.deliver(1, 1)
    assert world.found() == {"duplicate": 1}


def test_who_lost_its_disk_may_get_everything_again() -> None:
    world = Planted(PER_PUBLISHER)
    world.subscribe(1)
    world.publish(1)
    world.deliver(1, 1)
    world.crash(1, keep_disk=False)
    world.subscribe(1)
    world.deliver(1, 1)
    assert world.found() == {}


def test_an_event_before_the_start_frontier_is_not_ours() -> None:
    world = Planted()
    world.publish(1)
    world.publish(2)
    world.subscribe(1, start=(Mark(peer(0), EPOCH, 1),))
    world.deliver(1, 2)
    assert world.found() == {}
    world.deliver(1, 1)
    assert world.found() == {"before_start": 1}


def test_a_delivery_without_a_subscription_is_found() -> None:
    world = Planted()
    world.publish(1)
    world.deliver(1, 1)
    assert world.found() == {"not_subscribed": 1}


def test_a_delivery_after_unsubscribing_is_found() -> None:
    from pulsarcast.model import trace

    world = Planted()
    world.subscribe(1)
    world.publish(1)
    world.publish(2)
    world.deliver(1, 1)
    world.tell(1, trace.Unsubscribed(topic=TOPIC))
    world.deliver(1, 2)
    assert world.found() == {"not_subscribed": 1}


def test_without_a_promised_order_any_order_will_do() -> None:
    world = Planted()
    world.subscribe(1)
    for number in (1, 2, 3):
        world.publish(number)
    world.deliver(1, 3, 1, 2)
    assert world.found() == {}


def test_an_earlier_event_of_a_publisher_after_a_later_one_breaks_its_order() -> None:
    world = Planted(PER_PUBLISHER)
    world.subscribe(1)
    for number in (1, 2, 3):
        world.publish(number)
        world.publish(number, by=2)
    world.deliver(1, 1, 2)
    world.deliver(1, 1, 2, 3, by=2)
    assert world.found() == {}
    world.deliver(1, 3)
    assert world.found() == {}
    world = Planted(PER_PUBLISHER)
    world.subscribe(1)
    for number in (1, 2):
        world.publish(number)
    world.deliver(1, 2, 1)
    assert world.found() == {"order": 1}


def test_a_crash_does_not_excuse_the_order() -> None:
    world = Planted(PER_PUBLISHER)
    world.subscribe(1)
    for number in (1, 2):
        world.publish(number)
    world.deliver(1, 2)
    world.crash(1)
    world.deliver(1, 1)
    assert world.found() == {"order": 1}


def test_total_order_is_by_position_over_all_publishers() -> None:
    def published() -> Planted:
        world = Planted(TOTAL)
        world.subscribe(1)
        first = world.publish(1, position=1)
        second = world.publish(1, by=2, position=2, parents=(first,))
        world.publish(2, position=3, parents=(second,))
        return world

    world = published()
    world.deliver(1, 1)
    world.deliver(1, 1, by=2)
    world.deliver(1, 2)
    assert world.found() == {}
    world = published()
    world.deliver(1, 1, 2)
    world.deliver(1, 1, by=2)
    assert world.found() == {"order": 1}


def test_two_events_of_one_request_are_delivered_once() -> None:
    world = Planted()
    world.subscribe(1, 2)
    world.publish(1, request_id=b"r")
    world.deliver(1, 1)
    world.publish(2, request_id=b"r")
    world.deliver(2, 2)
    assert world.found() == {}
    world.deliver(1, 2)
    assert world.found() == {"duplicate": 1}
