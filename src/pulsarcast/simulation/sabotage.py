"""Sabotage: safeguards switched off from outside, to see that the checkers notice (decision 0009).

The core has no such flags. A node builds its parts from the classes that it is given: a sabotage
gives it subclasses that override public methods, or makes the world around it worse than it says.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from pulsarcast.model.errors import LocalError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.keys import Key
from pulsarcast.protocol.content.comparing import Comparing
from pulsarcast.protocol.content.messages import ContentCompared
from pulsarcast.protocol.content.place import Place
from pulsarcast.protocol.content.routing import Routing
from pulsarcast.protocol.content.upkeep import Upkeep
from pulsarcast.protocol.context import NO_PARTS, Parts
from pulsarcast.protocol.dht.reachability import Reachability
from pulsarcast.protocol.dissemination.cube import DisseminationCube
from pulsarcast.protocol.dissemination.cube_heartbeat import CubeHeartbeat
from pulsarcast.protocol.dissemination.tree import DisseminationTree
from pulsarcast.protocol.dissemination.tree_heartbeat import Heartbeat
from pulsarcast.protocol.publishing.outbox import Outbox
from pulsarcast.protocol.publishing.publisher import Publisher
from pulsarcast.protocol.sequencing.log import Entry
from pulsarcast.protocol.sequencing.raft_member import RaftMember
from pulsarcast.protocol.sequencing.sequencer import Sequencer
from pulsarcast.protocol.sequencing.syncing import Syncing
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.arrivals import Arrivals
from pulsarcast.protocol.topic.causality import CausalOrdering
from pulsarcast.protocol.topic.equivocation import Equivocation
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.recovery import Recovery
from pulsarcast.simulation.disk import DiskModel

VOTE_LATE_S = 1.0
"""How late a vote is written where its sync is switched off."""


class Sabotage(NamedTuple):
    """One safeguard less."""

    about: str
    parts: Parts = NO_PARTS
    disk: DiskModel | None = None


class _SeesEverythingAsNew(Equivocation):
    """Forgets what it had: every copy of an event is delivered and passed on."""

    def knows(self, event: EventDescriptor, certificate: bytes) -> bool:
        return False


class _NeverCompares(Recovery):
    """Takes no notice of what the neighbours hold."""

    def compare(self, sender: PeerId, marks: Iterable[MarkState], *, patience_s: float) -> None:
        pass


class _AttachesAnywhere(DisseminationTree):
    """Does not ask whether its new parent is below itself, nor mind when its parent says so.

    Were paths passed on that come round, they would grow until the wire refuses them, and the cycle
    would break at that: the bound is part of the check.
    """

    def is_cycle(self, path: tuple[PeerId, ...]) -> bool:
        return False

    def is_above(self, peer: PeerId) -> bool:
        return False

    def heard_path(
        self, sender: PeerId, path: tuple[PeerId, ...], *, private_root: bool = False
    ) -> None:
        pass


class _LeavesAtOnce(DisseminationTree):
    """Goes without handing its children over."""

    def leave(self, *, at_once: bool = False) -> None:
        for child in list(self.children):
            self.drop_child(child)
        super().leave(at_once=at_once)


class _HasNoLazyNeighbours(Heartbeat):
    """Trusts its parent alone; a node without lazy neighbours would ask peers above its parent."""

    def choose_lazy(self, silent_s: float = 0.0) -> None:
        pass

    def conversation(self) -> list[PeerId]:
        return [] if self.tree.parent is None else [self.tree.parent]

    def sources(self) -> list[PeerId]:
        return []


class _TalksToNobody(CubeHeartbeat):
    """Does not compare with the nearest members of a cube, nor with far ones."""

    def conversation(self) -> list[PeerId]:
        return []


class _NeverMends(DisseminationCube):
    """Does not see what a lost member's bucket has missed."""

    def mend(self, index: int) -> None:
        pass


class _SendsToTheDead(DisseminationCube):
    """Goes on counting on a cube's member that is gone."""

    def lost(self, peer: PeerId) -> None:
        self.search.walk.lost(peer)

    def fell_silent(self, peer: PeerId) -> None:
        pass


class _IgnoresBarriers(CausalOrdering):
    """Delivers each publisher's events in order, whatever they follow of others."""

    def waits_for(self, event: EventDescriptor) -> None:
        return None


class _DropsHeads(Publisher):
    """Where an event has no room for all heads, those that came first are forgotten."""

    def merge_heads(self, *_: Any) -> None:
        pass


class _AsksOnce(Outbox):
    """Sends a request once, whether an answer comes or not."""

    def ask_again(self, asked: Any) -> None:
        pass

    def resume(self, *_: Any) -> None:
        pass


class _WritesVotesLate(Syncing):
    """Tells a vote first and writes it a second later: a kill in between takes it back."""

    def sync_vote(self, then: Callable[[], None]) -> None:
        then()
        self.turn.after(VOTE_LATE_S, partial(super().sync_vote, lambda: None))


