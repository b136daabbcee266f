"""Work: the parts of a topic that have something to do only while something happens in it.

A node may be a member of thousands of topics in which nothing happens. Such a topic is its
versions, its frontier, its log and its place in the overlay. An event, a comparison or a call makes
the parts that are here, and they go again once all of them are idle (docs/decisions/0063).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.overlay import Conversation, Overlay
from pulsarcast.protocol.topic.arrivals import Arrivals
from pulsarcast.protocol.topic.comparing import Comparing
from pulsarcast.protocol.topic.equivocation import Equivocation, OwnEvents
from pulsarcast.protocol.topic.flow import FlowControl, FlowOwner
from pulsarcast.protocol.topic.flushing import Flushing
from pulsarcast.protocol.topic.handovers import Handovers
from pulsarcast.protocol.topic.keeping import Keeping, KeepingOwner
from pulsarcast.protocol.topic.lag import Lag
from pulsarcast.protocol.topic.recovery import Recovery, RecoveryOwner
from pulsarcast.protocol.topic.retirement import Retirement
from pulsarcast.protocol.topic.sharing import Sharing
from pulsarcast.protocol.topic.starting import StartGiver, StartLoader, StartLoaderOwner
from pulsarcast.protocol.topic.state import TopicState
from pulsarcast.protocol.topic.witnesses import Witnesses
from pulsarcast.protocol.turn import Turn

REST_S = 10.0
"""Interval at which topics without anything left to do are looked for: shorter, and a topic with an
event every few seconds would make its parts for each of them."""


class Working(Protocol):
    """A topic that has work."""

    @property
    def id(self) -> Cid: ...

    def freed(self, peer: PeerId) -> None:
        """The link to a peer has room again."""

    def rest(self) -> bool:
        """Drop the parts if all of them are idle; returns whether there are none."""


class AtWork:
    """The topics of one node that have work."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._topics: dict[Cid, Working] = {}
        self._timer: int | None = None

    def begin(self, topic: Working) -> None:
        """A topic has work from now on."""
        self._topics[topic.id] = topic
        if self._timer is None:
            self._timer = self._turn.after(REST_S, self._look)

    def __iter__(self) -> Iterator[Working]:
        return iter(list(self._topics.values()))

    def end(self, topic: Cid) -> None:
        """The node has left a topic."""
        self._topics.pop(topic, None)

    def _look(self) -> None:
        self._topics = {cid: topic for cid, topic in self._topics.items() if not topic.rest()}
        self._timer = self._turn.after(REST_S, self._look) if self._topics else None


class WorkOwner(FlowOwner, KeepingOwner, RecoveryOwner, StartLoaderOwner, Protocol):
    """Asked of the topic, for the parts that timers or the disk wake."""


class Work:
    """The parts that take events into one topic, compare its frontier and mend gaps."""

    __slots__ = (
        "_overlay",
        "_state",
        "arrivals",
        "comparing",
        "equivocation",
        "flow",
        "flushing",
        "giver",
        "handovers",
        "keeping",
        "lag",
        "loader",
        "recovery",
        "retirement",
        "sharing",
        "witnesses",
    )

    def __init__(
        self,
        state: TopicState,
        overlay: Overlay,
        heartbeat: Conversation,
        dht: Kademlia,
        owner: WorkOwner,
        own: OwnEvents,
        roots: Mapping[bytes, bytes],
        flushes: Iterable[Cid],
    ) -> None:
        context = state.context
        self._state = state
        self._overlay = overlay
        self.lag = Lag(context, overlay)
        self.sharing = context.part(Sharing)(state)
        self.giver = context.part(StartGiver)(state)
        self.loader = context.part(StartLoader)(state, overlay, owner, roots)
        self.flow = FlowControl(state, overlay, owner)
        self.equivocation = context.part(Equivocation)(state, overlay, own)
        self.handovers = Handovers(state)
        self.arrivals = context.part(Arrivals)(state, self.equivocation, self.handovers, dht.marks)
        self.keeping = Keeping(state, self.handovers, self.flow, heartbeat.timer, owner)
        self.retirement = Retirement(state, self.keeping)
        self.flushing = Flushing(state, dht.marks, self.retirement, flushes)
        self.witnesses = Witnesses(state, overlay, heartbeat, self.sharing)
        self.recovery = context.part(Recovery)(
            state, dht, overlay, self.retirement, self.witnesses, owner
        )
        self.comparing = Comparing(overlay, heartbeat, self.sharing)

    def stop(self) -> None:
        """The topic is left: ask for nothing more."""
        self.recovery.stop()
        self.retirement.stop()
        self.loader.stop()

    @property
    def is_idle(self) -> bool:
        """Whether parts that are made anew would do the same as these."""
        state = self._state
        if not state.started or state.log.unsynced or len(state.ordering):
            return False
        if any(link.behind for link in self._overlay.links.values()):
            return False
        return all(
            part.is_idle
            for part in (
                self.lag,
                self.sharing,
                self.giver,
                self.loader,
                self.flow,
                self.equivocation,
                self.arrivals,
                self.retirement,
                self.flushing,
                self.witnesses,
                self.recovery,
                self.comparing,
            )
        )
