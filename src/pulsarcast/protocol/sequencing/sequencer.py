"""A sequencer: one Raft server of the group that gives a topic's events their order.

The algorithm is Raft (Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm",
2014; section numbers below are its), with PreVote from Ongaro's thesis (9.6). Three things
are added (decision 0021):

- **Certificates.** A follower signs an event as soon as it has it on its disk in the term in which
  it was made, or later if it knows it to be committed. So an event that a majority has signed
  is committed, and the signatures prove it to any peer.
- **Stores have votes.** A member is a peer and its store. A peer that has lost its store does not
  vote until a committed change of members admits the new one.
- **The founding.** The first leader needs the votes of all that any version names, and its first
  entry names the founders' stores. So while most of the members keep their disks, there is one
  founding; and no sequencer that holds an event votes for another.

Votes and entries are on the disk before any peer hears of them (figure 2).
"""

from collections.abc import Callable
from functools import partial

from pulsarcast.model.errors import Rejection, RemoteError, Verdict
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.limits import STORE_BYTES
from pulsarcast.protocol.sequencing.changes import Changes
from pulsarcast.protocol.sequencing.configs import Config, Member, pack_config
from pulsarcast.protocol.sequencing.elections import Elections
from pulsarcast.protocol.sequencing.entries import NUMBER_MAX, Entries
from pulsarcast.protocol.sequencing.followers import Followers
from pulsarcast.protocol.sequencing.log import Entry, EntryKind, Log
from pulsarcast.protocol.sequencing.messages import (
    Append,
    Appended,
    RequestVote,
    SequencerMessage,
    Vote,
)
from pulsarcast.protocol.sequencing.owner import SequencerOwner
from pulsarcast.protocol.sequencing.persistent_state import STORE, VOTE, PersistentState
from pulsarcast.protocol.sequencing.roles import Role
from pulsarcast.protocol.store import PutState, StateRow, Write

PENDING_MAX = 1024
"""Entries proposed and not committed: beyond this a leader takes no more requests."""
PENDING_BYTES_MAX = 16 << 20
"""The same in bytes: a thousand events of a megabyte each would be a gigabyte."""
UNSETTLED_BYTES_MAX = 128 << 20
"""Bytes of events that most histories lack: beyond this, too, a leader takes no more requests."""
KEPT_BYTES_MAX = 16 << 20
"""Bytes that a log keeps for followers that lag, and `sequencer_log` entries at most."""


