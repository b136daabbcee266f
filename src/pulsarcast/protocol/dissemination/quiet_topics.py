"""Quiet topics: one heartbeat of a pair of peers for all topics of theirs in which nothing happens.

A topic falls asleep once its heartbeats bring nothing new: it sends none any more. For all topics
in which two peers agree, one of them sends the other a few hashes now and then; where these differ,
the topics are compared one by one. And each sleeping topic in its turn has a heartbeat of its own,
which also goes to a member drawn at random. So what an idle node sends follows the peers that its
topics rely on, and not the number of topics (docs/spec/pulsarcast.md, Quiet topics).
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, Protocol

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.limits import GROUPS_BYTES_MAX, PART_DIGEST_BYTES
from pulsarcast.protocol.messages import CompareTopics

GROUP_MAX: Final = 64
"""Topics that one hash stands for: so many are compared one by one where a single one differs."""
TURN_S: Final = 6.0
"""The least time between heartbeats of two sleeping topics: it bounds what they send."""


class QuietTopic(Protocol):
    """Asked of the heartbeats of a topic."""

    topic: Cid

    def summary(self, peer: PeerId) -> bytes:
        """What the node and a peer that agree would both say of the topic."""

    def ask(self, peer: PeerId) -> None:
        """Ask a peer what it holds."""

    def beat(self) -> None:
        """A heartbeat is due."""


class _Pair:
    """The topics in which the node and one peer agree."""

    __slots__ = ("asked", "compared_s", "timer", "topics")

    def __init__(self, now: float) -> None:
        self.topics: dict[Cid, QuietTopic] = {}
        self.compared_s = now
        self.asked = False
        """Whether the peer has yet to answer."""
        self.timer: int | None = None

    def groups(self) -> int:
        """Into how many groups the topics are split: a power of two."""
        full = -(-len(self.topics) // GROUP_MAX)
        return min(1 << max(full - 1, 0).bit_length(), GROUPS_BYTES_MAX // PART_DIGEST_BYTES)


class QuietTopics:
    """The topics of one node in which nothing happens."""

    def __init__(self, context: Context) -> None:
        self._turn = context.turn
        self._interval_s = context.parameters.status_interval_s_max
        self._counts = context.counts
        self._pairs: dict[PeerId, _Pair] = {}
        self._agreeing: dict[Cid, tuple[PeerId, ...]] = {}
        """With whom the node agrees in a topic."""
        self.awake: dict[Cid, None] = {}
        """The topics that have heartbeats of their own."""
        self._asleep: dict[Cid, QuietTopic] = {}
        """The one whose turn is next comes first."""
        self._turns: int | None = None

    # Agreeing.

    def agree(self, peer: PeerId, topic: QuietTopic) -> None:
        """The node and a peer hold the same."""
        pair = self._pairs.get(peer)
        if pair is None:
            pair = self._pairs[peer] = _Pair(self._turn.now)
            self._wait(peer, pair)
        pair.topics[topic.topic] = topic
        agreeing = self._agreeing.get(topic.topic, ())
        if peer not in agreeing:
            self._agreeing[topic.topic] = (*agreeing, peer)

    def disagree(self, peer: PeerId, topic: Cid) -> None:
        """They do not, or one of the two does not count on the other."""
        pair = self._pairs.get(peer)
        if pair is not None and pair.topics.pop(topic, None) is not None:
            self._no_longer(peer, topic)

    def _no_longer(self, peer: PeerId, topic: Cid) -> None:
        self._agreeing[topic] = tuple(each for each in self._agreeing[topic] if each != peer)

    def changed(self, topic: Cid) -> None:
        """The node holds more than those that it agreed with."""
        for peer in self._agreeing.pop(topic, ()):
            del self._pairs[peer].topics[topic]

    def agrees(self, peer: PeerId, topic: Cid) -> bool:
        """Whether the node and a peer hold the same, as far as they know."""
        return peer in self._agreeing.get(topic, ())

    def heard_s(self, peer: PeerId, topic: Cid) -> float:
        """When a peer last said that it agrees."""
        return self._pairs[peer].compared_s if self.agrees(peer, topic) else 0.0

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        pair = self._pairs.pop(peer, None)
        if pair is not None:
            self._turn.cancel(pair.timer)
            for topic in pair.topics:
                self._no_longer(peer, topic)

    def watched(self) -> Iterable[PeerId]:
        """The peers that sleeping topics rely on, or that rely on the node."""
        return [peer for peer, pair in self._pairs.items() if pair.topics or pair.asked]

    def footprint(self) -> dict[str, int]:
        """How much is in memory."""
        agreed = sum(len(pair.topics) for pair in self._pairs.values())
        return {"pairs": len(self._pairs), "agreed": agreed, "asleep": len(self._asleep)}

    # Comparing.

    def _wait(self, peer: PeerId, pair: _Pair) -> None:
        delay_s = self._turn.jitter(self._interval_s)
        pair.timer = self._turn.after(delay_s, lambda: self._beat(peer, pair))

    def _beat(self, peer: PeerId, pair: _Pair) -> None:
        if not pair.topics:
            del self._pairs[peer]
            return
        self._wait(peer, pair)
        is_due = self._turn.now - pair.compared_s > self._interval_s / 2
        if is_due and any(topic in self._asleep for topic in pair.topics):
            pair.asked = True
            hashes = self._hashes(peer, pair, pair.groups())
            self._turn.send(peer, CompareTopics(hashes, answer=True))

    def receive(self, sender: PeerId, message: CompareTopics) -> None:
        """A peer compares the topics in which it takes itself to agree with the node."""
        pair = self._pairs.get(sender)
        if not message.answer and (pair is None or not pair.asked):
            return
        pair = _Pair(self._turn.now) if pair is None else pair
        groups = len(message.hashes) // PART_DIGEST_BYTES
        ours = self._hashes(sender, pair, groups)
        if message.answer:
            self._turn.send(sender, CompareTopics(ours, answer=False))
        else:
            pair.asked = False
        pair.compared_s = self._turn.now
        if ours == message.hashes:
            return
        self._counts["quiet_difference"] += 1
        for cid, topic in list(pair.topics.items()):
            at = PART_DIGEST_BYTES * _group_of(cid, groups)
            if ours[at : at + PART_DIGEST_BYTES] != message.hashes[at : at + PART_DIGEST_BYTES]:
                self.disagree(sender, cid)
                topic.ask(sender)

    def _hashes(self, peer: PeerId, pair: _Pair, groups: int) -> bytes:
        hashes = [blake2b(digest_size=PART_DIGEST_BYTES) for _ in range(groups)]
        for cid in sorted(pair.topics):
            said = blake2b(cid + pair.topics[cid].summary(peer), digest_size=PART_DIGEST_BYTES)
            hashes[_group_of(cid, groups)].update(said.digest())
        return b"".join(each.digest() for each in hashes)

    # Sleeping.

    def is_asleep(self, topic: Cid) -> bool:
        """Whether a topic has no heartbeats of its own but in its turn."""
        return topic in self._asleep

    def sleep(self, topic: QuietTopic) -> None:
        """A topic's heartbeats brought nothing new for a while."""
        self._asleep[topic.topic] = topic
        self.awake.pop(topic.topic, None)
        if self._turns is None:
            self._next_turn()

    def wake(self, topic: Cid) -> None:
        """A topic has heartbeats of its own."""
        self._asleep.pop(topic, None)
        self.awake[topic] = None

    def end(self, topic: Cid) -> None:
        """The node has left a topic."""
        self.changed(topic)
        self._asleep.pop(topic, None)
        self.awake.pop(topic, None)

    def _next_turn(self) -> None:
        delay_s = max(TURN_S, self._interval_s / len(self._asleep))
        self._turns = self._turn.after(self._turn.jitter(delay_s), self._take_turn)

    def _take_turn(self) -> None:
        self._turns = None
        if self._asleep:
            cid = next(iter(self._asleep))
            topic = self._asleep[cid] = self._asleep.pop(cid)
            self._next_turn()
            topic.beat()


def _group_of(topic: Cid, groups: int) -> int:
    """A CID ends in a hash."""
    return int.from_bytes(topic[-2:], "big") % groups
