"""The leader's side of the log: sends entries to followers and counts answers (Raft, 5.3)."""

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.sequencing.configs import Member
from pulsarcast.protocol.sequencing.log import EntryKind
from pulsarcast.protocol.sequencing.messages import Append, Appended
from pulsarcast.protocol.sequencing.owner import SequencerOwner
from pulsarcast.protocol.sequencing.state import SequencerState

ENTRIES_MAX = 256
"""Entries in one message: the wire's bound."""
WINDOW = 512
"""Entries sent to a follower and not answered: bounds what a slow one is sent."""
WINDOW_BYTES = 4 << 20
"""The same in bytes: one entry may go beyond it, or a large one would never be sent."""
SILENT_TIMEOUTS = 2.0
"""Election timeouts without an answer from most, after which a leader steps down: by then the
others may have elected another."""


class _Follower:
    """One follower, as the leader knows it."""

    __slots__ = ("heard_s", "held", "matched", "next_index", "store")

    def __init__(self, next_index: int, store: bytes | None, heard_s: float) -> None:
        self.next_index = next_index
        self.matched = 0
        self.held = 0
        self.store = store
        self.heard_s = heard_s


class Followers:
    """A leader's side of the log."""

    def __init__(self, state: SequencerState, owner: SequencerOwner) -> None:
        self.state = state
        self.turn = state.turn
        self.owner = owner
        self.signatures: dict[int, dict[PeerId, bytes]] = {}
        """Signatures by position, of events that have not left yet."""
        self._known: dict[PeerId, _Follower] = {}
        self._synced = 0

    def begin(self, votes: dict[PeerId, bytes]) -> None:
        """Begin a term as leader: assume that followers have the whole log, until they deny it."""
        state = self.state
        now = self.turn.now
        self.signatures.clear()
        # The log is on the disk: the leader's own vote was written after it, and is synced.
        self._synced = state.log.last_index
        self._known = {
            peer: _Follower(self._synced + 1, votes.get(peer), now)
            for peer in state.participants()
            if peer != self.turn.me
        }

    def add_followers(self) -> None:
        """Other peers are to vote: let them catch up."""
        for peer in self.state.participants():
            self.add_follower(peer)

    def add_follower(self, peer: PeerId) -> None:
        """Send to a new peer, or to one that does not know that it was replaced."""
        if peer != self.turn.me and peer not in self._known:
            self._known[peer] = _Follower(self._synced + 1, None, self.turn.now)
            self._send(peer, self._known[peer], always=True)

    def send_last_heartbeat(self) -> None:
        """Tell all what is committed, before the leader steps down: then another one can lead."""
        for peer, follower in self._known.items():
            self._send(peer, follower, always=True)

    def stop(self) -> None:
        """The sequencer leads no more."""
        self.signatures.clear()
        self._known = {}

    def send_heartbeats(self) -> None:
        """Send all followers a heartbeat."""
        state = self.state
        participants = state.participants()
        for peer, follower in list(self._known.items()):
            if peer not in participants and not self._hears(follower):
                del self._known[peer]
                continue
            if follower.store is None:
                self.owner.summon(peer)
            # It carries the index that the leader assumes: so lost messages are noticed.
            self._send(peer, follower, always=True)

    @property
    def hears_most(self) -> bool:
        """Whether most answer; a leader that most do not answer should not keep requests."""
        state = self.state

        def hears(member: Member) -> bool:
            follower = self._known.get(member.peer)
            is_me = member.peer == self.turn.me
            return is_me or (follower is not None and self._hears(follower))

        config = state.log.config()
        # At the founding all have just voted, and the first entry says which they are.
        return not config.members or config.is_quorum(hears)

    def _hears(self, follower: _Follower) -> bool:
        state = self.state
        silent_s = SILENT_TIMEOUTS * state.parameters.election_timeout_s
        return follower.heard_s >= self.turn.now - silent_s

    def _send(self, peer: PeerId, follower: _Follower, *, always: bool = False) -> None:
        """Send the entries that a follower lacks, as far as they are on the leader's disk."""
        state = self.state
        log = state.log
        before = follower.next_index - 1
        snapshot = None
        if before < log.snapshot.index:
            snapshot = log.snapshot
            before = snapshot.index
        before_term = log.term_at(before)
        assert before_term is not None, "the log knows the term of each entry from its snapshot on"
        count = min(ENTRIES_MAX, self._synced - before, WINDOW - (before - follower.matched))
        room = WINDOW_BYTES - (log.bytes_after(follower.matched) - log.bytes_after(before))
        bytes_max = min(room, state.parameters.range_bytes_max)
        entries = log.since(before + 1, max(0, count), bytes_max)
        if snapshot is not None or count <= 0 or room <= 0:
            entries = ()
        if not (entries or always):
            return
        follower.next_index = before + len(entries) + 1
        mine = (state.topic, state.term, state.store)
        reached = (state.committed, state.emitted + 1, state.settled)
        message = Append(*mine, before, before_term, entries, *reached, snapshot)
        self.turn.send(peer, message)

    def kept(self, index: int) -> None:
        """The leader's entries up to an index are synced: only now may followers have them."""
        self._synced = max(self._synced, index)
        for peer, follower in self._known.items():
            self._send(peer, follower)

    def receive(self, sender: PeerId, message: Appended) -> bool:
        """A follower answers; whether it has the entries that it was sent."""
        follower = self._known.get(sender)
        if follower is None:
            return False
        if message.agreed and message.matched > self.state.log.last_index:
            raise RemoteError(
                "a follower that has more entries than the leader", code=Rejection.INVALID_LOG
            )
        follower.heard_s = self.turn.now
        if follower.store != message.store:
            follower.store = message.store
            follower.matched = 0
        follower.held = message.held
        if not message.agreed:
            tried = min(message.matched + 1, self.state.log.last_index + 1)
            if tried < follower.next_index:
                follower.next_index = max(tried, 1)
                self._send(sender, follower, always=True)
            return False
        follower.matched = max(follower.matched, message.matched)
        follower.next_index = max(follower.next_index, follower.matched + 1)
        self._take_signatures(sender, message)
        return True

    def send_more(self, sender: PeerId) -> None:
        """Send a follower that has answered what it lacks.

        A removed one is told that its removal is committed, and sent no more.
        """
        state = self.state
        log, follower = state.log, self._known[sender]
        self._send(sender, follower)
        change = log.last_change() or log.snapshot.index
        is_over = change <= min(state.committed, follower.matched)
        if is_over and sender not in state.participants():
            self._send(sender, follower, always=True)
            del self._known[sender]

    def _take_signatures(self, sender: PeerId, message: Appended) -> None:
        state = self.state
        for position, signature in message.signatures:
            found = state.log.event_at(position)
            if found is None or position <= state.emitted:
                continue
            known = self.signatures.setdefault(position, {})
            if sender not in known and state.events.is_signed(sender, found[1], signature):
                known[sender] = signature

    def commit(self) -> None:
        """Commit entries that most members have, if the last is of this term (5.4.2)."""
        state = self.state
        config = state.log.config()
        index = config.of_most(self._matched_of)
        settled = config.of_most(self._held_of)
        state.settled = max(state.settled, settled)
        if index > state.committed and state.log.term_at(index) == state.term:
            before = state.committed
            state.committed = index
            changing = config.is_joint or before < (state.log.last_change() or 0)
            new = map(state.log.at, range(before + 1, index + 1))
            if changing or any(
                entry.term != state.term and entry.kind is EntryKind.EVENT for entry in new
            ):
                # Of another term, or during a change: signed only once known to be committed.
                for peer, follower in self._known.items():
                    self._send(peer, follower, always=True)

    def _matched_of(self, member: Member) -> int:
        if member.peer == self.turn.me:
            return self._synced if member.store == self.state.store else 0
        follower = self._known.get(member.peer)
        return follower.matched if follower and follower.store == member.store else 0

    def _held_of(self, member: Member) -> int:
        if member.peer == self.turn.me:
            return self.state.events.held()
        follower = self._known.get(member.peer)
        return follower.held if follower and follower.store == member.store else 0

    def caught_up(self, peer: PeerId) -> Member | None:
        """A follower as a member, if it has all committed entries and all settled events."""
        state = self.state
        if peer == self.turn.me:
            return Member(peer, state.store)
        follower = self._known.get(peer)
        if follower is None or follower.store is None or not self._hears(follower):
            return None
        if follower.matched < state.committed or follower.held < state.settled:
            return None
        return Member(peer, follower.store)
