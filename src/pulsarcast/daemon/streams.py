"""Subscriptions over HTTP: as server-sent events, and as a WebSocket.

A subscriber with a name has an offset that outlives it; one without goes on from where it says it
was (`Last-Event-ID`, or `start`). Either reads from the node's log, so a slow one costs nobody
anything; one that takes nothing is cut off (see `serving`). Whoever comes back under a name takes
it over: the connection that was cut may still look alive to us. One that takes in sub-topics has an
offset in each, which no single number says: its client chooses a name for a while (`~~…`).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Annotated, Final

import msgspec
import trio
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pulsarcast.daemon.answers import (
    SAFE,
    answer,
    nothing,
    problem,
    read_json,
    read_query,
)
from pulsarcast.daemon.calls import ANOTHER_LOG, STREAM, Call, Operation, Where
from pulsarcast.daemon.local_names import PeerBook
from pulsarcast.daemon.service import Service
from pulsarcast.daemon.tokens import TOKENS_UNREADABLE, Token
from pulsarcast.model import api
from pulsarcast.model.errors import (
    InvalidToken,
    LocalError,
    LogChanged,
    Malformed,
    NotFound,
    ReaderNotFound,
    Refusal,
    Unavailable,
)
from pulsarcast.model.ids import Cid, parse_cid
from pulsarcast.network.below import BelowSubscription
from pulsarcast.network.insight import Insight
from pulsarcast.network.node import Node
from pulsarcast.network.subscriptions import Event, Subscription
from pulsarcast.network.values import Start

KEEP_ALIVE_S: Final = 15.0
CHUNK_BYTES: Final = 64 * 1024
NAME_MAX: Final = 100
LINES_BYTES_MAX: Final = 1 << 20
ANONYMOUS: Final = "~"
"""What the names begin with that nobody chose."""
FOR_A_WHILE: Final = "~~"
"""What the names begin with that a client chose for one subscription, which may be cut off."""
WHILE_S: Final = 600.0
"""How long such a reader outlives its connection, at least; twice as long at most."""

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class StreamQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Where to begin, and under which name."""

    name: Annotated[str, msgspec.Meta(max_length=NAME_MAX)] = ""
    start: str = "now"
    where: Where = None
    below: bool = False


class Lines:
    """Events as JSON, each made once however many subscribers get it at about the same time."""

    def __init__(self) -> None:
        self._texts: dict[tuple[Cid, int, bool, str, str], bytes] = {}
        self._bytes = 0

    def json(self, event: Event, names: PeerBook) -> bytes:
        """An event as JSON, with the names that its peers have now."""
        by = names.names.get(event.author, ""), names.names.get(event.publisher, "")
        key = (event.descriptor.cid, event.index, event.redelivery, *by)
        text = self._texts.get(key)
        if text is None:
            view = api.event_view(event.index, event.descriptor, redelivery=event.redelivery)
            text = self._texts[key] = _encode(names.fill(view))
            self._bytes += len(text)
            while self._bytes > LINES_BYTES_MAX and len(self._texts) > 1:
                self._bytes -= len(self._texts.pop(next(iter(self._texts))))
        return text


LINES: Final = Lines()


@asynccontextmanager
async def subscribed(
    service: Service, topic: Cid, query: StreamQuery, start: Start
) -> AsyncIterator[Subscription | BelowSubscription]:
    """Listen for as long as a connection lasts."""
    name = query.name
    chosen = name or ANONYMOUS + secrets.token_hex(8)
    subscription = await service.node.subscribe(
        topic,
        chosen,
        start,
        manual=True,
        take_over=True,
        where=query.where,
        below=query.below,
    )
    service.readers += 1
    try:
        yield subscription
    finally:
        service.readers -= 1
        subscription.close()
        if not name:
            with trio.CancelScope(shield=True), trio.move_on_after(5), suppress(ReaderNotFound):
                await service.node.forget(topic, chosen)


