"""What a sequencer's consensus asks: of versions, of events, and of the topic that it works for.

`Versions` answers the first (`topic/versions`), `EventsUnderWay` the second (`events`), and a Raft
member the third.
"""

from typing import Protocol

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.sequencing.log import Entry, Place


class NamedSequencers(Protocol):
    """The sequencers that a topic's versions name; None stands for its first version."""

    def newest(self) -> Cid:
        """The newest version: its sequencers are wanted."""

    def named_by(self, version: Cid | None) -> tuple[PeerId, ...] | None:
        """The sequencers that a version names; None if it is unknown."""

    def named_since(self, version: Cid | None) -> tuple[PeerId, ...]:
        """All sequencers that versions name, from one on, each once; none if it is unknown."""

    def is_later(self, version: Cid, than: Cid | None) -> bool:
        """Whether one version comes after another, as far as both are known."""


class OrderedEvents(Protocol):
    """The events that a log orders."""

    def held(self) -> int:
        """The position up to which every event is in the node's history, certified and synced."""

    def request_of(self, block: bytes) -> bytes:
        """The id of the request that an event in the log answers."""

    def check(self, block: bytes) -> None:
        """Raise RemoteError unless it is an event that the log may take, as far as is known."""

    def handed_over(self, entry: Entry) -> Cid | None:
        """The version whose sequencers an event hands the order over to, if it does."""

    def signers_of(self, entry: Entry) -> tuple[PeerId, ...]:
        """The sequencers of which most have to sign an event's place."""

    def sign(self, entry: Entry) -> bytes:
        """The node's signature under an event's place."""

    def is_signed(self, peer: PeerId, entry: Entry, signature: bytes) -> bool:
        """Whether a peer signed an event's place."""


class SequencerOwner(Protocol):
    """What a sequencer tells the topic that it works for."""

    def certified(self, entry: Entry, signatures: dict[PeerId, bytes]) -> None:
        """An event is committed, and these signatures prove it: it may leave."""

    def hand_over(self, place: Place, outgoing: tuple[PeerId, ...], to: Cid) -> bytes | None:
        """The event by which sequencers hand the order over to those of another version.

        None if no known version names the sequencers that hand over."""

    def summon(self, peer: PeerId) -> None:
        """Tell a peer that the newest version names it: it does not answer."""

    def removed(self) -> None:
        """A committed change of members has removed the node."""

    def leader_changed(self) -> None:
        """There is another leader, or none."""
