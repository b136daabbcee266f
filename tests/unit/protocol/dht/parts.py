"""The surroundings of one part of the DHT: a real context and table, and peers played by a test."""

from collections.abc import Callable, Collection, Iterable
from random import Random
from typing import cast

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.blocks import Blocks
from pulsarcast.protocol.dht.calls import Answered, Calls, Question
from pulsarcast.protocol.dht.hot_blocks import HotBlocks
from pulsarcast.protocol.dht.lookups import Lookups
from pulsarcast.protocol.dht.reachability import Reachability
from pulsarcast.protocol.dht.routing import RoutingTable
from pulsarcast.protocol.effects import Effect, Persist, Send, SetTimer
from pulsarcast.protocol.messages import Contact, DhtMessage, Message
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import AnyWrite, Keep, PutBlock, Write
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, peer
from tests.support.writes import flat
from tests.unit.protocol.dht.network import EPOCH_US, AnyBlocks


class Questions:
    """Plays the calls: keeps each question until the test answers it."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.waiting: list[tuple[PeerId, Question, Answered]] = []

    def ask(self, contact: Contact, question: Question, then: Answered) -> None:
        self.waiting.append((contact.peer, question, then))

    def asked(self) -> list[tuple[PeerId, Question]]:
        """The questions that wait for an answer."""
        self._turn.end()
        return [(who, question) for who, question, _ in self.waiting]

    def answer(self, message: DhtMessage | None) -> PeerId:
        """Answer the oldest question; returns the peer that was asked."""
        self._turn.end()
        who, _, then = self.waiting.pop(0)
        then(message)
        return who


class NoFinder:
    """A DHT that is never asked for a block."""

    def find_block(self, cid: Cid, then: Callable[[bytes | None], None]) -> None:
        raise AssertionError(f"{cid.hex()} is looked up")


class Parts:
    """One node's table and turn, with two fakes: the calls, and the owner of the blocks."""

    def __init__(self, *known: PeerId, parameters: Parameters | None = None) -> None:
        self.turn = Turn(ALICE, Random(1))
        self.turn.wall_us = EPOCH_US
        self.context = Context(self.turn, Parameters() if parameters is None else parameters)
        self.table = RoutingTable(self.turn.me, bucket_size=20, retry_s=30.0)
        for each in known:
            self.table.saw(Contact(each), 0.0)
        self.questions = Questions(self.turn)
        self.calls = cast("Calls", self.questions)
        self.owner = AnyBlocks()
        self.lookups = Lookups(self.context, self.table, self.calls)
        self.hot = HotBlocks(self.context, NoFinder())
        self.reachability = Reachability(self.context, self.owner)
        self.reachability.start(Reach.PUBLIC)
        self.blocks = Blocks(self.context, self.table, self.hot, self.reachability, self.owner)

    def effects(self) -> list[Effect]:
        """What was wanted since the last look."""
        self.turn.end()
        effects, self.turn.effects = self.turn.effects, []
        return effects

    def sent(self) -> list[tuple[PeerId, Message]]:
        """What was sent since the last look."""
        return [(each.peer, each.message) for each in self.effects() if isinstance(each, Send)]

    def timer(self) -> SetTimer:
        """The timer that was set since the last look."""
        (timer,) = [each for each in self.effects() if isinstance(each, SetTimer)]
        return timer

    def sync(self, without: Collection[Cid] = ()) -> list[Write]:
        """The disk has written everything but these blocks of strangers; returns what it should."""
        found: list[Write] = []
        for token, writes in self.persists():
            left_out = [
                keep.token
                for keep in writes
                if isinstance(keep, Keep)
                and any(isinstance(put, PutBlock) and put.cid in without for put in keep.writes)
            ]
            self.turn.persisted(token, left_out)
            found += flat(writes)
        return found

    def refuse(self) -> None:
        """The disk leaves out all that may be left out."""
        for token, writes in self.persists():
            self.turn.persisted(token, [each.token for each in writes if isinstance(each, Keep)])

    def persists(self) -> list[tuple[int, tuple[AnyWrite, ...]]]:
        """What was to be written since the last look, and the tokens of that; the rest stays."""
        effects = self.effects()
        self.turn.effects = [each for each in effects if not isinstance(each, Persist)]
        return [(each.token, each.writes) for each in effects if isinstance(each, Persist)]


def peers(count: int) -> Iterable[PeerId]:
    """Some peers."""
    return [peer(f"peer {number}") for number in range(count)]
