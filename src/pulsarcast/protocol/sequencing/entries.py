"""A follower's side of the log: checks, stores and signs the leader's entries (Raft, 5.3)."""

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.ids import PeerId
from pulsarcast.model.topic_types import SEQUENCERS_MAX
from pulsarcast.protocol.sequencing.configs import Config, peers_of, unpack_config
from pulsarcast.protocol.sequencing.log import ENTRY_BYTES, Entry, EntryKind
from pulsarcast.protocol.sequencing.messages import Append, Appended
from pulsarcast.protocol.sequencing.state import SequencerState
from pulsarcast.protocol.sequencing.syncing import Syncing
from pulsarcast.protocol.store import Write

SIGNATURES_MAX = 64
"""Signatures in one answer: bounds its size and the time to sign."""
NUMBER_MAX = 1 << 62
"""Highest term, index and position taken: far beyond real ones, and sums still fit 64 bits."""
UNHELD_BYTES_MAX = 256 << 20
"""Bytes of entries that the follower's history lacks: a leader may lie about what is committed, but
the history is certified. An honest leader takes no requests beyond half of it ahead of most."""
LACKS_COMMITTED = "a leader lacks what was committed"
OUT_OF_POSITION = "an entry out of its position"


class Entries:
    """The entries that one sequencer takes over from its leader."""

    def __init__(self, state: SequencerState, syncing: Syncing) -> None:
        self.state = state
        self.syncing = syncing
        self.signed_to = 0
        """The position up to which the leader of this term has this follower's signatures."""

    def refuse(self, sender: PeerId) -> None:
        """A leader of an earlier term sends entries: say that its term is over."""
        self.syncing.reply(sender, self._appended(False, 0))

    def check(self, message: Append) -> None:
        """Refuse a message that no honest leader sends, before any of it is taken over."""
        self._check_entries(message)
        self._check_changes(message)

    def take(self, sender: PeerId, message: Append) -> bool:
        """Take over entries of the leader, which may be none, and answer; whether the logs agree.

        The answer leaves once the entries are on the disk.
        """
        state = self.state
        writes: list[Write] = []
        matched = self._match(message, writes)
        if matched is None:
            is_short = state.log.last_index < message.before_index
            # Committed entries are the same everywhere.
            hint = state.log.last_index if is_short else state.committed
            self.syncing.sync_reply(sender, writes, lambda: self._appended(False, hint))
            return False
        state.committed = max(state.committed, min(message.committed, matched))
        state.settled = max(state.settled, message.settled)
        again = not message.entries
        certify = message.certify if again else max(message.certify, self.signed_to + 1)
        term = state.term

        def answer() -> Appended | None:
            # If another term has begun meanwhile, this may be true no more.
            return self._appended(True, matched, certify) if term == state.term else None

        self.syncing.sync_reply(sender, writes, answer)
        return True

    def _check_entries(self, message: Append) -> None:
        state = self.state
        snapshot = message.snapshot
        if snapshot is not None:
            if message.entries:
                raise RemoteError("entries beside a snapshot", code=Rejection.INVALID_LOG)
            if max(snapshot.index, snapshot.term, snapshot.position) > NUMBER_MAX:
                raise RemoteError("a snapshot out of range", code=Rejection.INVALID_LOG)
        if any(entry.position > NUMBER_MAX for entry in message.entries):
            raise RemoteError(OUT_OF_POSITION, code=Rejection.INVALID_LOG)
        size = sum(ENTRY_BYTES + len(entry.body) for entry in message.entries)
        # Entries after it are there already, or are replaced: an honest leader is not held back by
        # those that another one left.
        unheld = state.log.bytes_after_event(state.events.held())
        unheld -= state.log.bytes_after(message.before_index)
        if size and unheld + size > UNHELD_BYTES_MAX:
            raise RemoteError(
                "entries too far ahead of the follower's history", code=Rejection.TOO_MANY
            )
        before: Entry | None = None
        for entry in message.entries:
            is_event = entry.kind is EntryKind.EVENT
            if entry.term > message.term or (before is not None and entry.term < before.term):
                raise RemoteError(
                    "an entry of a term that is not its leader's, or goes back",
                    code=Rejection.INVALID_LOG,
                )
            if before is not None and entry.position != before.position + is_event:
                raise RemoteError(OUT_OF_POSITION, code=Rejection.INVALID_LOG)
            if is_event:
                state.events.check(entry.body)
            elif entry.kind is EntryKind.MEMBERS:
                self._check_config(unpack_config(entry.body))
            elif entry.body:
                raise RemoteError("an entry of nothing that has a body", code=Rejection.INVALID_LOG)
            before = entry
        if message.snapshot is not None:
            self._check_config(message.snapshot.config)

    def _check_config(self, config: Config) -> None:
        named = self.state.versions.named_by(config.version)
        peers = peers_of(config.members)
        if named is not None and peers != named:
            raise RemoteError(
                "other members than the topic's sequencers", code=Rejection.INVALID_LOG
            )
        for members in (config.members, config.outgoing):
            each = {member.peer for member in members}
            if len(each) != len(members) or len(members) > SEQUENCERS_MAX or not peers:
                raise RemoteError(
                    "members that no list of sequencers has", code=Rejection.INVALID_LOG
                )
        if config.is_joint and config.version is None and peers_of(config.outgoing) != peers:
            raise RemoteError("a change of members without a version", code=Rejection.INVALID_LOG)

    def _check_changes(self, message: Append) -> None:
        """Refuse a change from other members than those that the log has before it."""
        log = self.state.log
        before = max(message.before_index, log.snapshot.index)
        if before == message.before_index and log.term_at(before) != message.before_term:
            return  # Nothing of it is taken over.
        entries = message.entries[before - message.before_index :]
        changes = [entry for entry in entries if entry.kind is EntryKind.MEMBERS]
        members = log.snapshot_at(before).config.members if changes else ()
        for entry in changes:
            config = unpack_config(entry.body)
            if config.is_joint and config.outgoing != members:
                raise RemoteError(
                    "a change from other members than those before it", code=Rejection.INVALID_LOG
                )
            members = config.members

    def _match(self, message: Append, writes: list[Write]) -> int | None:
        """Take entries over; the index up to which the logs agree, or None if there is a gap."""
        state = self.state
        log, snapshot = state.log, message.snapshot
        if snapshot is not None:
            if snapshot.index > log.last_index or log.term_at(snapshot.index) not in (
                snapshot.term,
                None,
            ):
                if snapshot.index <= state.committed:
                    raise RemoteError(LACKS_COMMITTED, code=Rejection.LOST_ENTRIES)
                writes += log.install(state.topic, snapshot)
                state.forget_requests()
                state.counts["snapshot_installed"] += 1
            state.committed = max(state.committed, snapshot.index)
            return max(snapshot.index, log.snapshot.index)
        index = message.before_index
        entries = message.entries
        if index < log.snapshot.index:
            # Entries in the snapshot are committed, and the same everywhere.
            entries = entries[log.snapshot.index - index :]
            index = log.snapshot.index
        elif log.term_at(index) != message.before_term:
            return None
        known = 0
        while known < len(entries) and log.term_at(index + 1) == entries[known].term:
            known += 1
            index += 1
        entries = entries[known:]
        if not entries:
            return index
        first = entries[0]
        if first.position != log.position_at(index) + (first.kind is EntryKind.EVENT):
            raise RemoteError(OUT_OF_POSITION, code=Rejection.INVALID_LOG)
        if index < min(state.committed, log.last_index):
            raise RemoteError(LACKS_COMMITTED, code=Rejection.LOST_ENTRIES)
        # All was checked: an entry refused from here on would leave the log ahead of the disk.
        if index < log.last_index:
            for cut in range(index + 1, log.last_index + 1):
                state.forget(log.at(cut))
            writes += log.cut_from(state.topic, index + 1)
        for entry in entries:
            state.note(entry)
            writes.append(log.append(state.topic, entry))
        return index + len(entries)

    def _appended(self, agreed: bool, matched: int, certify: int | None = None) -> Appended:
        state = self.state
        signatures: tuple[tuple[int, bytes], ...] = ()
        if certify is not None:
            signatures = tuple(self._sign_from(certify, matched))
        held = state.events.held()
        return Appended(state.topic, state.term, state.store, agreed, matched, held, signatures)

    def _sign_from(self, position: int, matched: int) -> list[tuple[int, bytes]]:
        """Sign events on the disk that were made in this term, or are known to be committed."""
        state = self.state
        signed: list[tuple[int, bytes]] = []
        position = max(position, state.log.snapshot.position + 1)
        while len(signed) < SIGNATURES_MAX:
            found = state.log.event_at(position)
            if found is None or found[0] > matched or not self._may_sign(*found):
                break
            signed.append((position, state.events.sign(found[1])))
            position += 1
        self.signed_to = max(self.signed_to, position - 1)
        return signed

    def _may_sign(self, index: int, entry: Entry) -> bool:
        """Whether signatures of most sequencers would prove that an entry is committed.

        An entry that most store in the term that made it is committed (5.4.2); one that they store
        in a later term is not yet. Nor is one while members change: then most of the signers need
        not be most of the voters.
        """
        state = self.state
        if index <= state.committed:
            return True
        log = state.log
        changing = log.config().is_joint or index < (log.last_change() or 0)
        return entry.term == state.term and state.has_vote and not changing
