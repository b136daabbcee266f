"""The leader's side of the log: sends entries to followers and counts answers (Raft, 5.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.sequencing.configs import Member
from pulsarcast.protocol.sequencing.log import EntryKind
from pulsarcast.protocol.sequencing.messages import Append, Appended

if TYPE_CHECKING:
    from pulsarcast.protocol.sequencing.sequencer import Sequencer

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

    def __init__(self, sequencer: Sequencer) -> None:
        self.sequencer = sequencer
        self.signatures: dict[int, dict[PeerId, bytes]] = {}
        """Signatures by position, of events that have not left yet."""
        self._known: dict[PeerId, _Follower] = {}
        self._synced = 0
        self._timer: int | None = None

    def begin(self, votes: dict[PeerId, bytes]) -> None:
        """Begin a term as leader: assume that followers have the whole log, until they deny it."""
        sequencer = self.sequencer
        now = sequencer.turn.now
        self.signatures.clear()
        # The log is on the disk: the leader's own vote was written after it, and is synced.
        self._synced = sequencer.log.last_index
        self._known = {
            peer: _Follower(self._synced + 1, votes.get(peer), now)
            for peer in sequencer.participants()
            if peer != sequencer.turn.me
        }
        self._heartbeat()

    def add_followers(self) -> None:
        """Other peers are to vote: let them catch up."""
        for peer in self.sequencer.participants():
            self.add_follower(peer)

    def add_follower(self, peer: PeerId) -> None:
        """Send to a new peer, or to one that does not know that it was replaced."""
        if peer != self.sequencer.turn.me and peer not in self._known:
            self._known[peer] = _Follower(self._synced + 1, None, self.sequencer.turn.now)
            self._send(peer, self._known[peer], always=True)

    def send_last_heartbeat(self) -> None:
        """Tell all what is committed, before the leader steps down: then another one can lead."""
        for peer, follower in self._known.items():
            self._send(peer, follower, always=True)

    def stop(self) -> None:
        """The sequencer leads no more."""
        self.sequencer.turn.cancel(self._timer)
        self.signatures.clear()
        self._known = {}

    def _heartbeat(self) -> None:
        """Send all followers a heartbeat, or step down if most are silent."""
        sequencer = self.sequencer
        turn = sequencer.turn
        turn.cancel(self._timer)
        self._timer = turn.after(sequencer.parameters.leader_heartbeat_s, self._heartbeat)
        if not self._hears_most():
            sequencer.step_down()
            return
        participants = sequencer.participants()
        for peer, follower in list(self._known.items()):
            if peer not in participants and not self._hears(follower):
                del self._known[peer]
                continue
            if follower.store is None:
                sequencer.owner.summon(peer)
            # It carries the index that the leader assumes: so lost messages are noticed.
            self._send(peer, follower, always=True)

    def _hears_most(self) -> bool:
        """Whether most answer; a leader that most do not answer should not keep requests."""
        sequencer = self.sequencer

        def hears(member: Member) -> bool:
            follower = self._known.get(member.peer)
            is_me = member.peer == sequencer.turn.me
            return is_me or (follower is not None and self._hears(follower))

        config = sequencer.log.config()
        # At the founding all have just voted, and the first entry says which they are.
        return not config.members or config.is_quorum(hears)

    def _hears(self, follower: _Follower) -> bool:
        sequencer = self.sequencer
        silent_s = SILENT_TIMEOUTS * sequencer.parameters.election_timeout_s
        return follower.heard_s >= sequencer.turn.now - silent_s

    def _send(self, peer: PeerId, follower: _Follower, *, always: bool = False) -> None:
        """Send the entries that a follower lacks, as far as they are on the leader's disk."""
        sequencer = self.sequencer
        log = sequencer.log
        before = follower.next_index - 1
        snapshot = None
        if before < log.snapshot.index:
            snapshot = log.snapshot
            before = snapshot.index
        before_term = log.term_at(before)
        assert before_term is not None, "the log knows the term of each entry from its snapshot on"
        count = min(ENTRIES_MAX, self._synced - before, WINDOW - (before - follower.matched))
        room = WINDOW_BYTES - (log.bytes_after(follower.matched) - log.bytes_after(before))
        bytes_max = min(room, sequencer.parameters.range_bytes_max)
        entries = log.since(before + 1, max(0, count), bytes_max)
        if snapshot is not None or count <= 0 or room <= 0:
            entries = ()
        if not (entries or always):
            return
        follower.next_index = before + len(entries) + 1
        message = Append(
            sequencer.topic,
            sequencer.term,
            sequencer.store,
            before,
            before_term,
            entries,
            sequencer.committed,
            sequencer.emitted + 1,
            sequencer.settled,
            snapshot,
        )
        sequencer.turn.send(peer, message)

    def kept(self, index: int) -> None:
        """The leader's entries up to an index are synced: only now may followers have them."""
        self._synced = max(self._synced, index)
        for peer, follower in self._known.items():
            self._send(peer, follower)
        self._advance()

    def receive(self, sender: PeerId, message: Appended) -> None:
        """A follower answers."""
        follower = self._known.get(sender)
        if follower is None:
            return
        if message.agreed and message.matched > self.sequencer.log.last_index:
            raise RemoteError(
                "a follower that has more entries than the leader", code=Rejection.INVALID_LOG
            )
        follower.heard_s = self.sequencer.turn.now
        if follower.store != message.store:
            follower.store = message.store
            follower.matched = 0
        follower.held = message.held
        if not message.agreed:
            tried = min(message.matched + 1, self.sequencer.log.last_index + 1)
            if tried < follower.next_index:
                follower.next_index = max(tried, 1)
                self._send(sender, follower, always=True)
            return
        follower.matched = max(follower.matched, message.matched)
        follower.next_index = max(follower.next_index, follower.matched + 1)
        self._take_signatures(sender, message)
        self._advance()
        if self.sequencer.leads:
            self._send(sender, follower)
            self._release_if_removed(sender, follower)

    def _release_if_removed(self, sender: PeerId, follower: _Follower) -> None:
        """Tell a removed follower that its removal is committed, and send it no more."""
        sequencer = self.sequencer
        log = sequencer.log
        change = log.last_change() or log.snapshot.index
        is_over = change <= min(sequencer.committed, follower.matched)
        if is_over and sender not in sequencer.participants():
            self._send(sender, follower, always=True)
            del self._known[sender]

    def _take_signatures(self, sender: PeerId, message: Appended) -> None:
        sequencer = self.sequencer
        for position, signature in message.signatures:
            found = sequencer.log.event_at(position)
            if found is None or position <= sequencer.emitted:
                continue
            known = self.signatures.setdefault(position, {})
            if sender not in known and sequencer.owner.is_signed(sender, found[1], signature):
                known[sender] = signature

    def _advance(self) -> None:
        """Commit entries that most members have, if the last is of this term (5.4.2)."""
        sequencer = self.sequencer
        config = sequencer.log.config()
        index = config.of_most(self._matched_of)
        settled = config.of_most(self._held_of)
        sequencer.settled = max(sequencer.settled, settled)
        if index > sequencer.committed and sequencer.log.term_at(index) == sequencer.term:
            before = sequencer.committed
            sequencer.commit(index)
            changing = config.is_joint or before < (sequencer.log.last_change() or 0)
            new = map(sequencer.log.at, range(before + 1, index + 1))
            if changing or any(
                entry.term != sequencer.term and entry.kind is EntryKind.EVENT for entry in new
            ):
                # Of another term, or during a change: signed only once known to be committed.
                for peer, follower in self._known.items():
                    self._send(peer, follower, always=True)
        sequencer.certify()
        sequencer.settle()
        sequencer.changes.advance()

    def _matched_of(self, member: Member) -> int:
        if member.peer == self.sequencer.turn.me:
            return self._synced if member.store == self.sequencer.store else 0
        follower = self._known.get(member.peer)
        return follower.matched if follower and follower.store == member.store else 0

    def _held_of(self, member: Member) -> int:
        if member.peer == self.sequencer.turn.me:
            return self.sequencer.owner.held()
        follower = self._known.get(member.peer)
        return follower.held if follower and follower.store == member.store else 0

    def caught_up(self, peer: PeerId) -> Member | None:
        """A follower as a member, if it has all committed entries and all settled events."""
        sequencer = self.sequencer
        if peer == sequencer.turn.me:
            return Member(peer, sequencer.store)
        follower = self._known.get(peer)
        if follower is None or follower.store is None or not self._hears(follower):
            return None
        if follower.matched < sequencer.committed or follower.held < sequencer.settled:
            return None
        return Member(peer, follower.store)
