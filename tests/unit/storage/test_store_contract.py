"""What every store promises, whatever it is made of (protocol/store.py).

A store joins by adding its maker to `MAKERS`.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from hashlib import sha256
from operator import xor
from pathlib import Path
from typing import Protocol, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.events import (
    EventDescriptor,
    Position,
    publish_own,
    publish_request,
    sign_request,
)
from pulsarcast.model.events import Sequence as Numbered
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId, cid_key, cid_of, shared_numbering
from pulsarcast.model.keys import Key
from pulsarcast.protocol.store import (
    VERSIONS,
    Answer,
    AnyWrite,
    Block,
    DigestKeys,
    DropBlock,
    DropEvents,
    DropExpired,
    DropState,
    DropTopic,
    Events,
    Keep,
    KeyDigest,
    Keys,
    LoadBlock,
    LoadKeys,
    LoadLog,
    LoadNumbers,
    LoadOldest,
    LoadRequest,
    MarkState,
    Oldest,
    OwnTopic,
    PutBlock,
    PutEvent,
    PutMark,
    PutState,
    Query,
    StateRow,
    Write,
)
from pulsarcast.storage.memory import MemoryStore
from pulsarcast.storage.quota import BESIDE_BYTES
from pulsarcast.storage.sqlite import SqliteStore


class Store(Protocol):
    """What the tests ask of a store."""

    def apply(self, writes: Sequence[AnyWrite]) -> tuple[int, ...]: ...

    @property
    def strangers_bytes(self) -> int: ...

    def answer(self, query: Query) -> Answer: ...

    def rows(self) -> tuple[StateRow, ...]: ...

    def marks(self) -> tuple[tuple[Cid, MarkState], ...]: ...

    def logs(self) -> tuple[tuple[Cid, int], ...]: ...


MAKERS: dict[str, Callable[..., Store]] = {
    "memory": MemoryStore,
    "sqlite": lambda *limits: SqliteStore(":memory:", *limits),
}

TOPIC, OTHER_TOPIC = sorted((cid_of(b"topic"), cid_of(b"other topic")))
ANN, BOB = (Identity.from_seed(sha256(name).digest()) for name in (b"ann", b"bob"))
LAST_KEY: Key = (1 << 256) - 1


@pytest.fixture(params=sorted(MAKERS))
def store(request: pytest.FixtureRequest) -> Store:
    return MAKERS[request.param]()


def event(
    number: int,
    *,
    publisher: Identity = ANN,
    epoch: int = 7,
    topic: Cid = TOPIC,
    payload: bytes = b"",
    nonce: bytes = b"",
) -> EventDescriptor:
    return publish_own(
        publisher,
        topic=topic,
        version=topic,
        payload=payload,
        created=1,
        nonce=nonce or number.to_bytes(16),
        sequence=Numbered(epoch, number),
        parents=(),
    )


def put(index: int, kept: EventDescriptor, *, received_us: int = 0, floor: int = 0) -> PutEvent:
    number = kept.sequence.number
    mark = MarkState(kept.publisher, kept.sequence.epoch, floor, number, kept.cid)
    return PutEvent(index, kept, mark, received_us)


def fill(store: Store, count: int) -> list[EventDescriptor]:
    """Put events 1..count of Ann into the log at their own numbers."""
    events = [event(number) for number in range(1, count + 1)]
    store.apply([put(kept.sequence.number, kept) for kept in events])
    return events


def numbers(
    first: int, last: int, *, publisher: PeerId = ANN.peer_id, bytes_max: int = 1 << 20
) -> LoadNumbers:
    return LoadNumbers(TOPIC, publisher, 7, first, last, bytes_max)


def oldest(
    *,
    count: int | None = None,
    size: int | None = None,
    before_us: int | None = None,
    index_max: int | None = None,
) -> LoadOldest:
    return LoadOldest(TOPIC, count, size, before_us, index_max)


# An empty store.


def test_an_empty_store_starts_a_node_from_nothing(store: Store) -> None:
    assert (store.rows(), store.marks(), store.logs()) == ((), (), ())


# Several writes of one commit.


def test_the_last_mark_of_a_commit_holds_whatever_moved_it(store: Store) -> None:
    kept = [event(number) for number in range(1, 5)]
    retired = MarkState(ANN.peer_id, 7, 3, 3, kept[2].cid, retired=3)
    first, second, third, fourth = (put(at, each) for at, each in enumerate(kept, 1))
    store.apply([first, second, third, PutMark(TOPIC, retired)])
    assert store.marks() == ((TOPIC, retired),)
    store.apply([PutMark(TOPIC, retired), fourth])
    assert store.marks() == ((TOPIC, fourth.mark),)


def test_a_topic_that_is_dropped_and_followed_again_in_one_commit_begins_anew(
    store: Store,
) -> None:
    fill(store, 2)
    anew = put(1, event(1, publisher=BOB))
    store.apply([put(3, event(3)), DropTopic(TOPIC), anew])
    assert store.marks() == ((TOPIC, anew.mark),)
    assert store.answer(numbers(1, 3)) == Events(())


@pytest.mark.parametrize(
    ("query", "nothing"),
    [
        (LoadBlock(cid_of(b"x")), Block(None)),
        (numbers(1, 10), Events(())),
        (LoadLog(TOPIC, 1, 10), Events(())),
        (LoadRequest(TOPIC, ANN.peer_id, bytes(16)), Block(None)),
        (LoadKeys(0, LAST_KEY, 10), Keys(())),
        (DigestKeys(0, LAST_KEY), KeyDigest(0, 0)),
        (oldest(count=0), Oldest(0, ())),
    ],
)
def test_an_empty_store_answers_every_query_with_nothing(
    store: Store, query: Query, nothing: Answer
) -> None:
    assert store.answer(query) == nothing


# History.


def test_events_come_back_by_number_with_their_places_in_the_log(store: Store) -> None:
    first, second, third = (event(number) for number in (1, 2, 3))
    store.apply([put(1, second), put(2, first), put(3, third)])
    assert store.answer(numbers(1, 2)) == Events(((2, first), (1, second)))


def test_events_come_back_by_place_in_the_log(store: Store) -> None:
    events = fill(store, 5)
    assert store.answer(LoadLog(TOPIC, 2, 3)) == Events(
        ((2, events[1]), (3, events[2]), (4, events[3]))
    )


def test_a_page_of_the_log_ends_where_its_bytes_do_and_has_one_event_at_least(store: Store) -> None:
    events = fill(store, 5)
    size = len(events[0].block) + len(events[1].block)
    two = Events(((1, events[0]), (2, events[1])))
    assert store.answer(LoadLog(TOPIC, 1, 5, size)) == two
    assert store.answer(LoadLog(TOPIC, 1, 5, 1)) == Events(((1, events[0]),))


def test_an_event_that_is_never_delivered_is_found_and_not_in_the_log(store: Store) -> None:
    kept = event(1)
    store.apply([put(0, kept)])
    assert store.answer(numbers(1, 1)) == Events(((0, kept),))
    assert store.answer(LoadBlock(kept.cid)) == Block(kept.block)
    assert store.answer(LoadLog(TOPIC, 0, 10)) == Events(())


def test_an_event_that_is_delivered_after_all_is_found_once(store: Store) -> None:
    kept = event(1)
    store.apply([put(0, kept), put(1, kept)])
    assert store.answer(numbers(1, 9)) == Events(((1, kept),))


def test_events_of_several_sequencers_are_one_numbering_with_their_certificates(
    store: Store,
) -> None:
    """Whoever published them: they count in the name of the topic's order (decision 0021)."""
    order = shared_numbering(TOPIC)
    events = [
        publish_own(
            publisher,
            topic=TOPIC,
            version=TOPIC,
            payload=b"",
            created=1,
            nonce=number.to_bytes(16),
            sequence=Numbered(0, number),
            parents=(),
            position=Position(1, number),
        )
        for number, publisher in enumerate((ANN, BOB, ANN), 1)
    ]
    for number, kept in enumerate(events, 1):
        mark = MarkState(order, 0, 0, number, kept.cid)
        store.apply([PutEvent(number, kept, mark, 0, True, b"proof %d" % number)])
    assert store.answer(LoadNumbers(TOPIC, order, 0, 2, 9, 1 << 20)) == Events(
        ((2, events[1]), (3, events[2])), (b"proof 2", b"proof 3")
    )
    assert [mark[:2] for _, mark in store.marks()] == [(order, 0)]
    store.apply([DropEvents(TOPIC, 2)])
    assert store.answer(LoadNumbers(TOPIC, order, 0, 1, 9, 1 << 20)) == Events(
        ((3, events[2]),), (b"proof 3",)
    )


