"""Pacing: publishes a topic's events no faster than its members take them.

docs/spec/pulsarcast.md, Pressure. The publisher follows the median of the members that get its
events from it: half of them may be slower, and recover from history. One that takes nothing at all
is followed for a while only. A publish beyond the pace is refused as busy, with a time to come
back; the library waits for that time.
"""

from pulsarcast.model.errors import Busy
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.topic.topic import Topic

HEARERS_MAX = 64
"""Bounds the members that are looked at: more than a member of a tree or a cube has."""
AFTER_S_MIN = 0.02
AFTER_S_MAX = 1.0
"""Bound the time after which a publisher comes back: a grant seldom takes longer."""
PLACING_AFTER_S = 0.1
"""Where replicas are behind: they take a round trip and a commit each."""


class Pacing:
    """Says whether a topic has room for one more event of the node."""

    def __init__(self, context: Context, dht: Kademlia) -> None:
        self._turn = context.turn
        self._stall_s = context.parameters.stall_s
        self._dht = dht

    def check(self, topic: Topic | None) -> None:
        """Raise Busy unless the node may publish now."""
        if self._dht.is_placing_much:
            raise Busy("the replicas do not keep up", after_s=PLACING_AFTER_S)
        after_s = 0.0 if topic is None else self._wait_s(topic)
        if after_s:
            raise Busy("the topic's members do not keep up", after_s=after_s)

    def _wait_s(self, topic: Topic) -> float:
        """When to come back; 0: the median of the members takes more now."""
        now, full, links = self._turn.now, self._turn.full, topic.overlay.links
        ready, pauses_s = 0, []
        for peer in topic.overlay.first_to_hear(HEARERS_MAX):
            link = links.get(peer)
            if link is None or link.silent:
                continue
            # What is on its way to the node's own disk leaves soon.
            is_dry = link.credit <= topic.log.unsynced_bytes
            backlog = full.get(peer)
            if not is_dry and backlog is None:
                ready += 1
                continue
            since_s = now
            if link.credit <= 0:
                since_s = link.dry_s
            if backlog is not None:
                since_s = min(since_s, backlog.since_s)
            if now - since_s < self._stall_s:
                pauses_s.append(link.pause_s)
        if ready >= len(pauses_s):
            return 0.0
        pauses_s.sort()
        return min(max(pauses_s[len(pauses_s) // 2] / 2, AFTER_S_MIN), AFTER_S_MAX)
