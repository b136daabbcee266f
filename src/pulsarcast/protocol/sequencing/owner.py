"""The interface between a sequencer's consensus and the topic whose events it orders."""

from typing import NamedTuple, Protocol

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.sequencing.log import Entry


class Wanted(NamedTuple):
    """The sequencers that the topic's newest version names."""

    version: Cid
    peers: tuple[PeerId, ...]


class SequencerOwner(Protocol):
    """What a sequencer asks of the topic that it works for."""

    def held(self) -> int:
        """The position up to which every event is in the node's history, certified and synced."""

    def sign(self, entry: Entry) -> bytes:
        """The node's signature under an event's place."""

    def is_signed(self, peer: PeerId, entry: Entry, signature: bytes) -> bool:
        """Whether a peer signed an event's place."""

    def request_of(self, block: bytes) -> bytes:
        """The id of the request that an event in the log answers."""

    def check(self, block: bytes) -> None:
        """Raise RemoteError unless it is an event that the log may take, as far as is known."""

    def certified(self, entry: Entry, signatures: dict[PeerId, bytes]) -> None:
        """An event is committed, and these signatures prove it: it may leave."""

    def signers_of(self, entry: Entry) -> tuple[PeerId, ...]:
        """The sequencers of which most have to sign an event's place."""

    def wanted(self) -> Wanted:
        """The sequencers that the newest version names."""

    def named_by(self, version: Cid | None) -> tuple[PeerId, ...] | None:
        """The sequencers that a version names, None meaning the first; None if it is unknown."""

    def is_named(self, peer: PeerId, since: Cid | None) -> bool:
        """Whether a version names a peer, from one on or, with None, from the first."""

    def named(self) -> tuple[PeerId, ...]:
        """All sequencers that any version names, from the first on, each once."""

    def is_later(self, version: Cid, than: Cid | None) -> bool:
        """Whether one version comes after another, as far as both are known; None is the first."""

    def hand_over(self, term: int, position: int, parent: Cid | None, to: Cid) -> bytes | None:
        """The event by which the sequencers hand the order over to those of another version.

        None if no known version names the sequencers that hand over."""

    def handed_over(self, entry: Entry) -> Cid | None:
        """The version whose sequencers an event hands the order over to, if it does."""

    def summon(self, peer: PeerId) -> None:
        """Tell a peer that the newest version names it: it does not answer."""

    def removed(self) -> None:
        """A committed change of members has removed the node."""

    def leader_changed(self) -> None:
        """There is another leader, or none."""
