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
from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.sequencing.changes import Changes, Step
from pulsarcast.protocol.sequencing.configs import Config, Member, pack_config, peers_of
from pulsarcast.protocol.sequencing.elections import Elections
from pulsarcast.protocol.sequencing.entries import NUMBER_MAX, Entries
from pulsarcast.protocol.sequencing.followers import Followers
from pulsarcast.protocol.sequencing.log import Entry, EntryKind, Place
from pulsarcast.protocol.sequencing.messages import (
    Append,
    Appended,
    RequestVote,
    SequencerMessage,
    Vote,
)
from pulsarcast.protocol.sequencing.owner import SequencerOwner
from pulsarcast.protocol.sequencing.state import STORE, Role, SequencerState
from pulsarcast.protocol.sequencing.syncing import Syncing
from pulsarcast.protocol.store import PutState, StateRow

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

    def __init__(self, context: Context, state: SequencerState, owner: SequencerOwner) -> None:
        self.state = state
        self.log = state.log
        self.turn = context.turn
        self.owner = owner
        self.syncing = context.part(Syncing)(state)
        self.followers = Followers(state, owner)
        self.changes = Changes(state, self.followers)
        self.entries = Entries(state, self.syncing)
        self.elections = Elections(state, self.syncing, self.changes, self)
        self._heartbeat_timer: int | None = None

    # Starting and stopping.

    def start(self, *, again: bool = False) -> None:
        """Take part, once the id of the store is on the disk.

        `again`: earlier writes for this topic may still be on their way to the disk.
        """
        if again:
            self.syncing.sync()
        if self.state.is_new:
            row = StateRow(STORE, self.state.topic, self.state.store)
            self.syncing.sync(PutState(row), then=self.elections.reset_timeout)
        else:
            self.elections.reset_timeout()

    def stop(self) -> None:
        """Send no more messages, and answer none."""
        self.state.is_stopped = True
        self.state.role = Role.FOLLOWER
        self.elections.stop()
        self._stop_leading()

    def _stop_leading(self) -> None:
        self.turn.cancel(self._heartbeat_timer)
        self.followers.stop()

    # Terms.

    def elected(self, votes: dict[PeerId, bytes]) -> None:
        """Most have voted for this sequencer: append the first entry of its term."""
        state = self.state
        state.role = Role.LEADER
        state.leader = self.turn.me
        state.emitted = max(state.events.held(), self.log.snapshot.position)
        self.elections.stop()
        self.followers.begin(votes)
        self._heartbeat()
        if self.log.config().members:
            self._add(EntryKind.NOTHING, b"")
        else:
            self._change(Config(tuple(Member(peer, votes[peer]) for peer in state.founders)))
        self.owner.leader_changed()

    def _heartbeat(self) -> None:
        """Send all followers a heartbeat, or step down if most are silent."""
        turn = self.turn
        turn.cancel(self._heartbeat_timer)
        interval_s = self.state.parameters.leader_heartbeat_s
        self._heartbeat_timer = turn.after(interval_s, self._heartbeat)
        if self.followers.hears_most:
            self.followers.send_heartbeats()
        else:
            self._step_down()

    def _become_follower(self, term: int) -> None:
        """A later term has begun, or the leader steps down: be a follower (5.1)."""
        state = self.state
        was = (state.role, state.leader)
        if state.leads:
            self._stop_leading()
        if state.leads or term > state.term:
            self.elections.reset_timeout()
        if term > state.term:
            state.term = term
            state.voted_for = None
            self.entries.signed_to = 0
            self.syncing.sync_vote(lambda: None)
        state.role = Role.FOLLOWER
        state.leader = None
        if was != (state.role, state.leader):
            self.owner.leader_changed()

    def _step_down(self) -> None:
        """Let the followers elect another leader."""
        self.state.counts["stepped_down"] += 1
        self._become_follower(self.state.term)

    def follow(self, leader: PeerId | None) -> None:
        """The sequencer knows another leader, or none."""
        if self.state.leader != leader:
            self.state.leader = leader
            self.owner.leader_changed()

    def renewed(self) -> None:
        """There is a newer version of the topic, which may name other sequencers."""
        if self.state.is_stopped:
            return
        if self.state.leads:
            self.followers.add_followers()
            self._change_members()
        else:
            self._leave_if_removed()

    # Messages.

    def receive(self, sender: PeerId, message: SequencerMessage) -> None:
        """Take a message of another sequencer."""
        state = self.state
        if message.term > NUMBER_MAX:
            raise RemoteError("a term out of range", code=Rejection.INVALID_LOG)
        if not self._is_heard(sender):
            self._receive_former(sender, message)
            return
        match message:
            case RequestVote():
                if message.term > state.term and not message.pre_vote:
                    self._become_follower(message.term)
                self.elections.receive_request(sender, message)
            case Append():
                self._receive_entries(sender, message)
            case _ if message.term > state.term:
                self._become_follower(message.term)
            case Vote():
                self.elections.receive_vote(sender, message)
            case Appended():
                self._receive_answer(sender, message)

    def _is_heard(self, sender: PeerId) -> bool:
        """Whether the log, or a version later than it, names a peer as a sequencer."""
        if self.state.is_stopped or sender == self.turn.me:
            return False
        config = self.log.config()
        return sender in config.peers or sender in self.state.versions.named_since(config.version)

    def _receive_former(self, sender: PeerId, message: SequencerMessage) -> None:
        """Tell a former sequencer that it was removed; its messages change nothing."""
        state = self.state
        is_former = not state.is_stopped and sender in state.versions.named_since(None)
        if not is_former or sender == self.turn.me:
            # A version that is not known here yet may name it.
            raise RemoteError(
                "not a sequencer of this topic", Verdict.IGNORE, code=Rejection.NOT_A_MEMBER
            )
        if isinstance(message, RequestVote) and message.pre_vote and state.leads:
            self.followers.add_follower(sender)
        elif isinstance(message, Appended):
            self._receive_answer(sender, message)

    def _receive_entries(self, sender: PeerId, message: Append) -> None:
        """A leader sends entries, or a heartbeat."""
        state = self.state
        if message.term < state.term:
            self.entries.refuse(sender)
            return
        if message.term == state.term and state.leads:
            raise RemoteError("a second leader in one term", code=Rejection.TWO_LEADERS)
        self.entries.check(message)
        if message.term > state.term or state.role is not Role.FOLLOWER:
            self._become_follower(message.term)
        self.elections.heard_leader()
        self.follow(sender)
        if self.entries.take(sender, message):
            self.settle()
            self._leave_if_removed()

    def _receive_answer(self, sender: PeerId, message: Appended) -> None:
        if not self.state.leads or message.term != self.state.term:
            return
        if self.followers.receive(sender, message):
            self._advance()
            if self.state.leads:
                self.followers.send_more(sender)

    # The leader's log.

    @property
    def may_propose(self) -> bool:
        """Whether the sequencer can give events their places now."""
        state, log = self.state, self.log
        return (
            state.leads
            # The history must hold all events that the log has dropped.
            and state.events.held() >= log.snapshot.position
            and self.changes.may_certify
            and log.bytes_after(state.committed) < PENDING_BYTES_MAX
            and log.bytes_after_event(state.settled) < UNSETTLED_BYTES_MAX
            and log.last_index - state.committed < PENDING_MAX
        )

    def propose(self, make: Callable[[Place], bytes]) -> None:
        """Put an event into the log, which `make` makes for its place."""
        assert self.may_propose
        self._add(EntryKind.EVENT, make(self.log.next_place(self.state.term)))

    def _add(self, kind: EntryKind, body: bytes) -> None:
        state = self.state
        position = self.log.last_position + (kind is EntryKind.EVENT)
        entry = Entry(state.term, position, kind, body)
        state.note(entry)
        write = self.log.append(state.topic, entry)
        self.syncing.sync(write, then=partial(self._kept, state.term, self.log.last_index))

    def _kept(self, term: int, index: int) -> None:
        if self.state.leads and self.state.term == term:
            self.followers.kept(index)
            self._advance()

    def _advance(self) -> None:
        """A follower, or the leader itself, has more entries on its disk."""
        self.followers.commit()
        self.certify()
        self.settle()
        self._change_members()

    def certify(self) -> None:
        """Let events leave that are committed and signed by most sequencers, in their order."""
        state = self.state
        while True:
            position = state.emitted + 1
            found = self.log.event_at(position)
            if found is None or not self.is_committed(found[0]):
                return
            _, entry = found
            signatures = self.followers.signatures.setdefault(position, {})
            if self.turn.me not in signatures:
                signatures[self.turn.me] = state.events.sign(entry)
            if not self.is_proven(entry, signatures):
                return
            state.emitted = position
            del self.followers.signatures[position]
            self.owner.certified(entry, signatures)

    def is_committed(self, index: int) -> bool:
        """Whether most members have an entry on their disks."""
        return index <= self.state.committed

    def is_proven(self, entry: Entry, signatures: dict[PeerId, bytes]) -> bool:
        """Whether most sequencers have signed an event's place."""
        signers = self.state.events.signers_of(entry)
        return sum(peer in signatures for peer in signers) > len(signers) // 2

    # Changes of members.

    def _change_members(self) -> None:
        """Begin a change, or take its next step."""
        match self.changes.next_step():
            case Config() as config:
                self._change(config)
            case Step.HAND_OVER:
                self._hand_over()
            case Step.RESIGN:
                self._resign()
            case Step.LEAVE:
                self._leave()
            case None:
                pass

    def _change(self, config: Config) -> None:
        """Put a change of members into the log: it counts from there on, committed or not (6)."""
        self._add(EntryKind.MEMBERS, pack_config(config))
        self.followers.add_followers()
        if self.changes.awaits_handover:
            self._hand_over()

    def _hand_over(self) -> None:
        """Append the event that hands the order over to another version's sequencers."""
        config, block = self.log.config(), None
        # No change without a version is taken over now, but the disk may hold one that was.
        if config.version is not None:
            place = self.log.next_place(self.state.term)
            block = self.owner.hand_over(place, peers_of(config.outgoing), config.version)
        if block is None:
            # No version names the outgoing sequencers: a leader lied, and the topic stays as it is.
            self.state.counts["handover_without_version"] += 1
        else:
            self._add(EntryKind.EVENT, block)

    def _leave_if_removed(self) -> None:
        if self.changes.is_removed:
            self._leave()

    def _leave(self) -> None:
        """A committed change has removed this sequencer."""
        if self.state.leads:
            self._resign()
        self.owner.removed()

    def _resign(self) -> None:
        self.followers.send_last_heartbeat()
        self._step_down()

    # Compaction.

    def settle(self) -> None:
        """The history has grown, or more is committed: drop from the log what it need not keep."""
        state, log = self.state, self.log
        if state.is_stopped:
            return
        held = state.events.held()
        if state.leads and held > state.emitted:
            for position in range(state.emitted + 1, held + 1):
                self.followers.signatures.pop(position, None)
            state.emitted = held
            self.certify()
        kept = state.parameters.sequencer_log
        # An event that only this history has could lose its proof with the disk. No other could be
        # made: followers that installed the snapshot do not know the event.
        droppable = min(held, state.settled)
        size = log.bytes_after(log.snapshot.index)
        is_long = len(log) >= 2 * kept or size >= 2 * KEPT_BYTES_MAX
        if not is_long or droppable <= log.snapshot.position:
            return
        lagging = max(log.last_index - kept, log.last_bytes(KEPT_BYTES_MAX))
        index = min(state.committed, lagging)
        if log.config().is_joint:
            # A snapshot has one list of members: a follower that installs it knows of no change.
            index = min(index, (log.last_change() or 0) - 1)
        beyond = log.event_at(droppable + 1)
        if beyond is not None:
            index = min(index, beyond[0] - 1)
        if index > log.snapshot.index:
            for gone in range(log.snapshot.index + 1, index + 1):
                state.forget(log.at(gone))
            self.syncing.sync(*log.drop_to(state.topic, index))
