"""The observer: what it counts besides objections, and what it costs."""

from pulsarcast.model import trace
from pulsarcast.model.errors import Verdict
from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import DeliveryOrder
from pulsarcast.protocol.inputs import Now
from pulsarcast.simulation.observer import CONSUMED_EVERY, Observer
from tests.unit.simulation.planted import NOW, TOPIC, Planted


def test_hops_and_latency_leave_a_publishers_own_deliveries_out() -> None:
    world = Planted()
    world.subscribe(0, 1, 2)
    world.publish(1)
    world.deliver(0, 1, hops=0)
    world.deliver(1, 1, hops=1)
    world.deliver(2, 1, hops=4)
    observer = world.observer
    assert (observer.deliveries, observer.self_deliveries) == (3, 1)
    assert observer.hops == {1: 1, 4: 1}
    assert observer.hops_mean() == 2.5
    # Published one second, two and three before.
    assert 2.0 < observer.latency_s(0.5) < 2.1
    assert 3.0 < observer.latency_s(1.0) < 3.1


def test_where_several_sequencers_count_an_event_has_come_no_way_to_the_one_that_said_it() -> None:
    world = Planted(DeliveryOrder.TOTAL)
    world.subscribe(0, 1, 2)
    first = world.publish(1, position=1)
    world.publish(2, by=1, claimed=0, position=2, parents=(first,))
    for node, hops in ((0, (0, 1)), (1, (1, 0)), (2, (2, 3))):
        for number in (1, 2):
            world.deliver(node, number, hops=hops[number - 1])
    observer = world.observer
    assert world.found() == {}
    assert (observer.deliveries, observer.self_deliveries) == (6, 2)
    assert observer.hops == {1: 2, 2: 1, 3: 1}
    assert sum(observer.latencies.values()) == 4


def test_the_application_is_told_now_and_then_how_far_it_has_come() -> None:
    told: list[tuple[int, Cid, int]] = []
    world = Planted()
    world.observer.consumer = lambda index, topic, place: told.append((index, topic, place))
    world.subscribe(1)
    for number in range(1, 2 * CONSUMED_EVERY + 2):
        world.publish(number)
        world.deliver(1, number)
    assert told == [(1, TOPIC, CONSUMED_EVERY), (1, TOPIC, 2 * CONSUMED_EVERY)]


def test_every_record_reaches_the_trace_as_well() -> None:
    seen: list[trace.Record] = []

    class Tracer:
        def record(
            self, time_s: float, index: int, incarnation: int, now: Now, record: trace.Record
        ) -> None:
            seen.append(record)

    observer = Observer(tracer=Tracer())
    rejected = trace.Rejected(verdict=Verdict.REJECT, reason="too long")
    observer.record(0.0, 0, 1, NOW, trace.NodeStarted())
    observer.record(0.0, 0, 1, NOW, rejected)
    assert seen == [trace.NodeStarted(), rejected]
    assert observer.kinds == {"NodeStarted": 1, "Rejected": 1}
    assert observer.rejections == {"too long": 1}


def test_being_told_of_a_subscription_that_no_node_recorded_is_found() -> None:
    world = Planted()
    world.observer.confirmed(1, TOPIC)
    assert world.found() == {"subscribed_unrecorded": 1}
