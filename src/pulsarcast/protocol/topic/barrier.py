"""The causal barrier: the events that the node's next event follows (VCube-PS, 3.2.1).

It consists of the **heads**: events delivered here that no other event delivered here follows. A
numbering has one head at most, since its later events follow its earlier ones. Each head is a row
on the disk, written with the event that made it one. So a node that was killed links, after its
restart, to exactly the events of its log.

An event has room for a limited number of parents. If there are more heads, **merges** come first:
events without a payload that only join heads, so that no head is ever dropped.
"""

from collections.abc import Iterator
from typing import NamedTuple

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import CID_BYTES, PEER_ID_BYTES, Cid, PeerId
from pulsarcast.model.topics import Mark
from pulsarcast.protocol.store import DropState, PutState, StateRow, Write
from pulsarcast.protocol.topic.frontier import Source

TABLE = "head"


class Links(NamedTuple):
    """An event's parents: content ids in ascending order, and their marks."""

    parents: tuple[Cid, ...] = ()
    marks: tuple[Mark, ...] = ()


NO_LINKS = Links()


class CausalBarrier:
    """The heads of one topic."""

    __slots__ = ("_heads", "topic")

    def __init__(self, topic: Cid) -> None:
        self.topic = topic
        self._heads: dict[Source, tuple[int, Cid]] = {}

    def __len__(self) -> int:
        return len(self._heads)

    def links(self, limit: int, own: Source | None = None) -> Links:
        """All heads, or as many as fit: the node's own first, then the oldest."""
        first = sorted(self._heads.items(), key=lambda head: head[0] != own)[:limit]
        heads = sorted((cid, Mark(*source, number)) for source, (number, cid) in first)
        return Links(tuple(cid for cid, _ in heads), tuple(mark for _, mark in heads))

    def take(self, event: EventDescriptor) -> Iterator[Write]:
        """An event is in the log: it is a head now, and its parents are heads no longer.

        The node's own event, and later ones, may be heads since the node published them.
        """
        for publisher, epoch, number in event.marks:
            head = self._heads.get((publisher, epoch))
            if head is not None and head[0] <= number:
                yield from self._drop((publisher, epoch))
        epoch, number = event.sequence
        newest = self._heads.get((event.publisher, epoch))
        if newest is None or newest[0] < number:
            yield from self.put(Mark(event.publisher, epoch, number), event.cid)

    def put(self, mark: Mark, cid: Cid) -> Iterator[Write]:
        """Make an event a head."""
        source = (mark.publisher, mark.epoch)
        self._heads.pop(source, None)
        self._heads[source] = (mark.number, cid)
        value = mark.number.to_bytes(8, "big") + cid
        yield PutState(StateRow(TABLE, self._key(source), value))

    def forget(self) -> list[Write]:
        """Drop all heads: the topic is no longer followed."""
        return [write for source in list(self._heads) for write in self._drop(source)]

    def _drop(self, source: Source) -> Iterator[Write]:
        del self._heads[source]
        yield DropState(TABLE, self._key(source))

    def _key(self, source: Source) -> bytes:
        return self.topic + source[0] + source[1].to_bytes(8, "big")

    def restore(self, key: bytes, value: bytes) -> None:
        """Remember a head from the disk."""
        publisher = PeerId(key[CID_BYTES : CID_BYTES + PEER_ID_BYTES])
        epoch = int.from_bytes(key[CID_BYTES + PEER_ID_BYTES :], "big")
        self._heads[publisher, epoch] = (int.from_bytes(value[:8], "big"), Cid(value[8:]))


def topic_of_head(key: bytes) -> Cid:
    """The topic of a row of the table of heads."""
    return Cid(key[:CID_BYTES])