async def forget_nameless(node: Node) -> None:
    """Delete the readers without a name that a crash left behind: no client can resume them."""
    for topic in Insight(node).topics_read:
        for reader in await node.readers(topic):
            if reader.name.startswith(ANONYMOUS) and not reader.name.startswith(FOR_A_WHILE):
                await node.forget(topic, reader.name)


async def forget_left(node: Node) -> None:
    """Delete now and then the readers whose client chose a name for a while and is gone."""
    before: dict[tuple[Cid, str], None] = {}
    while True:
        await trio.sleep(WHILE_S)
        left = {
            (topic, reader.name): None
            for topic in Insight(node).topics_read
            for reader in await node.readers(topic)
            if reader.name.startswith(FOR_A_WHILE) and not reader.connected
        }
        for topic, name in left:
            if (topic, name) in before:
                with suppress(ReaderNotFound):
                    await node.forget(topic, name)
        before = left


async def start_of(service: Service, topic: Cid, text: str) -> Start:
    """The first event that a query asks for, by its index where it names an event."""
    if text == "now":
        return "now"
    if text == "beginning":
        return "beginning"
    if text.isascii() and text.isdigit() and len(text) < 19:
        return max(1, int(text))
    try:
        cid = parse_cid(text)
    except LocalError:
        raise Malformed(f"start={text!r}: give now, beginning, an index or an event's id") from None
    index = service.insight.index_of(topic, cid)
    if index is None:
        raise NotFound(f"the node has no event {text} of this topic")
    return index