def test_a_publishers_epochs_and_other_publishers_are_kept_apart(store: Store) -> None:
    ours, later, bobs = event(1), event(1, epoch=8), event(1, publisher=BOB)
    store.apply([put(1, ours), put(2, later), put(3, bobs)])
    assert store.answer(numbers(1, 9)) == Events(((1, ours),))
    assert store.answer(numbers(1, 9, publisher=BOB.peer_id)) == Events(((3, bobs),))


def test_a_page_of_numbers_stops_at_its_bytes(store: Store) -> None:
    events = fill(store, 5)
    bytes_max = len(events[0].block) + len(events[1].block)
    answer = store.answer(numbers(1, 5, bytes_max=bytes_max))
    assert answer == Events(((1, events[0]), (2, events[1])))


def test_a_page_holds_one_event_at_least_so_that_the_asker_gets_on(store: Store) -> None:
    events = fill(store, 2)
    assert store.answer(numbers(1, 2, bytes_max=1)) == Events(((1, events[0]),))


def test_numbers_that_we_lack_are_left_out(store: Store) -> None:
    first, third = event(1), event(3)
    store.apply([put(1, first), put(2, third)])
    assert store.answer(numbers(1, 3)) == Events(((1, first), (2, third)))


@pytest.mark.timeout(5)
def test_a_question_about_2_to_the_60_numbers_is_answered_at_once(store: Store) -> None:
    events = fill(store, 3)
    assert store.answer(numbers(2, 1 << 60)) == Events(((2, events[1]), (3, events[2])))


