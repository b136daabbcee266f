"""One iterative lookup: chooses the next peers to ask, ever closer to a key (Kademlia, 2.3).

It decides which peers to ask and when to end; `lookups` sends the questions. It asks only peers
among the `count` closest that were named, `parallel` at a time, until the closest have answered. If
the routing table already holds all peers near the key, one round of `count` questions is all.
"""

import enum
from bisect import insort
from collections.abc import Callable, Iterable

from pulsarcast.model.ids import PeerId, peer_key
from pulsarcast.model.keys import Key
from pulsarcast.protocol.dht.calls import Question
from pulsarcast.protocol.messages import Contact, DhtMessage

ASKED_MAX = 64
"""Bounds the questions per lookup: hostile peers could invent ever closer peers."""
HEARD_MAX = 64
"""Bounds the candidates per lookup; the farthest are left out."""


class _State(enum.IntEnum):
    """The state of a peer in a lookup."""

    HEARD = 0
    ASKED = 1
    ANSWERED = 2
    FAILED = 3


class Lookup:
    """The state of one lookup."""

    __slots__ = (
        "_asked_count",
        "_candidates",
        "_count",
        "_flying",
        "_me",
        "_states",
        "finished",
        "judge",
        "key",
        "parallel",
        "question",
        "then",
        "thorough",
    )

    def __init__(
        self,
        me: PeerId,
        key: Key,
        question: Question,
        then: "Callable[[Lookup], None]",
        *,
        judge: Callable[[Contact, DhtMessage], bool] | None = None,
        count: int,
        thorough: bool = False,
    ) -> None:
        self.key = key
        self.question = question
        self.then = then
        self.judge = judge
        """Reads each answer; True ends the lookup."""
        self.thorough = thorough
        """Whether to ask even peers that failed lately, if another peer names them."""
        self.finished = False
        self.parallel = 1
        """How many peers are asked at a time."""
        self._me = me
        self._count = count
        self._flying = 0
        self._asked_count = 0
        self._states: dict[PeerId, _State] = {}
        self._candidates: list[tuple[int, Contact]] = []

    def heard_of(self, contacts: Iterable[Contact]) -> None:
        """Take in peers that another peer named."""
        states, candidates = self._states, self._candidates
        for contact in contacts:
            peer = contact.peer
            if peer in states or peer == self._me:
                continue
            entry = (peer_key(peer) ^ self.key, contact)
            if len(candidates) >= HEARD_MAX:
                if entry >= candidates[-1]:
                    continue
                _, farthest = candidates.pop()
                if states[farthest.peer] is _State.HEARD:
                    del states[farthest.peer]
            states[peer] = _State.HEARD
            insort(candidates, entry)

    def to_ask(self, parallel: int) -> list[Contact]:
        """Peers to ask now, so that `parallel` questions are under way; they count as asked."""
        room = min(parallel - self._flying, ASKED_MAX - self._asked_count)
        if room <= 0:
            return []
        states, heard = self._states, _State.HEARD
        near = self._candidates[: self._count]
        asking = [contact for _, contact in near if states[contact.peer] is heard][:room]
        for contact in asking:
            states[contact.peer] = _State.ASKED
        self._flying += len(asking)
        self._asked_count += len(asking)
        return asking

    def answered(self, peer: PeerId) -> None:
        """A peer has answered."""
        self._flying -= 1
        self._states[peer] = _State.ANSWERED

    def failed(self, contact: Contact) -> None:
        """A peer has not answered, or its answer was not true."""
        self._flying -= 1
        self._states[contact.peer] = _State.FAILED
        entry = (peer_key(contact.peer) ^ self.key, contact)
        if entry in self._candidates:
            self._candidates.remove(entry)

    def is_done(self) -> bool:
        """Whether the closest peers have answered, or no peer is left to ask."""
        if self._asked_count >= ASKED_MAX and not self._flying:
            return True
        return all(
            self._states[contact.peer] is _State.ANSWERED
            for _, contact in self._candidates[: self._count]
        )

    def closest(self, count: int) -> list[Contact]:
        """Peers that answered, closest first."""
        found = []
        for _, contact in self._candidates:
            if self._states[contact.peer] is _State.ANSWERED:
                found.append(contact)
                if len(found) == count:
                    break
        return found

    def candidates(self, count: int) -> list[Contact]:
        """Peers that answered and peers that were only named, closest first."""
        return [contact for _, contact in self._candidates[:count]]
