"""Publications: gapless numbers with one event each, one chain where the order is total.

A node may say again after a restart what it published last: a kill can come between its disk and
its trace. And one that is killed before its disk has synced may number another event alike. That
is no equivocation as long as the first never left: nobody was told of it, nobody else got it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsarcast.model import trace
from pulsarcast.simulation.ledger import NO_LEVEL, Stream, TopicBook

if TYPE_CHECKING:
    from pulsarcast.simulation.observer import Observer


def enter(
    observer: Observer, time_s: float, index: int, incarnation: int, record: trace.Published
) -> None:
    """Enter a published event into the ledger, and object where it should not exist."""
    findings = observer.findings
    what = f"node {index}: event {record.event.hex()[8:20]}, number {record.number}"
    # Where several sequencers count together, each of them may say what they agreed on.
    is_shared = record.position is not None and record.position.term > 0
    sayer = observer.peers.get(index, record.publisher)
    if sayer != record.publisher and not is_shared:
        findings.add("forged", f"{what} is published in another's name")
        return
    allowed = observer.allowed.get(record.version)
    if allowed is not None and sayer not in allowed:
        findings.add("not_allowed", f"{what} is published by one who may not")
    stream = observer.stream(record.topic, record.publisher, record.epoch, index)
    stream.is_shared = is_shared
    number = record.number
    known = stream.cid_at(number)
    if known == record.event:
        # Told again after a crash: the same event is the same event.
        return
    if known is not None and is_shared:
        # What several agreed on nobody takes back.
        findings.add("equivocation", f"{what} has the position of {known.hex()[8:20]}")
        return
    if known is not None and not _never_left(stream, number):
        findings.add("equivocation", f"{what} has the number of {known.hex()[8:20]}")
        return
    if record.position is not None:
        _chain(observer, stream.book, what, record)
        stream.book.positions[record.position.number] = (stream, number)
    if known is None:
        stream.book.history.append((stream, number))
    else:
        stream.take_back(number)
    stream.put(number, record.event, index, time_s, record.position)
    observer.events[record.event] = (stream, number)
    if stream.book.causal is not None:
        stream.book.causal.published(index, record)
    _once(observer, index, what, record)


def _chain(observer: Observer, book: TopicBook, what: str, record: trace.Published) -> None:
    """Total order: no position twice, and each event linked to the one before."""
    assert record.position is not None
    place = record.position.number
    there = book.positions.get(place)
    if there is not None and not _never_left(*there):
        observer.findings.add("fork", f"{what} takes position {place} a second time")
    if not book.positions or not book.chained:
        return
    before = book.positions.get(place - 1)
    if before is None:
        if place != min(book.positions):
            observer.findings.add("chain", f"{what} at position {place} follows nothing")
        return
    parent = before[0].cids[before[1]]
    if tuple(record.parents) != (parent,):
        observer.findings.add("chain", f"{what} at position {place} is not linked to the last")


def _once(observer: Observer, index: int, what: str, record: trace.Published) -> None:
    """One event per request and per injection; receivers sort twins of a request out."""
    first = record.event
    if record.request_id:
        first = observer.requests.setdefault(record.request_id, record.event)
    if first != record.event and record.position is not None and record.position.term > 0:
        observer.findings.add("published_twice", f"{what} has the request of {first.hex()[8:20]}")
    if first != record.event:
        observer.twins[first] = observer.twins[record.event] = record.request_id
        stream, number = observer.events[first]
        for node in stream.got:
            if stream.has(node, number):
                observer.twins_got.setdefault((node, record.request_id), first)
    if not record.injection:
        return
    earlier = observer.injections.setdefault(record.injection, record.event)
    if earlier != record.event:
        stream, number = observer.events[earlier]
        forgot = observer.disk_lost_s.get(index, -1.0) >= stream.times[number]
        # A publisher without its disk cannot know; and one that never left is no second event.
        if not forgot and stream.cids[number] == earlier:
            observer.findings.add("published_twice", f"{what} is injection {record.injection}")
        observer.injections[record.injection] = record.event


def _never_left(stream: Stream, number: int) -> bool:
    """Whether an event can be taken back: nobody was told, and nobody else got it."""
    return stream.levels[number] == NO_LEVEL and not stream.delivered_elsewhere(number)
