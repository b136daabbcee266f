"""The state that the parts of one followed topic share: versions, frontier, orders and log.

A part of a topic gets this state, the parts that it calls, and at most one narrow protocol that
names what it asks of the topic (docs/spec/pulsarcast.md, State).
"""

from collections.abc import Mapping
from typing import NamedTuple

from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import DeliveryOrder
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.topic.barrier import CausalBarrier
from pulsarcast.protocol.topic.causality import CausalOrdering
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.halts import TwoCertificates
from pulsarcast.protocol.topic.log import TopicLog
from pulsarcast.protocol.topic.ordering import Ordering
from pulsarcast.protocol.topic.published_requests import PublishedRequests
from pulsarcast.protocol.topic.versions import NOTHING, Versions


class Resumed(NamedTuple):
    """A topic's state from the disk, after a restart."""

    frontier: Frontier | None
    """None: the node begins, and there is no state."""
    log_index: int
    cursor: int
    roots: Mapping[bytes, bytes] = NOTHING
    """The hash of the frontier that each missing part is of."""
    flushes: tuple[Cid, ...] = ()
    """The indexes of frontiers up to which the topic is being flushed."""


class TopicState:
    """The state of one followed topic."""

    __slots__ = (
        "barrier",
        "causal",
        "certificates",
        "context",
        "ended",
        "frontier",
        "halted",
        "id",
        "is_sequenced",
        "lacks_start",
        "log",
        "ordering",
        "ranges_asked",
        "requests",
        "started",
        "versions",
        "writing",
    )

    def __init__(
        self, context: Context, versions: Versions, log: TopicLog, frontier: Frontier | None = None
    ) -> None:
        self.context = context
        self.id: Cid = versions.first.cid
        self.versions = versions
        self.is_sequenced = versions.first.is_sequenced
        self.log = log
        self.writing = log.writing
        self.started = frontier is not None
        """Whether the start frontier is known, so that events beyond it are due."""
        self.ended = False
        """Whether the node is out of the overlay: nothing more may be written."""
        list_max = context.parameters.frontier_list
        self.frontier = Frontier(list_max=list_max) if frontier is None else frontier
        self.lacks_start = False
        """Whether a keeper, which wants no history, has yet to take its start from a neighbour."""
        self.ranges_asked = 0
        self.halted: TwoCertificates | None = None
        """Why the topic is halted, if it is."""
        self.requests = PublishedRequests(self.id)
        self.causal: CausalOrdering | None = None
        self.barrier: CausalBarrier | None = None
        """The events that the node's next event follows; only causal topics have these two."""
        self.certificates: dict[Cid, bytes] = {}
        """The certificates of events on their way into the log."""
        order, held_back_max = versions.current.delivery_order, context.parameters.held_back_max
        self.ordering = Ordering(order, self.frontier, held_back_max)
        if order is DeliveryOrder.CAUSAL:
            self.causal = context.part(CausalOrdering)(self.frontier, held_back_max)
            self.ordering = self.causal
            self.barrier = CausalBarrier(self.id)

    def next_request(self) -> int:
        """The number of another request for events: an answer to an earlier one has another."""
        self.ranges_asked += 1
        return self.ranges_asked
