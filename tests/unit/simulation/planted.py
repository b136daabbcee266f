"""A world of planted records: what nodes would have said, told to an observer by hand."""

from hashlib import sha256

from pulsarcast.model import trace
from pulsarcast.model.events import Position
from pulsarcast.model.ids import Cid, PeerId, cid_of, peer_id_of
from pulsarcast.model.topic_types import DeliveryOrder, Dissemination, Mark
from pulsarcast.protocol.inputs import Now
from pulsarcast.simulation.observer import Observer

NOW = Now(mono_s=0.0, wall_us=0)
TOPIC = cid_of(b"a topic")
EPOCH = 7


def peer(index: int) -> PeerId:
    """The peer id of a planted node."""
    return peer_id_of(sha256(b"node %d" % index).digest())


def event(number: int, *, publisher: int = 0, variant: str = "") -> Cid:
    """The CID of a planted event."""
    return cid_of(f"{publisher}/{number}/{variant}".encode())


class Planted:
    """An observer, and short ways to tell it things."""

    def __init__(self, order: DeliveryOrder = DeliveryOrder.NONE, *, nodes: int = 3) -> None:
        self.observer = Observer()
        self.time_s = 0.0
        self.lives = [1] * nodes
        self.indexes: dict[tuple[int, Cid], int] = {}
        self.observer.peers.update({index: peer(index) for index in range(nodes)})
        self.tell(
            0,
            trace.TopicCreated(
                topic=TOPIC,
                name="news",
                author=peer(0),
                order=order,
                dissemination=Dissemination.TREE,
                version=TOPIC,
            ),
        )

    def tell(self, index: int, record: trace.Record) -> None:
        """A node says something, a second after the last."""
        self.time_s += 1.0
        self.observer.record(self.time_s, index, self.lives[index], NOW, record)

    def subscribe(self, *nodes: int, start: tuple[Mark, ...] = ()) -> None:
        """Nodes subscribe, and their callers are told."""
        for index in nodes:
            self.tell(index, trace.Subscribed(topic=TOPIC, start=start))
            self.observer.confirmed(index, TOPIC)

    def publish(
        self,
        number: int,
        *,
        by: int = 0,
        variant: str = "",
        position: int | None = None,
        parents: tuple[Cid, ...] = (),
        request_id: bytes | None = None,
        injection: str | None = None,
        version: Cid = TOPIC,
        claimed: int | None = None,
        merge: bool = False,
    ) -> Cid:
        """A node publishes an event of its own, or one that another is said to have numbered."""
        numbered_by = by if claimed is None else claimed
        cid = event(number, publisher=numbered_by, variant=variant)
        publisher = peer(numbered_by)
        self.tell(
            by,
            trace.Published(
                topic=TOPIC,
                event=cid,
                version=version,
                publisher=publisher,
                author=publisher,
                epoch=EPOCH,
                number=number,
                parents=parents,
                position=None if position is None else Position(1, position),
                request_id=cid if request_id is None else request_id,
                injection=injection,
                merge=merge,
            ),
        )
        return cid

    def acknowledge(self, cid: Cid, level: str = "replicated") -> None:
        """A caller is told that an event is safe."""
        self.observer.acknowledged(cid, level)

    def deliver(
        self,
        index: int,
        *numbers: int,
        by: int = 0,
        variant: str = "",
        redelivery: bool = False,
        hops: int = 1,
    ) -> None:
        """A node delivers events, in this order."""
        for number in numbers:
            cid = event(number, publisher=by, variant=variant)
            place = self.indexes[index, TOPIC] = self.indexes.get((index, TOPIC), 0) + 1
            self.tell(
                index,
                trace.Delivered(
                    topic=TOPIC,
                    event=cid,
                    publisher=peer(by),
                    epoch=EPOCH,
                    number=number,
                    index=place,
                    hops=hops,
                    redelivery=redelivery,
                ),
            )

    def crash(self, index: int, *, keep_disk: bool = True) -> None:
        """A node is killed and starts again."""
        if keep_disk:
            self.observer.killed(index, self.time_s)
        else:
            self.observer.disk_lost(index, self.time_s)
        self.lives[index] += 1

    def found(self) -> dict[str, int]:
        """What was objected to so far."""
        return self.observer.findings.by_kind()
