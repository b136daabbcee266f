"""Publications: numbers, chains and rights, planted wrong and found."""

from pulsarcast.model.topic_types import DeliveryOrder
from pulsarcast.simulation.checkers.coverage import check_coverage
from tests.unit.simulation.planted import TOPIC, Planted, event, peer

TOTAL = DeliveryOrder.TOTAL


def test_publishing_in_anothers_name_is_forged() -> None:
    world = Planted()
    world.publish(1, by=1, claimed=2)
    assert world.found() == {"forged": 1}


def test_publishing_without_the_right_to_is_found() -> None:
    world = Planted()
    world.observer.allow(TOPIC, frozenset([peer(0)]))
    world.publish(1)
    assert world.found() == {}
    world.publish(1, by=1)
    assert world.found() == {"not_allowed": 1}


def test_two_events_with_one_number_are_an_equivocation_once_the_first_has_left() -> None:
    world = Planted()
    world.subscribe(1)
    world.publish(1)
    world.deliver(1, 1)
    world.publish(1, variant="other")
    assert world.found() == {"equivocation": 1}
    world = Planted()
    world.acknowledge(world.publish(1))
    world.publish(1, variant="other")
    assert world.found() == {"equivocation": 1}


def test_a_number_is_free_again_if_its_event_never_left_a_publisher_that_crashed() -> None:
    world = Planted(DeliveryOrder.PER_PUBLISHER)
    world.subscribe(0, 1)
    world.publish(1)
    world.deliver(0, 1)
    world.crash(0)
    world.publish(1, variant="other")
    world.deliver(0, 1, variant="other")
    world.deliver(1, 1, variant="other")
    assert world.found() == {}
    world.deliver(1, 1)
    assert world.found() == {"forged": 1}


def test_a_number_left_out_is_found_in_the_end() -> None:
    world = Planted()
    world.publish(1)
    world.publish(3)
    check_coverage(world.observer, now_s=world.time_s)
    assert world.found() == {"number_gap": 1}
    world = Planted()
    for number in (1, 3, 2):
        world.publish(number)
    check_coverage(world.observer, now_s=world.time_s)
    assert world.found() == {}


def test_one_chain_passes() -> None:
    world = Planted(TOTAL)
    last = world.publish(1, position=1)
    for number in range(2, 6):
        last = world.publish(number, position=number, parents=(last,))
    assert world.found() == {}


def test_a_position_given_twice_is_a_fork() -> None:
    world = Planted(TOTAL)
    world.subscribe(1)
    first = world.publish(1, position=1)
    world.publish(2, position=2, parents=(first,))
    world.deliver(1, 1, 2)
    world.publish(1, by=2, position=2, parents=(first,))
    assert world.found() == {"fork": 1}


def test_a_link_to_anything_but_the_event_before_breaks_the_chain() -> None:
    world = Planted(TOTAL)
    first = world.publish(1, position=1)
    world.publish(2, position=2, parents=(first,))
    world.publish(3, position=3, parents=(first,))
    assert world.found() == {"chain": 1}


def test_a_position_left_out_breaks_the_chain() -> None:
    world = Planted(TOTAL)
    first = world.publish(1, position=1)
    world.publish(2, position=3, parents=(first,))
    assert world.found() == {"chain": 1}


def test_one_injection_is_published_once() -> None:
    world = Planted()
    world.subscribe(1)
    world.publish(1, injection="a")
    world.deliver(1, 1)
    world.publish(2, injection="b")
    assert world.found() == {}
    world.publish(3, injection="a")
    assert world.found() == {"published_twice": 1}


def test_a_publisher_that_lost_its_disk_cannot_know_an_injection() -> None:
    world = Planted()
    world.publish(1, injection="a")
    world.crash(0, keep_disk=False)
    world.publish(2, injection="a")
    assert world.found() == {}


def test_an_acknowledgement_of_what_was_never_published_is_found() -> None:
    world = Planted()
    world.acknowledge(event(1))
    assert world.found() == {"acknowledged_unpublished": 1}
