"""A sequencer: one member of the group that gives a topic's events their order.

The algorithm is Raft (Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm",
2014; section numbers below are its), with trial votes from Ongaro's thesis (9.6). Three things are
ours (decision 0021):

- **Certificates.** A follower signs an event as soon as it has it on its disk in the term in which
  it was made, or later if it knows it to be committed. So whatever a majority has signed is
  committed, and the signatures prove it to anyone.
- **Stores have votes.** A member is a peer and its store. Whoever has lost its store is a stranger
  until a committed change of members admits the new one.
- **The founding.** The first leader needs the votes of all, and its first entry says which stores
  these were. So as long as most of them keep their disks, there is one founding.

Votes and entries are on the disk before anyone hears of them (figure 2).
"""

import enum
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.ids import PEER_ID_BYTES, Cid, PeerId
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.sequencing.followers import Followers
from pulsarcast.protocol.sequencing.log import (
    STORE_BYTES,
    Entry,
    EntryKind,
    Log,
    Member,
    pack_members,
    unpack_members,
)
from pulsarcast.protocol.sequencing.messages import (
    Append,
    Appended,
    AskVote,
    SequencerMessage,
    Vote,
)
from pulsarcast.protocol.store import PutState, StateRow, Write
from pulsarcast.protocol.turn import Turn

PENDING_MAX = 1024
"""Events that are proposed and not committed: beyond this a leader takes no more requests."""
SIGNATURES_MAX = 64
"""Signatures in one answer."""
OUT_OF_POSITION = "an entry out of its position"
FORGOTTEN = "a leader lacks what was committed"
VOTE = "vote"
STORE = "store"


class Role(enum.Enum):
    """What a sequencer does in the current term."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


class SequencerOwner(Protocol):
    """What a sequencer asks of the topic that it works for."""

    def held(self) -> int:
        """The position up to which every event is in our history, certified and synced."""

    def sign(self, entry: Entry) -> bytes:
        """Our signature under an event's place."""

    def is_signed(self, peer: PeerId, entry: Entry, signature: bytes) -> bool:
        """Whether a peer signed an event's place."""

    def request_of(self, block: bytes) -> bytes:
        """The id of the request that an event answers; raises RemoteError where it is none."""

    def certified(self, entry: Entry, signatures: dict[PeerId, bytes]) -> None:
        """An event is committed, and so many signatures prove it: it may leave."""

    def turned(self) -> None:
        """Who leads has changed."""


class Saved(NamedTuple):
    """What a sequencer's disk remembers, but for the log."""

    store: bytes
    term: int = 0
    voted_for: PeerId | None = None


