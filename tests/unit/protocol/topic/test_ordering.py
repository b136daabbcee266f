"""Orders of delivery (design 7): what may be delivered now, and what waits."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor, Position
from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import DeliveryOrder
from pulsarcast.protocol.topic import ordering
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.ordering import Ordering
from tests.support.people import ALICE, BOB, event_of, topic_of

COUNT = 8
TOPIC = topic_of(ALICE)


@cache
def chain() -> tuple[EventDescriptor, ...]:
    """Alice's events in total order, each linked to the one before."""
    events: list[EventDescriptor] = []
    for number in range(1, COUNT + 1):
        parents = (events[-1].cid,) if events else ()
        position = Position(0, number)
        events.append(event_of(ALICE, TOPIC, number, parents=parents, position=position))
    return tuple(events)


@cache
def streams() -> tuple[EventDescriptor, ...]:
    """Events of two publishers in no order between them."""
    return tuple(event_of(who, TOPIC, n) for who in (ALICE, BOB) for n in range(1, COUNT + 1))


class Reader:
    """Delivers as a topic does."""

    def __init__(self, order: DeliveryOrder, held_back_max: int = 1000) -> None:
        self.frontier = Frontier()
        self.ordering = Ordering(order, self.frontier, held_back_max)
        self.got: list[EventDescriptor] = []

    def take(self, event: EventDescriptor) -> None:
        if self.ordering.offer(event, 1):
            self._deliver(event)
            epoch, _ = event.sequence
            while (found := self.ordering.next_of(event.publisher, epoch)) is not None:
                self._deliver(found[0])

    def _deliver(self, event: EventDescriptor) -> None:
        self.frontier.add(event.publisher, *event.sequence, event.cid)
        self.got.append(event)

    def cids(self) -> list[Cid]:
        return [event.cid for event in self.got]


@given(st.permutations(range(2 * COUNT)))
def test_each_publishers_events_are_delivered_in_its_order_whatever_comes_first(
    arrival: list[int],
) -> None:
    reader = Reader(DeliveryOrder.PER_PUBLISHER)
    for place in arrival:
        reader.take(streams()[place])
    for who in (ALICE, BOB):
        numbers = [e.sequence.number for e in reader.got if e.publisher == who.peer_id]
        assert numbers == list(range(1, COUNT + 1))
    assert len(reader.ordering) == 0


@given(st.permutations(range(COUNT)))
def test_total_order_is_one_chain_whatever_comes_first(arrival: list[int]) -> None:
    reader = Reader(DeliveryOrder.TOTAL)
    for place in arrival:
        reader.take(chain()[place])
    assert reader.cids() == [event.cid for event in chain()]
    assert len(reader.ordering) == 0


@given(st.permutations(range(2 * COUNT)))
def test_without_an_order_nothing_waits(arrival: list[int]) -> None:
    reader = Reader(DeliveryOrder.NONE)
    for place in arrival:
        reader.take(streams()[place])
    assert reader.cids() == [streams()[place].cid for place in arrival]


@given(st.permutations(range(2 * COUNT)), st.integers(0, 4))
def test_what_waits_is_bounded_and_nothing_overtakes(arrival: list[int], room: int) -> None:
    reader = Reader(DeliveryOrder.PER_PUBLISHER, held_back_max=room)
    for place in arrival:
        reader.take(streams()[place])
        assert len(reader.ordering) <= room
    for who in (ALICE, BOB):
        numbers = [e.sequence.number for e in reader.got if e.publisher == who.peer_id]
        assert numbers == list(range(1, len(numbers) + 1))


def test_what_waits_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [event_of(ALICE, TOPIC, number) for number in (2, 3, 4)]
    size = len(events[0].block)
    assert {len(event.block) for event in events} == {size}
    for room, waiting in ((2 * size - 1, 1), (2 * size, 2)):
        monkeypatch.setattr(ordering, "BYTES_MAX", room)
        reader = Reader(DeliveryOrder.PER_PUBLISHER)
        for event in events:
            reader.take(event)
        assert len(reader.ordering) == waiting


def test_an_event_that_waits_is_known_and_not_taken_twice() -> None:
    reader = Reader(DeliveryOrder.PER_PUBLISHER)
    second = event_of(ALICE, TOPIC, 2)
    reader.take(second)
    assert reader.ordering.held_back(second.publisher, *second.sequence) == second.cid
    assert len(reader.ordering) == 1
    reader.take(event_of(ALICE, TOPIC, 1))
    assert reader.ordering.held_back(second.publisher, *second.sequence) is None


def test_what_retention_overtook_does_not_wait_for_ever() -> None:
    reader = Reader(DeliveryOrder.PER_PUBLISHER)
    for number in (3, 4, 6):
        reader.take(event_of(ALICE, TOPIC, number))
    reader.frontier.retire(ALICE.peer_id, 7, 4)
    assert reader.ordering.next_of(ALICE.peer_id, 7) is None
    assert len(reader.ordering) == 1
    reader.take(event_of(ALICE, TOPIC, 5))
    assert [event.sequence.number for event in reader.got] == [5, 6]


@pytest.mark.parametrize("early", [True, False], ids=["waited", "in its turn"])
def test_a_fork_of_total_order_is_refused(early: bool) -> None:
    first, second = chain()[:2]
    fork = event_of(ALICE, TOPIC, 3, parents=(first.cid,), position=Position(0, 3))
    reader = Reader(DeliveryOrder.TOTAL)
    reader.take(first)
    if early:
        reader.take(fork)
        with pytest.raises(RemoteError, match="forks"):
            reader.take(second)
    else:
        reader.take(second)
        with pytest.raises(RemoteError, match="forks"):
            reader.take(fork)
    assert reader.cids() == [first.cid, second.cid]


def test_a_position_that_is_not_its_number_is_refused() -> None:
    reader = Reader(DeliveryOrder.TOTAL)
    with pytest.raises(RemoteError, match="position"):
        reader.take(event_of(ALICE, TOPIC, 1, position=Position(0, 2)))


def test_the_first_of_a_total_order_has_no_parent() -> None:
    reader = Reader(DeliveryOrder.TOTAL)
    parents = (chain()[3].cid,)
    with pytest.raises(RemoteError, match="first"):
        reader.take(event_of(ALICE, TOPIC, 1, parents=parents, position=Position(0, 1)))
