"""Applications: what stands on every simulated node and uses it.

They create topics, subscribe, publish and acknowledge, retrying as an application would: up to
five attempts a command, as the thesis' harness did, with an idempotency key that stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topic_types import (
    DeliveryOrder,
    Dissemination,
    TopicDescriptor,
    TopicSettings,
)
from pulsarcast.model.topics import decode_topic, settled
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import (
    Acknowledge,
    Command,
    CreateTopic,
    Publish,
    Subscribe,
    Unsubscribe,
    UpdateTopic,
)
from pulsarcast.simulation.fleet import Answer, CommandFactory, Fleet, Note, Unanswered

ATTEMPTS = 5
PATIENCE_S = 900.0
"""Longer than any fault of a scenario lasts: a request waits for its publisher's return."""
RETRY_S = 1.0
"""How long an application waits after the first refusal; twice as long after each further one."""
ACKNOWLEDGE_DELAY_S = 0.05


class Applications:
    """The applications of all nodes of a fleet."""

    def __init__(self, fleet: Fleet, *, replicas: int, note: Note | None = None) -> None:
        self.fleet = fleet
        self.replicas = replicas
        """How many peers must hold an event for it to count as replicated."""
        self.topics: dict[Cid, str] = {}
        """What was created, in the order of the answers."""
        self.first_versions: dict[Cid, TopicDescriptor] = {}
        self.injected = 0
        self.acknowledged = 0
        self.levels: dict[str, int] = {}
        """Acknowledgements by the level that was reached."""
        self.refused: dict[str, int] = {}
        """Commands given up, by reason."""
        self.retries = 0
        self._note = note
        self._wanted: dict[tuple[int, Cid], bool] = {}
        """Subscriptions to be made again if a disk is lost; whether from the start."""
        fleet.disk_lost.append(self._begin_anew)
        fleet.observer.consumer = self._consume

    def create(
        self,
        index: int,
        name: str,
        settings: TopicSettings,
        then: Callable[[Cid | None], None],
    ) -> None:
        """Create a topic, once however often it is asked for; `then` hears its CID."""

        def answered(reply: Reply | None) -> None:
            if reply is None or reply.cid is None:
                then(None)
                return
            self.topics[reply.cid] = name
            if reply.block is not None:
                self.first_versions[reply.cid] = decode_topic(reply.block)
            book = self.fleet.observer.book(reply.cid)
            book.name = name
            self.fleet.observer.promise(book, settings.order)
            book.retention_count = settings.retention.count
            book.retention_age_s = settings.retention.age_s
            allowed = settled(settings, self.fleet.stage.peer(index)).publishers
            self.fleet.observer.allow(reply.cid, None if settings.open else frozenset(allowed))
            then(reply.cid)

        self._insist(index, lambda call: CreateTopic(call, name, settings, ensure=()), answered)

    def renew(self, index: int, topic: Cid, then: Callable[[bool], None]) -> None:
        """Make a new version of a node's own topic, with the settings of the first one."""
        settings = self.first_versions[topic].settings

        def answered(reply: Reply | None) -> None:
            then(reply is not None)

        self._insist(index, lambda call: UpdateTopic(call, topic, settings), answered)

    def subscribe(
        self,
        index: int,
        topic: Cid,
        then: Callable[[bool], None] | None = None,
        *,
        from_start: bool = False,
    ) -> None:
        """Subscribe a node, and again whenever it loses its disk."""
        self._wanted[index, topic] = from_start

        def answered(reply: Reply | None) -> None:
            if reply is not None and (index, topic) in self._wanted:
                self.fleet.observer.confirmed(index, topic)
            if then is not None:
                then(reply is not None)

        self._insist(index, lambda call: Subscribe(call, topic, from_start=from_start), answered)

    def unsubscribe(
        self, index: int, topic: Cid, then: Callable[[bool], None] | None = None
    ) -> None:
        """End a node's subscription."""
        self._wanted.pop((index, topic), None)

        def answered(reply: Reply | None) -> None:
            if then is not None:
                then(reply is not None)

        # Refused because the node had lost its disk, and subscribed again since: that is past.
        self._insist(
            index,
            lambda call: Unsubscribe(call, topic),
            answered,
            unless=lambda: (index, topic) in self._wanted,
        )

    def publish(
        self,
        index: int,
        topic: Cid,
        payload: bytes,
        *,
        injection: str,
        then: Callable[[Cid | None], None] | None = None,
        replicated: bool = True,
    ) -> None:
        """Publish, or request to, and keep account of what was promised."""
        self.injected += 1
        author = self.fleet.stage.peer(index)
        self._write(trace.Injected(topic=topic, injection=injection, author=author))

        def make(call: int) -> Command:
            return Publish(
                call,
                topic,
                payload,
                replicated=replicated,
                idempotency_key=injection.encode(),
                injection=injection,
            )

        def answered(reply: Reply | None) -> None:
            cid = None if reply is None else reply.cid
            if reply is not None and cid is not None:
                self._acknowledge(topic, cid, injection, reply.replicas)
            if then is not None:
                then(cid)

        self._insist(index, make, answered)

    def _acknowledge(self, topic: Cid, cid: Cid, injection: str, replicas: int) -> None:
        self.acknowledged += 1
        level = "replicated" if replicas >= self.replicas else "accepted"
        self.levels[level] = self.levels.get(level, 0) + 1
        self.fleet.observer.acknowledged(cid, level)
        self._write(
            trace.Acknowledged(
                topic=topic, event=cid, injection=injection, level=level, replicas=replicas
            )
        )

    def _insist(
        self,
        index: int,
        factory: CommandFactory,
        then: Callable[[Reply | None], None],
        *,
        unless: Callable[[], bool] = lambda: False,
    ) -> None:
        """Give a command up to five times; None is what the caller hears if all fail."""
        left = ATTEMPTS
        until_s = self.fleet.stage.now + PATIENCE_S

        def give() -> None:
            if left < ATTEMPTS and unless():
                then(None)
                return
            self.fleet.ask(index, factory, answered, patience_s=PATIENCE_S)

        def answered(answer: Answer) -> None:
            nonlocal left
            if isinstance(answer, Reply) and answer.refusal is None:
                then(answer)
                return
            refusal = answer.refusal if isinstance(answer, Reply) else None
            if refusal is not None and refusal.after_s and self.fleet.stage.now < until_s:
                # Busy, as the library hears it: it comes back then, however often.
                self.fleet.stage.after(refusal.after_s, give)
                return
            left -= 1
            if isinstance(answer, Reply) and left:
                self.retries += 1
                self.fleet.stage.after(RETRY_S * 2.0 ** (ATTEMPTS - 1 - left), give)
                return
            if isinstance(answer, Unanswered):
                reason = answer.value
            else:
                assert answer.refusal is not None
                reason = answer.refusal.code
            self.refused[reason] = self.refused.get(reason, 0) + 1
            then(None)

        give()

    def _begin_anew(self, index: int) -> None:
        """A node came back without its disk: its applications subscribe again."""
        for (node, topic), from_start in list(self._wanted.items()):
            if node == index:
                self.subscribe(index, topic, from_start=from_start)

    def _consume(self, index: int, topic: Cid, place: int) -> None:
        """The application is done with what it got, a moment later, if its node still runs."""
        life = self.fleet.life(index)

        def acknowledge() -> None:
            if self.fleet.is_up(index) and self.fleet.life(index) == life:
                self.fleet.stage.command(index, lambda _: Acknowledge(topic, place), None)

        self.fleet.stage.after(ACKNOWLEDGE_DELAY_S, acknowledge)

    def _write(self, record: trace.Record) -> None:
        if self._note is not None:
            self._note(record)


def settings_for(
    order: str,
    creator: PeerId,
    dissemination: str = "tree",
    sequencers: Sequence[PeerId] = (),
) -> TopicSettings:
    """The settings of a topic that orders and spreads its events so, in which every node publishes.

    The sequencers of a total order are those named, or else its creator alone.
    """
    chosen, travel = DeliveryOrder(order), Dissemination(dissemination)
    if chosen is DeliveryOrder.TOTAL:
        named = tuple(sequencers) or (creator,)
        return TopicSettings(
            order=chosen,
            publishers=named,
            sequencers=named,
            request_to_publish=True,
            dissemination=travel,
        )
    return TopicSettings(order=chosen, open=True, dissemination=travel)
