"""Reading: blocks, names, listed topics, history and walks."""

from collections.abc import Callable
from typing import assert_never

from pulsarcast.model.errors import (
    LocalError,
    NotFound,
    Refusal,
    RemoteError,
    TopicNotFound,
)
from pulsarcast.model.ids import Cid
from pulsarcast.model.listings import Listing
from pulsarcast.model.pointers import Resolution
from pulsarcast.protocol.commands.commands import Commands
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.following.following import Following
from pulsarcast.protocol.following.names import Names
from pulsarcast.protocol.history.walk import Page
from pulsarcast.protocol.history.walks import Walks
from pulsarcast.protocol.inputs import (
    FetchBlock,
    FindTopics,
    ReadCommand,
    ReadHistory,
    Resolve,
    Walk,
)
from pulsarcast.protocol.store import Events, LoadLog

NO_NAME = TopicNotFound(
    "no topic with this author and name was found: check both, and that peers are connected"
).refusal
NO_NAME_ALONE = TopicNotFound(
    "no topic with this author and name was found: no peer is connected yet"
).refusal
NO_PEER = NotFound("nothing was found, and no peer is reached yet: try again").refusal
NO_BLOCK = NotFound(
    "no peer that was asked has this content id: check it, and that peers are connected"
).refusal
NO_EVENT = LocalError("the content id is not that of a valid event").refusal


class ReadCommands(Commands[ReadCommand]):
    """Carries out what readers ask."""

    def __init__(
        self, context: Context, following: Following, dht: Kademlia, walks: Walks, names: Names
    ) -> None:
        super().__init__(context, following)
        self.dht = dht
        self.walks = walks
        self.names = names

    def carry_out(self, given: ReadCommand) -> None:
        match given:
            case FetchBlock():
                self._fetch(given)
            case Walk():
                self._walk(given)
            case Resolve():
                self._resolve(given)
            case FindTopics():
                self._find_topics(given)
            case ReadHistory():
                self._read_history(given)
            case _ as unreachable:
                assert_never(unreachable)

    def find_block(self, cid: Cid, then: Callable[[bytes | None], None]) -> None:
        """A block from the disk, or from the DHT."""
        self.walks.fetch(cid, None, then)

    def _fetch(self, given: FetchBlock) -> None:
        def found(block: bytes | None) -> None:
            if block is None:
                self.refuse(given.call, NO_BLOCK)
            else:
                self.answer(Reply(given.call, cid=given.cid, block=block))

        self.walks.fetch(given.cid, given.topic, found)

    def _walk(self, given: Walk) -> None:
        def walked(page: Page | Refusal) -> None:
            if isinstance(page, Refusal):
                self.refuse(given.call, page)
                return
            events, gaps, cursor = page
            self.answer(Reply(given.call, cid=given.event, events=events, gaps=gaps, cursor=cursor))

        def fetched(block: bytes | None) -> None:
            if block is None:
                self.refuse(given.call, NO_BLOCK)
                return
            try:
                event = self.context.decode(block)
            except RemoteError:
                self.refuse(given.call, NO_EVENT)
                return
            self.walks.begin(event, given.limit, walked)

        if given.cursor:
            self.walks.go_on(given.cursor, given.limit, walked)
        else:
            self.walks.fetch(given.event, given.topic, fetched)

    def _resolve(self, given: Resolve) -> None:
        def found(resolution: Resolution | None) -> None:
            if resolution is None:
                self.refuse(given.call, NO_NAME if self.dht.known_count else NO_NAME_ALONE)
            else:
                self.answer(Reply(given.call, cid=resolution.pointer.cid, resolution=resolution))

        self.names.find(given.author, given.name, found)

    def _find_topics(self, given: FindTopics) -> None:
        def found(listings: list[Listing], is_cut: bool) -> None:
            if not listings and self.dht.is_joining:
                self.refuse(given.call, NO_PEER)
                return
            chosen, leaves_out = given.search.choose(listings, given.limit)
            cut = is_cut or leaves_out
            self.answer(Reply(given.call, listings=tuple(chosen), cut=cut))

        self.dht.find_listings(given.search.keys, found)

    def _read_history(self, given: ReadHistory) -> None:
        def found(answer: Events) -> None:
            places = tuple(place for place, _ in answer.events)
            events = tuple(event for _, event in answer.events)
            reply = Reply(given.call, cid=given.topic, events=events, places=places)
            self.answer(reply)

        self.turn.load(LoadLog(given.topic, given.index, given.limit), Events, found)
