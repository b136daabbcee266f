"""The state that the parts of one sequencer share: its term, its vote and its log.

Figure 2 of Raft lists most of it. A part gets this state and the parts below it that it calls.
"""

import enum
from typing import Final, NamedTuple

from pulsarcast.model.ids import PEER_ID_BYTES, Cid, PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.limits import STORE_BYTES
from pulsarcast.protocol.sequencing.configs import Member
from pulsarcast.protocol.sequencing.log import Entry, EntryKind, Log
from pulsarcast.protocol.sequencing.owner import NamedSequencers, OrderedEvents

VOTE: Final = "vote"
STORE: Final = "store"


class PersistentState(NamedTuple):
    """The persistent state of a sequencer, without its log."""

    store: bytes
    term: int = 0
    voted_for: PeerId | None = None


def read_persistent_state(store: bytes | None, vote: bytes | None) -> PersistentState | None:
    """The state from its rows on the disk; None if the disk has no store of the topic."""
    if store is None:
        return None
    if vote is None:
        return PersistentState(store)
    voted_for = vote[8 : 8 + PEER_ID_BYTES]
    return PersistentState(
        store, int.from_bytes(vote[:8], "big"), PeerId(voted_for) if voted_for else None
    )


class Role(enum.Enum):
    """Follower, candidate or leader (Raft, 5.1)."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class SequencerState:
    """The state of one sequencer of one topic."""

    def __init__(
        self,
        context: Context,
        topic: Cid,
        versions: NamedSequencers,
        events: OrderedEvents,
        *,
        saved: PersistentState | None = None,
        log: Log | None = None,
    ) -> None:
        self.turn = turn = context.turn
        self.parameters = context.parameters
        self.counts = context.counts
        self.topic = topic
        self.versions = versions
        self.events = events
        self.founders = versions.named_by(None) or ()
        self.log = Log() if log is None else log
        self.is_new = saved is None
        """Whether the id of the store is not on the disk yet."""
        self.store = turn.rng.randbytes(STORE_BYTES) if saved is None else saved.store
        self.term = 0 if saved is None else saved.term
        self.voted_for = None if saved is None else saved.voted_for
        self.role = Role.FOLLOWER
        self.leader: PeerId | None = None
        self.is_stopped = False
        self.committed = self.log.snapshot.index
        self.settled = self.log.snapshot.position
        """The position up to which most members have every event in their histories."""
        self.emitted = 0
        """The position up to which events have left this sequencer, or came from others."""
        self._requests: dict[bytes, int] = {}
        """Requests that are in the log, and the positions of their events."""
        self._requested: dict[int, bytes] = {}
        """The same by position."""
        for _, entry in self.log:
            self.note(entry)

    @property
    def leads(self) -> bool:
        """Whether this sequencer is the leader."""
        return self.role is Role.LEADER

    @property
    def has_vote(self) -> bool:
        """Whether this sequencer votes, with its store; before the founding every founder does."""
        config = self.log.config()
        if not config.members:
            return self.turn.me in self.founders
        return config.has(Member(self.turn.me, self.store))

    def participants(self) -> tuple[PeerId, ...]:
        """The peers that messages go to: those that vote, and those that are to vote."""
        peers = self.log.config().peers or self.versions.named_since(None)
        wanted = self.versions.named_by(self.versions.newest()) or ()
        return tuple(dict.fromkeys((*peers, *wanted)))

    # Requests in the log.

    def position_of(self, request_id: bytes) -> int | None:
        """The position of the event that answers a request, if it is in the log."""
        return self._requests.get(request_id)

    def note(self, entry: Entry) -> None:
        """An entry is in the log."""
        if entry.kind is EntryKind.EVENT:
            request_id = self.events.request_of(entry.body)
            self._requests[request_id] = entry.position
            self._requested[entry.position] = request_id

    def forget(self, entry: Entry) -> None:
        """An entry is not in the log any more."""
        if entry.kind is EntryKind.EVENT:
            self._requests.pop(self._requested.pop(entry.position, b""), None)

    def forget_requests(self) -> None:
        """The log begins at a new snapshot."""
        self._requests.clear()
        self._requested.clear()