class Sequencer:
    """One sequencer of one topic."""

    def __init__(
        self,
        topic: Cid,
        peers: tuple[PeerId, ...],
        turn: Turn,
        parameters: Parameters,
        owner: SequencerOwner,
        counts: dict[str, int],
        *,
        saved: Saved | None = None,
        log: Log | None = None,
    ) -> None:
        self.topic = topic
        self.peers = peers
        self.turn = turn
        self.parameters = parameters
        self.owner = owner
        self.counts = counts
        self.log = Log() if log is None else log
        self.fresh = saved is None
        self.store = turn.rng.randbytes(STORE_BYTES) if saved is None else saved.store
        self.term = 0 if saved is None else saved.term
        self.voted_for = None if saved is None else saved.voted_for
        self.committed = self.log.base.index
        self.role = Role.FOLLOWER
        self.leader: PeerId | None = None
        self.followers = Followers(self)
        self.settled = self.log.base.position
        """Up to here most members have every event in their histories: no log has to keep it."""
        self.emitted = 0
        """The position up to which we have let events leave, or have them from others."""
        self._votes: dict[PeerId, bytes] = {}
        self._trial = False
        self._heard_s = float("-inf")
        self._timer: int | None = None
        self._asking: int | None = None
        self._requests: dict[bytes, int] = {}
        """Requests that are in our log, and the positions of their events."""
        self._requested: dict[int, bytes] = {}
        """The same by position."""
        self._unsynced = 0
        self._signed_to = 0
        self._stopped = False
        for _, entry in self.log:
            self._note(entry)

    # Coming and going.

    def start(self) -> None:
        """Take part, once our disk knows which store it is."""
        if self.fresh:
            row = StateRow(STORE, self.topic, self.store)
            self._sync(PutState(row), then=self._wait)
        else:
            self._wait()

    def stop(self) -> None:
        """Fall silent."""
        self._stopped = True
        self.role = Role.FOLLOWER
        self.turn.cancel(self._timer)
        self.turn.cancel(self._asking)
        self.followers.stop()

    @property
    def leads(self) -> bool:
        """Whether we act as sequencer."""
        return self.role is Role.LEADER

    @property
    def has_vote(self) -> bool:
        """Whether we are a member with this store; before the founding everyone is."""
        members = self.log.members()
        return not members or Member(self.turn.me, self.store) in members

    @property
    def is_whole(self) -> bool:
        """Whether we hold all events that our log no longer has."""
        return self.owner.held() >= self.log.base.position

    def _wait(self) -> None:
        """Give a leader time to be heard; each of us another, so that not all ask at once (5.2)."""
        self.turn.cancel(self._timer)
        delay_s = self.parameters.election_timeout_s * (1.0 + self.turn.rng.random())
        self._timer = self.turn.after(delay_s, self._campaign)

    # Elections (5.2, 5.4.1).

    def _campaign(self) -> None:
        """Nobody leads: ask whether we would be elected, and only then for votes."""
        self._wait()
        if not self.has_vote:
            return
        if self.leader is not None:
            self.leader = None
            self.owner.turned()
        self.role = Role.CANDIDATE
        self._trial = True
        self._votes = {self.turn.me: self.store}
        self._ask(self.term + 1)

    def _ask(self, term: int) -> None:
        """Ask everyone who has not answered, and again until all have."""
        index, last_term = self.log.last_index, self.log.last_term
        for peer in self._others():
            if peer not in self._votes:
                message = AskVote(self.topic, term, self.store, index, last_term, self._trial)
                self.turn.send(peer, message)
        again = partial(self._ask_again, self.term, self._trial)
        self.turn.cancel(self._asking)
        self._asking = self.turn.after(self.parameters.leader_heartbeat_s, again)
        self._count_votes()

    def _ask_again(self, term: int, trial: bool) -> None:
        if self.role is Role.CANDIDATE and (self.term, self._trial) == (term, trial):
            self._ask(term + trial)

    def _stand(self) -> None:
        """Most would vote for us: begin a term."""
        self.term += 1
        self.voted_for = self.turn.me
        self._trial = False
        self._votes = {self.turn.me: self.store}
        self.counts["election"] = self.counts.get("election", 0) + 1
        self._wait()
        self._sync_vote(partial(self._stood, self.term))

    def _stood(self, term: int) -> None:
        if self.term == term and self.role is Role.CANDIDATE and not self._trial:
            self._ask(term)

    def _sync_vote(self, then: Callable[[], None]) -> None:
        """Nobody hears of a vote or a term before it is on our disk (figure 2)."""
        self._sync(self._vote_row(), then=then)

    def _vote_row(self) -> Write:
        value = self.term.to_bytes(8, "big") + (self.voted_for or b"")
        return PutState(StateRow(VOTE, self.topic, value))

    def _receive_ask(self, sender: PeerId, message: AskVote) -> None:
        # Whether our vote counts is the candidate's to say: we may have been admitted and not know.
        ours = (self.log.last_term, self.log.last_index)
        good = (message.last_term, message.last_index) >= ours
        if message.trial:
            led = self.turn.now - self._heard_s < self.parameters.election_timeout_s
            granted = good and message.term > self.term and not (led or self.leads)
            self._reply(sender, Vote(self.topic, self.term, self.store, granted, True))
            return
        if message.term > self.term:
            self._adopt(message.term)
        granted = good and message.term == self.term and self.voted_for in (None, sender)
        answer = Vote(self.topic, self.term, self.store, granted, False)
        if granted:
            self.voted_for = sender
            self._wait()
            self._sync_vote(lambda: self.turn.send(sender, answer))
        else:
            self._reply(sender, answer)

    def _receive_vote(self, sender: PeerId, message: Vote) -> None:
        if self.role is not Role.CANDIDATE or not message.granted or message.trial != self._trial:
            return
        if message.trial or message.term == self.term:
            self._votes[sender] = message.store
            self._count_votes()

    def _count_votes(self) -> None:
        if self.role is not Role.CANDIDATE or not self._is_quorum(self._votes):
            return
        if self._trial:
            self._stand()
        else:
            self._lead()

    def _is_quorum(self, votes: dict[PeerId, bytes]) -> bool:
        members = self.log.members()
        if not members:
            return len(votes) == len(self.peers)
        counted = sum(votes.get(member.peer) == member.store for member in members)
        return counted > len(members) // 2

    def _lead(self) -> None:
        """Most have voted for us: say so, and put a first entry of our term into the log."""
        self.role = Role.LEADER
        self.leader = self.turn.me
        self.emitted = max(self.owner.held(), self.log.base.position)
        self.turn.cancel(self._timer)
        self.followers.begin(self._votes)
        if self.log.members():
            self._add(EntryKind.NOTHING, b"")
        else:
            founders = tuple(Member(peer, self._votes[peer]) for peer in self.peers)
            self._add(EntryKind.MEMBERS, pack_members(founders))
        self.owner.turned()

    def _adopt(self, term: int) -> None:
        """A later term has begun: whatever we were, we are a follower in it (5.1)."""
        was = (self.role, self.leader)
        if self.leads:
            self.followers.stop()
        if self.leads or term > self.term:
            self._wait()
        if term > self.term:
            self.term = term
            self.voted_for = None
            self._signed_to = 0
            self._sync_vote(lambda: None)
        self.role = Role.FOLLOWER
        self.leader = None
        if was != (self.role, self.leader):
            self.owner.turned()

    def step_down(self) -> None:
        """We have not heard from most of the others for too long: let them find another."""
        self.counts["stepped_down"] = self.counts.get("stepped_down", 0) + 1
        self._adopt(self.term)

    # What others say.

    def receive(self, sender: PeerId, message: SequencerMessage) -> None:
        """Another sequencer of the topic says something."""
        if self._stopped or sender not in self.peers or sender == self.turn.me:
            raise RemoteError("not a sequencer of this topic")
        match message:
            case AskVote():
                self._receive_ask(sender, message)
                return
            case Append():
                self._receive_append(sender, message)
                return
            case _:
                pass
        if message.term > self.term:
            self._adopt(message.term)
            return
        match message:
            case Vote():
                self._receive_vote(sender, message)
            case Appended():
                if self.leads and message.term == self.term:
                    self.followers.receive(sender, message)

    # A follower's log (5.3).

    def _receive_append(self, sender: PeerId, message: Append) -> None:
        if message.term < self.term:
            self._reply(sender, self._appended(False, 0))
            return
        if message.term == self.term and self.leads:
            raise RemoteError("a second leader in one term")
        self._check_entries(message)
        if message.term > self.term or self.role is not Role.FOLLOWER:
            self._adopt(message.term)
        self._heard_s = self.turn.now
        self._wait()
        if self.leader != sender:
            self.leader = sender
            self.owner.turned()
        writes: list[Write] = []
        matched = self._match(message, writes)
        if matched is None:
            is_short = self.log.last_index < message.before_index
            # What is committed is the same everywhere.
            hint = self.log.last_index if is_short else self.committed
            self._sync_reply(sender, writes, lambda: self._appended(False, hint))
            return
        self.committed = max(self.committed, min(message.committed, matched))
        self.settled = max(self.settled, message.settled)
        again = not message.entries
        certify = message.certify if again else max(message.certify, self._signed_to + 1)
        term = self.term

        def answer() -> Appended | None:
            # Where another term has begun meanwhile, this may be true no more.
            return self._appended(True, matched, certify) if term == self.term else None

        self._sync_reply(sender, writes, answer)
        self.settle()

    def _check_entries(self, message: Append) -> None:
        """Refuse what no leader sends, before any of it is taken over."""
        if message.base is not None and message.entries:
            raise RemoteError("entries beside a base")
        before: Entry | None = None
        for entry in message.entries:
            is_event = entry.kind is EntryKind.EVENT
            if entry.term > message.term or (before is not None and entry.term < before.term):
                raise RemoteError("an entry of a term that is not its leader's, or goes back")
            if before is not None and entry.position != before.position + is_event:
                raise RemoteError(OUT_OF_POSITION)
            if is_event:
                self.owner.request_of(entry.body)
            elif entry.kind is EntryKind.MEMBERS:
                self._check_members(unpack_members(entry.body))
            before = entry
        if message.base is not None:
            self._check_members(message.base.members)

    def _check_members(self, members: tuple[Member, ...]) -> None:
        if tuple(member.peer for member in members) != self.peers:
            raise RemoteError("other members than the topic's sequencers")

    def _match(self, message: Append, writes: list[Write]) -> int | None:
        """Take entries over; up to which index we agree then, or None where there is a gap."""
        log, base = self.log, message.base
        if base is not None:
            if base.index > log.last_index or log.term_at(base.index) not in (base.term, None):
                if base.index <= self.committed:
                    raise RemoteError(FORGOTTEN)
                writes += log.begin_at(self.topic, base)
                self._requests.clear()
                self._requested.clear()
                self.counts["base_taken"] = self.counts.get("base_taken", 0) + 1
            self.committed = max(self.committed, base.index)
            return max(base.index, log.base.index)
        index = message.before_index
        entries = message.entries
        if index < log.base.index:
            # Those are committed, and the same everywhere.
            entries = entries[log.base.index - index :]
            index = log.base.index
        elif log.term_at(index) != message.before_term:
            return None
        for entry in entries:
            index += 1
            if index <= log.last_index and log.term_at(index) == entry.term:
                continue
            if entry.position != log.position_at(index - 1) + (entry.kind is EntryKind.EVENT):
                raise RemoteError(OUT_OF_POSITION)
            if index <= log.last_index:
                if index <= self.committed:
                    raise RemoteError(FORGOTTEN)
                for cut in range(index, log.last_index + 1):
                    self._forget(log.at(cut))
                writes += log.cut_from(self.topic, index)
            self._note(entry)
            writes.append(log.append(self.topic, entry))
        return index

    def _appended(self, agreed: bool, matched: int, certify: int | None = None) -> Appended:
        signatures: tuple[tuple[int, bytes], ...] = ()
        if certify is not None:
            signatures = tuple(self._sign_from(certify, matched))
        held = self.owner.held()
        return Appended(self.topic, self.term, self.store, agreed, matched, held, signatures)

    def _sign_from(self, position: int, matched: int) -> list[tuple[int, bytes]]:
        """Sign what is on our disk: made in this term, or known to be committed."""
        signed: list[tuple[int, bytes]] = []
        position = max(position, self.log.base.position + 1)
        while len(signed) < SIGNATURES_MAX:
            found = self.log.event_at(position)
            if found is None or found[0] > matched or not self._may_sign(*found):
                break
            signed.append((position, self.owner.sign(found[1])))
            position += 1
        self._signed_to = max(self._signed_to, position - 1)
        return signed

    def _may_sign(self, index: int, entry: Entry) -> bool:
        """Whether most signatures like ours would mean that an entry is committed.

        Kept by most in the term that made it: then it is (5.4.2). Kept in a later term: not yet.
        """
        return index <= self.committed or (entry.term == self.term and self.has_vote)

    # A leader's log.

    def position_of(self, request_id: bytes) -> int | None:
        """The position of the event that answers a request, where it is in our log."""
        return self._requests.get(request_id)

    @property
    def may_propose(self) -> bool:
        """Whether we can give events their places now."""
        if not self.leads or not self.is_whole:
            return False
        return self.log.last_index - self.committed < PENDING_MAX

    def propose(self, make: Callable[[int, int, Cid | None], bytes]) -> None:
        """Put an event into the log; `make` gets its term, its position and its parent."""
        assert self.may_propose
        position = self.log.last_position + 1
        self._add(EntryKind.EVENT, make(self.term, position, self.log.last_cid()))

    def admit(self, member: Member) -> None:
        """A sequencer is back with another store, and has caught up: let it vote again (6)."""
        change = self.log.last_change()
        if change is not None and change > self.committed:
            return
        if self.log.term_at(self.committed) != self.term:
            # Not before something of our own term is committed, or two changes could be open.
            return
        members = [member if each.peer == member.peer else each for each in self.log.members()]
        self.counts["readmitted"] = self.counts.get("readmitted", 0) + 1
        self._add(EntryKind.MEMBERS, pack_members(members))

    def _add(self, kind: EntryKind, body: bytes) -> None:
        position = self.log.last_position + (kind is EntryKind.EVENT)
        entry = Entry(self.term, position, kind, body)
        self._note(entry)
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
            if found is None or not self._is_committed(found[0]):
                return
            _, entry = found
            signatures = self.followers.signatures.setdefault(position, {})
            if self.turn.me not in signatures:
                signatures[self.turn.me] = self.owner.sign(entry)
            if len(signatures) < self._signatures_needed():
                return
            self.emitted = position
            del self.followers.signatures[position]
            self.owner.certified(entry, signatures)

    def _is_committed(self, index: int) -> bool:
        return index <= self.committed

    def _signatures_needed(self) -> int:
        return len(self.peers) // 2 + 1

    # Forgetting.

    def settle(self) -> None:
        """Our history has grown, or more is committed: the log need not keep all of it."""
        if self._stopped:
            return
        held = self.owner.held()
        if self.leads and held > self.emitted:
            for position in range(self.emitted + 1, held + 1):
                self.followers.signatures.pop(position, None)
            self.emitted = held
        kept = self.parameters.sequencer_log
        # Were it only in our own history, its proof could go with our disk, and nobody could
        # make another: those who took our base do not know what they would sign.
        droppable = min(held, self.settled)
        if len(self.log) < 2 * kept or droppable <= self.log.base.position:
            return
        index = min(self.committed, self.log.last_index - kept)
        while index > self.log.base.index and self.log.at(index).position > droppable:
            index -= 1
        if index > self.log.base.index:
            for gone in range(self.log.base.index + 1, index + 1):
                self._forget(self.log.at(gone))
            self._sync(*self.log.drop_to(self.topic, index))

    def _note(self, entry: Entry) -> None:
        if entry.kind is EntryKind.EVENT:
            request_id = self.owner.request_of(entry.body)
            self._requests[request_id] = entry.position
            self._requested[entry.position] = request_id

    def _forget(self, entry: Entry) -> None:
        if entry.kind is EntryKind.EVENT:
            self._requests.pop(self._requested.pop(entry.position, b""), None)

    # The disk.

    def _others(self) -> list[PeerId]:
        return [peer for peer in self.peers if peer != self.turn.me]

    def _sync(self, *writes: Write, then: Callable[[], None] | None = None) -> None:
        self._unsynced += 1

        def synced() -> None:
            self._unsynced -= 1
            if then is not None and not self._stopped:
                then()

        self.turn.persist(*writes, then=synced)

    def _reply(self, to: PeerId, message: SequencerMessage) -> None:
        """Answer once everything that the answer rests on is synced."""
        self._sync_reply(to, [], lambda: message)

    def _sync_reply(
        self, to: PeerId, writes: list[Write], answer: Callable[[], SequencerMessage | None]
    ) -> None:
        def send() -> None:
            message = answer()
            if message is not None:
                self.turn.send(to, message)

        if writes or self._unsynced:
            self._sync(*writes, then=send)
        else:
            send()


def read_saved(store: bytes | None, vote: bytes | None) -> Saved | None:
    """What our disk remembers of a sequencer's votes; None where it has no store of it."""
    if store is None:
        return None
    if vote is None:
        return Saved(store)
    voted_for = vote[8 : 8 + PEER_ID_BYTES]
    return Saved(store, int.from_bytes(vote[:8], "big"), PeerId(voted_for) if voted_for else None)
