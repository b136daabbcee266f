"""Deliveries that are not simply the next event: what is wrong with them, if anything.

`Observer` sends here what its fast way does not take: first of a stream, longer than the room
kept for it, seen before, unknown. Most of these are in order too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsarcast.model import trace
from pulsarcast.simulation.ledger import BEFORE, MARKS, Stream

if TYPE_CHECKING:
    from pulsarcast.simulation.observer import Observer


def judge(
    observer: Observer,
    index: int,
    incarnation: int,
    record: trace.Delivered,
    stream: Stream | None,
) -> bytearray | None:
    """The node's bytes if this is a first delivery that counts; None if it is judged and done."""
    findings = observer.findings
    number = record.number
    cid = None if stream is None else stream.cid_at(number)
    if stream is None or cid is None:
        findings.add("forged", f"{_what(index, record)} was never published")
        return None
    if cid != record.event:
        findings.add("forged", f"{_what(index, record)} is not the one published")
        return None
    subscription = stream.book.subscriptions.get(index)
    if subscription is None:
        findings.add("not_subscribed", f"{_what(index, record)} without a subscription")
        return None
    if stream.home != index and not subscription.tells(stream):
        findings.add("before_start", f"{_what(index, record)} and no start of its numbering")
        return None
    got = stream.room_for(index, number, subscription.start_in(stream))
    mark = got[number]
    if mark == BEFORE:
        findings.add("before_start", f"{_what(index, record)} is before its subscription")
        return None
    if mark:
        _again(observer, index, incarnation, record, stream, mark)
        got[number] = incarnation % MARKS + 1
        return None
    request_id = observer.twins.get(record.event)
    if request_id is not None:
        first = observer.twins_got.setdefault((index, request_id), record.event)
        if first != record.event and not record.redelivery:
            findings.add("duplicate", f"{_what(index, record)} is a request it delivered before")
    return got


def _again(
    observer: Observer,
    index: int,
    incarnation: int,
    record: trace.Delivered,
    stream: Stream,
    mark: int,
) -> None:
    """A delivery of what this node got before: allowed once an incarnation, and only marked."""
    if mark == incarnation % MARKS + 1:
        observer.findings.add("duplicate", f"{_what(index, record)} twice in one life")
    elif not record.redelivery:
        observer.findings.add("duplicate", f"{_what(index, record)} again, and not marked so")
    observer.redeliveries += 1
    if stream.lasts is None:
        return
    place = stream.places[record.number]
    life, last = stream.redone.get(index, (incarnation, -1))
    if life == incarnation and place <= last:
        observer.findings.add("order", f"{_what(index, record)} again, after place {last}")
    stream.redone[index] = (incarnation, place)


def _what(index: int, record: trace.Delivered) -> str:
    return (
        f"node {index}: event {record.event.hex()[8:20]}, number {record.number} of publisher "
        f"{record.publisher.hex()[12:20]}, epoch {record.epoch}, topic {record.topic.hex()[8:20]}"
    )