def test_a_block_of_history_is_found_by_its_cid_before_and_after_more_come(store: Store) -> None:
    first, second = event(1), event(2)
    store.apply([put(1, first)])
    assert store.answer(LoadBlock(first.cid)) == Block(first.block)
    store.apply([put(2, second)])
    assert store.answer(LoadBlock(second.cid)) == Block(second.block)


def test_an_event_is_found_by_its_authors_request(store: Store) -> None:
    nonce = b"n" * 16
    signed = sign_request(
        BOB, topic=TOPIC, payload=b"", created=1, nonce=nonce, sequence=Numbered(1, 1)
    )
    bobs = publish_request(ANN, signed, version=TOPIC, sequence=Numbered(7, 1), parents=())
    anns = event(2, nonce=nonce)
    store.apply([put(1, bobs), put(2, anns)])
    assert store.answer(LoadRequest(TOPIC, BOB.peer_id, nonce)) == Block(bobs.block)
    assert store.answer(LoadRequest(TOPIC, ANN.peer_id, nonce)) == Block(anns.block)
    assert store.answer(LoadRequest(OTHER_TOPIC, ANN.peer_id, nonce)) == Block(None)


# Dropping.


def test_a_log_that_is_dropped_is_gone_by_place_number_cid_and_request(store: Store) -> None:
    events = fill(store, 3)
    assert store.answer(LoadBlock(events[0].cid)) == Block(events[0].block)
    store.apply([DropEvents(TOPIC, 2)])
    assert store.answer(LoadLog(TOPIC, 1, 10)) == Events(((3, events[2]),))
    assert store.answer(numbers(1, 3)) == Events(((3, events[2]),))
    for gone in events[:2]:
        assert store.answer(LoadBlock(gone.cid)) == Block(None)
        assert store.answer(LoadRequest(TOPIC, ANN.peer_id, gone.request.nonce)) == Block(None)
    assert store.answer(LoadBlock(events[2].cid)) == Block(events[2].block)


def test_a_log_that_was_dropped_whole_goes_on_with_its_numbering(store: Store) -> None:
    fill(store, 3)
    store.apply([DropEvents(TOPIC, 3)])
    assert store.logs() == ((TOPIC, 3),)
    fourth = event(4)
    store.apply([put(4, fourth)])
    assert store.logs() == ((TOPIC, 4),)
    assert store.answer(LoadLog(TOPIC, 1, 10)) == Events(((4, fourth),))


def test_dropping_what_is_not_there_changes_nothing(store: Store) -> None:
    events = fill(store, 1)
    store.apply(
        [
            DropEvents(TOPIC, 0),
            DropEvents(OTHER_TOPIC, 9),
            DropTopic(OTHER_TOPIC),
            DropBlock(cid_of(b"x")),
            DropExpired(1),
            DropState("table", b"key"),
        ]
    )
    assert store.answer(LoadLog(TOPIC, 1, 10)) == Events(((1, events[0]),))


