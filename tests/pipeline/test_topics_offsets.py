"""Offsets: who gets how much of a batch, what is lost, and what a checkpoint says later."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.api import LogView
from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.topics.beginning import ending, starting
from pulsarcast.pipeline.topics.logs import Found
from pulsarcast.pipeline.topics.offsets import (
    Offsets,
    Place,
    SourceError,
    Span,
    advance,
    from_json,
    gone_since,
    make_offsets,
    refuse,
    share,
    spans_between,
    split,
    to_json,
)

Logs = dict[str, LogView]


def log(topic: str, newest: int, *, oldest: int = 1, log: str = "l", store: str = "s") -> LogView:
    return LogView(
        topic=topic,
        name=topic.upper(),
        author="x",
        version=0,
        version_id=topic,
        subtopics={},
        store=store,
        log=log,
        oldest=oldest,
        newest=newest,
    )


def at(store: str = "s", **places: int) -> Offsets:
    return make_offsets(store, {topic: Place("l", index) for topic, index in places.items()})


def logs(*views: LogView) -> Logs:
    return {view.topic: view for view in views}


# JSON.


def test_offsets_come_back_from_a_checkpoint() -> None:
    offsets = make_offsets("s", {"b": Place("l1", 7), "a": Place("l2", 1, begin=1)})
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets
    assert to_json(offsets) == {
        "version": 1,
        "store": "s",
        "topics": {"a": {"log": "l2", "next": 1, "from": 1}, "b": {"log": "l1", "next": 7}},
    }


@pytest.mark.parametrize(
    ("given_one", "expected"),
    [
        (None, "damaged"),
        ([], "damaged"),
        ({}, "damaged"),
        ({"version": 2, "whatever": 1}, "newer one"),
        ({"version": 0, "store": "s", "topics": {}}, "damaged"),
        ({"version": 1, "store": "s"}, "damaged"),
        ({"version": 1, "store": 3, "topics": {}}, "damaged"),
        ({"version": 1, "store": "s", "topics": {"a": 3}}, "damaged"),
        ({"version": 1, "store": "s", "topics": {"a": {"log": "l", "next": "3"}}}, "damaged"),
        ({"version": 1, "store": "s", "topics": {"a": {"log": "l", "next": 0}}}, "damaged"),
        ({"version": 1, "store": "s", "topics": {"a": {"log": "l", "next": 3, "x": 1}}}, "damaged"),
    ],
)
def test_offsets_that_are_none_are_refused(given_one: object, expected: str) -> None:
    with pytest.raises(SourceError, match=expected):
        from_json(given_one)


# Going on.


def test_nothing_new_is_the_start_itself() -> None:
    start = at(a=5)
    end, losses = advance(start, logs(log("a", 4)), None)
    assert end is start
    assert losses == []


def test_a_new_topic_without_events_makes_no_empty_batch() -> None:
    start = at(a=5)
    assert advance(start, logs(log("a", 4), log("b", 0)), None)[0] is start


def test_a_new_topic_is_read_from_its_earliest_event() -> None:
    start = at(a=5)
    end, losses = advance(start, logs(log("a", 4), log("b", 9, oldest=3)), None)
    assert losses == []
    assert end.topics == {"a": Place("l", 5), "b": Place("l", 10, begin=3)}
    assert spans_between(start, end) == [Span("b", "l", 3, 10)]
    after, _ = advance(end, logs(log("a", 4), log("b", 10, oldest=3)), None)
    assert after.topics["b"] == Place("l", 11)


def test_a_topic_that_is_gone_keeps_its_place() -> None:
    end, losses = advance(at(a=5, b=7), logs(log("a", 9)), None)
    assert losses == []
    assert end.topics == {"a": Place("l", 10), "b": Place("l", 7)}


def test_what_retention_took_is_counted() -> None:
    start = at(a=5)
    end, (loss,) = advance(start, logs(log("a", 20, oldest=8)), None)
    assert "3 events are gone" in loss.reason
    assert "longer retention" in loss.reason
    assert spans_between(start, end) == [Span("a", "l", 8, 21)]
    with pytest.raises(SourceError, match="failOnDataLoss=false it goes on from index 8"):
        refuse([loss])


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (log("a", 20, store="t", log="m"), "another daemon, or a store restored from a backup"),
        (log("a", 20, log="m"), "left and followed again"),
        (log("a", 3), "went back"),
    ],
)
def test_indices_of_another_log_mean_nothing(now: LogView, expected: str) -> None:
    start = at(a=9)
    end, (loss,) = advance(start, logs(now), None)
    assert expected in loss.reason
    assert "new checkpoint" in loss.reason
    assert spans_between(start, end) == [Span("a", now.log, 1, now.newest + 1)]
    assert end.store == now.store
    assert advance(end, logs(now), None) == (end, [])


def test_a_restored_store_of_the_same_length_is_read_again() -> None:
    start = at(a=21)
    end, (loss,) = advance(start, logs(log("a", 20, store="t")), None)
    assert "restored" in loss.reason
    assert spans_between(start, end) == [Span("a", "l", 1, 21)]
    assert spans_between(end, end) == []


def test_a_planned_batch_may_be_gone_when_it_is_replayed() -> None:
    span = Span("a", "l", 5, 9)
    assert gone_since("s", span, log("a", 20)) is None
    retained = gone_since("s", span, log("a", 20, oldest=7))
    assert retained is not None
    assert "2 events are gone" in retained.reason
    assert gone_since("s", span, log("a", 20, log="m")) is not None
    assert gone_since("s", span, log("a", 20, store="t")) is not None


def test_offsets_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(SourceError, match="do not fit together"):
        spans_between(at(a=3), at(a=4, b=5))


# Sharing.

lags = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 50), min_size=1)


@given(lags, st.integers(1, 100), st.integers(0, 1000))
def test_shares_fill_the_room_and_nobody_gets_more_than_waits(
    waiting: dict[str, int], room: int, turn: int
) -> None:
    shares = share(waiting, room, turn=turn)
    assert shares.keys() == waiting.keys()
    assert sum(shares.values()) == min(room, sum(waiting.values()))
    assert all(0 <= shares[topic] <= waiting[topic] for topic in waiting)
    if room >= len(waiting):
        assert all(shares[topic] for topic in waiting if waiting[topic])


@given(lags)
def test_without_a_limit_everybody_gets_everything(waiting: dict[str, int]) -> None:
    assert share(waiting, None, turn=3) == waiting


def test_shares_are_in_proportion() -> None:
    assert share({"a": 900, "b": 100, "c": 0}, 100, turn=0) == {"a": 90, "b": 10, "c": 0}


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 100))
def test_nobody_starves_where_there_is_less_room_than_topics(
    topics: int, room: int, first: int
) -> None:
    views = logs(*(log(f"t{number}", 10_000) for number in range(topics)))
    start = make_offsets("s", {topic: Place("l", 1 + first) for topic in views})
    served: Counter[str] = Counter()
    for _ in range(-(-topics // room)):
        end, _ = advance(start, views, room)
        served += Counter({span.topic: 1 for span in spans_between(start, end)})
        start = end
    assert set(served) == set(views)


@given(
    st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 5), min_size=6, max_size=6)),
    st.integers(1, 4),
)
def test_every_event_is_in_exactly_one_batch(grown: dict[str, list[int]], room: int) -> None:
    newest = dict.fromkeys(grown, 0)
    start = at()
    seen: Counter[tuple[str, int]] = Counter()
    for step in range(200):
        for topic in newest:
            newest[topic] += grown[topic][step] if step < 6 else 0
        views = logs(*(log(topic, newest[topic]) for topic in newest))
        end, losses = advance(start, views, room)
        assert not losses
        for span in spans_between(start, from_json(to_json(end))):
            seen.update((span.topic, index) for index in range(span.start, span.end))
        if end is start and step > 6:
            break
        start = end
    expected = {(topic, index) for topic in grown for index in range(1, newest[topic] + 1)}
    assert set(seen) == expected
    assert set(seen.values()) <= {1}


# Partitions.


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 200)), max_size=4),
    st.integers(1, 100),
    st.none() | st.integers(1, 20),
)
def test_pieces_are_the_whole_and_no_larger_than_allowed(
    given_ones: list[tuple[int, int]], size: int, count: int | None
) -> None:
    spans = [
        Span(f"t{number}", "l", start, start + length)
        for number, (start, length) in enumerate(given_ones)
    ]
    pieces = split(spans, size, count)
    assert all(0 < piece.end - piece.start <= size for piece in pieces)
    for span in spans:
        own = [piece for piece in pieces if piece.topic == span.topic]
        indices = [index for piece in own for index in range(piece.start, piece.end)]
        assert indices == list(range(span.start, span.end))
    if count is not None:
        assert len(pieces) >= min(count, sum(length for _, length in given_ones))


# Where to begin.


def found(*views: LogView, **covered: list[str]) -> Found:
    return Found(
        logs(*views), {name.replace("_", "/*"): topics for name, topics in covered.items()}
    )


def nobody(ref: str) -> str | None:
    return {"alias": "a"}.get(ref)


def test_indices_may_be_given_by_any_name_and_for_whole_trees() -> None:
    everything = found(log("a", 20), log("b", 20, oldest=4), log("c", 20), a=["a"], b_=["b", "c"])
    indices, losses = starting(everything, {"alias": 12, "b/*": -2, "c": -1}, nobody)
    assert indices == {"a": 12, "b": 4, "c": 21}
    assert losses == []
    assert ending(everything, {"a": 13, "b/*": -1}, nobody) == {"a": 13, "b": 21, "c": 21}
    assert ending(everything, None, nobody) == {"a": 21, "b": 21, "c": 21}


def test_an_index_that_is_gone_is_a_loss() -> None:
    indices, (loss,) = starting(found(log("a", 20, oldest=4), a=["a"]), {"a": 2}, nobody)
    assert indices == {"a": 4}
    assert "2 events are gone" in loss.reason


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"a": 1, "z": 1, "b": 1}, "names 'z', which is none of the topics"),
        ({"a": 1}, "leaves out topic B"),
        ({"a": 22, "b": 1}, "has no index 22"),
    ],
)
def test_indices_of_topics_that_are_not_read_are_refused(
    wanted: dict[str, Any], expected: str
) -> None:
    with pytest.raises(LocalError, match=expected):
        starting(found(log("a", 20), log("b", 20), a=["a"], b=["b"]), wanted, nobody)