class Sequencer:
    """One sequencer of one topic."""

    def __init__(
        self,
        topic: Cid,
        founders: tuple[PeerId, ...],
        context: Context,
        owner: SequencerOwner,
        *,
        saved: PersistentState | None = None,
        log: Log | None = None,
    ) -> None:
        self.topic = topic
        self.founders = founders
        self.turn = turn = context.turn
        self.parameters = context.parameters
        self.counts = context.counts
        self.owner = owner
        self.log = Log() if log is None else log
        self.fresh = saved is None
        self.store = turn.rng.randbytes(STORE_BYTES) if saved is None else saved.store
        self.term = 0 if saved is None else saved.term
        self.voted_for = None if saved is None else saved.voted_for
        self.committed = self.log.snapshot.index
        self.role = Role.FOLLOWER
        self.leader: PeerId | None = None
        self.elections = Elections(self)
        self.entries = Entries(self)
        self.followers = Followers(self)
        self.changes = Changes(self)
        self.settled = self.log.snapshot.position
        """The position up to which most members have every event in their histories."""
        self.emitted = 0
        """The position up to which events have left this sequencer, or came from others."""
        self._requests: dict[bytes, int] = {}
        """Requests that are in the log, and the positions of their events."""
        self._requested: dict[int, bytes] = {}
        """The same by position."""
        self._unsynced = 0
        self._stopped = False
        for _, entry in self.log:
            self.note(entry)

    # Starting and stopping.

    def start(self, *, again: bool = False) -> None:
        """Take part, once the id of the store is on the disk.

        `again`: earlier writes for this topic may still be on their way to the disk.
        """
        if again:
            self._sync()
        if self.fresh:
            row = StateRow(STORE, self.topic, self.store)
            self._sync(PutState(row), then=self.elections.reset_timeout)
        else:
            self.elections.reset_timeout()

    def stop(self) -> None:
        """Send no more messages, and answer none."""
        self._stopped = True
        self.role = Role.FOLLOWER
        self.elections.stop()
        self.followers.stop()

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
        peers = self.log.config().peers or self.owner.named()
        return tuple(dict.fromkeys((*peers, *self.owner.wanted().peers)))

    @property
    def is_whole(self) -> bool:
        """Whether the history holds all events that the log has dropped."""
        return self.owner.held() >= self.log.snapshot.position

    # Terms.

    def sync_vote(self, then: Callable[[], None]) -> None:
        """A vote and a term are on the disk before any peer hears of them (figure 2)."""
        self._sync(self._vote_row(), then=then)

    def _vote_row(self) -> Write:
        value = self.term.to_bytes(8, "big") + (self.voted_for or b"")
        return PutState(StateRow(VOTE, self.topic, value))

    def become_leader(self, votes: dict[PeerId, bytes]) -> None:
        """Most have voted for this sequencer: append the first entry of its term."""
        self.role = Role.LEADER
        self.leader = self.turn.me
        self.emitted = max(self.owner.held(), self.log.snapshot.position)
        self.elections.stop()
        self.followers.begin(votes)
        if self.log.config().members:
            self._add(EntryKind.NOTHING, b"")
        else:
            self.change(Config(tuple(Member(peer, votes[peer]) for peer in self.founders)))
        self.owner.leader_changed()

    def become_follower(self, term: int) -> None:
        """A later term has begun, or the leader steps down: be a follower (5.1)."""
        was = (self.role, self.leader)
        if self.leads:
            self.followers.stop()
        if self.leads or term > self.term:
            self.elections.reset_timeout()
        if term > self.term:
            self.term = term
            self.voted_for = None
            self.entries.signed_to = 0
            self.sync_vote(lambda: None)
        self.role = Role.FOLLOWER
        self.leader = None
        if was != (self.role, self.leader):
            self.owner.leader_changed()

    def step_down(self) -> None:
        """Most followers were silent for too long: let them elect another leader."""
        self.counts["stepped_down"] += 1
        self.become_follower(self.term)

    def renewed(self) -> None:
        """There is a newer version of the topic, which may name other sequencers."""
        if self._stopped:
            return
        if self.leads:
            self.followers.add_followers()
            self.changes.advance()
        else:
            self.changes.leave_if_removed()

    # Messages.

    def receive(self, sender: PeerId, message: SequencerMessage) -> None:
        """Take a message of another sequencer."""
        if message.term > NUMBER_MAX:
            raise RemoteError("a term out of range", code=Rejection.INVALID_LOG)
        if not self._is_heard(sender):
            self._receive_former(sender, message)
            return
        match message:
            case RequestVote():
                self.elections.receive_request(sender, message)
                return
            case Append():
                self.entries.receive(sender, message)
                return
            case _:
                pass
        if message.term > self.term:
            self.become_follower(message.term)
            return
        match message:
            case Vote():
                self.elections.receive_vote(sender, message)
            case Appended():
                if self.leads and message.term == self.term:
                    self.followers.receive(sender, message)

    def _is_heard(self, sender: PeerId) -> bool:
        """Whether the log, or a version later than it, names a peer as a sequencer."""
        if self._stopped or sender == self.turn.me:
            return False
        config = self.log.config()
        return sender in config.peers or self.owner.is_named(sender, config.version)

    def _receive_former(self, sender: PeerId, message: SequencerMessage) -> None:
        """Tell a former sequencer that it was removed; its messages change nothing."""
        is_former = not self._stopped and self.owner.is_named(sender, None)
        if not is_former or sender == self.turn.me:
            # A version that is not known here yet may name it.
            raise RemoteError(
                "not a sequencer of this topic", Verdict.IGNORE, code=Rejection.NOT_A_MEMBER
            )
        if isinstance(message, RequestVote) and message.pre_vote and self.leads:
            self.followers.add_follower(sender)
        elif isinstance(message, Appended) and self.leads and message.term == self.term:
            self.followers.receive(sender, message)

    # The leader's log.

    def position_of(self, request_id: bytes) -> int | None:
        """The position of the event that answers a request, if it is in the log."""
        return self._requests.get(request_id)

    @property
    def may_propose(self) -> bool:
        """Whether the sequencer can give events their places now."""
        if not self.leads or not self.is_whole or not self.changes.may_certify:
            return False
        if self.log.bytes_after(self.committed) >= PENDING_BYTES_MAX:
            return False
        if self.log.bytes_after_event(self.settled) >= UNSETTLED_BYTES_MAX:
            return False
        return self.log.last_index - self.committed < PENDING_MAX

    def propose(self, make: Callable[[int, int, Cid | None], bytes]) -> None:
        """Put an event into the log; `make` gets its term, its position and its parent."""
        assert self.may_propose
        position = self.log.last_position + 1
        self._add(EntryKind.EVENT, make(self.term, position, self.log.last_cid()))

    def change(self, config: Config) -> None:
        """Put a change of members into the log: it counts from there on, committed or not (6)."""
        self._add(EntryKind.MEMBERS, pack_config(config))
        self.followers.add_followers()

    def hand_over(self, to: Cid) -> None:
        """Append the event that hands the order over to another version's sequencers."""
        position = self.log.last_position + 1
        block = self.owner.hand_over(self.term, position, self.log.last_cid(), to)
        if block is None:
            self.cannot_hand_over()
        else:
            self._add(EntryKind.EVENT, block)

    def cannot_hand_over(self) -> None:
        """No version names the outgoing sequencers: a leader lied, and the topic stays as it is."""
        self.counts["handover_without_version"] += 1

    def _add(self, kind: EntryKind, body: bytes) -> None:
        position = self.log.last_position + (kind is EntryKind.EVENT)
        entry = Entry(self.term, position, kind, body)
        self.note(entry)
        write = self.log.append(self.topic, entry)
        self._sync(write, then=partial(self._kept, self.term, self.log.last_index))

    def _kept(self, term: int, index: int) -> None:
        if self.leads and self.term == term:
            self.followers.kept(index)

    def commit(self, index: int) -> None:
        """Most members have everything up to an index on their disks."""
        self.committed = index

    def certify(self) -> None:
        """Let events leave that are committed and signed by most sequencers, in their order."""
        while True:
            position = self.emitted + 1
            found = self.log.event_at(position)
            if found is None or not self.is_committed(found[0]):
                return
            _, entry = found
            signatures = self.followers.signatures.setdefault(position, {})
            if self.turn.me not in signatures:
                signatures[self.turn.me] = self.owner.sign(entry)
            if not self.is_proven(entry, signatures):
                return
            self.emitted = position
            del self.followers.signatures[position]
            self.owner.certified(entry, signatures)

    def is_committed(self, index: int) -> bool:
        """Whether most members have an entry on their disks."""
        return index <= self.committed

    def is_proven(self, entry: Entry, signatures: dict[PeerId, bytes]) -> bool:
        """Whether most sequencers have signed an event's place."""
        signers = self.owner.signers_of(entry)
        return sum(peer in signatures for peer in signers) > len(signers) // 2

    # Compaction.

    def settle(self) -> None:
        """The history has grown, or more is committed: drop from the log what it need not keep."""
        if self._stopped:
            return
        held = self.owner.held()
        if self.leads and held > self.emitted:
            for position in range(self.emitted + 1, held + 1):
                self.followers.signatures.pop(position, None)
            self.emitted = held
            self.certify()
        kept = self.parameters.sequencer_log
        # An event that only this history has could lose its proof with the disk. No other could be
        # made: followers that installed the snapshot do not know the event.
        droppable = min(held, self.settled)
        size = self.log.bytes_after(self.log.snapshot.index)
        is_long = len(self.log) >= 2 * kept or size >= 2 * KEPT_BYTES_MAX
        if not is_long or droppable <= self.log.snapshot.position:
            return
        lagging = max(self.log.last_index - kept, self.log.last_bytes(KEPT_BYTES_MAX))
        index = min(self.committed, lagging)
        if self.log.config().is_joint:
            # A snapshot has one list of members: a follower that installs it knows of no change.
            index = min(index, (self.log.last_change() or 0) - 1)
        beyond = self.log.event_at(droppable + 1)
        if beyond is not None:
            index = min(index, beyond[0] - 1)
        if index > self.log.snapshot.index:
            for gone in range(self.log.snapshot.index + 1, index + 1):
                self.forget(self.log.at(gone))
            self._sync(*self.log.drop_to(self.topic, index))

    def note(self, entry: Entry) -> None:
        """An entry is in the log."""
        if entry.kind is EntryKind.EVENT:
            request_id = self.owner.request_of(entry.body)
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

    # The disk.

    def _sync(self, *writes: Write, then: Callable[[], None] | None = None) -> None:
        self._unsynced += 1

        def synced() -> None:
            self._unsynced -= 1
            if then is not None and not self._stopped:
                then()

        self.turn.persist(*writes, then=synced)

    def reply(self, to: PeerId, message: SequencerMessage) -> None:
        """Answer once all that the answer depends on is synced."""
        self.sync_reply(to, [], lambda: message)

    def sync_reply(
        self, to: PeerId, writes: list[Write], answer: Callable[[], SequencerMessage | None]
    ) -> None:
        """Write, and answer once that is synced; None: there is nothing to answer any more."""

        def send() -> None:
            message = answer()
            if message is not None:
                self.turn.send(to, message)

        if writes or self._unsynced:
            self._sync(*writes, then=send)
        else:
            send()
