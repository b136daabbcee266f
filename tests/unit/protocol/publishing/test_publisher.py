"""Publishing: numbers, links and disks (design 6)."""

from typing import Any, cast

from pulsarcast.model import trace
from pulsarcast.model.errors import Halted
from pulsarcast.model.topics import DeliveryOrder, TopicSettings
from pulsarcast.protocol.effects import Persist, Reply, Send, SetTimer
from pulsarcast.protocol.inputs import Publish
from pulsarcast.protocol.messages import EventMessage
from pulsarcast.protocol.publishing.publisher import REPLICATION_ATTEMPTS, Publisher
from pulsarcast.protocol.store import PutBlock, PutEvent
from tests.support.lab import Lab
from tests.support.parts import Core
from tests.support.people import ALICE, BOB, CAROL, topic_of, unordered
from tests.support.solo import Solo

TOPIC = topic_of(ALICE)
IN_ORDER = TopicSettings(open=True, order=DeliveryOrder.PER_PUBLISHER)


def test_nobody_hears_of_an_event_before_it_is_on_our_disk() -> None:
    lab = Lab(4)
    topic = lab.create(0)
    lab.subscribe([1, 2], topic)
    lab.publish(1, topic)
    for turn in lab.taken:
        if any(isinstance(e, Send) and isinstance(e.message, EventMessage) for e in turn.effects):
            assert not isinstance(turn.given, Publish)


def test_a_publish_answers_only_once_the_disk_has_synced() -> None:
    solo = Solo().start()
    topic = solo.create()
    effects = solo.node.handle(Publish(99, topic, b"x"), solo._read_clock())
    assert [effect for effect in effects if isinstance(effect, Persist)]
    assert not [effect for effect in effects if isinstance(effect, (Reply, Send))]


def test_numbers_are_gapless_and_never_given_twice_over_a_crash() -> None:
    lab = Lab(5)
    topic = lab.create(0)
    lab.subscribe([1, 2], topic)
    for number in range(3):
        lab.publish(1, topic, b"%d" % number)
        lab.world.kill(1)
        lab.world.restart(1)
        lab.run(10.0)
    published = [record for record in lab.records(trace.Published) if record.topic == topic]
    places = {(record.epoch, record.number): record.event for record in published}
    assert sorted(number for _, number in places) == [1, 2, 3]
    assert len({epoch for epoch, _ in places}) == 1
    assert all(places[r.epoch, r.number] == r.event for r in published), "one event a number"
    assert len(lab.delivered(2, topic)) == 3


def test_a_publisher_that_lost_its_disk_starts_a_new_epoch() -> None:
    lab = Lab(5)
    topic = lab.create(0)
    lab.subscribe([1, 2], topic)
    first = lab.event(lab.publish(1, topic))
    lab.world.kill(1)
    lab.world.restart(1, keep_disk=False)
    lab.run(10.0)
    lab.subscribe([1], topic)
    second = lab.event(lab.publish(1, topic))
    assert second.sequence.epoch != first.sequence.epoch
    assert lab.delivered(2, topic) == [first.cid, second.cid]


def free_and_restart(lab: Lab, index: int) -> None:
    """Somebody makes room on a node's disk and starts it again, with what it had there."""
    lab.world.disk_full(index, full=False)
    lab.world.kill(index)
    lab.world.restart(index)
    lab.run(10.0)


def stopped_by_its_disk(lab: Lab, index: int) -> list[str]:
    reasons = [record.reason for record in lab.records(trace.NodeStopped, index)]
    return [reason for reason in reasons if reason == trace.StopReason.DISK_FAILED]


def test_a_node_whose_disk_is_full_says_so_refuses_and_falls_silent() -> None:
    """Its memory is ahead of its disk: whatever it said from here on, it could not keep."""
    lab = Lab(5)
    topic = lab.create(0)
    lab.subscribe([1, 2], topic)
    lab.world.disk_full(1)
    unkept = lab.start(1, lambda call: Publish(call, topic, b"unkept"))
    lab.run(1.0)
    assert unkept == [], "neither accepted nor refused: nobody knows what the disk has"
    assert len(stopped_by_its_disk(lab, 1)) == 1
    said = len([each for each in lab.said if each.sender == 1])
    refused = lab.ask(1, lambda call: Publish(call, topic, b"refused"))
    assert refused.refusal is not None
    assert refused.refusal.code == Halted.code
    lab.world.disk_full(1, full=False)
    missed = lab.publish(2, topic, b"room again", settle_s=120.0)
    assert len([each for each in lab.said if each.sender == 1]) == said, "room alone is no remedy"
    assert lab.delivered(1, topic) == []
    assert lab.delivered(2, topic) == [missed]
    assert len(stopped_by_its_disk(lab, 1)) == 1


def test_a_publisher_whose_disk_was_full_goes_on_after_a_restart_without_a_gap() -> None:
    """What was refused was never acknowledged; what comes after it must not wait for it."""
    lab = Lab(5)
    topic = lab.create(0, IN_ORDER)
    lab.subscribe([1, 2], topic)
    before = lab.publish(1, topic, b"before")
    lab.world.disk_full(1)
    for payload in (b"unkept", b"refused"):
        replies = lab.start(1, lambda call, payload=payload: Publish(call, topic, payload))  # type: ignore[misc]
        lab.run(5.0)
        assert not [reply for reply in replies if reply.refusal is None]
    assert stopped_by_its_disk(lab, 1)
    free_and_restart(lab, 1)
    after = lab.publish(1, topic, b"after", replicated=False, settle_s=120.0)
    assert lab.delivered(2, topic) == [before, after]
    first, second = (lab.event(cid).sequence for cid in (before, after))
    assert (second.epoch, second.number) == (first.epoch, first.number + 1)


