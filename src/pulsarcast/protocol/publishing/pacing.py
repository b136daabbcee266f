"""Pacing: publishes a topic's events no faster than its members take them.

docs/spec/pulsarcast.md, Pressure. The publisher follows the median of the members that get its
events from it: half of them may be slower, and recover from history. One that takes nothing at all
is followed for a while only. A publish beyond the pace is refused as busy, with a time to come
back; the library waits for that time.
"""

from pulsarcast.model.errors import Busy
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.topic.topic import Topic

AFTER_S_MIN = 0.02
AFTER_S_MAX = 1.0
"""Bound the time after which a publisher comes back: a grant seldom takes longer."""
PLACING_AFTER_S = 0.1
"""Where replicas are behind: they take a round trip and a commit each."""


class Pacing:
    """Says whether a topic has room for one more event of the node."""

    def __init__(self, dht: Kademlia) -> None:
        self._dht = dht

    def check(self, topic: Topic | None) -> None:
        """Raise Busy unless the node may publish now."""
        if self._dht.is_placing_much:
            raise Busy("the replicas do not keep up", after_s=PLACING_AFTER_S)
        pauses_s = [] if topic is None else topic.work.flow.pauses_s()
        if pauses_s:
            after_s = min(max(pauses_s[len(pauses_s) // 2] / 2, AFTER_S_MIN), AFTER_S_MAX)
            raise Busy("the topic's members do not keep up", after_s=after_s)
