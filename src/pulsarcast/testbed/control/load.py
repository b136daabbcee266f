"""A load, played on a testbed that goes on meanwhile: other requests are heard all the time.

What it needs is made first: topics and subscriptions that there are not yet. It may be played more
than once, since its events get new numbers each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final, TypeAlias, cast

import msgspec

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid
from pulsarcast.model.workload import Workload, WorkloadEvent
from pulsarcast.simulation.applications import Applications, settings_for
from pulsarcast.simulation.workload_driver import WorkloadDriver, first_events
from pulsarcast.testbed.control.book import Book
from pulsarcast.testbed.control.messages import Going, Play, Refused, Reported
from pulsarcast.testbed.sessions import Session, Stalled

AT_ONCE: Final = 8
IN_FLIGHT_MAX: Final = 500
"""More unanswered events than this, and a load at a rate waits: the nodes cannot keep up."""
POLL_S: Final = 0.1
QUIET_S: Final = 1.0
"""How long the network is left alone after new subscriptions."""

Done: TypeAlias = Callable[[], None]
Job: TypeAlias = Callable[[Done], None]
Tell: TypeAlias = Callable[[Going | Refused | Reported], None]


class Playing:
    """One load, from its topics to its last delivery."""

    def __init__(
        self,
        session: Session,
        book: Book,
        workload: Workload,
        asked: Play,
        *,
        absent: Callable[[], set[int]],
        tell: Tell,
    ) -> None:
        self.is_over = False
        self._session = session
        self._fleet = session.fleet
        self._callers = session.callers
        self._book = book
        self._asked = asked
        self._absent = absent
        self._tell = tell
        self._workload = first_events(workload, asked.limit or session.options.events_max)
        self._driver = self._driver_of(self._workload)
        self._numbers: range = range(0)
        self._answered: Callable[[], int] = lambda: 0
        self._began_s = 0.0
        self._before = (0, 0)

    def begin(self) -> None:
        """Make what there is not yet, then publish; this returns at once."""
        self._before = (self._callers.acknowledged, sum(self._callers.refused.values()))
        missing = [t for t in self._workload.topics if t.name not in self._book.topics]
        jobs = [self._creating(topic.name, self._driver.node(topic.node)) for topic in missing]
        self._pour("create", jobs, self._subscribe)

    def _subscribe(self) -> None:
        wanted = {
            (self._driver.node(user.node), name): None
            for user in self._workload.users
            for name in user.subscriptions
            if name in self._book.topics
        }
        jobs = [self._subscribing(*pair) for pair in wanted if not self._book.is_subscribed(*pair)]
        quiet_s = QUIET_S if jobs else 0.0
        self._pour("subscribe", jobs, lambda: self._fleet.after(quiet_s, self._publish))

    def _publish(self) -> None:
        try:
            played = self._numbered()
        except LocalError as error:
            self.is_over = True
            self._tell(Refused(str(error)))
            return
        self._began_s = time.monotonic()
        if self._asked.rate_per_s is None:
            driver = self._driver = self._driver_of(played)
            driver.topics |= self._book.topics
            driver.publish()
            self._answered = lambda: driver.answered
        else:
            self._stream(played, self._asked.rate_per_s)
        self._look(Stalled(self._asked.patience_s))

    def _stream(self, played: Workload, rate_per_s: float) -> None:
        """Events in the order of their numbers, so many a second, whoever their authors are."""
        authored = [(self._driver.node(u.node), event) for u in played.users for event in u.events]
        waiting = sorted(authored, key=lambda one: one[1].internal_id)[::-1]
        asked = answered = 0
        self._answered = lambda: answered
        began_s = time.monotonic()

        def one_more(_: Cid | None) -> None:
            nonlocal answered
            answered += 1

        def tick() -> None:
            nonlocal asked
            owed = int((time.monotonic() - began_s) * rate_per_s) + 1 - asked
            while waiting and owed > 0 and asked - answered < IN_FLIGHT_MAX:
                self._give(*waiting.pop(), one_more)
                asked, owed = asked + 1, owed - 1
            if waiting:
                next_s = began_s + asked / rate_per_s - time.monotonic()
                self._fleet.after(max(0.001, next_s), tick)

        tick()

    def _give(self, index: int, event: WorkloadEvent, then: Callable[[Cid | None], None]) -> None:
        topic = self._book.topics.get(event.topic)
        if topic is None or self._callers.fleet.is_gone(index):
            then(None)
            return
        payload = msgspec.json.encode({"internalId": event.internal_id, "ups": event.ups})
        replicated = self._session.options.ack == "replicated"
        number = str(event.internal_id)
        self._callers.publish(
            index, topic, payload, injection=number, then=then, replicated=replicated
        )

    def _look(self, stalled: Stalled) -> None:
        """Tell how far it is, until all is answered, and all has come or nothing comes any more."""
        looked_s = time.monotonic()
        answered = self._answered()
        if answered < len(self._numbers):
            self._tell(Going("publish", answered, len(self._numbers)))
        else:
            standing = self._book.standing(self._absent(), self._numbers)
            self._tell(Going("deliver", standing.delivered, standing.due))
            if not standing.lost or stalled.is_so(standing.delivered):
                self._finish()
                return
        # Counting takes its time where there is much: it may have a tenth of a core.
        took_s = time.monotonic() - looked_s
        self._fleet.after(max(POLL_S, 10 * took_s), lambda: self._look(stalled))

    def _finish(self) -> None:
        self.is_over = True
        standing = self._book.standing(self._absent(), self._numbers)
        acknowledged = self._callers.acknowledged - self._before[0]
        refused = sum(self._callers.refused.values()) - self._before[1]
        # Only a fault excuses a node that refuses, be it a topic, a subscription or an event.
        excused = bool(self._callers.fleet.faults)
        is_whole = acknowledged >= len(self._numbers) and not refused
        facts: dict[str, Any] = {
            "events": len(self._numbers),
            "acknowledged": acknowledged,
            "refused": refused,
            **standing.facts(),
            **self._book.latencies_ms(self._numbers),
            "wall_s": round(time.monotonic() - self._began_s, 3),
        }
        self._tell(Reported(facts, ok=not standing.lost and (is_whole or excused)))

    # What it is made of.

    def _numbered(self) -> Workload:
        """The workload with the numbers that its events have in the book."""
        driver, first = self._driver, self._book.events
        events = [
            (event, driver.node(user.node))
            for user in self._workload.users
            for event in user.events
        ]
        numbers: dict[int, int] = {}
        for event, author in sorted(events, key=lambda one: one[0].internal_id):
            numbers[event.internal_id] = self._book.enter(author, event.topic)
        self._numbers = range(first, self._book.events)
        users = [
            msgspec.structs.replace(
                user,
                events=[
                    msgspec.structs.replace(event, internal_id=numbers[event.internal_id])
                    for event in user.events
                ],
            )
            for user in self._workload.users
        ]
        return Workload(self._workload.topics, users)

    def _driver_of(self, workload: Workload) -> WorkloadDriver:
        options = self._session.options
        return WorkloadDriver(
            # It asks no more of applications than callers can do: see `callers`.
            cast(Applications, self._callers),
            workload,
            rng=Random(f"workload/{options.seed}"),
            order=options.order,
            dissemination=options.dissemination,
            replicated=options.ack == "replicated",
            concurrency=options.concurrency,
        )

    def _creating(self, name: str, index: int) -> Job:
        options = self._session.options
        peer = self._fleet.peers[index]
        settings = settings_for(options.order, peer, options.dissemination)

        def job(done: Done) -> None:
            def created(cid: Cid | None) -> None:
                if cid is not None:
                    self._book.topics[name] = cid
                done()

            self._callers.create(index, name, settings, created)

        return job

    def _subscribing(self, index: int, name: str) -> Job:
        def job(done: Done) -> None:
            def subscribed(stands: bool) -> None:
                if stands:
                    self._book.subscribe(index, name)
                done()

            self._callers.subscribe(index, self._book.topics[name], subscribed)

        return job

    def _pour(self, what: str, jobs: Iterable[Job], then: Done) -> None:
        """Do some at a time, and then what comes after."""
        waiting = list(jobs)[::-1]
        total = left = len(waiting)

        def start_next() -> None:
            if waiting:
                waiting.pop()(ended)

        def ended() -> None:
            nonlocal left
            left -= 1
            self._tell(Going(what, total - left, total))
            # Through the loop: many that end at once must not nest.
            self._fleet.after(0, start_next if left else then)

        if not waiting:
            self._fleet.after(0, then)
        for _ in range(min(AT_ONCE, total)):
            start_next()
