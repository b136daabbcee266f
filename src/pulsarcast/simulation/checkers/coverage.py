"""Coverage: was everything delivered that was due (docs/glossary.md)?

An event is due to every subscription whose start frontier does not cover it and that has not
ended. Three things are counted apart, and only where an event is missing somewhere: what a
publisher lost before anyone was told that it is safe, what retention or a flush has dropped and the
node says so, and what was still under way when a subscription ended. What is due to a subscription
with filters nobody can say who reads traces: events' attributes are not in them. It is left out
here, and whoever made the load has to know (`simulation.content`, the testbed's `quotes`).
"""

from collections.abc import Collection

from pulsarcast.model.ids import Cid
from pulsarcast.simulation.findings import Findings
from pulsarcast.simulation.ledger import (
    NO_LEVEL,
    REPLICATED,
    Stream,
    Subscription,
    Tally,
    TopicBook,
)
from pulsarcast.simulation.observer import Observer


class Coverage:
    """What a run came to: of its own topics, and of those that came with them."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.tally = Tally()
        self.other = Tally()
        """Meta topics, which nobody counted when the load was made."""
        self.lost_acknowledged = 0
        """Events whose callers were told that they are safe, missing where they were due."""


def check_coverage(
    observer: Observer,
    *,
    now_s: float,
    topics: Collection[Cid] | None = None,
    findings: Findings | None = None,
) -> Coverage:
    """Hold deliveries against what was due; `topics` are those the load is about.

    Objections go to the observer's findings, or to those given, where one only wants to know.
    """
    coverage = Coverage(observer.findings if findings is None else findings)
    for topic, book in observer.books.items():
        tally = Tally()
        tally.add(book.ended)
        for stream in book.streams:
            _check_stream(observer, stream, tally, coverage, now_s)
        counted = topics is None or topic in topics
        (coverage.tally if counted else coverage.other).add(tally)
    return coverage


def open_starts(observer: Observer, living: Collection[int]) -> list[str]:
    """The nodes that are up and have yet to load their start: in the end none, or nobody knows
    what is due to it."""
    return [
        f"node {node}, topic {book.name}"
        for book in observer.books.values()
        for node, subscription in book.subscriptions.items()
        if node in living and not subscription.is_whole
    ]


def complete(observer: Observer, now_s: float) -> bool:
    """Whether everything due has been delivered by now."""
    if _all_delivered(observer):
        return True
    # Something is missing; it may be excused, which takes longer to find out.
    coverage = check_coverage(observer, now_s=now_s, findings=Findings())
    return not coverage.findings.counts["lost"]


def _all_delivered(observer: Observer) -> bool:
    for book in observer.books.values():
        for stream in book.streams:
            high = stream.high
            for node, subscription in book.subscriptions.items():
                if subscription.filtered:
                    continue
                if not subscription.tells(stream):
                    return False
                start = subscription.start_in(stream)
                if stream.got_between(node, start, high) < stream.published_between(start, high):
                    return False
    return True


def _check_stream(
    observer: Observer, stream: Stream, tally: Tally, coverage: Coverage, now_s: float
) -> None:
    _check_numbers(observer, stream, coverage.findings)
    missing: dict[int, list[Subscription]] = {}
    for node, subscription in stream.book.subscriptions.items():
        if subscription.filtered:
            continue
        if not subscription.tells(stream):
            continue
        start, high = subscription.start_in(stream), stream.high
        due = stream.published_between(start, high)
        lacks = [
            number
            for number in stream.lacks(node, start, high)
            if not _got_its_twin(observer, node, stream, number)
        ]
        tally.due += due
        tally.delivered += due - len(lacks)
        for number in lacks:
            if _began_after_its_twin(observer, subscription, stream, number):
                tally.due -= 1
                tally.undecided += 1
            else:
                missing.setdefault(number, []).append(subscription)
    for number in sorted(missing):
        without = missing[number]
        if _lost_unacknowledged(observer, stream, number):
            # Not due to anyone then, those that got it included.
            got = _due_to(stream, number) - len(without)
            tally.due -= got + len(without)
            tally.delivered -= got
            tally.unacknowledged_lost += 1
            continue
        if _retired(stream.book, stream, number, now_s):
            # Only for those who know: the others must still get it, or find out.
            waiting = [one for one in without if one.let_off_in(stream) < number]
            tally.due -= len(without) - len(waiting)
            tally.retired += len(without) - len(waiting)
            without = waiting
        if without:
            told = stream.levels[number] != NO_LEVEL
            coverage.lost_acknowledged += told
            nodes = ", ".join(str(subscription.node) for subscription in without[:8])
            coverage.findings.add(
                "lost",
                f"{observer.name(stream)}, number {number}, acknowledged: {told}: missing at "
                f"{len(without)} of {_due_to(stream, number)} subscribers (nodes {nodes})",
                count=len(without),
            )


def _check_numbers(observer: Observer, stream: Stream, findings: Findings) -> None:
    """Numbers are gapless: by now every one below the highest has its event."""
    holes = stream.cids.count(None) - 1
    if holes:
        first = stream.cids.index(None, 1)
        findings.add(
            "number_gap", f"{observer.name(stream)}: no event {first} and {holes - 1} others"
        )


def _due_to(stream: Stream, number: int) -> int:
    """How many subscriptions this event is due to."""
    return sum(
        not subscription.filtered
        and subscription.tells(stream)
        and subscription.start_in(stream) < number
        for subscription in stream.book.subscriptions.values()
    )


def _got_its_twin(observer: Observer, node: int, stream: Stream, number: int) -> bool:
    """Whether the node got another event of the same request: it must deliver one of them only."""
    if not observer.twins:
        return False
    cid = stream.cids[number]
    request_id = None if cid is None else observer.twins.get(cid)
    return request_id is not None and (node, request_id) in observer.twins_got


def _began_after_its_twin(
    observer: Observer, subscription: Subscription, stream: Stream, number: int
) -> bool:
    """Whether another event of the same request lies before the subscription's start.

    The request is then both before and after the start: concurrent with the join, and so undecided
    (docs/decisions/0011).
    """
    cid = stream.cids[number]
    request_id = None if cid is None else observer.twins.get(cid)
    if request_id is None:
        return False
    return any(
        other_number <= subscription.start_in(other)
        for twin in observer.twins_of(request_id)
        for other, other_number in (observer.events[twin],)
        if twin != cid
    )


def _lost_unacknowledged(observer: Observer, stream: Stream, number: int) -> bool:
    """Whether the publisher lost this event before anyone was promised that it would not."""
    if stream.is_shared:
        return False
    level, published_s = stream.levels[number], stream.times[number]
    if observer.disk_lost_s.get(stream.home, -1.0) >= published_s:
        return level < REPLICATED
    killed = observer.killed_s.get(stream.home, -1.0) >= published_s
    return killed and level == NO_LEVEL and not stream.delivered_elsewhere(number)


def _retired(book: TopicBook, stream: Stream, number: int, now_s: float) -> bool:
    """Whether a flush or the topic's retention lets nodes drop an event: late-comers go without."""
    if number <= book.flushed.get((stream.publisher, stream.epoch), 0):
        return True
    if book.retention_age_s is not None and now_s - stream.times[number] > book.retention_age_s:
        return True
    if book.retention_count is None:
        return False
    if (stream, number) in book.outrun:
        return True
    # A publisher's or keeper's log holds what it never delivers; there, it is at least this old.
    newest = book.history[-book.retention_count :] if book.retention_count else []
    return not any(kept is stream and at == number for kept, at in newest)
