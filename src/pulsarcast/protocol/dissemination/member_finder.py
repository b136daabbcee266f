"""Finds full members of a topic whose overlay the node is not in.

A content subscriber compares with them (docs/spec/content.md, Compare), and a walk reads their
stored events (docs/spec/pulsarcast.md, Walk).
"""

from collections.abc import Callable
from functools import partial

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.member_search import DeadEnd, MemberSearch, NobodyFound
from pulsarcast.protocol.messages import JoinAccepted, Role

LOOK_UP_EVERY = 3
"""One search in so many begins with a lookup: the closest peer that is known may be no help."""


class MemberFinder:
    """Finds members of one topic to compare with, or to read from."""

    fresh = False
    """Whether the search asks for a start: no, the node takes no place."""

    def __init__(self, topic: Cid, root: PeerId, context: Context, dht: Kademlia) -> None:
        self.search = MemberSearch(topic, root, Role.VISITOR, context, dht, self)
        self._turn = context.turn
        self._timeout_s = 2 * context.parameters.rpc_timeout_s
        self._timer: int | None = None
        self._tries = 0
        self._then: Callable[[list[PeerId]], None] | None = None

    def find(self, then: Callable[[list[PeerId]], None]) -> None:
        """Find some members; `then` gets an empty list if none is found in time."""
        self._then = then
        self._timer = self._turn.after(self._timeout_s, partial(self._end, []))
        self._tries += 1
        self.search.begin(look_up=self._tries % LOOK_UP_EVERY == 0, rank=self._tries)

    def accepted(self, sender: PeerId, message: JoinAccepted) -> None:
        """A member accepts, and names others."""
        if self.search.is_answer(sender, message.attempt):
            named = (contact.peer for contact in message.members)
            members = dict.fromkeys((sender, *named, *message.path))
            members.pop(self._turn.me, None)
            self._end(list(members))

    def search_failed(self, outcome: DeadEnd | NobodyFound) -> None:
        """The search found no member."""
        self._end([])

    def _end(self, members: list[PeerId]) -> None:
        self.search.end()
        self._turn.cancel(self._timer)
        assert self._then is not None, "a search has begun"
        self._then(members)
