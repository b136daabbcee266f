"""The messages between sequencers of one topic: Raft's two calls and their answers.

Every message names the sender's store: a vote, or a stored entry, counts for a member and its store
together, so a sequencer that has lost its store has lost its vote as well (decision 0021).
"""

from typing import Annotated, TypeAlias

from msgspec import Struct

from pulsarcast.model.ids import Cid
from pulsarcast.protocol.fields import Many, Number, Parts, Signature, StoreId
from pulsarcast.protocol.limits import ENTRIES_MAX, SIGNATURES_MAX
from pulsarcast.protocol.sequencing.log import Entry, Snapshot


class RequestVote(Struct, frozen=True):
    """May I lead in this term? (Raft, 5.2)."""

    topic: Cid
    term: Number
    store: StoreId
    last_index: Number
    last_term: Number
    pre_vote: bool
    """Whether it only asks if the vote would be granted: no term changes (Raft thesis, 9.6)."""


class Vote(Struct, frozen=True):
    """The answer to `RequestVote`: granted or not, with the sender's term."""

    topic: Cid
    term: Number
    store: StoreId
    granted: bool
    pre_vote: bool


class Append(Struct, frozen=True):
    """AppendEntries: entries after one that the receiver should have, or a heartbeat."""

    topic: Cid
    term: Number
    store: StoreId
    before_index: Number
    before_term: Number
    entries: Annotated[tuple[Entry, ...], Many(ENTRIES_MAX)]
    committed: Number
    certify: Number
    """From this position on the leader lacks signatures."""
    settled: Number
    """Up to this position most members have every event in their histories, with its proof."""
    snapshot: Snapshot | None = None
    """InstallSnapshot: the entries that the receiver lacks were dropped (Raft, 7)."""


Signed: TypeAlias = Annotated[tuple[Number, Signature], Parts(("position", "signature"))]


class Appended(Struct, frozen=True):
    """The answer to `Append`: all entries up to `matched` are on disk, if the receiver agrees."""

    topic: Cid
    term: Number
    store: StoreId
    agreed: bool
    matched: Number
    """If it does not agree: the index after which the leader should try."""
    held: Number
    """Up to this position every event is in the receiver's history, with its proof."""
    signatures: Annotated[tuple[Signed, ...], Many(SIGNATURES_MAX)] = ()
    """Signatures of events: those of most sequencers prove that an event is committed."""


class Summon(Struct, frozen=True):
    """This topic names you as one of its sequencers."""

    topic: Cid
    version: Cid | None = None
    """The version that names the receiver; None for the first."""


SequencerMessage = RequestVote | Vote | Append | Appended
