"""Reading: blocks, names and history."""

from collections.abc import Callable
from typing import assert_never

from pulsarcast.model.errors import (
    NotFound,
    TopicNotFound,
)
from pulsarcast.model.ids import Cid
from pulsarcast.model.pointers import decode_pointer
from pulsarcast.protocol.commands.commands import Commands
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.following.following import Following
from pulsarcast.protocol.inputs import (
    FetchBlock,
    ReadCommand,
    ReadHistory,
    Resolve,
)
from pulsarcast.protocol.store import (
    Block,
    Events,
    LoadBlock,
    LoadLog,
)

NO_NAME = TopicNotFound(
    "no topic with this author and name was found: check both, and that peers are connected"
).refusal
NO_BLOCK = NotFound("no peer has this block").refusal


class ReadCommands(Commands[ReadCommand]):
    """Carries out what readers ask."""

    def __init__(self, context: Context, following: Following, dht: Kademlia) -> None:
        super().__init__(context, following)
        self.dht = dht

    def carry_out(self, given: ReadCommand) -> None:
        match given:
            case FetchBlock(call, cid):
                self._fetch(call, cid)
            case Resolve():
                self._resolve(given)
            case ReadHistory():
                self._read_history(given)
            case _ as unreachable:
                assert_never(unreachable)

    def find_block(self, cid: Cid, then: Callable[[bytes | None], None]) -> None:
        """A block from the disk, or from the DHT."""

        def loaded(answer: Block) -> None:
            if answer.block is not None:
                then(answer.block)
            else:
                self.dht.find_block(cid, then)

        self.turn.load(LoadBlock(cid), Block, loaded)

    def _fetch(self, call: int, cid: Cid) -> None:
        def found(block: bytes | None) -> None:
            if block is None:
                self.refuse(call, NO_BLOCK)
            else:
                self.answer(Reply(call, cid=cid, block=block))

        self.find_block(cid, found)

    def _resolve(self, given: Resolve) -> None:
        def found(block: bytes | None) -> None:
            if block is None:
                self.refuse(given.call, NO_NAME)
            else:
                self.answer(Reply(given.call, cid=decode_pointer(block).cid))

        self.dht.get_pointer(given.author, given.name, found)

    def _read_history(self, given: ReadHistory) -> None:
        def found(answer: Events) -> None:
            places = tuple(place for place, _ in answer.events)
            events = tuple(event for _, event in answer.events)
            reply = Reply(given.call, cid=given.topic, events=events, places=places)
            self.answer(reply)

        self.turn.load(LoadLog(given.topic, given.index, given.limit), Events, found)
