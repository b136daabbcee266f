"""What must hold of a group of sequencers after every step (Raft, figure 3).

- Election safety: at most one leader in a term.
- Log matching: two logs with an entry of one index and term are the same up to it.
- Leader completeness: a leader has everything that was committed before its term.
- State machine safety: nobody commits another entry under an index than anyone else.
And what certificates add: each names one event for a position, proves it by most of the sequencers,
is linked to the one before, and no request is certified twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pulsarcast.model.errors import Rejection, RemoteError, Verdict
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.sequencing.configs import NO_CONFIG, Config, Member, unpack_config
from pulsarcast.protocol.sequencing.log import Entry, EntryKind
from pulsarcast.protocol.sequencing.state import Role
from pulsarcast.simulation.findings import Findings
from pulsarcast.simulation.sequencers.events import handover_of, version_of

if TYPE_CHECKING:
    from pulsarcast.simulation.sequencers.group import Group, Peer


class Checkers:
    """Watches all sequencers at once."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.findings = Findings()
        self.leaders: dict[int, int] = {}
        self.entries: dict[tuple[int, int], tuple[Entry, int]] = {}
        """By index and term: the entry, and the term of the one before."""
        self.committed: dict[int, tuple[int, Entry]] = {}
        """By index: the entry, and the term in which it was first known to be committed."""
        self.committed_to = 0
        self.config = NO_CONFIG
        """Who has a vote, by the newest committed change."""
        self.version = 0
        """The version whose sequencers these are, alone."""
        self.handovers: dict[int, int] = {}
        """By position: the version whose certificates count from there on."""
        self.order: dict[int, tuple[Cid, bytes]] = {}
        """By position: the event that was certified, and its request."""
        self.requests: dict[bytes, int] = {}
        self.certified_s = 0.0
        self.on_leader: Callable[[Peer], None] | None = None
        """Somebody was elected."""
        self._broken = False
        self._seen: dict[int, tuple[int, int, int]] = {}

    @property
    def is_broken(self) -> bool:
        """Whether something happened that must not: no mere delay, and no short certificate."""
        return self._broken

    def began(self, peer: Peer) -> None:
        """A new life: look at its log from the beginning."""
        self._seen[peer.index] = (0, 0, 0)

    def look(self, peer: Peer) -> None:
        """A sequencer has taken a step."""
        state = peer.state
        log = state.log
        seen, seen_term, seen_commit = self._seen[peer.index]
        now = (log.last_index, log.last_term, state.committed)
        if (seen, seen_term) != now[:2]:
            self._match(peer, seen, seen_term)
        if seen_commit != now[2]:
            self._commit(peer, seen_commit)
        self._seen[peer.index] = now
        if state.role is Role.LEADER and state.term not in self.leaders:
            self.leaders[state.term] = peer.index
            self._complete(peer)
            if self.on_leader is not None:
                self.on_leader(peer)
        elif state.role is Role.LEADER and self.leaders[state.term] != peer.index:
            self._object(peer, "election", f"a second leader in term {state.term}")

    def _match(self, peer: Peer, seen: int, seen_term: int) -> None:
        log = peer.state.log
        if seen <= log.last_index and log.term_at(seen) == seen_term:
            first = seen + 1
        else:
            first = log.snapshot.index + 1
        for index in range(max(first, log.snapshot.index + 1), log.last_index + 1):
            entry = log.at(index)
            before = log.term_at(index - 1)
            assert before is not None
            known = self.entries.setdefault((index, entry.term), (entry, before))
            if known != (entry, before):
                self._object(peer, "log_matching", f"index {index}, term {entry.term}")

    def _commit(self, peer: Peer, seen: int) -> None:
        state = peer.state
        log = state.log
        if log.snapshot.index > self.committed_to:
            # Committed and dropped in one step: the snapshot says all that counts of it.
            self.committed_to = log.snapshot.index
            if log.snapshot.config != self.config:
                self._change(peer.group.peers, log.snapshot.config)
        for index in range(max(seen, log.snapshot.index) + 1, state.committed + 1):
            entry = log.at(index)
            known = self.committed.setdefault(index, (state.term, entry))
            if known[1] != entry:
                self._object(peer, "state_machine", f"another entry is committed at {index}")
            elif index > self.committed_to:
                self.committed_to = index
                if entry.kind is EntryKind.MEMBERS:
                    self._change(peer.group.peers, unpack_config(entry.body))

    def _change(self, peers: list[Peer], config: Config) -> None:
        """Who has a vote is another, for good: only now may the next one lose its store."""
        self.config = config
        if not config.is_joint and config.version is not None:
            self.version = self.group.numbers[config.version]
        for each in peers:
            is_in = each.up and Member(each.id, each.state.store) in config.members
            if is_in and not config.is_joint:
                each.wiped = False

    def _complete(self, peer: Peer) -> None:
        state = peer.state
        log = state.log
        for index, (term, entry) in self.committed.items():
            if term >= state.term or index <= log.snapshot.index:
                continue
            if index > log.last_index or log.at(index) != entry:
                self._object(peer, "leader_completeness", f"it lacks what is committed at {index}")
                return

    def certified(self, peer: Peer, entry: Entry, signatures: dict[PeerId, bytes]) -> None:
        """An event leaves the sequencers."""
        cid, request = entry.cid, peer.request_of(entry.body)
        signers = self.group.versions[version_of(entry.body)]
        right = sum(
            each in signers and peer.is_signed(each, entry, mark)
            for each, mark in signatures.items()
        )
        if right <= len(signers) // 2:
            self._object(peer, "certificate", f"{right} signatures for position {entry.position}")
        before = [at for at in self.handovers if at < entry.position]
        in_force = self.handovers[max(before)] if before else 0
        if signers != self.group.versions[in_force]:
            self._object(peer, "deposed", f"others count at position {entry.position}")
        handover = handover_of(entry.body)
        if handover is not None:
            self.handovers[entry.position] = handover
        known = self.order.setdefault(entry.position, (cid, request))
        if known[0] != cid:
            self._object(peer, "fork", f"two events are certified for position {entry.position}")
            return
        if self.requests.setdefault(request, entry.position) != entry.position:
            self._object(peer, "twice", f"request {request!r} has two positions")
        last = self.order.get(entry.position - 1)
        parent = entry.body.rsplit(b"/", 1)[1].decode()
        if parent != ("" if last is None else last[0].hex()):
            self._object(peer, "chain", f"position {entry.position} is not linked to the last")
        self.certified_s = peer.group.loop.now

    def compare(self, peer: Peer, position: int, cid: Cid) -> None:
        """An event came a second time."""
        if peer.history[position][0] != cid:
            self._object(peer, "fork", f"two events are in history at position {position}")

    def refused(self, peer: Peer, error: RemoteError) -> None:
        """A sequencer rejected what another said: here nobody lies."""
        if error.verdict is Verdict.IGNORE:
            return
        kind = "leader_completeness" if error.code is Rejection.LOST_ENTRIES else "refused"
        self._object(peer, kind, str(error))

    def _object(self, peer: Peer, kind: str, what: str) -> None:
        self._broken = self._broken or kind != "certificate"
        self.findings.add(kind, f"at {peer.group.loop.now:.3f} s, sequencer {peer.index}: {what}")
