"""What a sequencer asks of the topic that it works for."""

from typing import NamedTuple, Protocol

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.sequencing.log import Entry


class Wanted(NamedTuple):
    """Whom the topic's author wants as sequencers, by its newest version."""

    version: Cid
    peers: tuple[PeerId, ...]


class SequencerOwner(Protocol):
    """What a sequencer asks of the topic that it works for."""

    def held(self) -> int:
        """The position up to which every event is in our history, certified and synced."""

    def sign(self, entry: Entry) -> bytes:
        """Our signature under an event's place."""

    def is_signed(self, peer: PeerId, entry: Entry, signature: bytes) -> bool:
        """Whether a peer signed an event's place."""

    def request_of(self, block: bytes) -> bytes:
        """The id of the request that an event in our log answers."""

    def check(self, block: bytes) -> None:
        """Raise RemoteError unless it is an event that our log may take, as far as we can tell."""

    def certified(self, entry: Entry, signatures: dict[PeerId, bytes]) -> None:
        """An event is committed, and so many signatures prove it: it may leave."""

    def signers_of(self, entry: Entry) -> tuple[PeerId, ...]:
        """The sequencers of whom most have to sign an event's place."""

    def wanted(self) -> Wanted:
        """Whom the newest version names."""

    def named_by(self, version: Cid | None) -> tuple[PeerId, ...] | None:
        """Whom a version names, None meaning the first; None where we do not know it."""

    def is_named(self, peer: PeerId, since: Cid | None) -> bool:
        """Whether a version names a peer, from one on or, with None, from the first."""

    def named(self) -> tuple[PeerId, ...]:
        """Everyone whom a version names, from the first on, each once."""

    def is_later(self, version: Cid, than: Cid | None) -> bool:
        """Whether one version comes after another, as far as we know both; None is the first."""

    def hand_over(self, term: int, position: int, parent: Cid | None, to: Cid) -> bytes | None:
        """An event by which the sequencers leave the order to those of another version.

        None where no version that we know names those who leave it."""

    def handed_over(self, entry: Entry) -> Cid | None:
        """The version whose sequencers an event leaves the order to, if it does."""

    def summon(self, peer: PeerId) -> None:
        """Tell a peer that the newest version names it: it does not answer."""

    def removed(self) -> None:
        """Others have taken our place, for good."""

    def turned(self) -> None:
        """Who leads has changed."""