class EventStream(Response):
    """Server-sent events, for as long as somebody listens."""

    media_type = STREAM

    def __init__(
        self,
        service: Service,
        token: Token,
        topic: Cid,
        query: StreamQuery,
        start: Start,
    ) -> None:
        self.service, self.token, self.topic, self.query = service, token, topic, query
        self.start: Start = start
        super().__init__(headers={**SAFE, "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until one of both ends it."""
        scope["is_stream"] = True
        del self.headers["content-length"]
        listening = subscribed(self.service, self.topic, self.query, self.start)
        async with AsyncExitStack() as stack:
            try:
                subscription = await stack.enter_async_context(listening)
            except LocalError as error:
                await problem(error)(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if not self.query.name and not self.query.below:
                # Who has no name, and is cut off before the first event, must know where it was.
                place = b"id: %d\n\n" % await self._offset(subscription)
                await send({"type": "http.response.body", "body": place, "more_body": True})

            async def give(events: list[Event]) -> None:
                names = self.service.peer_names
                write = _below_lines if self.query.below else _event_lines
                lines = b"".join(write(event, names) for event in events) or b": here\n\n"
                await send({"type": "http.response.body", "body": lines, "more_body": True})

            async def gone() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass

            why = await relay(self.service, self.token, subscription, give, gone)
            last = b"" if why is None else _end_lines(why)
            with trio.move_on_after(1):
                await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _offset(self, subscription: Subscription | BelowSubscription) -> int:
        """The index behind which the stream begins."""
        if isinstance(self.start, int):
            return self.start - 1
        readers = await self.service.node.readers(self.topic)
        return next((each.done for each in readers if each.name == subscription.name), 0)


def _end_lines(why: Refusal) -> bytes:
    return b"event: end\ndata: %b\n\n" % _encode(api.Problem(why.message, why.code))


def _event_lines(event: Event, names: PeerBook) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (event.index, LINES.json(event, names))


def _below_lines(event: Event, names: PeerBook) -> bytes:
    """Without an id: the index of one topic says nothing of the others."""
    return b"data: %b\n\n" % LINES.json(event, names)


async def relay(
    service: Service,
    token: Token,
    subscription: Subscription | BelowSubscription,
    give: Callable[[list[Event]], Awaitable[None]],
    gone: Callable[[], Awaitable[None]],
) -> Refusal | None:
    """Hand events on until the other side is gone (None), or has to go: then this is why."""
    why: Refusal | None = None
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            await gone()
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        try:
            why = await _hand_on(service, token, subscription, give)
        finally:
            nursery.cancel_scope.cancel()
    return why


async def _hand_on(
    service: Service,
    token: Token,
    subscription: Subscription | BelowSubscription,
    give: Callable[[list[Event]], Awaitable[None]],
) -> Refusal:
    await give([])
    while True:
        try:
            with trio.move_on_after(KEEP_ALIVE_S):
                await subscription.wait()
            events = [await anext(subscription) for _ in range(subscription.ready(CHUNK_BYTES))]
        except LocalError as error:
            return error.refusal
        try:
            if token.digest and not service.tokens.is_valid(token):
                return InvalidToken("the token was revoked").refusal
        except LocalError as error:
            _log.error("%s", error)
            return Unavailable(TOKENS_UNREADABLE).refusal
        await give(events)


async def subscribe(call: Call) -> Response:
    """A stream of events."""
    topic = await call.topic()
    query = read_query(call.request, StreamQuery)
    call.check_below(below=query.below)
    start = await begin(call.service, call.request, topic, query)
    return EventStream(call.service, call.token, topic, query, start)


async def begin(
    service: Service, connection: HTTPConnection, topic: Cid, query: StreamQuery
) -> Start:
    """Where a subscription begins, by its query and by what its reader saw last."""
    is_chosen = not query.name.startswith(ANONYMOUS) or (
        query.below and query.name.startswith(FOR_A_WHILE)
    )
    if not is_chosen or not query.name.isprintable():
        raise Malformed(f"a reader's name is printable and does not begin with {ANONYMOUS}")
    start = await start_of(service, topic, query.start)
    seen = "" if query.below else connection.headers.get("last-event-id", "")
    if seen.isascii() and seen.isdigit() and len(seen) < 19:
        start = int(seen) + 1
        if start > service.insight.newest(topic) + 1:
            # It would hear nothing until the new log has grown as long as the old one was.
            raise LogChanged(ANOTHER_LOG)
    await service.insight.filter_of(topic, query.where)  # Before a reader is made.
    if not service.insight.is_subscribed(topic):
        service.check_room()
    return start


async def list_readers(call: Call) -> Response:
    """The readers of a topic, and their offsets."""
    found = await call.service.node.readers(await call.topic())
    return answer(api.Readers([each for each in found if not each.name.startswith(ANONYMOUS)]))


async def acknowledge(call: Call) -> Response:
    """A reader is done with everything up to an index."""
    topic, name = await call.topic(), call.path("name")
    done = await read_json(call.request, api.Done, call.service.settings["http.body_bytes_max"])
    await call.service.node.acknowledge(topic, name, done.index)
    for subtopic, index in done.subtopics.items():
        # A topic that is not below any more has no place to move.
        with suppress(ReaderNotFound):
            await call.service.node.acknowledge(topic, name, index, subtopic=subtopic)
    return nothing()


async def forget_reader(call: Call) -> Response:
    """Delete a reader."""
    await call.service.node.forget(await call.topic(), call.path("name"))
    return nothing()


_LAST: Final = ("Last-Event-ID", "The index of the last event that arrived: go on behind it.")

STREAMS: Final = (
    Operation(
        method="GET", path="/v1/topics/{topic}/subscribe", name="subscribe",
        summary="Events as they come, as server-sent events; the same path takes a WebSocket.",
        scope="read", handle=subscribe, query=StreamQuery, headers=(_LAST,), answer=STREAM,
        errors=(404, 409, 507), of_one_topic=True,
    ),
    Operation(
        method="GET", path="/v1/topics/{topic}/readers", name="list_readers",
        summary="The readers of a topic, and their offsets.", scope="read", handle=list_readers,
        answer=api.Readers, errors=(404,), of_one_topic=True,
    ),
    Operation(
        method="POST", path="/v1/topics/{topic}/readers/{name}/done", name="acknowledge",
        summary="Say that a reader is done with everything up to an index.", scope="read",
        handle=acknowledge, body=api.Done, status=204, errors=(404,), of_one_topic=True,
    ),
    Operation(
        method="DELETE", path="/v1/topics/{topic}/readers/{name}", name="forget_reader",
        summary="Delete a reader.", scope="read", handle=forget_reader, status=204,
        errors=(404,), of_one_topic=True,
    ),
)  # fmt: skip