def test_a_log_may_have_places_that_were_never_written(store: Store) -> None:
    first, second = event(1), event(2)
    store.apply([put(1, first), put(4, second)])
    assert store.answer(LoadLog(TOPIC, 1, 10)) == Events(((1, first), (4, second)))
    store.apply([DropEvents(TOPIC, 3)])
    assert store.answer(numbers(1, 2)) == Events(((4, second),))


def test_what_is_retired_is_forgotten_though_it_was_never_delivered(store: Store) -> None:
    first, second = event(1), event(2)
    store.apply([put(0, first), put(0, second)])
    store.apply([PutMark(TOPIC, MarkState(ANN.peer_id, 7, 2, 2, second.cid))])
    assert store.answer(numbers(1, 2)) == Events(((0, first), (0, second)))
    store.apply([PutMark(TOPIC, MarkState(ANN.peer_id, 7, 2, 2, second.cid, (), 1))])
    assert store.answer(numbers(1, 2)) == Events(((0, second),))
    assert store.answer(LoadBlock(first.cid)) == Block(None)


def test_a_dropped_topic_is_forgotten_whole(store: Store) -> None:
    events = fill(store, 2)
    store.apply([DropTopic(TOPIC)])
    assert (store.marks(), store.logs()) == ((), ())
    assert store.answer(LoadBlock(events[0].cid)) == Block(None)
    assert store.answer(LoadLog(TOPIC, 1, 10)) == Events(())


def test_what_is_left_of_a_log_that_was_dropped_unread_is_found_whole(store: Store) -> None:
    events = fill(store, 10)
    store.apply([DropEvents(TOPIC, 3)])
    for kept in events[3:]:
        assert store.answer(LoadBlock(kept.cid)) == Block(kept.block)


def test_a_log_that_begins_anew_further_on_is_found_whole(store: Store) -> None:
    fill(store, 1)
    assert store.answer(LoadBlock(event(1).cid)) == Block(event(1).block)
    store.apply([DropEvents(TOPIC, 1)])
    store.apply([put(number, event(number)) for number in (5, 6, 7, 8)])
    for number in (5, 6, 7, 8):
        assert store.answer(LoadBlock(event(number).cid)) == Block(event(number).block)


def test_an_event_at_two_places_of_the_log_is_found_at_the_later(store: Store) -> None:
    twice = event(1)
    store.apply([put(1, twice), put(2, twice)])
    assert store.answer(numbers(1, 1)) == Events(((2, twice),))
    store.apply([DropEvents(TOPIC, 1)])
    assert store.answer(numbers(1, 1)) == Events(((2, twice),))


def test_an_event_at_two_places_of_the_log_is_gone_once_both_are_dropped(store: Store) -> None:
    twice = event(1)
    store.apply([put(1, twice), put(2, twice)])
    by_request = LoadRequest(TOPIC, ANN.peer_id, twice.request.nonce)
    # Asked first, so that both places are known by cid and by request.
    for last_dropped, found in ((0, twice.block), (1, twice.block), (2, None)):
        store.apply([DropEvents(TOPIC, last_dropped)])
        assert store.answer(LoadBlock(twice.cid)) == Block(found)
        assert store.answer(by_request) == Block(found)


# Retention.


def test_retention_by_count_names_the_last_place_to_drop(store: Store) -> None:
    fill(store, 5)
    assert store.answer(oldest(count=3)) == Oldest(2, ((ANN.peer_id, 7, 2),))
    assert store.answer(oldest(count=5)) == Oldest(0, ())


def test_retention_stays_before_the_place_that_it_is_given(store: Store) -> None:
    fill(store, 5)
    assert store.answer(oldest(count=1, index_max=2)) == Oldest(2, ((ANN.peer_id, 7, 2),))
    assert store.answer(oldest(count=1, index_max=0)) == Oldest(0, ())
    assert store.answer(oldest(count=4, index_max=3)) == Oldest(1, ((ANN.peer_id, 7, 1),))


def test_retention_by_bytes_drops_until_they_fit(store: Store) -> None:
    events = fill(store, 3)
    size = sum(len(kept.block) for kept in events)
    assert store.answer(oldest(size=size)) == Oldest(0, ())
    assert store.answer(oldest(size=size - 1)) == Oldest(1, ((ANN.peer_id, 7, 1),))


