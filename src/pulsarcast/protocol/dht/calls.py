"""Calls: sends questions to peers, and waits for each answer until its deadline.

All calls have one timeout, so the order of questions is the order of deadlines: a dict that
remembers insertion and a single timer are enough.
"""

from collections.abc import Callable

from msgspec import structs

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.routing import RoutingTable
from pulsarcast.protocol.effects import Know
from pulsarcast.protocol.messages import (
    BlockFound,
    CompareKeys,
    Contact,
    DhtMessage,
    FindBlock,
    FindListings,
    FindPeers,
    FindPointer,
    KeysDiffer,
    ListingsFound,
    Peers,
    PointerFound,
    StoreBlocks,
    Stored,
    StoreListings,
    StorePointer,
    WantBlocks,
)

TIMER_GRAIN_S = 0.001
"""A deadline this near counts as reached: no timer is set for less."""

Answered = Callable[[DhtMessage | None], None]
Question = (
    FindPeers
    | FindBlock
    | FindPointer
    | FindListings
    | StoreBlocks
    | StorePointer
    | StoreListings
    | CompareKeys
    | WantBlocks
)
"""It gets its number when it is sent."""
ANSWERS: dict[type[Question], type[DhtMessage]] = {
    FindPeers: Peers,
    FindBlock: BlockFound,
    FindPointer: PointerFound,
    FindListings: ListingsFound,
    StoreBlocks: Stored,
    StorePointer: Stored,
    StoreListings: Stored,
    CompareKeys: KeysDiffer,
    WantBlocks: StoreBlocks,
}


PATIENCE_BYTES = 128 * 1024
"""Blocks of this size may take a timeout more: they share a line of a few Mbit/s with events."""
PATIENCE_MAX = 6


class _Call:
    """One question that waits."""

    __slots__ = ("contact", "deadline_s", "expected", "patience", "then")

    def __init__(
        self,
        contact: Contact,
        expected: type[DhtMessage],
        deadline_s: float,
        patience: int,
        then: Answered,
    ) -> None:
        self.contact = contact
        self.expected = expected
        self.deadline_s = deadline_s
        self.patience = patience
        """How many more timeouts it may take."""
        self.then = then


class Calls:
    """The questions of one node that wait for an answer."""

    __slots__ = ("_failed", "_request", "_table", "_timeout_s", "_timer", "_turn", "_waiting")

    def __init__(
        self, context: Context, table: RoutingTable, failed: Callable[[Contact], None]
    ) -> None:
        self._turn = context.turn
        self._table = table
        self._timeout_s = context.parameters.rpc_timeout_s
        self._failed = failed
        self._request = 2 * context.turn.rng.getrandbits(16)
        self._timer: int | None = None
        self._waiting: dict[int, _Call] = {}

    def __len__(self) -> int:
        """How many questions wait."""
        return len(self._waiting)

    def ask(self, contact: Contact, question: Question, then: Answered) -> None:
        """Ask, and give the answer to `then`, or None if none came.

        Questions that are answered by a question (`StoreBlocks`) have odd numbers. So the answer
        cannot be taken for a question of the same number that the other peer asks.
        """
        self._request += 2
        expected = ANSWERS[type(question)]
        request = self._request + 1 if expected is StoreBlocks else self._request
        deadline_s = self._turn.now + self._timeout_s
        patience = _patience_of(question)
        self._waiting[request] = _Call(contact, expected, deadline_s, patience, then)
        self._arm()
        if contact.addresses and contact.peer not in self._table:
            self._turn.effects.append(Know(contact))
        self._turn.send(contact.peer, structs.replace(question, request=request))

    def answer(self, sender: PeerId, request: int, message: DhtMessage) -> bool:
        """Take an answer; False if no call waits for it: too late, or never asked."""
        call = self._waiting.get(request)
        if call is None or call.contact.peer != sender or not isinstance(message, call.expected):
            return False
        del self._waiting[request]
        call.then(message)
        return True

    def lost(self, peer: PeerId) -> None:
        """A peer is gone: it will not answer."""
        requests = [r for r, call in self._waiting.items() if call.contact.peer == peer]
        for request in requests:
            call = self._waiting.pop(request, None)
            if call is not None:
                call.then(None)

    def _expire(self) -> None:
        self._timer = None
        now = self._turn.now
        late: list[int] = []
        for request, call in self._waiting.items():
            if call.deadline_s > now + TIMER_GRAIN_S:
                break
            late.append(request)
        for request in late:
            expired = self._waiting.pop(request, None)
            if expired is not None and expired.patience:
                expired.patience -= 1
                expired.deadline_s = now + self._timeout_s
                self._waiting[request] = expired
            elif expired is not None:
                self._failed(expired.contact)
                expired.then(None)
        self._arm()

    def _arm(self) -> None:
        if self._timer is None and self._waiting:
            first = next(iter(self._waiting.values()))
            delay_s = max(0.0, first.deadline_s - self._turn.now)
            self._timer = self._turn.after(delay_s, self._expire)


def _patience_of(question: Question) -> int:
    """How many timeouts more a question may take for its bytes, or for those of its answer."""
    if isinstance(question, StoreBlocks):
        return min(sum(map(len, question.blocks)) // PATIENCE_BYTES, PATIENCE_MAX)
    return 1 if isinstance(question, WantBlocks) else 0
