"""The workload driver: plays a workload as the thesis did (thesis, 5; original.md).

Topics first; then every subscription, until all stand; then users, shuffled by seed, five at a
time, each publishing its next event ten milliseconds after the last was answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

import msgspec

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid
from pulsarcast.model.workload import Workload, WorkloadEvent, WorkloadUser
from pulsarcast.simulation.applications import Applications, settings_for

CONCURRENCY = 5
PAUSE_S = 0.01

Done: TypeAlias = Callable[[], None]
Job: TypeAlias = Callable[[Done], None]


class WorkloadDriver:
    """Plays one workload on a fleet, in three acts."""

    def __init__(
        self,
        applications: Applications,
        workload: Workload,
        *,
        rng: Random,
        order: str = "none",
        dissemination: str = "tree",
        events_max: int | None = None,
        replicated: bool = True,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self.applications = applications
        self.workload = first_events(workload, events_max)
        self.order = order
        self.dissemination = dissemination
        self.replicated = replicated
        self.concurrency = concurrency
        self.topics: dict[str, Cid] = {}
        self.event_count = sum(len(user.events) for user in self.workload.users)
        self.answered = 0
        """Events that were acknowledged, refused or given up."""
        self.dropped = 0
        """Events that no node could be given: theirs was lost for good, or had no topic."""
        self._rng = rng
        self._fleet = applications.fleet
        self._triggers: list[tuple[int, Done]] = []
        self._acts_done: list[str] = []

    # The three acts. Each returns at once; `done` says when it is over.

    def create_topics(self) -> None:
        """Create every topic on the node that the workload names."""

        def job(name: str, index: int) -> Job:
            creator = self._fleet.stage.peer(index)
            settings = settings_for(self.order, creator, self.dissemination)

            def run(done: Done) -> None:
                def created(cid: Cid | None) -> None:
                    if cid is not None:
                        self.topics[name] = cid
                    done()

                self.applications.create(index, name, settings, created)

            return run

        jobs = [job(topic.name, self.node(topic.node)) for topic in self.workload.topics]
        self._run(jobs, "create")

    def subscribe(self) -> None:
        """Make every subscription that the workload names: creating a topic makes none."""

        def job(index: int, topic: Cid) -> Job:
            def run(done: Done) -> None:
                self.applications.subscribe(index, topic, lambda _: done())

            return run

        self._run([job(*pair) for pair in self.subscriptions()], "subscribe")

    def publish(self) -> None:
        """Let all users publish all of their events."""
        users = list(self.workload.users)
        self._rng.shuffle(users)
        self._run([self._user(user) for user in users], "publish")

    def done(self, act: str) -> bool:
        """Whether `create`, `subscribe` or `publish` is over."""
        return act in self._acts_done

    # What faults and results ask.

    def at_share(self, share: float, act: Done) -> None:
        """Do something once this share of the events has been answered."""
        self._triggers.append((round(share * self.event_count), act))
        self._triggers.sort(key=lambda trigger: trigger[0])

    def node(self, name: str) -> int:
        """The node that a name of the workload stands for; few nodes stand for several."""
        _, _, number = name.rpartition("-")
        if not number.isdigit():
            raise LocalError(f"the workload names a node {name!r}: node-1, node-2, … are expected")
        return (int(number) - 1) % self._fleet.size

    def subscriptions(self) -> list[tuple[int, Cid]]:
        """Every node and topic that the workload puts together."""
        wanted = {
            (self.node(user.node), self.topics[name]): None
            for user in self.workload.users
            for name in user.subscriptions
            if name in self.topics
        }
        return list(wanted)

    def busiest_author(self) -> int:
        """The node that created the topic with the most events."""
        topic = max(self.workload.topics, key=lambda topic: topic.event_count)
        return self.node(topic.node)

    def expected_due(self) -> int:
        """Deliveries that the workload asks for where nothing fails, a node's own included."""
        subscribers: dict[str, set[int]] = {}
        for user in self.workload.users:
            for name in user.subscriptions:
                subscribers.setdefault(name, set()).add(self.node(user.node))
        return sum(
            len(subscribers.get(event.topic, ()))
            for user in self.workload.users
            for event in user.events
        )

    # Users and their events.

    def _user(self, user: WorkloadUser) -> Job:
        index = self.node(user.node)

        def run(done: Done) -> None:
            events = iter(user.events)

            def go_on() -> None:
                event = next(events, None)
                if event is None:
                    done()
                else:
                    self._event(index, event, answered)

            def answered() -> None:
                self.answered += 1
                self._pull_triggers()
                self._fleet.stage.after(PAUSE_S, go_on)

            go_on()

        return run

    def _event(self, index: int, event: WorkloadEvent, answered: Done) -> None:
        topic = self.topics.get(event.topic)
        if topic is None or self._fleet.is_gone(index):
            self.dropped += 1
            answered()
            return
        payload = msgspec.json.encode({"internalId": event.internal_id, "ups": event.ups})
        self.applications.publish(
            index,
            topic,
            payload,
            injection=str(event.internal_id),
            then=lambda _: answered(),
            replicated=self.replicated,
        )

    def _pull_triggers(self) -> None:
        while self._triggers and self.answered >= self._triggers[0][0]:
            self._triggers.pop(0)[1]()

    def _run(self, jobs: Sequence[Job], act: str) -> None:
        waiting = iter(jobs)
        left = len(jobs)

        def start_next() -> None:
            job = next(waiting, None)
            if job is not None:
                job(ended)

        def ended() -> None:
            nonlocal left
            left -= 1
            if left:
                # Through the loop: a thousand jobs that end at once must not nest.
                self._fleet.stage.after(PAUSE_S, start_next)
            else:
                self._acts_done.append(act)

        if not jobs:
            self._acts_done.append(act)
        for _ in range(min(self.concurrency, left)):
            start_next()


def first_events(workload: Workload, events_max: int | None) -> Workload:
    """The workload with only its first events, in the order of their internal ids."""
    if events_max is None:
        return workload
    ids = sorted(event.internal_id for user in workload.users for event in user.events)
    kept = set(ids[:events_max])
    users = [
        msgspec.structs.replace(
            user, events=[event for event in user.events if event.internal_id in kept]
        )
        for user in workload.users
    ]
    return Workload(workload.topics, users)
