"""A sequencer of three whose topic and peers are played by a test."""

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.sequencing.log import Entry, Log
from pulsarcast.protocol.sequencing.owner import Wanted
from pulsarcast.protocol.sequencing.sequencer import Sequencer
from tests.support.parts import Core
from tests.support.people import ALICE, BOB, CAROL, topic_of

TOPIC = topic_of(ALICE).cid
ME, HIM, HER = (each.peer_id for each in (ALICE, BOB, CAROL))
HIS_STORE, HER_STORE = b"hisstore", b"herstore"


class Work:
    """Plays the topic that a sequencer works for."""

    def __init__(self, *peers: PeerId) -> None:
        self.peers = peers
        self.told: list[str] = []

    def held(self) -> int:
        return 0

    def sign(self, entry: Entry) -> bytes:
        return b"signature"

    def is_signed(self, peer: PeerId, entry: Entry, signature: bytes) -> bool:
        return True

    def request_of(self, block: bytes) -> bytes:
        return block

    def check(self, block: bytes) -> None:
        """Every event is allowed."""

    def certified(self, entry: Entry, signatures: dict[PeerId, bytes]) -> None:
        self.told.append("certified")

    def signers_of(self, entry: Entry) -> tuple[PeerId, ...]:
        return self.peers

    def wanted(self) -> Wanted:
        return Wanted(TOPIC, self.peers)

    def named_by(self, version: Cid | None) -> tuple[PeerId, ...] | None:
        return self.peers

    def is_named(self, peer: PeerId, since: Cid | None) -> bool:
        return peer in self.peers

    def named(self) -> tuple[PeerId, ...]:
        return self.peers

    def is_later(self, version: Cid, than: Cid | None) -> bool:
        return False

    def hand_over(self, term: int, position: int, parent: Cid | None, to: Cid) -> bytes | None:
        return None

    def handed_over(self, entry: Entry) -> Cid | None:
        return None

    def summon(self, peer: PeerId) -> None:
        self.told.append("summon")

    def removed(self) -> None:
        self.told.append("removed")

    def leader_changed(self) -> None:
        self.told.append("leader_changed")


class Bench:
    """A real sequencer with one fake, its topic."""

    def __init__(self, *peers: PeerId, log: Log | None = None) -> None:
        self.core = Core()
        self.work = Work(*(peers or (ME, HIM, HER)))
        self.sequencer = Sequencer(TOPIC, (ME, HIM, HER), self.core.context, self.work, log=log)
