"""Stories: small histories of a topic, told line by line, right or wrong.

A story knows what would be right (numbers, positions, parents), so a plot that wants one thing
wrong says only that. Who says what in which sequence is all that a trace holds, so a story is a
list of records for each node; `tell` makes whole traces of some, `mutants` hides them in others'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from pulsarcast.model.ids import cid_of, cid_text, peer_id_of, peer_text
from pulsarcast.model.trace import SCHEMA_VERSION

Line = dict[str, Any]
"""One line of a trace, as JSON has it."""

START_NS: Final = 1_767_225_600_000_000_000


def name_of(node: int | str) -> str:
    """The id of a node that nobody else is."""
    return peer_text(peer_id_of(sha256(f"a node of a story: {node}".encode()).digest()))


def cid(*words: object) -> str:
    """A content id that nothing else has."""
    return cid_text(cid_of(" ".join(map(str, words)).encode()))


@dataclass(frozen=True)
class Event:
    """An event of a story."""

    cid: str
    publisher: int
    epoch: int
    number: int
    parents: tuple[str, ...] = ()


@dataclass
class Story:
    """One topic and the nodes that have to do with it, the first of which made it."""

    tag: str
    names: Sequence[str]
    order: str = "none"
    said: dict[int, list[Line]] = field(default_factory=dict)
    """By node, in the sequence in which it said them."""
    sequence: list[tuple[int, Line]] = field(default_factory=list)
    """The same of all nodes, as someone who sees them all would hear it."""
    _delivered: dict[int, list[Event]] = field(default_factory=dict)
    _numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    _last: Event | None = None
    _events: int = 0

    @property
    def topic(self) -> str:
        """The topic's id."""
        return cid("topic", self.tag)

    def say(self, node: int, kind: str, **fields: Any) -> None:
        """Let a node say anything."""
        record = {"kind": kind, **fields}
        self.said.setdefault(node, []).append(record)
        self.sequence.append((node, record))

    def create(self, *, allowed: Iterable[int] | None = None, **chosen: Any) -> None:
        """Let the first node make the topic."""
        self.say(
            0,
            "topic_created",
            topic=self.topic,
            name=self.tag,
            author=self.names[0],
            order=self.order,
            dissemination="tree",
            version=self.topic,
            linking="LAST_SEEN",
            allowed=None if allowed is None else [self.names[node] for node in allowed],
            **{"retention_age_s": None, "retention_count": None, "retention_bytes": None, **chosen},
        )

    def begin(self, *nodes: int) -> None:
        """Make the topic and subscribe nodes to all of it."""
        self.create()
        for node in nodes:
            self.subscribe(node)

    def subscribe(
        self,
        node: int,
        *after: Event,
        filters: Sequence[str] | None = None,
        in_parts: bool = False,
    ) -> None:
        """Subscribe a node to what comes after some events, or to what matches of it."""
        wanted = None if filters is None else list(filters)
        start = self._frontier(after)
        self.say(
            node, "subscribed", topic=self.topic, start=start, filters=wanted, in_parts=in_parts
        )
        self._delivered[node] = []

    def load_start(self, node: int, *after: Event, whole: bool) -> None:
        """Say more of where a subscription starts."""
        start = self._frontier(after)
        self.say(node, "start_loaded", topic=self.topic, start=start, whole=whole)

    def unsubscribe(self, node: int, *known: Event) -> None:
        """End a subscription that knew of some events."""
        self.say(node, "unsubscribed", topic=self.topic, end=self._frontier(known))

    def _frontier(self, events: Iterable[Event]) -> list[Line]:
        return [
            {"publisher": self.names[each.publisher], "epoch": each.epoch, "number": each.number}
            for each in events
        ]

    def publish(
        self,
        node: int,
        *,
        number: int | None = None,
        parents: Sequence[str] | None = None,
        position: int | None = None,
        epoch: int = 7,
        injection: str = "",
        request: str | None = None,
        said_by: int | None = None,
        acknowledged: bool = True,
        merge: bool = False,
    ) -> Event:
        """Publish the next event of a node, with what is wrong about it, if anything."""
        self._events += 1
        event_cid = cid("event", self.tag, self._events)
        if number is None:
            number = self._numbers.get((node, epoch), 0) + 1
        self._numbers[node, epoch] = max(number, self._numbers.get((node, epoch), 0))
        if parents is None:
            parents = self.right_parents(node)
        event = Event(event_cid, node, epoch, number, tuple(parents))
        if position is None:
            position = number
        self.tell_published(
            event,
            position=position,
            injection=injection,
            request=request or event_cid,
            said_by=node if said_by is None else said_by,
            merge=merge,
        )
        if acknowledged:
            self.acknowledge(node, event)
        self._last = event
        return event

    def right_parents(self, node: int) -> list[str]:
        """What an event that this node publishes now should be linked to."""
        if self.order == "total":
            return [] if self._last is None else [self._last.cid]
        if self.order == "causal":
            got = self._delivered.get(node, [])
            covered = {parent for event in got for parent in event.parents}
            return [event.cid for event in got if event.cid not in covered]
        return []

    def tell_published(
        self,
        event: Event,
        *,
        position: int | None = None,
        injection: str = "",
        request: str | None = None,
        said_by: int | None = None,
        merge: bool = False,
    ) -> None:
        """Say that an event is out, for the first time or again."""
        total = self.order == "total"
        self.say(
            event.publisher if said_by is None else said_by,
            "published",
            topic=self.topic,
            event=event.cid,
            version=self.topic,
            publisher=self.names[event.publisher],
            author=self.names[event.publisher],
            epoch=event.epoch,
            number=event.number,
            parents=list(event.parents),
            position={"term": 0, "number": position or event.number} if total else None,
            request_id=sha256((request or event.cid).encode()).hexdigest(),
            injection=injection,
            merge=merge,
        )

    def inject(self, node: int, injection: str) -> None:
        """A caller asks for something to be published."""
        self.say(node, "injected", topic=self.topic, injection=injection, author=self.names[node])

    def acknowledge(self, node: int, event: Event, level: str = "replicated") -> None:
        """A caller was promised that an event is kept."""
        self.say(
            node,
            "acknowledged",
            topic=self.topic,
            event=event.cid,
            injection=None,
            level=level,
            replicas=3 if level == "replicated" else 0,
        )

    def deliver(self, node: int, *events: Event, redelivery: bool = False) -> None:
        """Deliver events to a node, in this sequence."""
        for event in events:
            got = self._delivered.setdefault(node, [])
            got.append(event)
            self.say(
                node,
                "delivered",
                topic=self.topic,
                event=event.cid,
                publisher=self.names[event.publisher],
                epoch=event.epoch,
                number=event.number,
                index=len(got),
                hops=1,
                redelivery=redelivery,
            )

    def flush(
        self, *events: Event, by: Iterable[int] = (0,), retention_count: int | None = None
    ) -> None:
        """Let nodes take over a version that forgets everything up to some events, if any."""
        for node in by:
            self.say(
                node,
                "topic_version",
                topic=self.topic,
                version=cid("version", self.tag),
                number=1,
                allowed=None,
                retention_age_s=None,
                retention_count=retention_count,
                retention_bytes=None,
                flushed=self._frontier(events),
            )

    def retire(self, node: int, event: Event) -> None:
        """Let a node off what it lacks up to an event."""
        self.say(
            node,
            "retired",
            topic=self.topic,
            publisher=self.names[event.publisher],
            epoch=event.epoch,
            number=event.number,
        )


