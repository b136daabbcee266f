"""What sequencers of one topic say to each other: Raft's two questions and their answers.

Every message names the sender's store: a vote, or an entry kept, counts for a member and its store
together, so one that has lost its store has lost its vote as well (decision 0021).
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
    """Only to find out whether it would be granted: nobody's term changes (Raft thesis, 9.6)."""


class Vote(Struct, frozen=True):
    """You may, or not; the sender's term."""

    topic: Cid
    term: Number
    store: StoreId
    granted: bool
    pre_vote: bool


class Append(Struct, frozen=True):
    """The leader's entries behind one that the receiver should have, or just a sign of life."""

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
    """What the receiver lacks was dropped: go on behind this (Raft, 7)."""


Signed: TypeAlias = Annotated[tuple[Number, Signature], Parts(("position", "signature"))]


class Appended(Struct, frozen=True):
    """What the receiver has: everything up to `matched` is on its disk, if it agrees."""

    topic: Cid
    term: Number
    store: StoreId
    agreed: bool
    matched: Number
    """Where it does not agree: from behind where the leader should try."""
    held: Number
    """Up to this position every event is in the receiver's history, with its proof."""
    signatures: Annotated[tuple[Signed, ...], Many(SIGNATURES_MAX)] = ()
    """Of events that are committed if so many others sign them too."""


class Summon(Struct, frozen=True):
    """This topic names you as one of its sequencers."""

    topic: Cid
    version: Cid | None = None
    """The version that does; None for the first."""


SequencerMessage = RequestVote | Vote | Append | Appended
