"""What a leader knows of the others: how much each has, and what they have signed (Raft, 5.3)."""

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
"""Entries in one message."""
WINDOW = 512
"""Entries sent to a follower and not answered: beyond this they wait."""
WINDOW_BYTES = 4 << 20
"""The same in bytes: one entry may go beyond it, or a large one would never be sent."""
SILENT_TIMEOUTS = 2.0
"""Election timeouts without a word from most of the others, after which a leader steps down."""


class _Follower:
    """One of the others, as the leader sees it."""

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
        """By position, of events that have not left yet."""
        self._known: dict[PeerId, _Follower] = {}
        self._synced = 0
        self._timer: int | None = None

    def begin(self, votes: dict[PeerId, bytes]) -> None:
        """We were elected: everyone is taken to have what we have, until it says otherwise."""
        sequencer = self.sequencer
        now = sequencer.turn.now
        self.signatures.clear()
        # What we had before is on the disk: our vote was written behind it, and is.
        self._synced = sequencer.log.last_index
        self._known = {
            peer: _Follower(self._synced + 1, votes.get(peer), now)
            for peer in sequencer.circle()
            if peer != sequencer.turn.me
        }
        self._beat()

    def meet_circle(self) -> None:
        """Others are to have a say: let them catch up."""
        for peer in self.sequencer.circle():
            self.meet(peer)

    def meet(self, peer: PeerId) -> None:
        """One that we did not talk to; it may be one that does not know that it was replaced."""
        if peer != self.sequencer.turn.me and peer not in self._known:
            self._known[peer] = _Follower(self._synced + 1, None, self.sequencer.turn.now)
            self._send(peer, self._known[peer], always=True)

    def part(self) -> None:
        """A last sign of life: what was committed makes others free to lead."""
        for peer, follower in self._known.items():
            self._send(peer, follower, always=True)

    def stop(self) -> None:
        """We lead no more."""
        self.sequencer.turn.cancel(self._timer)
        self.signatures.clear()
        self._known = {}

    def _beat(self) -> None:
        """A sign of life to everyone, unless nobody gives one to us."""
        sequencer = self.sequencer
        turn = sequencer.turn
        turn.cancel(self._timer)
        self._timer = turn.after(sequencer.parameters.leader_heartbeat_s, self._beat)
        if not self._hears_most():
            sequencer.step_down()
            return
        circle = sequencer.circle()
        for peer, follower in list(self._known.items()):
            if peer not in circle and not self._hears(follower):
                del self._known[peer]
                continue
            if follower.store is None:
                sequencer.owner.summon(peer)
            # It says where we think that it is: what was lost on the way is noticed by that.
            self._send(peer, follower, always=True)

    def _hears_most(self) -> bool:
        """A leader that most do not answer has no say any more, and should not keep requests."""
        sequencer = self.sequencer

        def hears(member: Member) -> bool:
            follower = self._known.get(member.peer)
            is_me = member.peer == sequencer.turn.me
            return is_me or (follower is not None and self._hears(follower))

        config = sequencer.log.config()
        # At the founding all have just voted for us, and our first entry says who they are.
        return not config.members or config.is_quorum(hears)

    def _hears(self, follower: _Follower) -> bool:
        sequencer = self.sequencer
        silent_s = SILENT_TIMEOUTS * sequencer.parameters.election_timeout_s
        return follower.heard_s >= sequencer.turn.now - silent_s

    def _send(self, peer: PeerId, follower: _Follower, *, always: bool = False) -> None:
        """Send what a follower lacks, as far as it is on our own disk."""
        sequencer = self.sequencer
        log = sequencer.log
        before = follower.next_index - 1
        snapshot = None
        if before < log.snapshot.index:
            snapshot = log.snapshot
            before = snapshot.index
        before_term = log.term_at(before)
        assert before_term is not None, "we know the term of everything from our snapshot on"
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
        """Our own entries up to an index are synced: only now may others have them."""
        self._synced = max(self._synced, index)
        for peer, follower in self._known.items():
            self._send(peer, follower)
        self._advance()

    def receive(self, sender: PeerId, message: Appended) -> None:
        """A follower says what it has."""
        follower = self._known.get(sender)
        if follower is None:
            return
        if message.agreed and message.matched > self.sequencer.log.last_index:
            raise RemoteError("a follower that has more than there is", code=Rejection.INVALID_LOG)
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
            self._part_from(sender, follower)

    def _part_from(self, sender: PeerId, follower: _Follower) -> None:
        """One that was replaced has all that says so: tell it that this is committed, and go."""
        sequencer = self.sequencer
        log = sequencer.log
        change = log.last_change() or log.snapshot.index
        is_over = change <= min(sequencer.committed, follower.matched)
        if is_over and sender not in sequencer.circle():
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
        """Commit what most members have, if it ends in our own term (5.4.2)."""
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
                # Of another term, or amid a change: signed only once known to be committed.
                for peer, follower in self._known.items():
                    self._send(peer, follower, always=True)
        sequencer.certify()
        sequencer.settle()
        sequencer.changes.go_on()

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
        """One that has the log up to what is committed, and in its history all that is settled."""
        sequencer = self.sequencer
        if peer == sequencer.turn.me:
            return Member(peer, sequencer.store)
        follower = self._known.get(peer)
        if follower is None or follower.store is None or not self._hears(follower):
            return None
        if follower.matched < sequencer.committed or follower.held < sequencer.settled:
            return None
        return Member(peer, follower.store)
