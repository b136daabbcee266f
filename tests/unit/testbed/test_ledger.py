from array import array

from pulsarcast.testbed.ledger import Ledger, percentile_ms
from pulsarcast.testbed.scenarios.compare import NUMBER_BYTES, number_of
from pulsarcast.testbed.sessions import Account


def payload(number: int) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "big")


def test_a_delivery_is_told_with_its_latency() -> None:
    ledger = Ledger(nodes=3, events=2)
    ledger.publish(1, 5_000)
    ledger.teller(2, number_of).deliver(payload(1), 12_000)
    assert ledger.latencies_us(1, range(3)) == [7]
    assert ledger.missing(1, range(3)) == [0, 1]
    assert ledger.missing(0, range(3)) == [0, 1, 2]
    assert ledger.deliveries == 1


def test_a_second_attempt_does_not_change_when_an_event_was_published() -> None:
    ledger = Ledger(nodes=1, events=1)
    ledger.publish(0, 1_000)
    ledger.publish(0, 900_000)
    ledger.teller(0, number_of).deliver(payload(0), 1_000_000)
    assert ledger.latencies_us(0, [0]) == [999]


def test_the_same_life_counts_a_duplicate_and_a_later_one_a_redelivery() -> None:
    ledger = Ledger(nodes=2, events=1)
    ledger.publish(0, 1_000)
    first, second = ledger.teller(1, number_of), ledger.teller(1, number_of)
    first.deliver(payload(0), 2_000)
    first.deliver(payload(0), 3_000)
    second.deliver(payload(0), 4_000)
    second.deliver(payload(0), 5_000)
    assert (ledger.deliveries, ledger.duplicates, ledger.redeliveries) == (1, 2, 1)
    assert ledger.latencies_us(0, [1]) == [1]


def test_every_reader_of_a_node_has_a_column_of_its_own() -> None:
    ledger = Ledger(nodes=2, events=2, readers=3)
    ledger.publish(1, 1_000)
    teller = ledger.teller(1, number_of)
    teller.deliver(payload(1), 2_000, 0)
    teller.deliver(payload(1), 3_000, 2)
    teller.deliver(payload(1), 4_000, 2)
    assert ledger.got_by(1) == [3, 5]
    assert ledger.got_by(0) == []
    assert ledger.missing(1, [0, 3, 4, 5]) == [0, 4]
    assert ledger.latencies_us(1, range(6)) == [1, 2]
    assert (ledger.deliveries, ledger.duplicates) == (2, 1)


def test_what_nobody_published_is_a_stray() -> None:
    ledger = Ledger(nodes=1, events=1)
    teller = ledger.teller(0, number_of)
    teller.deliver(payload(0), 1_000)
    teller.deliver(payload(7), 1_000)
    assert (ledger.deliveries, ledger.strays) == (0, 2)


def test_an_event_is_complete_with_or_without_its_author() -> None:
    ledger = Ledger(nodes=3, events=1)
    ledger.publish(0, 1_000)
    ledger.teller(0, number_of).deliver(payload(0), 2_000)
    assert not ledger.is_complete(0, but=1)
    ledger.teller(2, number_of).deliver(payload(0), 2_000)
    assert ledger.is_complete(0, but=1)
    assert not ledger.is_complete(0, but=0)
    ledger.teller(1, number_of).deliver(payload(0), 2_000)
    assert ledger.is_complete(0, but=0)


def test_a_percentile_is_one_of_the_samples() -> None:
    samples = array("Q", range(1_000, 101_000, 1_000))
    assert percentile_ms(samples, 0.5) == 50.0
    assert percentile_ms(samples, 0.99) == 99.0
    assert percentile_ms(samples, 1.0) == 100.0
    assert percentile_ms(samples, 0.07) == 7.0
    assert percentile_ms(array("Q", [1_000, 9_000]), 0.5) == 1.0
    assert percentile_ms(array("Q"), 0.5) == 0.0


def test_a_life_that_ends_takes_its_meter_with_it() -> None:
    ledger = Ledger(nodes=2, events=1)
    ledger.teller(1, number_of).meter(5, 7)
    assert ledger.metered(1) == ledger.end_life(1) == (5, 7)
    assert ledger.metered(1) == ledger.metered(0) == (0, 0)


def test_due_is_what_was_promised_and_what_others_got() -> None:
    ledger = Ledger(nodes=3, events=4)
    for number in range(4):
        ledger.publish(number, 1_000)
    # 0 was acknowledged, and one lacks it; 1 was refused, and another got it all the same;
    # 2 was refused, and only its author has it; 3 was refused.
    for number, node in ((0, 0), (0, 1), (1, 1), (2, 0)):
        ledger.teller(node, number_of).deliver(payload(number), 2_000)
    account = Account(ledger, {0})
    for number in range(4):
        account.enter(number, author=0, subscribers=[0, 1, 2])
    assert (account.due, account.delivered) == (6, 3)
    assert account.missing == {0: [2], 1: [0, 2]}
    assert account.not_published == [2, 3]