def test_retention_by_bytes_counts_what_came_and_went_since_it_was_last_asked(
    store: Store,
) -> None:
    events = fill(store, 3)
    store.answer(oldest(size=0))
    more = event(4)
    store.apply([put(4, more)])
    size = sum(len(kept.block) for kept in (*events, more))
    assert store.answer(oldest(size=size)) == Oldest(0, ())
    assert store.answer(oldest(size=size - 1)) == Oldest(1, ((ANN.peer_id, 7, 1),))
    store.apply([DropEvents(TOPIC, 1)])
    size -= len(events[0].block)
    assert store.answer(oldest(size=size)) == Oldest(0, ())
    assert store.answer(oldest(size=size - 1)) == Oldest(2, ((ANN.peer_id, 7, 2),))


def test_retention_by_age_stops_at_the_first_that_is_young_enough(store: Store) -> None:
    store.apply([put(number, event(number), received_us=number * 10) for number in (1, 2, 3)])
    assert store.answer(oldest(before_us=30)) == Oldest(2, ((ANN.peer_id, 7, 2),))


def test_retention_names_each_publishers_highest_number_dropped(store: Store) -> None:
    store.apply([put(1, event(2)), put(2, event(1)), put(3, event(5, publisher=BOB))])
    answer = store.answer(oldest(count=0))
    assert isinstance(answer, Oldest)
    assert answer.index == 3
    assert sorted(answer.floors) == sorted([(ANN.peer_id, 7, 2), (BOB.peer_id, 7, 5)])


def test_retention_counts_from_where_the_log_begins_now(store: Store) -> None:
    fill(store, 5)
    store.apply([DropEvents(TOPIC, 2)])
    assert store.answer(oldest(count=2)) == Oldest(3, ((ANN.peer_id, 7, 3),))


def test_retention_counts_only_the_bytes_that_are_left(store: Store) -> None:
    events = fill(store, 5)
    store.apply([DropEvents(TOPIC, 2)])
    size = sum(len(kept.block) for kept in events[2:])
    assert store.answer(oldest(size=size)) == Oldest(0, ())


# What a start reads.


def test_marks_are_the_newest_ones_in_order_of_topic_publisher_and_epoch(store: Store) -> None:
    marks = [
        (topic, MarkState(peer, epoch, 0, 3, None, (5,)))
        for topic in (OTHER_TOPIC, TOPIC)
        for peer in (BOB.peer_id, ANN.peer_id)
        for epoch in (2, 1)
    ]
    store.apply([PutMark(TOPIC, MarkState(ANN.peer_id, 1, 0, 1, None))])
    store.apply([PutMark(topic, mark) for topic, mark in marks])
    assert store.marks() == tuple(sorted(marks, key=lambda item: (item[0], item[1][:2])))


def test_an_event_moves_the_frontier_with_it(store: Store) -> None:
    write = put(1, event(1))
    store.apply([write])
    assert store.marks() == ((TOPIC, write.mark),)


def test_rows_come_back_by_table_and_key_with_their_last_value(store: Store) -> None:
    rows = [StateRow("b", b"1", b"x"), StateRow("a", b"2", b"y"), StateRow("a", b"1", b"z")]
    store.apply([PutState(StateRow("a", b"2", b"old")), *map(PutState, rows)])
    assert store.rows() == (rows[2], rows[1], rows[0])
    store.apply([DropState("a", b"1")])
    assert store.rows() == (rows[1], rows[0])


# The DHT's blocks.


def block(number: int, *, replica: bool = True, expires_us: int = 0) -> PutBlock:
    data = b"block %d" % number
    cid = cid_of(data)
    return PutBlock(cid, data, cid_key(cid) if replica else None, expires_us)


def test_blocks_are_found_by_cid_until_they_are_dropped(store: Store) -> None:
    write = block(1)
    store.apply([write])
    assert store.answer(LoadBlock(write.cid)) == Block(write.block)
    store.apply([DropBlock(write.cid)])
    assert store.answer(LoadBlock(write.cid)) == Block(None)
    assert store.answer(DigestKeys(0, LAST_KEY)) == KeyDigest(0, 0)


def test_a_version_that_the_node_needs_is_found_by_its_cid(store: Store) -> None:
    version = block(1)
    store.apply([PutState(StateRow(VERSIONS, version.cid, version.block))])
    assert store.answer(LoadBlock(version.cid, versions=True)) == Block(version.block)
    assert store.answer(LoadBlock(version.cid)) == Block(None), "lookups find replicas alone"
    store.apply([DropState(VERSIONS, version.cid)])
    assert store.answer(LoadBlock(version.cid, versions=True)) == Block(None)


def test_a_block_of_our_own_is_no_replica(store: Store) -> None:
    write = block(1, replica=False)
    store.apply([write])
    assert store.answer(LoadBlock(write.cid)) == Block(write.block)
    assert store.answer(LoadKeys(0, LAST_KEY, 10)) == Keys(())


