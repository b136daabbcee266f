"""The lookups of one node: runs some, queues others, and fails the rest at once."""

from collections.abc import Callable, Sequence
from functools import partial

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.keys import Key
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.calls import Calls, Question
from pulsarcast.protocol.dht.lookup import Lookup
from pulsarcast.protocol.dht.routing import RoutingTable
from pulsarcast.protocol.messages import (
    BlockFound,
    Contact,
    DhtMessage,
    FindPeers,
    ListingsFound,
    Peers,
    PointerFound,
)

LOOKUPS_MAX = 64
"""Bounds the lookups that run at a time; further ones wait."""
WAITING_MAX = 8192
BEGUN_AT_ONCE = 16
"""Bounds the lookups that begin in one turn because others ended: with nobody to ask, thousands
that joins of strangers began would end one after another, and the node would do nothing else."""


class Lookups:
    """Sends the questions of lookups, and ends them."""

    __slots__ = (
        "_bucket_size",
        "_calls",
        "_draining",
        "_goes_on",
        "_parallel",
        "_running",
        "_table",
        "_turn",
        "_waiting",
    )

    def __init__(self, context: Context, table: RoutingTable, calls: Calls) -> None:
        self._turn = context.turn
        self._table = table
        self._calls = calls
        self._bucket_size = context.parameters.bucket_size
        self._parallel = context.parameters.lookup_parallel
        self._running = 0
        self._draining = False
        self._goes_on = False
        """Whether those that wait have a turn to come."""
        self._waiting: list[Lookup] = []

    def __len__(self) -> int:
        """How many lookups run or wait."""
        return self._running + len(self._waiting)

    def find_peers(
        self,
        key: Key,
        then: Callable[[Lookup], None],
        *,
        count: int,
        thorough: bool = False,
        also: Sequence[Contact] = (),
        parallel: int | None = None,
    ) -> None:
        """Find the `count` peers closest to a key, beginning `also` with peers not in the table."""
        # Twice as many, since some of the peers that are named will not answer.
        useful = 2 * count if 2 * count < self._bucket_size else 0
        question = FindPeers(0, key, useful)
        self.find(key, question, then, count=count, thorough=thorough, also=also, parallel=parallel)

    def find(
        self,
        key: Key,
        question: Question,
        then: Callable[[Lookup], None],
        *,
        count: int,
        judge: Callable[[Contact, DhtMessage], bool] | None = None,
        thorough: bool = False,
        also: Sequence[Contact] = (),
        parallel: int | None = None,
    ) -> None:
        """Look up a key with a question of some kind; `then` may be called at once."""
        lookup = Lookup(
            self._turn.me, key, question, then, judge=judge, count=count, thorough=thorough
        )
        lookup.parallel = parallel or self._parallel
        lookup.heard_of(also)
        if self._running < LOOKUPS_MAX:
            self._run(lookup)
        elif len(self._waiting) < WAITING_MAX:
            self._waiting.append(lookup)
        else:
            lookup.finished = True
            then(lookup)

    def _run(self, lookup: Lookup) -> None:
        self._running += 1
        lookup.heard_of(self._table.closest(lookup.key, self._bucket_size))
        self._advance(lookup)

    def _advance(self, lookup: Lookup) -> None:
        """Ask further, or end."""
        if lookup.finished:
            return
        for contact in lookup.to_ask(lookup.parallel):
            self._calls.ask(contact, lookup.question, partial(self._answered, lookup, contact))
        if lookup.is_done():
            self._finish(lookup)

    def _answered(self, lookup: Lookup, contact: Contact, answer: DhtMessage | None) -> None:
        if lookup.finished:
            return
        if not isinstance(answer, Peers | BlockFound | PointerFound | ListingsFound):
            lookup.failed(contact)
            self._advance(lookup)
            return
        ends = False
        if lookup.judge is not None:
            try:
                ends = lookup.judge(contact, answer)
            except RemoteError:
                lookup.failed(contact)
                self._advance(lookup)
                raise
        lookup.answered(contact.peer)
        if ends:
            self._finish(lookup)
            return
        named: Sequence[Contact] = answer.contacts[: self._bucket_size]
        if not lookup.thorough and self._table.shuns:
            now = self._turn.now
            named = [other for other in named if not self._table.is_shunned(other.peer, now)]
        lookup.heard_of(named)
        self._advance(lookup)

    def _finish(self, lookup: Lookup) -> None:
        lookup.finished = True
        self._running -= 1
        lookup.then(lookup)
        # A lookup that ends at once comes back here: only the outermost call takes the next.
        if not self._draining and not self._goes_on:
            self._run_waiting()

    def _run_waiting(self) -> None:
        """Begin some that wait; where those end at once, the next ones have a turn of their own."""
        self._draining = True
        try:
            for _ in range(BEGUN_AT_ONCE):
                if not self._waiting or self._running >= LOOKUPS_MAX:
                    break
                self._run(self._waiting.pop(0))
        finally:
            self._draining = False
        if self._waiting and self._running < LOOKUPS_MAX and not self._goes_on:
            self._goes_on = True
            self._turn.after(0.0, self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        self._run_waiting()