def test_a_subscriber_whose_disk_was_full_gets_what_it_could_not_keep() -> None:
    """Promise 1: it was down, in a way; once it is started with room it catches up."""
    lab = Lab(5)
    topic = lab.create(0)
    lab.subscribe([1, 2], topic)
    first = lab.publish(1, topic, b"first")
    lab.world.disk_full(2)
    missed = lab.publish(1, topic, b"missed")
    assert stopped_by_its_disk(lab, 2)
    assert lab.delivered(2, topic) == [first], "what is not kept is not delivered"
    free_and_restart(lab, 2)
    later = lab.publish(1, topic, b"later", settle_s=300.0)
    delivered = [record for record in lab.records(trace.Delivered, 2) if record.topic == topic]
    fresh = [record.event for record in delivered if not record.redelivery]
    assert sorted(fresh) == sorted([first, missed, later])


def test_whoever_asks_for_replicas_is_told_how_many_there_are() -> None:
    lab = Lab(10)
    topic = lab.create(0)
    lab.subscribe([1], topic)
    reply = lab.ask(1, lambda call: Publish(call, topic, b"x", replicated=True))
    assert reply.replicas == 3
    quick = lab.ask(1, lambda call: Publish(call, topic, b"y"))
    assert quick.replicas == 0
    levels = [record.level for record in lab.records(trace.Acknowledged, 1)]
    assert levels == ["replicated", "accepted"]


def test_too_few_peers_for_all_replicas_is_said_and_not_waited_for() -> None:
    lab = Lab(2)
    topic = lab.create(0)
    lab.subscribe([1], topic)
    reply = lab.ask(1, lambda call: Publish(call, topic, b"x", replicated=True))
    assert (reply.refusal, reply.replicas) == (None, 2)
    assert lab.records(trace.Acknowledged, 1)[0].level == "accepted"


def test_a_payload_that_is_too_large_is_refused_at_once() -> None:
    lab = Lab(3)
    topic = lab.create(0, unordered(payload_bytes_max=3))
    lab.subscribe([1], topic)
    assert lab.ask(1, lambda call: Publish(call, topic, b"four")).refusal is not None
    assert lab.publish(1, topic, b"abc") is not None


def publisher_of(core: Core) -> Publisher:
    return Publisher(
        core.context,
        core.dht,
        core.numberings,
        core.outside,
        core.followed,
        cast("Any", core.owner),
    )


def publish(core: Core, publisher: Publisher, counted: list[int], *, replicated: bool) -> None:
    given = Publish(1, TOPIC.cid, b"hello", replicated=replicated)
    publisher.publish(
        given, TOPIC, None, publisher.nonce(), lambda _, replicas: counted.append(replicas)
    )


def test_an_event_is_on_the_disk_before_it_is_traced_offered_and_replicated() -> None:
    core, counted = Core(), list[int]()
    publish(core, publisher_of(core), counted, replicated=False)
    assert [type(each) for each in core.turn.effects] == [Persist]
    assert (counted, core.network.storing, len(core.outside)) == ([], [], 0)
    core.sync()
    assert (counted, len(core.network.storing), len(core.outside)) == ([0], 1, 1)
    assert core.owner.told == ["published"]


def test_replicas_are_sought_a_bounded_number_of_times_and_then_counted() -> None:
    core, counted = Core(), list[int]()
    core.network.known = [BOB.peer_id, CAROL.peer_id]
    publish(core, publisher_of(core), counted, replicated=True)
    core.sync()
    core.wanted(SetTimer)
    for _ in range(REPLICATION_ATTEMPTS):
        assert counted == []
        ((_, then),) = core.network.storing
        core.network.storing.clear()
        then([1])
        core.fire()
    assert counted == [1]
    assert core.network.storing == []


def test_a_caller_hears_of_its_replicas_after_the_event_before_it() -> None:
    core = Core()
    publisher = publisher_of(core)
    first, second = list[int](), list[int]()
    publish(core, publisher, first, replicated=True)
    publish(core, publisher, second, replicated=True)
    core.sync()
    (_, of_first), (_, of_second) = core.network.storing
    of_second([3])
    assert second == []
    of_first([3])
    assert (first, second) == ([3], [3])


def test_a_publisher_close_to_an_event_keeps_its_replica_in_the_commit_of_the_event() -> None:
    core, counted = Core(), list[int]()
    core.network.is_close = True
    publish(core, publisher_of(core), counted, replicated=True)
    (persist,) = [each for each in core.turn.effects if isinstance(each, Persist)]
    (event,) = [each.event for each in persist.writes if isinstance(each, PutEvent)]
    (replica,) = [each for each in persist.writes if isinstance(each, PutBlock)]
    assert replica.cid == event.cid
    assert not core.network.kept_own
    core.turn.persisted(persist.token)
    assert core.network.kept_own == [replica]
