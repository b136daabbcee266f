"""Lanes: what waits for a link, in the order in which it may leave (docs/spec/wire.md, Parts).

Control goes ahead of all payload and never comes here. Payload waits in a lane for each topic, in
its order. The lanes take turns, each with about as many bytes as the others: a part of a large
frame, or small frames of that size together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

from pulsarcast.protocol.limits import FRAME_BYTES_MAX
from pulsarcast.protocol.messages import (
    Alive,
    CompareTopics,
    Credit,
    EventMessage,
    FetchRange,
    FindBlock,
    FindPeers,
    Message,
    Peers,
    RequestAnswered,
    Status,
    StoreBlocks,
    Stored,
    topic_of,
)
from pulsarcast.protocol.sequencing.messages import Append, Appended, RequestVote, Vote
from pulsarcast.wire.codec import number_of
from pulsarcast.wire.framing import kind_of_framed
from pulsarcast.wire.parts import NUMBERS, PART_BYTES, Cut

QUEUE_BYTES_MAX: Final = 24 * 1024 * 1024
"""What may wait for a peer; beyond, it is dropped and recovers by history. What the core sends
without looking at `FULL_BYTES` has room: answers to few requests, and replicas."""
FULL_BYTES: Final = 8 * 1024 * 1024
"""Where this much waits, the core sends no more events: eight windows, 7 s at 10 Mbit/s."""
FREE_BYTES: Final = 1024 * 1024
"""Where no more than this waits, it sends again: the largest event, so that no link idles."""
UNDER_WAY_BYTES_MAX: Final = FRAME_BYTES_MAX
"""What frames under way in parts come to, if more than one: the most that the peer holds."""

CONTROL: Final = frozenset[type[Message]](
    {
        Alive,
        Append,
        Appended,
        CompareTopics,
        Credit,
        FetchRange,
        FindBlock,
        FindPeers,
        Peers,
        RequestAnswered,
        RequestVote,
        Status,
        Stored,
        Vote,
    }
)
"""Messages that go ahead of payload: heartbeats, votes, credit, acknowledgements and questions.
What changes a place in an overlay keeps its order with the events, and so is not among them."""


PUSHED: Final = frozenset({number_of(EventMessage), number_of(StoreBlocks)})
"""The kinds of what the node sends of its own accord: events and replicas."""


def lane_of(message: Message) -> Hashable:
    """The topic in whose order a message leaves; replicas go behind the events that they are of."""
    if isinstance(message, StoreBlocks) and message.blocks:
        return topic_of(EventMessage(message.blocks[0], 0))
    return topic_of(message)


class _Lane:
    """The payload of one topic."""

    __slots__ = ("cut", "frames")

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.cut: Cut | None = None
        """The frame at the head, where parts of it have left."""


class Lanes:
    """The payload that waits for one link."""

    def __init__(self) -> None:
        self.queued_bytes = 0
        """What waits, without what has left of a frame in parts."""
        self.pushed_bytes = 0
        """What of it the peer did not ask for: credit bounds it, and its frames wait for other
        peers as well."""
        self._lanes: dict[Hashable, _Lane] = {}
        """In order of their turn."""
        self._under_way: dict[int, int] = {}
        """The sizes of the frames that are under way in parts, by their numbers."""

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def put(self, topic: Hashable, framed: bytes) -> None:
        """Add a frame, as `write_frames` writes it, to the lane of its topic."""
        lane = self._lanes.get(topic)
        if lane is None:
            lane = self._lanes[topic] = _Lane()
        lane.frames.append(framed)
        self._count(framed, len(framed))

    def take(self) -> bytes:
        """What is next, at most a part or so; there has to be something."""
        topic, lane = self._next()
        del self._lanes[topic]
        data = self._take_small(lane) if len(lane.frames[0]) <= PART_BYTES else self._cut(lane)
        if lane.frames:
            self._lanes[topic] = lane
        return data

    def _next(self) -> tuple[Hashable, _Lane]:
        """The first lane that may go on; a large frame begins where the peer has room for it.

        A frame that finds no room begins before any behind it.
        """
        under_way = sum(self._under_way.values())
        has_room = True
        for topic, lane in self._lanes.items():
            size = len(lane.frames[0])
            if lane.cut is not None or size <= PART_BYTES:
                return topic, lane
            has_room = has_room and (not under_way or under_way + size <= UNDER_WAY_BYTES_MAX)
            if has_room:
                return topic, lane
        raise AssertionError("a frame that is under way waits in a lane")

    def clear(self) -> None:
        """Drop all that waits."""
        self._lanes.clear()
        self._under_way.clear()
        self.queued_bytes = self.pushed_bytes = 0

    def _count(self, framed: bytes, size: int) -> None:
        """So much more of a frame waits."""
        self.queued_bytes += size
        if kind_of_framed(framed) in PUSHED:
            self.pushed_bytes += size

    def _take_small(self, lane: _Lane) -> bytes:
        frames = [lane.frames.popleft()]
        size = len(frames[0])
        while lane.frames and size + len(lane.frames[0]) <= PART_BYTES:
            size += len(lane.frames[0])
            frames.append(lane.frames.popleft())
        for framed in frames:
            self._count(framed, -len(framed))
        return b"".join(frames)

    def _cut(self, lane: _Lane) -> bytes:
        cut = lane.cut
        before = len(lane.frames[0]) if cut is None else cut.left_bytes
        if cut is None:
            number = next(each for each in range(NUMBERS) if each not in self._under_way)
            self._under_way[number] = before
            cut = lane.cut = Cut(lane.frames[0], number)
        part = cut.next_part()
        self._count(lane.frames[0], cut.left_bytes - before)
        if not cut.left_bytes:
            lane.cut = None
            lane.frames.popleft()
            del self._under_way[cut.number]
        return part
