"""A steady load: everyone subscribes to everything, and events come at a rate or in a burst.

Authors are drawn from the seed, among the nodes that run. Each event says its number, which is its
row in the ledger.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from random import Random
from typing import Final

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid
from pulsarcast.simulation.applications import settings_for
from pulsarcast.testbed.ledger import percentile_ms
from pulsarcast.testbed.scenarios.compare import NUMBER_BYTES, Progress
from pulsarcast.testbed.sessions import Account, Session, Stalled

QUIET_S_MIN: Final = 1.0
IN_FLIGHT_MAX: Final = 500
"""More unanswered events than this, and a load at a rate waits: the nodes cannot keep up."""
STALLED_S: Final = 60.0


class SteadyLoad:
    """Topics, subscriptions, and a stream of events that can be turned on, up and off."""

    def __init__(
        self, session: Session, *, topics: int, progress: Progress, sequencers: Sequence[int] = ()
    ) -> None:
        options = session.options
        if options.payload_bytes < NUMBER_BYTES:
            raise LocalError(f"a payload has at least {NUMBER_BYTES} bytes: the event's number")
        self.topics: list[Cid] = []
        self.authors: list[int] = []
        """Who published each event, in the order of their numbers."""
        self.unanswered = 0
        self.held_back = 0
        """How often the rate could not be kept."""
        self.silent: set[int] = set()
        """Nodes that publish nothing."""
        self._session = session
        self._callers = session.callers
        self._fleet = session.fleet
        self._progress = progress
        self._topic_count = topics
        self._sequencers = sequencers
        """Nodes that agree on the order of its topics; without any, each topic's creator."""
        self._rng = Random(f"steady/{options.seed}")
        self._filler = self._rng.randbytes(options.payload_bytes - NUMBER_BYTES)
        self._rate_round = 0
        """Counts rates that were set: ticks of an earlier one come to nothing."""

    def set_up(self) -> None:
        """Nodes, topics, subscriptions."""
        fleet, size = self._fleet, self._session.size
        fleet.assemble(progress=lambda done: self._progress("nodes", done, size))
        fleet.wait_until_quiet(s_min=QUIET_S_MIN)
        answers = 0

        def created(cid: Cid | None) -> None:
            nonlocal answers
            answers += 1
            if cid is not None:
                self.topics.append(cid)

        for number in range(self._topic_count):
            index = number % size
            options = self._session.options
            named = [fleet.peers[each] for each in self._sequencers]
            settings = settings_for(options.order, fleet.peers[index], options.dissemination, named)
            self._callers.create(index, f"topic-{number}", settings, created)
        fleet.run_until(lambda: answers == self._topic_count, s_max=float("inf"))
        wanted = [(index, topic) for topic in self.topics for index in range(size)]
        for index, topic in wanted:
            self._callers.subscribe(index, topic)
        fleet.run_until(lambda: self._callers.subscribed >= len(wanted), s_max=120.0)
        if self._callers.subscribed < len(wanted) or not self.topics:
            raise LocalError(f"not everyone could subscribe: {self._callers.refused}")
        fleet.wait_until_quiet(s_min=QUIET_S_MIN)

    # The stream.

    @property
    def count(self) -> int:
        """How many events there are by now: the number of the next one."""
        return len(self.authors)

    def flow(self, rate_per_s: float) -> None:
        """Publish at this rate from now on; 0 turns it off."""
        self._rate_round += 1
        if rate_per_s <= 0:
            return
        now_round, began_s, published = self._rate_round, time.monotonic(), 0

        def tick() -> None:
            nonlocal published
            if self._rate_round != now_round:
                return
            owed = int((time.monotonic() - began_s) * rate_per_s) - published
            for _ in range(owed):
                published += 1
                if self.unanswered < IN_FLIGHT_MAX:
                    self.publish()
                else:
                    self.held_back += 1
            next_s = began_s + (published + 1) / rate_per_s
            self._fleet.after(max(0.0, next_s - time.monotonic()), tick)

        tick()

    def burst(self, count: int, *, in_flight: int, what: str) -> None:
        """Publish so many as fast as they are answered, and wait for the answers."""
        first, done = self.count, 0
        numbers: set[int] = set()

        def answered(number: int) -> None:
            nonlocal done
            done += 1
            if len(numbers) < count:
                numbers.add(self.publish(answered))

        for _ in range(min(count, in_flight)):
            numbers.add(self.publish(answered))

        def is_done() -> bool:
            self._progress(what, done, count)
            return done >= count

        self._fleet.run_until(is_done, s_max=float("inf"))
        assert first + count <= self.count

    def publish(
        self, then: Callable[[int], None] | None = None, *, author: int | None = None
    ) -> int:
        """Publish one event, by an author that is drawn if none is named; returns its number."""
        number = self.count
        if number >= self._session.ledger.events:
            raise LocalError("the load has outgrown its ledger")
        author = self._draw() if author is None else author
        topic = self.topics[number % len(self.topics)]
        self.authors.append(author)
        self.unanswered += 1

        def answered(event: Cid | None) -> None:
            self.unanswered -= 1
            if then is not None:
                then(number)

        self._callers.publish(
            author,
            topic,
            number.to_bytes(NUMBER_BYTES, "big") + self._filler,
            injection=str(number),
            then=answered,
            replicated=self._session.options.ack == "replicated",
        )
        return number

    def _draw(self) -> int:
        nodes = self._callers.fleet
        ready = [
            index
            for index in range(self._session.size)
            if index not in self.silent and nodes.is_ready(index)
        ]
        if not ready:
            raise LocalError("no node is left that could publish")
        return self._rng.choice(ready)

    # The end, and what it came to.

    def run_dry(self) -> bool:
        """Wait until everything is answered, everyone is back, and all has come that is due."""
        fleet, callers = self._fleet, self._callers
        fleet.run_until(
            lambda: not self.unanswered and callers.fleet.all_are_well, s_max=float("inf")
        )
        stalled = Stalled(STALLED_S)
        due = self.account().due

        def is_over() -> bool:
            delivered = self._session.ledger.deliveries
            self._progress("deliver", delivered, due)
            return delivered >= due or stalled.is_so(delivered)

        fleet.run_until(is_over, s_max=float("inf"), poll_s=0.2)
        return self._session.ledger.deliveries >= due

    def account(self) -> Account:
        """What was due, and who got it."""
        account = Account(self._session.ledger, self._callers.promised)
        everyone = list(range(self._session.size))
        for number, author in enumerate(self.authors):
            account.enter(number, author=author, subscribers=everyone)
        return account

    def is_well(self, account: Account) -> bool:
        """Whether all was published and came, once, nothing else did, and no node fell.

        Only a fault excuses a node that refuses, and none excuses all of them.
        """
        ledger, faults = self._session.ledger, self._callers.fleet.faults
        broken = account.missing or ledger.duplicates or ledger.strays or self._session.died()
        excused = bool(faults) and account.due > 0
        return not broken and (not account.not_published or excused)

    def latency_ms(
        self, numbers: Iterable[int], share: float, *, but: Collection[int] = ()
    ) -> float:
        """What this share of the deliveries of these events did not exceed, to others than these.

        An author's own delivery is not counted: nobody had to carry it.
        """
        latencies = array("Q")
        for number in numbers:
            author = self.authors[number]
            nodes = (n for n in range(self._session.size) if n != author and n not in but)
            latencies.extend(self._session.ledger.latencies_us(number, nodes))
        return percentile_ms(array("Q", sorted(latencies)), share)
