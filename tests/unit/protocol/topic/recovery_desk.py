"""A `Recovery` and its `Witnesses` with their surroundings played by a test."""

from collections import Counter
from collections.abc import Callable, Collection
from random import Random
from typing import NamedTuple

from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.protocol.effects import Send
from pulsarcast.protocol.messages import FetchRange, Range
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.recovery import Recovery
from pulsarcast.protocol.topic.witnesses import Witnesses
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, BOB, EPOCH, peer, topic_of

TOPIC = topic_of(ALICE)
LAST = cid_of(b"the last one")
AUTHOR, PARENT, LAZY, OTHER = (peer(name) for name in ("author", "parent", "lazy", "other"))


class Asked(NamedTuple):
    """A question that was sent."""

    peer: PeerId
    question: FetchRange


class Desk:
    """A `Recovery` with its surroundings played by the test."""

    def __init__(
        self,
        *,
        parent: PeerId | None = None,
        lazy: Collection[PeerId] = (),
        neighbours: tuple[PeerId, ...] = (),
        members: tuple[PeerId, ...] = (),
        retires: bool = False,
    ) -> None:
        self.turn = Turn(BOB, Random(1))
        self.frontier = Frontier()
        self.looked_up: list[tuple[Cid, Callable[[bytes | None], None]]] = []
        self.retired: list[tuple[PeerId, int, int]] = []
        self.consulted: list[tuple[tuple[PeerId, ...], PeerId, int]] = []
        witnesses = Witnesses(
            self.turn,
            Parameters(),
            author=AUTHOR,
            publishers_of=lambda publisher: (publisher,),
            parent=lambda: parent,
            lazy=lambda: lazy,
            members=lambda: members,
            consult=lambda peers, *source: self.consulted.append((tuple(peers), *source)),
        )
        self.recovery = Recovery(
            TOPIC.cid,
            self.turn,
            Parameters(),
            self.frontier,
            witnesses=witnesses,
            parent=lambda: parent,
            neighbours=lambda: neighbours,
            take=self.take,
            find_block=lambda cid, then: self.looked_up.append((cid, then)),
            seen=self.frontier.highest,
            retire=self._retire,
            retires=lambda: retires,
            needed=lambda publisher, epoch: 0,
            excuse=self._retire,
            counts=Counter(),
        )

    def take(self, block: bytes, sender: PeerId, certificate: bytes = b"") -> None:
        """Take an event in as a topic without order does: what comes ahead shows a gap."""
        number = int(block)
        gap = self.frontier.gap_before(ALICE.peer_id, EPOCH, number)
        self.frontier.add(ALICE.peer_id, EPOCH, number, None)
        if gap is not None:
            self.recovery.gap(ALICE.peer_id, EPOCH, gap, sender)

    def _retire(self, publisher: PeerId, epoch: int, number: int) -> None:
        self.retired.append((publisher, epoch, number))
        self.frontier.retire(publisher, epoch, number)

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