def test_a_block_that_becomes_a_replica_too_stays_one(store: Store) -> None:
    store.apply([block(1, replica=False), block(1), block(1, replica=False), block(1)])
    assert store.answer(LoadKeys(0, LAST_KEY, 10)) == Keys((block(1).cid,))


@given(
    held=st.lists(st.integers(0, 30), unique=True),
    dropped=st.lists(st.integers(0, 30), unique=True),
    bounds=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    limit=st.integers(0, 10),
)
@pytest.mark.parametrize("maker", sorted(MAKERS))
def test_a_range_of_keys_is_what_a_sorted_list_says(
    maker: str, held: list[int], dropped: list[int], bounds: tuple[int, int], limit: int
) -> None:
    store = MAKERS[maker]()
    store.apply([block(number) for number in held])
    store.apply([DropBlock(block(number).cid) for number in dropped])
    first, last = sorted(cid_key(block(number).cid) for number in bounds)
    kept = sorted(
        (cid_key(block(number).cid), block(number).cid) for number in held if number not in dropped
    )
    inside = [(key, cid) for key, cid in kept if first <= key <= last]
    digest = 0
    for key, _ in inside:
        digest ^= key
    assert store.answer(LoadKeys(first, last, limit)) == Keys(
        tuple(cid for _, cid in inside[:limit])
    )
    assert store.answer(DigestKeys(first, last)) == KeyDigest(len(inside), digest)


def test_replicas_go_when_their_time_is_up(store: Store) -> None:
    writes = [block(number, expires_us=100 * number) for number in range(1, 6)]
    store.apply([*writes, DropExpired(300)])
    kept = [write for write in writes if write.expires_us >= 300]
    assert len(kept) == 3
    found = [store.answer(LoadBlock(write.cid)) for write in writes]
    assert found == [Block(write.block if write in kept else None) for write in writes]
    assert store.answer(LoadKeys(0, LAST_KEY, 10)) == Keys(
        tuple(sorted((write.cid for write in kept), key=cid_key))
    )
    store.apply([writes[0]])
    assert store.answer(LoadBlock(writes[0].cid)) == Block(writes[0].block), "stored again"
    store.apply([DropExpired(300)])
    assert store.answer(LoadBlock(writes[0].cid)) == Block(None)


@pytest.mark.parametrize("replica_first", [True, False])
def test_what_we_keep_for_ourselves_stays_when_its_time_as_a_replica_is_up(
    store: Store, replica_first: bool
) -> None:
    replica, own = block(1, expires_us=100), block(1, replica=False)
    store.apply([replica, own] if replica_first else [own, replica])
    store.apply([DropExpired(200)])
    assert store.answer(LoadBlock(own.cid)) == Block(own.block)
    assert store.answer(LoadKeys(0, LAST_KEY, 10)) == Keys(())
    store.apply([DropBlock(own.cid)])
    assert store.answer(LoadBlock(own.cid)) == Block(None)


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("replica"), st.integers(0, 5), st.integers(0, 20)),
            st.tuples(st.just("own"), st.integers(0, 5), st.just(0)),
            st.tuples(st.just("drop"), st.integers(0, 5), st.just(0)),
            st.tuples(st.just("expire"), st.just(0), st.integers(0, 20)),
        ),
        max_size=30,
    )
)
@pytest.mark.parametrize("maker", sorted(MAKERS))
def test_any_course_of_blocks_and_expiries_leaves_what_two_plain_dicts_would(
    maker: str, steps: list[tuple[str, int, int]]
) -> None:
    store = MAKERS[maker]()
    replicas: dict[int, int] = {}
    own: set[int] = set()
    for action, number, time_us in steps:
        if action == "replica":
            replicas[number] = time_us
            store.apply([block(number, expires_us=time_us)])
        elif action == "own":
            own.add(number)
            store.apply([block(number, replica=False)])
        elif action == "drop":
            replicas.pop(number, None)
            own.discard(number)
            store.apply([DropBlock(block(number).cid)])
        else:
            replicas = {n: expires for n, expires in replicas.items() if expires >= time_us}
            store.apply([DropExpired(time_us)])
    for number in range(6):
        put_block = block(number)
        held = number in replicas or number in own
        assert store.answer(LoadBlock(put_block.cid)) == Block(put_block.block if held else None)
    keys = sorted((block(number).cid for number in replicas), key=cid_key)
    assert store.answer(LoadKeys(0, LAST_KEY, 10)) == Keys(tuple(keys))


