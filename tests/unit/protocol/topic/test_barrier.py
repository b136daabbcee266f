"""The causal barrier: what our next event follows, in memory and on the disk."""

from pulsarcast.model.topics import DeliveryOrder, Mark, TopicSettings
from pulsarcast.protocol.store import Write
from pulsarcast.protocol.topic.barrier import TABLE, CausalBarrier, topic_of_head
from pulsarcast.storage.memory import MemoryStore
from tests.support.people import ALICE, BOB, CAROL, EPOCH, event_of, following, mark_of, topic_of

TOPIC = topic_of(ALICE, TopicSettings(open=True, order=DeliveryOrder.CAUSAL))


def restored(store: MemoryStore) -> CausalBarrier:
    barrier = CausalBarrier(TOPIC.topic)
    for row in store.rows():
        assert (row.table, topic_of_head(row.key)) == (TABLE, TOPIC.topic)
        barrier.restore(row.key, row.value)
    return barrier


def test_the_heads_are_what_nothing_delivered_follows() -> None:
    barrier, store = CausalBarrier(TOPIC.topic), MemoryStore()
    first, second = event_of(ALICE, TOPIC), event_of(BOB, TOPIC)
    third = event_of(CAROL, TOPIC, **following(first))
    for event in (first, second, third):
        store.apply(barrier.take(event))
    heads = sorted([second, third], key=lambda event: event.cid)
    assert barrier.links(64).parents == tuple(head.cid for head in heads)
    assert barrier.links(64).marks == tuple(map(mark_of, heads))
    # Whoever is killed links, when it is back, to exactly what its log holds.
    assert restored(store).links(64) == barrier.links(64)


def test_a_numbering_has_one_head_whatever_its_publisher_links_to() -> None:
    barrier, store = CausalBarrier(TOPIC.topic), MemoryStore()
    for number in range(1, 100):
        store.apply(barrier.take(event_of(ALICE, TOPIC, number)))
    assert len(barrier) == len(store.rows()) == 1
    assert barrier.links(64).marks == (Mark(ALICE.peer_id, EPOCH, 99),)


def test_an_own_event_that_is_a_head_already_is_not_put_before_later_ones() -> None:
    barrier, store = CausalBarrier(TOPIC.topic), MemoryStore()
    first = event_of(ALICE, TOPIC, 1)
    second = event_of(ALICE, TOPIC, 2, **following(first))
    for event in (first, second, first):
        store.apply(barrier.take(event))
    assert barrier.links(64).parents == restored(store).links(64).parents == (second.cid,)


def test_where_not_all_heads_fit_our_own_is_among_those_that_do() -> None:
    barrier = CausalBarrier(TOPIC.topic)
    own, *others = (event_of(who, TOPIC) for who in (CAROL, ALICE, BOB))
    for event in (*others, own):
        list(barrier.take(event))
    assert own.cid in barrier.links(2, (CAROL.peer_id, EPOCH)).parents
    assert own.cid not in barrier.links(2).parents


def test_a_topic_that_is_left_leaves_no_heads_behind() -> None:
    barrier, store = CausalBarrier(TOPIC.topic), MemoryStore()
    for who in (ALICE, BOB):
        store.apply(barrier.take(event_of(who, TOPIC)))
    writes: list[Write] = barrier.forget()
    store.apply(writes)
    assert not store.rows()
    assert not len(barrier)
