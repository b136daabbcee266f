"""A follower's side of the log: checks, stores and signs the leader's entries (Raft, 5.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.ids import PeerId
from pulsarcast.model.topic_types import SEQUENCERS_MAX
from pulsarcast.protocol.sequencing.configs import Config, unpack_config
from pulsarcast.protocol.sequencing.log import ENTRY_BYTES, Entry, EntryKind
from pulsarcast.protocol.sequencing.messages import Append, Appended
from pulsarcast.protocol.sequencing.roles import Role
from pulsarcast.protocol.store import Write

if TYPE_CHECKING:
    from pulsarcast.protocol.sequencing.sequencer import Sequencer

SIGNATURES_MAX = 64
"""Signatures in one answer: bounds its size and the time to sign."""
NUMBER_MAX = 1 << 62
"""Highest term, index and position taken: far beyond real ones, and sums still fit 64 bits."""
UNHELD_BYTES_MAX = 256 << 20
"""Bytes of entries that the follower's history lacks: a leader may lie about what is committed, but
the history is certified. An honest leader takes no requests beyond half of it ahead of most."""
OUT_OF_POSITION = "an entry out of its position"


class Entries:
    """The entries that one sequencer takes over from its leader."""

    def __init__(self, sequencer: Sequencer) -> None:
        self.sequencer = sequencer
        self.signed_to = 0
        """The position up to which the leader of this term has this follower's signatures."""

    def receive(self, sender: PeerId, message: Append) -> None:
        """A leader sends entries, or a heartbeat."""
        sequencer = self.sequencer
        if message.term < sequencer.term:
            sequencer.reply(sender, self._appended(False, 0))
            return
        if message.term == sequencer.term and sequencer.leads:
            raise RemoteError("a second leader in one term", code=Rejection.TWO_LEADERS)
        self._check_entries(message)
        self._check_changes(message)
        if message.term > sequencer.term or sequencer.role is not Role.FOLLOWER:
            sequencer.become_follower(message.term)
        sequencer.elections.heard_s = sequencer.turn.now
        sequencer.elections.reset_timeout()
        if sequencer.leader != sender:
            sequencer.leader = sender
            sequencer.owner.leader_changed()
        writes: list[Write] = []
        matched = self._match(message, writes)
        if matched is None:
            is_short = sequencer.log.last_index < message.before_index
            # Committed entries are the same everywhere.
            hint = sequencer.log.last_index if is_short else sequencer.committed
            sequencer.sync_reply(sender, writes, lambda: self._appended(False, hint))
            return
        sequencer.committed = max(sequencer.committed, min(message.committed, matched))
        sequencer.settled = max(sequencer.settled, message.settled)
        again = not message.entries
        certify = message.certify if again else max(message.certify, self.signed_to + 1)
        term = sequencer.term

        def answer() -> Appended | None:
            # If another term has begun meanwhile, this may be true no more.
            return self._appended(True, matched, certify) if term == sequencer.term else None

        sequencer.sync_reply(sender, writes, answer)
        sequencer.settle()
        sequencer.changes.leave_if_removed()

    def _check_entries(self, message: Append) -> None:
        """Refuse a message that no honest leader sends, before any of it is taken over."""
        sequencer = self.sequencer
        snapshot = message.snapshot
        if snapshot is not None and message.entries:
            raise RemoteError("entries beside a snapshot", code=Rejection.INVALID_LOG)
        if (
            snapshot is not None
            and max(snapshot.index, snapshot.term, snapshot.position) > NUMBER_MAX
        ):
            raise RemoteError("a snapshot with numbers out of range", code=Rejection.INVALID_LOG)
        if any(entry.position > NUMBER_MAX for entry in message.entries):
            raise RemoteError(OUT_OF_POSITION, code=Rejection.INVALID_LOG)
        size = sum(ENTRY_BYTES + len(entry.body) for entry in message.entries)
        # Entries after it are there already, or are replaced: an honest leader is not held back by
        # those that another one left.
        unheld = sequencer.log.bytes_after_event(sequencer.owner.held())
        unheld -= sequencer.log.bytes_after(message.before_index)
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
                sequencer.owner.check(entry.body)
            elif entry.kind is EntryKind.MEMBERS:
                self._check_config(unpack_config(entry.body))
            elif entry.body:
                raise RemoteError("an entry of nothing that has a body", code=Rejection.INVALID_LOG)
            before = entry
        if message.snapshot is not None:
            self._check_config(message.snapshot.config)

    def _check_config(self, config: Config) -> None:
        named = self.sequencer.owner.named_by(config.version)
        peers = tuple(member.peer for member in config.members)
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
        going = tuple(member.peer for member in config.outgoing)
        if config.is_joint and config.version is None and going != peers:
            raise RemoteError("a change of members without a version", code=Rejection.INVALID_LOG)

    def _check_changes(self, message: Append) -> None:
        """Refuse a change from other members than those that the log has before it."""
        log = self.sequencer.log
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
        sequencer = self.sequencer
        log, snapshot = sequencer.log, message.snapshot
        if snapshot is not None:
            if snapshot.index > log.last_index or log.term_at(snapshot.index) not in (
                snapshot.term,
                None,
            ):
                if snapshot.index <= sequencer.committed:
                    raise RemoteError(
                        "a leader lacks what was committed", code=Rejection.LOST_ENTRIES
                    )
                writes += log.install(sequencer.topic, snapshot)
                sequencer.forget_requests()
                sequencer.counts["snapshot_installed"] += 1
            sequencer.committed = max(sequencer.committed, snapshot.index)
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
        if index < min(sequencer.committed, log.last_index):
            raise RemoteError("a leader lacks what was committed", code=Rejection.LOST_ENTRIES)
        # All was checked: an entry refused from here on would leave the log ahead of the disk.
        if index < log.last_index:
            for cut in range(index + 1, log.last_index + 1):
                sequencer.forget(log.at(cut))
            writes += log.cut_from(sequencer.topic, index + 1)
        for entry in entries:
            sequencer.note(entry)
            writes.append(log.append(sequencer.topic, entry))
        return index + len(entries)

    def _appended(self, agreed: bool, matched: int, certify: int | None = None) -> Appended:
        sequencer = self.sequencer
        signatures: tuple[tuple[int, bytes], ...] = ()
        if certify is not None:
            signatures = tuple(self._sign_from(certify, matched))
        held = sequencer.owner.held()
        return Appended(
            sequencer.topic, sequencer.term, sequencer.store, agreed, matched, held, signatures
        )

    def _sign_from(self, position: int, matched: int) -> list[tuple[int, bytes]]:
        """Sign events on the disk that were made in this term, or are known to be committed."""
        sequencer = self.sequencer
        signed: list[tuple[int, bytes]] = []
        position = max(position, sequencer.log.snapshot.position + 1)
        while len(signed) < SIGNATURES_MAX:
            found = sequencer.log.event_at(position)
            if found is None or found[0] > matched or not self._may_sign(*found):
                break
            signed.append((position, sequencer.owner.sign(found[1])))
            position += 1
        self.signed_to = max(self.signed_to, position - 1)
        return signed

    def _may_sign(self, index: int, entry: Entry) -> bool:
        """Whether signatures of most sequencers would prove that an entry is committed.

        An entry that most store in the term that made it is committed (5.4.2); one that they store
        in a later term is not yet. Nor is one while members change: then most of the signers need
        not be most of the voters.
        """
        sequencer = self.sequencer
        if index <= sequencer.committed:
            return True
        log = sequencer.log
        changing = log.config().is_joint or index < (log.last_change() or 0)
        return entry.term == sequencer.term and sequencer.has_vote and not changing
