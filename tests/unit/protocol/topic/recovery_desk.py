"""A `Recovery` and its `Witnesses` with their surroundings played by a test."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple, cast

from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.model.topics import Retention
from pulsarcast.protocol.effects import Send
from pulsarcast.protocol.messages import FetchRange, Range
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.flow import FlowControl
from pulsarcast.protocol.topic.handovers import Handovers
from pulsarcast.protocol.topic.keeping import Keeping
from pulsarcast.protocol.topic.recovery import Recovery
from pulsarcast.protocol.topic.retirement import Retirement
from pulsarcast.protocol.topic.sharing import Sharing
from pulsarcast.protocol.topic.witnesses import Witnesses
from tests.support.people import ALICE, EPOCH, identity, peer, topic_of, unordered
from tests.unit.protocol.topic.bench import Bench, Members

TOPIC = topic_of(identity("author"))
RETIRING = topic_of(identity("author"), unordered(retention=Retention(count=5)))
LAST = cid_of(b"the last one")
AUTHOR, PARENT, LAZY, OTHER = (peer(name) for name in ("author", "parent", "lazy", "other"))


class Asked(NamedTuple):
    """A question that was sent."""

    peer: PeerId
    question: FetchRange


class _Sharing(Sharing):
    """Writes down who is consulted."""

    consulted: list[tuple[tuple[PeerId, ...], PeerId, int]]

    def consult(self, peers: Iterable[PeerId], publisher: PeerId, epoch: int) -> None:
        self.consulted.append((tuple(peers), publisher, epoch))


class _Retirement(Retirement):
    """Writes down what is retired."""

    retired: list[tuple[PeerId, int, int]]

    def retire(self, publisher: PeerId, epoch: int, number: int) -> None:
        self.retired.append((publisher, epoch, number))
        super().retire(publisher, epoch, number)


class Desk(Bench):
    """A `Recovery` with the topic and the other members played by the test."""

    def __init__(
        self,
        *,
        parent: PeerId | None = None,
        lazy: Collection[PeerId] = (),
        neighbours: tuple[PeerId, ...] = (),
        members: tuple[PeerId, ...] = (),
        retires: bool = False,
    ) -> None:
        near = Members(parent=parent, lazy=lazy, known=members)
        super().__init__(RETIRING if retires else TOPIC, members=near)
        self.looked_up: list[tuple[Cid, Callable[[bytes | None], None]]] = []
        self.taken: list[bytes] = []
        self._neighbours = neighbours
        sharing = _Sharing(self.state)
        self.consulted = sharing.consulted = []
        flow = FlowControl(self.state, near.overlay, self)
        handovers = Handovers(self.state)
        keeping = Keeping(self.state, handovers, flow, near.timer, self.owner)
        retirement = _Retirement(self.state, keeping)
        self.retired = retirement.retired = []
        witnesses = Witnesses(self.state, near.overlay, near.heartbeat, sharing)
        self.recovery = Recovery(
            self.state, cast("Any", self), near.overlay, retirement, witnesses, self
        )

    def neighbours(self) -> Iterable[PeerId]:
        return self._neighbours

    def find_block(self, cid: Cid, then: Callable[[bytes | None], None]) -> None:
        self.looked_up.append((cid, then))

    def take_recovered(self, block: bytes, sender: PeerId, certificate: bytes = b"") -> None:
        """Take an event in as a topic without order does: what comes ahead shows a gap."""
        self.taken.append(block)
        if not block.isdigit():
            return
        number = int(block)
        gap = self.frontier.gap_before(ALICE.peer_id, EPOCH, number)
        self.frontier.add(ALICE.peer_id, EPOCH, number, None)
        if gap is not None:
            self.recovery.gap(ALICE.peer_id, EPOCH, gap, sender)

    def shows(
        self,
        who: PeerId,
        high: int,
        *,
        retired: int = 0,
        floor: int | None = None,
        publisher: PeerId = ALICE.peer_id,
        patience_s: float = 0.0,
    ) -> None:
        start = retired if floor is None else floor
        mark = MarkState(publisher, EPOCH, start, high, LAST, retired=retired)
        self.recovery.compare(who, [mark], patience_s=patience_s)

    def asked(self) -> list[Asked]:
        """The questions since the last look."""
        effects, self.turn.effects = self.turn.effects, []
        return [
            Asked(effect.peer, effect.message)
            for effect in effects
            if isinstance(effect, Send) and isinstance(effect.message, FetchRange)
        ]

    def answer(self, asked: Asked, *numbers: int, more: bool = False) -> None:
        blocks = tuple(b"%d" % number for number in numbers)
        message = Range(asked.question.request, TOPIC.cid, blocks, more)
        self.recovery.receive(asked.peer, message)

    def exhaust(self) -> list[PeerId]:
        """Answer every question with nothing; returns who was asked, in order."""
        order: list[PeerId] = []
        while asked := self.asked():
            for each in asked:
                assert len(order) < 100, "questions never end"
                order.append(each.peer)
                self.answer(each)
        return order

    def pass_time(self, seconds: float) -> None:
        """Fire what was set and not fired yet: these tests set few timers, all alike."""
        self.turn.now += seconds
        for timer in list(self.turn._timers):
            self.turn.fired(timer)
