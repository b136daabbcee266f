"""Offsets: how far a query has read each topic, and where it may go on. No IO.

Spark keeps them in the checkpoint, as JSON:

    {"version": 1, "store": ID, "topics": {CONTENT_ID: {"log": ID, "next": N}}}

An index means something only within one log of one store, so both are named; `next` is the first
index that was not read. An end that also says `from` had to begin there instead of where the batch
before ended: at a topic that was new, or behind events that are gone. Only so does a batch that is
replayed hold the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import msgspec

from pulsarcast.model.api import LogView
from pulsarcast.model.errors import PulsarcastError

VERSION: Final = 1


class SourceError(PulsarcastError):
    """A query cannot go on; the message says why, and what to do."""


class Place(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a query stands in a topic's log."""

    log: str
    next: int
    begin: int | None = msgspec.field(default=None, name="from")
    """Where this batch begins, if not where the one before ended."""


class Offsets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a query stands."""

    version: int
    store: str
    topics: dict[str, Place]


@dataclass(frozen=True, slots=True)
class Span:
    """Events of a log with start <= index < end."""

    topic: str
    log: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Loss:
    """Events that a query should have read and cannot."""

    topic: str
    log: str
    reason: str
    goes_on: str


# From and to JSON.


def make_offsets(store: str, topics: Mapping[str, Place]) -> Offsets:
    """In one order: Spark compares offsets by their text."""
    return Offsets(VERSION, store, dict(sorted(topics.items())))


def to_json(offsets: Offsets) -> dict[str, Any]:
    """What Spark is given."""
    found: dict[str, Any] = msgspec.to_builtins(offsets)
    return found


def from_json(given: object) -> Offsets:
    """What Spark gives back, perhaps years later and from another version of ours."""
    version = given.get("version") if isinstance(given, dict) else None
    if type(version) is int and version > VERSION:
        raise SourceError(
            f"the checkpoint's offsets have version {version}, and this pulsarcast reads {VERSION}:"
            " it was written by a newer one. Install that, or begin with a new checkpoint folder"
        )
    try:
        found = msgspec.convert(given, Offsets)
    except msgspec.ValidationError as error:
        raise SourceError(
            f"the checkpoint's offsets are damaged ({error}): begin with a new checkpoint folder, "
            "and say with startingOffsets where"
        ) from None
    if found.version != VERSION or any(place.next < 1 for place in found.topics.values()):
        raise SourceError(
            "the checkpoint's offsets are damaged: begin with a new checkpoint folder, "
            "and say with startingOffsets where"
        )
    return found


# Going on.


def advance(
    start: Offsets, logs: Mapping[str, LogView], room: int | None
) -> tuple[Offsets, list[Loss]]:
    """The end of the next batch, of `room` events at most; `start` itself where nothing is new.

    A topic that is not among the logs keeps its place. The losses are for the caller to judge.
    """
    begins: dict[str, int] = {}
    losses: list[Loss] = []
    for topic, log in logs.items():
        begins[topic], loss = _begin(start, topic, log)
        losses += [] if loss is None else [loss]
    lags = {topic: log.newest + 1 - begins[topic] for topic, log in logs.items()}
    shares = share(lags, room, turn=sum(begins.values()))
    if not any(shares.values()):
        return start, losses
    places = {topic: Place(place.log, place.next) for topic, place in start.topics.items()}
    for topic, begin in begins.items():
        before = places.get(topic)
        goes_on = before is not None and (before.log, before.next) == (logs[topic].log, begin)
        places[topic] = Place(
            logs[topic].log, begin + shares[topic], begin=None if goes_on else begin
        )
    store = next(log.store for log in logs.values())
    return make_offsets(store, places), losses


def _begin(start: Offsets, topic: str, log: LogView) -> tuple[int, Loss | None]:
    """Where the next batch begins in a log, and what that leaves out."""
    place = start.topics.get(topic)
    if place is None:
        return log.oldest, None
    reason = _broken(start.store, place.log, log)
    if reason is None and place.next > log.newest + 1:
        reason = (
            f"{label(log)}: the query has read up to index {place.next - 1}, and the daemon's log "
            f"ends at {log.newest}: its store went back to an older state"
        )
    if reason is not None:
        goes_on = f"from index {log.oldest}, the earliest that the daemon keeps"
        return log.oldest, Loss(topic, log.log, reason + _ANEW, goes_on)
    if place.next < log.oldest:
        return log.oldest, retained(log, place.next)
    return place.next, None


_ANEW: Final = (
    ". Point url to the daemon that the checkpoint came from, or begin with a new checkpoint "
    "folder, where startingOffsets says from where"
)


def _broken(store: str, log_id: str, log: LogView) -> str | None:
    """Why indices of a log mean nothing any more, if so."""
    if log.store != store:
        return (
            f"{label(log)}: the offsets belong to another store (theirs {store}, the daemon's "
            f"{log.store}): this is another daemon, or a store restored from a backup"
        )
    if log.log != log_id:
        return (
            f"{label(log)}: the topic was left and followed again since; its events are counted "
            "anew, and what came in between may be missing"
        )
    return None


def retained(log: LogView, wanted: int) -> Loss:
    """What retention let go before it was read."""
    gone = log.oldest - wanted
    reason = (
        f"{label(log)}: {gone} {'event is' if gone == 1 else 'events are'} gone: index {wanted} is "
        f"the next to read, and retention keeps only what comes from {log.oldest} on. "
        "Give the topic a longer retention, or let the query run more often"
    )
    return Loss(log.topic, log.log, reason, f"from index {log.oldest}")


def gone_since(store: str, span: Span, log: LogView) -> Loss | None:
    """What of a planned batch can be read no more, as far as the daemon knows."""
    reason = _broken(store, span.log, log)
    if reason is not None:
        return Loss(span.topic, log.log, reason + _ANEW, "without these events")
    if span.start < log.oldest:
        return retained(log, span.start)
    return None


def label(log: LogView) -> str:
    """A topic for people."""
    return f"topic {log.name} ({log.topic})"


def refuse(losses: Iterable[Loss]) -> None:
    """Fail where anything is lost."""
    for loss in losses:
        raise SourceError(f"{loss.reason}. With failOnDataLoss=false it goes on {loss.goes_on}")


# Who gets how much.


def share(lags: Mapping[str, int], room: int | None, *, turn: int) -> dict[str, int]:
    """Deal room to topics by how much each has waiting; every one of them gets on.

    Where there is less room than topics, they take turns: `turn` grows by what was read, so the
    next ones are those behind them.
    """
    waiting = {topic: lag for topic, lag in lags.items() if lag > 0}
    total = sum(waiting.values())
    if room is None or total <= room:
        return {topic: waiting.get(topic, 0) for topic in lags}
    shares = dict.fromkeys(lags, 0)
    if room < len(waiting):
        order = list(lags)
        at = turn % len(order)
        for topic in [each for each in order[at:] + order[:at] if each in waiting][:room]:
            shares[topic] = 1
        return shares
    fractions: list[tuple[int, str]] = []
    for topic, lag in waiting.items():
        shares[topic], fraction = divmod(lag * room, total)
        fractions.append((-fraction, topic))
    for _, topic in sorted(fractions)[: room - sum(shares.values())]:
        shares[topic] += 1
    for topic in waiting:
        if not shares[topic]:
            shares[max(shares, key=shares.__getitem__)] -= 1
            shares[topic] = 1
    return shares


# Into partitions.


def spans_between(start: Offsets, end: Offsets) -> list[Span]:
    """What a batch reads of each topic; the same for the same offsets, always."""
    found = []
    for topic, place in end.topics.items():
        begin, before = place.begin, start.topics.get(topic)
        if before == place:
            continue
        if begin is None:
            if before is None or before.log != place.log:
                raise SourceError(
                    f"the checkpoint's offsets do not fit together at topic {topic}: "
                    "begin with a new checkpoint folder, and say with startingOffsets where"
                )
            begin = before.next
        if begin < place.next:
            found.append(Span(topic, place.log, begin, place.next))
    return found


def split(spans: Iterable[Span], size_max: int, count_min: int | None) -> list[Span]:
    """Cut spans into even pieces of a size that one task reads."""
    given = list(spans)
    total = sum(span.end - span.start for span in given)
    size = min(size_max, max(1, total // count_min)) if count_min else size_max
    found = []
    for span in given:
        length = span.end - span.start
        pieces = -(-length // size)
        cuts = [span.start + length * piece // pieces for piece in range(pieces + 1)]
        found += [Span(span.topic, span.log, low, high) for low, high in pairwise(cuts)]
    return found
