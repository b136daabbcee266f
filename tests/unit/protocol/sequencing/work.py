"""A sequencer of three whose versions, events and topic are played by a test."""

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.sequencing.log import Entry, Log, Place
from pulsarcast.protocol.sequencing.sequencer import Sequencer
from pulsarcast.protocol.sequencing.state import SequencerState
from pulsarcast.protocol.sequencing.syncing import Syncing
from tests.support.parts import Core
from tests.support.people import ALICE, BOB, CAROL, topic_of

TOPIC = topic_of(ALICE).cid
ME, HIM, HER = (each.peer_id for each in (ALICE, BOB, CAROL))
HIS_STORE, HER_STORE = b"hisstore", b"herstore"


class Named:
    """Plays the versions of a topic, which all name the same sequencers."""

    def __init__(self, peers: tuple[PeerId, ...]) -> None:
        self.peers = peers

    def newest(self) -> Cid:
        return TOPIC

    def named_by(self, version: Cid | None) -> tuple[PeerId, ...] | None:
        return self.peers

    def named_since(self, version: Cid | None) -> tuple[PeerId, ...]:
        return self.peers

    def is_later(self, version: Cid, than: Cid | None) -> bool:
        return False


class Events:
    """Plays the events of a topic: any bytes are one, and any signature is right."""

    def held(self) -> int:
        return 0

    def request_of(self, block: bytes) -> bytes:
        return block

    def check(self, block: bytes) -> None:
        """Every event is allowed."""

    def handed_over(self, entry: Entry) -> Cid | None:
        return None

    def signers_of(self, entry: Entry) -> tuple[PeerId, ...]:
        return (ME, HIM, HER)

    def sign(self, entry: Entry) -> bytes:
        return b"signature"

    def is_signed(self, peer: PeerId, entry: Entry, signature: bytes) -> bool:
        return True


class Work:
    """Plays the topic that a sequencer works for."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def certified(self, entry: Entry, signatures: dict[PeerId, bytes]) -> None:
        self.told.append("certified")

    def hand_over(self, place: Place, outgoing: tuple[PeerId, ...], to: Cid) -> bytes | None:
        return None

    def summon(self, peer: PeerId) -> None:
        self.told.append("summon")

    def removed(self) -> None:
        self.told.append("removed")

    def leader_changed(self) -> None:
        self.told.append("leader_changed")


class Bench:
    """The state of a real sequencer whose versions and events are played."""

    def __init__(self, *peers: PeerId, log: Log | None = None) -> None:
        self.core = Core()
        self.work = Work()
        named = Named(peers or (ME, HIM, HER))
        self.state = SequencerState(self.core.context, TOPIC, named, Events(), log=log)
        self.syncing = Syncing(self.state)

    def sequencer(self) -> Sequencer:
        """The whole sequencer: its topic is the third fake."""
        return Sequencer(self.core.context, self.state, self.work)
