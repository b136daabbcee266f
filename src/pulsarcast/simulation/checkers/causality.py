"""Causal order, as one who sees everything judges it: parents first, and all heads as parents.

A node's own marks and frontier are not asked. What an event follows is what its publisher said when
it published (`published`, parents); what is a head at a node follows from what was delivered there.
Together the two are causal order: an event names all heads, and comes after all that it names.

A publisher's event is judged where it is delivered to its publisher, as all that a node holds is
given to its application in the order in which the node got it. Where it is published is too early:
an application that is still given old events has not got yet what its node links to, and after a
kill some of it is only told with the deliveries that are made up for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid
from pulsarcast.simulation.ledger import Stream, Subscription, TopicBook

if TYPE_CHECKING:
    from pulsarcast.simulation.observer import Observer


class _Late(NamedTuple):
    """A parent that a node had not got when it was given the child."""

    subscription: Subscription
    parent: Cid
    what: str


class CausalBook:
    """What is known of one causal topic."""

    def __init__(self, book: TopicBook) -> None:
        self.book = book
        self.links: dict[Cid, trace.Published] = {}
        self._new: dict[tuple[int, Cid], None] = {}
        """Events of subscribed publishers that were not delivered to them yet."""
        self._tops: dict[int, dict[Stream, int]] = {}
        """By node and stream: the highest number delivered, in the subscription of now,"""
        self._named: dict[int, dict[Stream, int]] = {}
        """and the highest that anything delivered follows."""
        self._came_late: dict[int, set[Cid]] = {}
        """What was delivered after something that follows it."""
        self._late: list[_Late] = []

    def published(self, index: int, record: trace.Published) -> None:
        """A node tells of an event for the first time."""
        self.links[record.event] = record
        subscription = self.book.subscriptions.get(index)
        # Whoever has not got everything cannot name all heads.
        if subscription is not None and not subscription.filtered:
            self._new[index, record.event] = None

    def delivered(self, observer: Observer, index: int, event: Cid, stream: Stream) -> None:
        """A node was given an event that it had not got before."""
        record = self.links[event]
        if self.book.subscriptions[index].filtered:
            return  # parents that do not match never come
        tops, named = self._tops.setdefault(index, {}), self._named.setdefault(index, {})
        if (index, event) in self._new:
            del self._new[index, event]
            self._judge_parents(observer, index, record)
        for parent in dict.fromkeys(record.parents):
            place = observer.events.get(parent)
            if place is None or not _has(place[0], index, place[1]):
                what = f"node {index}: event {event.hex()[8:20]} before {parent.hex()[8:20]}"
                self._late.append(_Late(self.book.subscriptions[index], parent, what))
            if place is not None:
                named[place[0]] = max(place[1], named.get(place[0], 0))
        if record.number <= named.get(stream, 0):
            self._came_late.setdefault(index, set()).add(event)
        tops[stream] = max(record.number, tops.get(stream, 0))

    def _judge_parents(self, observer: Observer, index: int, record: trace.Published) -> None:
        """An event names all heads, and nothing that is none; a merge leaves heads for the next.

        What came before the subscription, or was retired before it came, may be named as well. So
        may what was retired and came all the same, after an event that did not wait for it: its
        node cannot tell whether what that one names was ever there.
        """
        subscription = self.book.subscriptions[index]
        came_late = self.came_late(index)
        heads = self._heads(index)
        wrong = 0
        right: set[Cid] = set()
        for parent in record.parents:
            place = observer.events.get(parent)
            if parent in heads:
                right.add(parent)
            elif (
                place is None
                or (place[0].has(index, place[1]) and parent not in came_late)
                or not self._is_let_off(subscription, *place)
            ):
                wrong += 1
        missing = heads - right
        if wrong or (missing and not record.merge):
            observer.findings.add(
                "causal_parents",
                f"node {index}: event {record.event.hex()[8:20]} leaves {len(missing)} heads out "
                f"and names {wrong} others",
            )

    def _heads(self, index: int) -> set[Cid]:
        named = self._named.get(index, {})
        tops = self._tops.get(index, {})
        heads = {stream.cids[top] for stream, top in tops.items() if named.get(stream, 0) < top}
        return {cid for cid in heads if cid is not None}

    @staticmethod
    def _is_let_off(subscription: Subscription, stream: Stream, number: int) -> bool:
        """Whether a node need not have got an event to link to it."""
        return number <= max(subscription.start_in(stream), subscription.let_off_in(stream))

    def settle(self, observer: Observer) -> None:
        """At the end: a parent that was retired, or published for a request twice, may be missing.

        Until then a node may say that it was retired.
        """
        late, self._late = self._late, []
        for subscription, parent, what in late:
            place = observer.events.get(parent)
            if place is not None:
                stream, number = place
                allowed = max(subscription.start_in(stream), subscription.let_off_in(stream))
                if number <= allowed or parent in observer.twins:
                    continue
            observer.findings.add("causal_order", what)

    def forget(self, index: int) -> None:
        """A subscription is over."""
        self._tops.pop(index, None)
        self._named.pop(index, None)
        self._came_late.pop(index, None)
        for place in [place for place in self._new if place[0] == index]:
            del self._new[place]

    def came_late(self, index: int) -> frozenset[Cid]:
        """What a node has got after something that follows it."""
        return frozenset(self._came_late.get(index, ()))

    def look_again(self, observer: Observer, index: int, came_late: frozenset[Cid]) -> None:
        """What a node has got is not what it was: its disk went back."""
        self.forget(index)
        self._came_late[index] = set(came_late)
        tops, named = self._tops.setdefault(index, {}), self._named.setdefault(index, {})
        for stream in self.book.streams:
            for number, cid in enumerate(stream.cids):
                if cid is None or not stream.has(index, number):
                    continue
                tops[stream] = number
                for parent in self.links[cid].parents:
                    if (place := observer.events.get(parent)) is not None:
                        named[place[0]] = max(place[1], named.get(place[0], 0))


def _has(stream: Stream, index: int, number: int) -> bool:
    """Whether a node got an event, or began behind it."""
    got = stream.got.get(index, b"")
    return number < len(got) and got[number] != 0


def settle_causality(observer: Observer) -> None:
    """Let every causal topic have its last word."""
    for book in observer.books.values():
        if book.causal is not None:
            book.causal.settle(observer)