# Blocks of strangers.

CHARGE = len(block(1).block) + BESIDE_BYTES
"""What a block of one digit is charged."""


def keep(number: int, *, place: str = "here", expires_us: int = 500) -> Keep:
    put = block(number)
    replica = PutBlock(put.cid, put.block, cid_key(put.cid), expires_us)
    return Keep(number, place, (replica,))


def keeps(store: Store, first: int, count: int, *, place: str = "here") -> int:
    """Have a store keep blocks; returns how many found room."""
    writes = [keep(number, place=place) for number in range(first, first + count)]
    return count - len(store.apply(writes))


@pytest.fixture(params=sorted(MAKERS))
def small(request: pytest.FixtureRequest) -> Store:
    """A store with room for eight blocks of strangers, and so for four of one place."""
    return MAKERS[request.param](8 * CHARGE)


def test_a_block_without_room_is_named_and_not_kept(small: Store) -> None:
    writes = [keep(number) for number in range(6)]
    assert small.apply(writes) == (4, 5)
    cids = [block(number).cid for number in range(6)]
    found = [small.answer(LoadBlock(cid)) != Block(None) for cid in cids]
    assert found == [True] * 4 + [False] * 2
    assert small.answer(DigestKeys(0, LAST_KEY)) == KeyDigest(
        4, reduce(xor, map(cid_key, cids[:4]))
    )


def test_the_nodes_own_blocks_find_room_where_strangers_find_none(small: Store) -> None:
    assert keeps(small, 0, 6) == 4
    assert small.apply([block(number) for number in range(6, 20)]) == ()
    assert keeps(small, 20, 4, place="elsewhere") == 2, "what is ours is charged to nobody"


def test_a_block_that_is_kept_again_is_charged_once_and_to_the_place_that_sent_it_first(
    small: Store,
) -> None:
    for _ in range(3):
        assert keeps(small, 0, 4) == 4
        assert keeps(small, 0, 4, place="elsewhere") == 4
    assert keeps(small, 4, 4, place="elsewhere") == 2


@pytest.mark.parametrize("replica", [True, False])
def test_a_strangers_block_that_becomes_ours_is_charged_no_longer(
    small: Store, replica: bool
) -> None:
    assert keeps(small, 0, 5) == 4
    small.apply([block(0, replica=replica, expires_us=500)])
    assert small.apply([keep(0)]) == ()
    assert keeps(small, 4, 2) == 1
    small.apply([DropExpired(501)])
    assert (small.answer(LoadBlock(block(0).cid)) == Block(None)) == replica


@pytest.mark.parametrize("how", ["expire", "drop"])
def test_a_strangers_block_that_goes_makes_room(small: Store, how: str) -> None:
    for _ in range(3):
        assert keeps(small, 0, 5) == 4
        if how == "expire":
            small.apply([DropExpired(501)])
        else:
            small.apply([DropBlock(block(number).cid) for number in range(5)])
        assert small.strangers_bytes == 0