def tell(
    stories: Iterable[Story], run_id: str, *, fillers: int = 0, said_last: Mapping[int, str] = {}
) -> list[Line]:
    """Whole traces of a run in which these stories happen one after the other.

    A node of the same name in two stories is one node. Each line may be followed by `fillers`
    lines that say nothing to any promise.
    """
    nodes: dict[str, list[Line]] = {}
    for story in stories:
        for node, said in story.said.items():
            nodes.setdefault(story.names[node], []).extend(said)
    lines: list[Line] = []
    for at, (name, said) in enumerate(nodes.items()):
        trace = Trace(run_id, name, clock_ns=at * 1_000_000_000)
        trace.say({"kind": "node_started"})
        for record in said:
            trace.say(record)
            for _ in range(fillers):
                trace.fill()
        trace.say({"kind": "node_stopped", "reason": said_last.get(at, "the run ended")})
        lines += trace.lines
    return lines


class Trace:
    """The lines of one node, numbered as it says them."""

    def __init__(self, run_id: str, name: str, *, clock_ns: int = 0) -> None:
        self.run_id = run_id
        self.name = name
        self.incarnation = 1
        self.seq = 0
        self.clock_ns = START_NS + clock_ns
        self.lines: list[Line] = []

    def say(self, record: Mapping[str, Any]) -> None:
        """One more line; `node_started` a second time begins another life."""
        if record["kind"] == "node_started" and self.lines:
            self.incarnation += 1
            self.seq = 0
        self.seq += 1
        self.clock_ns += 1_000_000
        envelope = {
            "schema_version": SCHEMA_VERSION,
            "run_id": self.run_id,
            "node_id": self.name,
            "incarnation": self.incarnation,
            "seq": self.seq,
            "wall_ns": self.clock_ns,
            "mono_ns": self.clock_ns - START_NS,
        }
        self.lines.append({**envelope, **record})

    def fill(self) -> None:
        """A line that no promise is about."""
        used = {"cpu_s": 0.5, "rss_bytes": 1 << 20, "bytes_in": 1, "bytes_out": 1}
        self.say({"kind": "resources", **used})