class _NeedsNoOthers(Sequencer):
    """As a leader, lets events go with no signature but its own."""

    def is_committed(self, index: int) -> bool:
        return True

    def is_proven(self, entry: Entry, signatures: dict[PeerId, bytes]) -> bool:
        return True


class _CertifiesAnything(RaftMember):
    """Makes a certificate out of no signatures."""

    def certificate(self, entry: Entry, signatures: dict[PeerId, bytes]) -> bytes:
        return b"anything"


class _BelievesAnySequencer(Arrivals):
    """Takes one sequencer's word for an event's place."""

    def prove(self, event: EventDescriptor, certificate: bytes) -> None:
        return None


class _JudgesAtOnce(Arrivals):
    """Does not wait until it knows where it starts."""

    def missing_start(self, event: EventDescriptor) -> None:
        return None


class _NeverHalts(Equivocation):
    """Goes on whatever comes."""

    def halt(self, event: EventDescriptor, held: Cid, certificate: bytes) -> None:
        pass


class _BelievesRouting(Comparing):
    """Asks members where to start, and then believes that routing brings everything."""

    def receive(self, sender: PeerId, message: ContentCompared) -> None:
        if not self.started:
            super().receive(sender, message)


class _HandsNothingOver(Upkeep):
    """Keeps what it has when a closer peer comes."""

    def hand_over(self, place: Place, peer: PeerId) -> None:
        pass


class _ServesAtOnce(Routing):
    """As a new home asks nobody what the place held before."""

    def farther(self, key: Key, sender: PeerId | None) -> None:
        return None


class _NothingRead(FollowedTopics):
    """Forgets what its filters found."""

    def barrier_outside(self, cid: Cid) -> None:
        return None


class _RanksByDistance(Reachability):
    """Lets the peer closest to the key act as root, whether or not others can dial it."""

    is_private = False

    def is_public(self, peer: PeerId) -> bool:
        return True


SAFEGUARDS: dict[str, Sabotage] = {
    "duplicate-suppression": Sabotage(
        "every copy of an event counts as new", {Equivocation: _SeesEverythingAsNew}
    ),
    "frontier-comparison": Sabotage("frontiers are not compared", {Recovery: _NeverCompares}),
    "path-check": Sabotage(
        "nobody minds attaching below itself", {DisseminationTree: _AttachesAnywhere}
    ),
    "outbox": Sabotage("requests are neither kept nor repeated", {Outbox: _AsksOnce}),
    "lazy-neighbours": Sabotage("nobody has lazy neighbours", {Heartbeat: _HasNoLazyNeighbours}),
    "cube-comparison": Sabotage(
        "members of a cube do not compare frontiers",
        {CubeHeartbeat: _TalksToNobody, DisseminationCube: _NeverMends},
    ),
    "cube-skip": Sabotage(
        "a cube's dead children are not skipped", {DisseminationCube: _SendsToTheDead}
    ),
    "hand-over": Sabotage("those who leave just leave", {DisseminationTree: _LeavesAtOnce}),
    "causal-barrier": Sabotage(
        "nobody waits for what an event follows", {CausalOrdering: _IgnoresBarriers}
    ),
    "merge-events": Sabotage("heads that do not fit are dropped", {Publisher: _DropsHeads}),
    "vote-sync": Sabotage("votes are told before they are synced", {Syncing: _WritesVotesLate}),
    "certificates": Sabotage(
        "one sequencer's own signature is enough",
        {
            Sequencer: _NeedsNoOthers,
            RaftMember: _CertifiesAnything,
            Arrivals: _BelievesAnySequencer,
            Equivocation: _NeverHalts,
        },
    ),
    "content-comparison": Sabotage(
        "content subscribers do not compare with members", {Comparing: _BelievesRouting}
    ),
    "content-barrier": Sabotage(
        "what content subscribers write follows nothing that they have read",
        {FollowedTopics: _NothingRead},
    ),
    "content-hand-over": Sabotage(
        "homes of a tree's nodes hand nothing over to closer peers",
        {Upkeep: _HandsNothingOver, Routing: _ServesAtOnce},
    ),
    "root-rank": Sabotage(
        "peers that cannot be dialled act as root like others", {Reachability: _RanksByDistance}
    ),
    "start-wait": Sabotage(
        "events are judged before their part of the start is loaded", {Arrivals: _JudgesAtOnce}
    ),
    "disk-sync": Sabotage("the disk says it has synced when it has not", disk=DiskModel(lies=True)),
}


def find(name: str | None) -> Sabotage:
    """The sabotage that takes this safeguard away; None takes nothing away."""
    if name is None:
        return Sabotage("nothing is switched off")
    if name not in SAFEGUARDS:
        raise LocalError(f"no safeguard {name!r}; there are: {', '.join(sorted(SAFEGUARDS))}")
    return SAFEGUARDS[name]