def test_a_store_knows_after_a_restart_what_strangers_take(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store", 8 * CHARGE)
    assert keeps(store, 0, 6) == 4
    store.close()
    store = SqliteStore(tmp_path / "store", 8 * CHARGE)
    assert store.strangers_bytes == 4 * CHARGE
    assert keeps(store, 4, 1) == 0
    assert keeps(store, 4, 4, place="elsewhere") == 2
    store.close()


def test_a_commit_that_fails_charges_nobody(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store", 8 * CHARGE)
    assert keeps(store, 0, 1) == 1
    with pytest.raises(AssertionError):
        store.apply([keep(1), cast(AnyWrite, "not a write")])
    assert store.strangers_bytes == CHARGE
    store.close()


@pytest.mark.parametrize("size", [200, 2_100, 4_200, 60_000])
def test_blocks_of_strangers_take_little_more_on_the_disk_than_they_are_charged(
    tmp_path: Path, size: int
) -> None:
    """The worst are those of which a page holds one: half of it is empty."""
    store = SqliteStore(tmp_path / "store")
    store.close()
    path = tmp_path / "store"
    empty = path.stat().st_size
    store = SqliteStore(path)
    datas = [sha256(b"%d" % number).digest() + bytes(size - 32) for number in range(2_000)]
    puts = [PutBlock(cid_of(data), data, cid_key(cid_of(data)), 1) for data in datas]
    store.apply([Keep(token, "192.0.2.0/24", (put,)) for token, put in enumerate(puts)])
    charged = store.strangers_bytes
    store.close()
    assert (path.stat().st_size - empty) / charged <= 1.45


# Logs that are kept for strangers.

EVENT_CHARGE = len(event(1).block) + BESIDE_BYTES


def keep_event(number: int, *, place: str = "here", topic: Cid = TOPIC) -> Keep:
    return Keep(number, place, (put(number, event(number, topic=topic)),))


@pytest.fixture(params=sorted(MAKERS))
def little(request: pytest.FixtureRequest) -> Store:
    """A store with room for eight events of strangers, and so for four of one place."""
    return MAKERS[request.param](8 * EVENT_CHARGE)


def test_a_log_that_is_kept_for_a_stranger_ends_with_its_room(little: Store) -> None:
    assert little.apply([keep_event(number) for number in range(1, 7)]) == (5, 6)
    assert little.logs() == ((TOPIC, 4),)
    assert little.strangers_bytes == 4 * EVENT_CHARGE
    assert [mark.high for _, mark in little.marks()] == [4]


def test_all_writes_of_a_stranger_are_made_or_none(little: Store) -> None:
    little.apply([keep_event(number) for number in range(1, 5)])
    row = PutState(StateRow("test", b"with it", b""))
    assert little.apply([Keep(9, "here", (row, put(5, event(5))))]) == (9,)
    assert little.rows() == ()
    assert little.apply([Keep(9, "here", (row,))]) == ()
    assert little.rows() == (row.row,)


@pytest.mark.parametrize("how", ["retention", "left", "claimed"])
def test_a_log_of_a_stranger_that_goes_or_becomes_ours_makes_room(little: Store, how: str) -> None:
    ways: dict[str, Write] = {
        "retention": DropEvents(TOPIC, 4),
        "left": DropTopic(TOPIC),
        "claimed": OwnTopic(TOPIC),
    }
    assert little.apply([keep_event(number) for number in range(1, 6)]) == (5,)
    little.apply([ways[how]])
    assert little.strangers_bytes == 0
    again = [keep_event(number, topic=OTHER_TOPIC) for number in range(1, 6)]
    assert little.apply(again) == (5,)
    assert (little.answer(LoadLog(TOPIC, 1, 9)) == Events(())) == (how != "claimed")


def test_a_store_knows_after_a_restart_what_it_keeps_of_logs_for_strangers(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store", 8 * EVENT_CHARGE)
    store.apply([keep_event(number) for number in range(1, 5)])
    store.apply([DropEvents(TOPIC, 1)])
    store.close()
    store = SqliteStore(tmp_path / "store", 8 * EVENT_CHARGE)
    assert store.strangers_bytes == 3 * EVENT_CHARGE
    store.apply([OwnTopic(TOPIC)])
    store.close()
    store = SqliteStore(tmp_path / "store", 8 * EVENT_CHARGE)
    assert store.strangers_bytes == 0
    store.close()


# Against a plain model.


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 1), st.booleans()),
            st.tuples(st.just("drop"), st.integers(0, 12), st.booleans()),
            st.tuples(st.just("look"), st.integers(0, 12), st.booleans()),
        ),
        max_size=25,
    )
)
@pytest.mark.parametrize("maker", sorted(MAKERS))
def test_any_course_of_puts_and_drops_leaves_what_a_plain_dict_would(
    maker: str, steps: list[tuple[str, int, bool]]
) -> None:
    store = MAKERS[maker]()
    log: dict[int, EventDescriptor] = {}
    everything: list[EventDescriptor] = []
    for action, which, delivered in steps:
        if action == "put":
            publisher = (ANN, BOB)[which]
            number = sum(kept.publisher == publisher.peer_id for kept in everything) + 1
            new = event(number, publisher=publisher)
            everything.append(new)
            if delivered:
                index = dict(store.logs()).get(TOPIC, 0) + 1
                log[index] = new
                store.apply([put(index, new)])
        elif action == "drop":
            log = {index: kept for index, kept in log.items() if index > which}
            store.apply([DropEvents(TOPIC, which)])
        elif everything:
            store.answer(LoadBlock(everything[which % len(everything)].cid))
    assert store.answer(LoadLog(TOPIC, 1, 100)) == Events(tuple(sorted(log.items())))
    held = {kept.cid for kept in log.values()}
    for kept in everything:
        found = store.answer(LoadBlock(kept.cid))
        assert found == Block(kept.block if kept.cid in held else None)
