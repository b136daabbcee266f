"""The client for programs under asyncio or Trio: `AsyncClient`, and its subscriptions."""

from __future__ import annotations

import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, TypeVar

import anyio
import anyio.lowlevel
import httpx
from msgspec import UNSET

from pulsarcast.client import calls, http
from pulsarcast.client.calls import Ask, Start, TopicRef
from pulsarcast.client.connect import find_target
from pulsarcast.client.errors import UnexpectedResponse, Unreachable, after_s_of
from pulsarcast.client.following import PATIENCE_S, Backoff, Following, follow
from pulsarcast.model import api
from pulsarcast.model.errors import LocalError, PulsarcastError
from pulsarcast.model.pages import Page
from pulsarcast.model.publications import EventRef, Publication
from pulsarcast.model.requests import Attribute

T = TypeVar("T")


class AsyncClient:
    """A daemon, from a program under asyncio or Trio.

        async with AsyncClient() as client:
            await client.publish("weather", "sunny")

    Everything is as with `Client`. Any call may be cancelled; a subscription is good afterwards.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        context: str | None = None,
        home: str | Path | None = None,
        answer_s: float = http.ANSWER_S,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        target = find_target(url, token, context=context, home=home)
        self.url: str = target.url
        self._met = False
        """Whether the daemon ever answered; one that never did is not waited for."""
        self._loop: object = None
        """The loop of the first request; the connections belong to it."""
        self._http = http.make(
            httpx.AsyncClient, target, answer_s=answer_s, verify=verify, transport=transport
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        """Be a context: the connections end with it."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self.url!r})"

    # The node.

    async def status(self) -> api.StatusView:
        """What the node is and does."""
        return await self._ask(calls.status())

    async def peers(self) -> list[api.PeerView]:
        """The peers that the node is connected to."""
        return await self._ask(calls.peers())

    async def add_bootstrap(self, addresses: Sequence[str]) -> None:
        """Join the network through more peers, given as `/ip4/…/tcp/…/p2p/PEER`.

        The node dials them now, and keeps them: it tries them after every restart too.
        """
        await self._ask(calls.add_bootstrap(addresses))

    async def peer_names(self) -> dict[str, str]:
        """The names that peers have on this node, by peer id."""
        return await self._ask(calls.peer_names())

    async def set_peer_name(self, peer: str, name: str) -> dict[str, str]:
        """Name a peer on this node, and nowhere else; all names that there are now.

        A name is valid wherever the daemon takes a peer id.
        """
        return await self._ask(calls.set_peer_name(peer, name))

    async def drop_peer_name(self, peer: str) -> None:
        """Take a peer's name away."""
        await self._ask(calls.drop_peer_name(peer))

    async def metrics(self) -> str:
        """Meters, as Prometheus reads them."""
        return await self._ask(calls.metrics())

    async def open_page(self) -> str:
        """An address that opens the node's page in a browser, once."""
        return await self._ask(calls.open_page())

    # Topics.

    async def topics(self) -> list[api.FollowedView]:
        """The topics that the node follows."""
        return await self._ask(calls.topics())

    async def find_topics(
        self,
        words: str = "",
        *,
        tags: Sequence[str] = (),
        author: str | None = None,
        limit: int = 100,
    ) -> api.Listings:
        """Find listed topics that have all of these words and tags, or those of an author.

        What a listing says is its author's own word; `cut` says whether there may be more.
        """
        return await self._ask(calls.find_topics(words, tags, author, limit))

    async def create_topic(
        self,
        name: str,
        settings: api.SettingsView | None = None,
        *,
        alias: str | None = None,
        subtopics: Mapping[str, TopicRef] = {},
    ) -> api.TopicView:
        """Create a topic of the node's own, which has `name` on this node. Raises NameInUse.

        An alias is another local name for it.

        `subtopics` are topics below it, by the names that they have there.
        """
        return await self._ask(calls.create_topic(name, settings, alias, subtopics))

    async def ensure_topic(
        self,
        name: str,
        settings: api.SettingsView | None = None,
        *,
        subtopics: Mapping[str, TopicRef] = {},
    ) -> api.TopicView:
        """The node's own topic of this name: the one there is, or a new one.

        Raises SettingsDiffer where the one there is has other settings or sub-topics than those
        given; without any it is not compared.
        """
        return await self._ask(calls.ensure_topic(name, settings, subtopics))

    async def move_name(self, name: str, topic: TopicRef) -> api.TopicView:
        """Let a name of the node's own lead to another of its topics, for all peers.

        A node that is subscribed to the topic that had the name goes on with that one, and says so.
        """
        return await self._ask(calls.move_name(name, topic))

    async def topic(self, topic: TopicRef) -> api.TopicView:
        """Look up a topic's newest version."""
        return await self._ask(calls.topic(topic))

    async def update_topic(
        self,
        topic: TopicRef,
        settings: api.SettingsView,
        *,
        flush: bool = False,
        subtopics: Mapping[str, TopicRef] | None = None,
    ) -> api.TopicView:
        """Publish a new version, as author or by a recovery key; `flush` retires all events so far.

        Its sub-topics stay as they are, unless `subtopics` names all that shall be.
        """
        ask = calls.update_topic(topic, settings, flush=flush, below=subtopics)
        return await self._ask(ask)

    async def follow(
        self, topic: TopicRef, *, start: Literal["now", "beginning"] = "now", below: bool = False
    ) -> None:
        """Keep a topic's log, from now on or from its beginning, with or without readers.

        With `below`, the logs of all its sub-topics, too.
        """
        await self._ask(calls.follow(topic, start, below=below))

    async def unsubscribe(self, topic: TopicRef) -> None:
        """Leave a topic: the subscriptions of all its readers end, and their offsets are lost.

        The node also leaves the topics that it followed below this one alone. It stays in a topic
        that another subscription takes in.
        """
        await self._ask(calls.unsubscribe(topic))

    async def aliases(self) -> dict[str, str]:
        """The names that were given to topics here, and the topics' content ids."""
        return await self._ask(calls.aliases())

    async def set_alias(self, alias: str, topic: TopicRef) -> dict[str, str]:
        """Give a topic a name; all that there are now."""
        return await self._ask(calls.set_alias(alias, topic))

    async def drop_alias(self, alias: str) -> None:
        """Take the name away."""
        await self._ask(calls.drop_alias(alias))

    # Other machines.

    async def invite(self, topic: TopicRef) -> str:
        """A ticket: one line of text that leads another node to a topic, by way of this one.

        It holds no secret, and gives no right that the topic does not give.
        """
        return await self._ask(calls.invite(topic))

    async def join(self, ticket: str, *, alias: str | None = None) -> api.TopicView:
        """Follow the topic that a ticket leads to, from its beginning.

        The ticket's peer becomes one of the node's bootstrap peers. Raises Unavailable if the topic
        is not found within ten seconds; the peer is kept, so that a later call can succeed. The
        topic gets an alias on this node: by default its name, if no other topic has it. Raises
        Conflict for a ticket of this node.
        """
        return await self._ask(calls.join(ticket, alias))

    # Events.

    async def publish(
        self,
        topic: TopicRef,
        payload: bytes | str | None = None,
        *,
        json: object = UNSET,
        name: str = "",
        attributes: Mapping[str, Attribute] = {},
        parents: Sequence[EventRef] = (),
        ack: api.Ack = "replicated",
        idempotency_key: str | None = None,
        patience_s: float | None = PATIENCE_S,
    ) -> api.PublishedView:
        """Publish, or ask a peer that may; returns once the promise that was asked for holds.

        A payload is bytes, or a text, which is published as UTF-8; `json` is a value to publish
        as JSON instead. Where the connection breaks it is tried again for `patience_s` (None: for
        ever), and published once; with an idempotency key of one's own that holds for later calls,
        too. A daemon that never answered this client is not waited for.
        """
        publication = Publication(
            payload=payload,
            json=json,
            name=name,
            attributes=attributes,
            parents=parents,
            idempotency_key=idempotency_key,
        )
        return await self._ask(calls.publish(topic, publication, ack), patience_s)

    def history(
        self,
        topic: TopicRef,
        *,
        start: int = 1,
        limit: int | None = None,
        where: str | None = None,
    ) -> AsyncIterator[api.EventView]:
        """The events of a topic that the node keeps, from one of its indices on.

        `where` is a filter on the topic's attributes; `limit` counts what matches.
        """
        return _History(self, topic, calls.Pages(start, limit, where))

    async def fetch(self, event: str, *, topic: TopicRef | None = None) -> api.EventView:
        """An event by its content id, whether or not the node follows its topic.

        It comes from the node's disk or from the DHT, which keeps an event for 30 days. An older
        one comes from members of its topic, if `topic` names it.
        """
        return await self._ask(calls.fetch(event, topic))

    async def walk(
        self,
        event: str,
        *,
        limit: int = 100,
        cursor: str = "",
        forward: bool = False,
        topic: TopicRef | None = None,
    ) -> api.WalkView:
        """One page of the events before an event, newest first, beginning with itself.

        Each is verified by the node, and reached by links from the event. What is missing is in
        `gaps`, with its reason. `cursor`, from the page before, goes on. With `forward` the page is
        from the node's own log instead, oldest first. `topic` is as with `fetch`.
        """
        ask = calls.walk(event, limit, cursor, forward=forward, ref=topic)
        return await self._ask(ask)

    async def rebuild(
        self, event: str, *, limit: int = 10_000, topic: TopicRef | None = None
    ) -> api.WalkView:
        """The history of a topic up to an event, oldest first: the last `limit` events of it.

        No event comes before one that it follows. With an empty `cursor` it is the whole history.
        """
        rebuilding = calls.Rebuilding(event, limit, topic)
        while (ask := rebuilding.next()) is not None:
            rebuilding.take(await self._ask(ask))
        return rebuilding.done()

    async def publish_many(
        self,
        topic: TopicRef,
        events: Sequence[Publication],
        *,
        ack: api.Ack = "replicated",
        patience_s: float | None = PATIENCE_S,
    ) -> list[api.BatchResult]:
        """Publish up to a thousand events in their order, and hear what became of each.

        Events with keys are published once, however often they are sent. After a broken connection
        the client sends the batch again, but only if all of its events have keys.
        """
        may_repeat = all(event.idempotency_key is not None for event in events)
        ask = calls.publish_many(topic, events, ack)
        return await self._ask(ask, patience_s if may_repeat else 0.0)

    async def log(self, topic: TopicRef) -> api.LogView:
        """What the node keeps of a topic, and the id of that log."""
        return await self._ask(calls.log(topic))

    async def log_pages(
        self, topic: TopicRef, log: str, start: int, end: int
    ) -> AsyncIterator[Page]:
        """Signed events of a log with start <= index < end, some MiB at a time.

        Raises LogChanged where the node has another log of this topic now, and Gone where it
        keeps the first of them no more.
        """
        while start < end:
            page = await self._ask(calls.log_page(topic, log, start, end))
            if not len(page):
                return
            yield page
            start = page.indices[-1] + 1

    async def subscribe(
        self,
        topic: TopicRef,
        name: str = "",
        start: Start = "now",
        *,
        manual: bool = False,
        patience_s: float | None = PATIENCE_S,
        where: str | None = None,
        below: bool = False,
    ) -> AsyncSubscription:
        """Listen to a topic (`async with await`); a name goes on where it stopped before.

        `start` is `now`, `beginning`, an index or an event's id; for a name that has a place
        already, `now` and `beginning` mean that place. With `manual` only `acknowledge` says
        what is done. After a broken connection it goes on, and gives up with `Unreachable` when
        that takes longer than `patience_s` (None: never). `where` is a filter on the topic's
        attributes: what does not match does not come, and counts as done. With `below`, events of
        all sub-topics come, too, and of those that later versions add; a filter or an index is for
        one topic alone.
        """
        following = follow(topic, name, start, manual=manual, where=where, below=below)
        subscription = AsyncSubscription(self, following, patience_s)
        await subscription._connect()
        return subscription

    async def readers(self, topic: TopicRef) -> list[api.ReaderView]:
        """The readers of a topic, and their offsets."""
        return await self._ask(calls.readers(topic))

    async def acknowledge(
        self, topic: TopicRef, name: str, index: int, *, subtopic: TopicRef | None = None
    ) -> None:
        """Move a reader's offset up to an index; raises ReaderNotFound.

        For a reader with sub-topics, `subtopic` is the topic of the event with this index.
        """
        await self._ask(calls.acknowledge(topic, name, index, subtopic))

    async def forget(self, topic: TopicRef, name: str) -> None:
        """Delete a reader, and end its subscription; raises ReaderNotFound."""
        await self._ask(calls.forget(topic, name))

    # Tokens.

    async def tokens(self) -> list[api.TokenView]:
        """Every token that is good."""
        return await self._ask(calls.tokens())

    async def create_token(
        self,
        name: str,
        scopes: Iterable[api.Scope] = ("read",),
        *,
        topics: Iterable[TopicRef] | None = None,
    ) -> api.TokenView:
        """Make a token; this is the only time that its secret is shown."""
        return await self._ask(calls.create_token(name, scopes, topics))

    async def revoke_token(self, token_id: str) -> None:
        """Make a token worthless, at once."""
        await self._ask(calls.revoke_token(token_id))

    # Within.

    async def _ask(self, ask: Ask[T], patience_s: float | None = 0.0, **more: Any) -> T:
        """Send a request, again and again where that may help, and read the answer."""
        backoff = Backoff(patience_s)
        while True:
            try:
                response = await self._send(ask, **more)
                return calls.read_answer(ask, response.status_code, response.content)
            except PulsarcastError as error:
                if not http.may_help(error, has_met=self._met):
                    raise
                delay_s = backoff.failed(time.monotonic(), after_s_of(error))
                if delay_s is None:
                    raise
            await anyio.sleep(delay_s)

    async def _send(self, ask: Ask[T], *, stream: bool = False, **more: Any) -> httpx.Response:
        http.check_open(self._http)
        self._check_loop()
        try:
            response = await self._http.send(http.build(self._http, ask, **more), stream=stream)
        except httpx.RequestError as error:
            raise http.unreachable(self.url, error) from error
        self._met = True
        return response

    def _check_loop(self) -> None:
        try:
            loop = anyio.lowlevel.current_token()
        except RuntimeError:
            raise LocalError(
                "AsyncClient needs the loop of asyncio or Trio: take Client in a program without"
            ) from None
        if self._loop is None:
            self._loop = loop
        if self._loop != loop:
            raise LocalError("this AsyncClient belongs to another loop: make one for each loop")

    async def _open(self, ask: Ask[None]) -> httpx.Response:
        """Begin to read a stream."""
        response = await self._send(ask, stream=True, timeout=http.STREAM_TIMEOUT)
        try:
            if response.status_code != 200:
                raise calls.problem(response.status_code, await response.aread())
            calls.check_stream(response.status_code, response.headers.get("content-type", ""))
        except BaseException as error:
            await response.aclose()
            if isinstance(error, httpx.RequestError):
                raise http.unreachable(self.url, error) from error
            raise
        return response


class _History(AsyncIterator[api.EventView]):
    """A topic's history; no generator, so that a caller that has enough may just stop."""

    def __init__(self, client: AsyncClient, topic: TopicRef, pages: calls.Pages) -> None:
        self._client = client
        self._topic = topic
        self._pages = pages
        self._events: deque[api.EventView] = deque()

    async def __anext__(self) -> api.EventView:
        while not self._events:
            ask = self._pages.next(self._topic)
            if ask is None:
                raise StopAsyncIteration
            self._events.extend(self._pages.take(await self._client._ask(ask)))
        return self._events.popleft()


class AsyncSubscription:
    """Iterate over it with `async for`; an event is done when the next one is asked for.

    With `manual` only `acknowledge` says what is done.
    """

    def __init__(self, client: AsyncClient, following: Following, patience_s: float | None) -> None:
        self._client: Final = client
        self._following: Final = following
        self._backoff = Backoff(patience_s)
        self._patience_s = patience_s
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._closed = False

    def __repr__(self) -> str:
        topic = self._following.topic
        of = topic if isinstance(topic, str) else topic.name
        return f"<AsyncSubscription {self.name!r} of {of}>"

    @property
    def name(self) -> str:
        """The name that the subscription listens under."""
        return self._following.name

    @property
    def last(self) -> int | None:
        """The index of the event that was handed out last."""
        return self._following.last

    async def acknowledge(self, index: int | None = None, subtopic: str | None = None) -> None:
        """Say now that everything up to the last event, or up to an index, is done.

        With sub-topics, an index is one of `subtopic`, the topic of the event.
        """
        ask = self._following.finish(index, subtopic)
        if ask is not None:
            await self._client._ask(ask, self._patience_s)
            self._following.say(time.monotonic())

    async def close(self) -> None:
        """Listen no more, and say what was done; the place of a name is kept."""
        if self._closed:
            return
        self._closed = True
        await self._drop()
        if self._following.due_s(time.monotonic()) is not None:
            # Also if the caller was cancelled: else all these events would come again.
            with anyio.move_on_after(http.SAY_S_MAX, shield=True):
                await self._say()
        if (ask := self._following.end()) is not None:
            with (
                anyio.move_on_after(http.SAY_S_MAX, shield=True),
                suppress(LocalError, UnexpectedResponse, Unreachable),
            ):
                await self._client._ask(ask, timeout=http.SAY_TIMEOUT)

    def __aiter__(self) -> AsyncSubscription:
        """Iterate over what comes."""
        return self

    async def __anext__(self) -> api.EventView:
        """The next event, whenever it comes."""
        following = self._following
        if not self._closed:
            following.go_on()
        while not self._closed:
            if following.due_s(time.monotonic()) == 0:
                await self._say()
            event = following.take()
            if event is not None:
                return event
            await self._read()
        raise StopAsyncIteration

    async def __aenter__(self) -> AsyncSubscription:
        """Be a context: `async with await client.subscribe(…) as events`."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _read(self) -> None:
        """Take what comes next, over a new connection where the old one has ended."""
        following = self._following
        try:
            if self._response is None:
                await self._connect()  # An earlier call was interrupted.
            chunk = None if following.ended is not None else await self._next_chunk()
            if chunk is None:
                following.check_end()
                raise http.ended(self._client.url, following.ended)
        except BaseException as error:
            await self._drop()
            await self._reconnect(http.passing(self._client.url, error))
            return
        if following.receive(chunk):
            self._backoff.progressed()

    async def _connect(self) -> None:
        self._response = await self._client._open(self._following.connect())
        self._chunks = self._response.aiter_bytes()
        self._following.connected()
        self._backoff.connected()

    async def _reconnect(self, cause: PulsarcastError) -> None:
        while self._response is None:
            delay_s = self._backoff.failed(time.monotonic())
            if delay_s is None:
                raise cause
            await anyio.sleep(delay_s)
            try:
                await self._connect()
            except PulsarcastError as error:
                cause = http.passing(self._client.url, error)

    async def _drop(self) -> None:
        chunks, self._chunks = self._chunks, None
        response, self._response = self._response, None
        if response is None or chunks is None:
            return
        with anyio.move_on_after(http.SAY_S_MAX, shield=True):
            await response.aclose()
            # httpx reads through generators within generators. They end when a read fails, and
            # otherwise only when they are collected, which Trio complains about.
            with suppress(Exception):
                await anext(chunks, None)

    async def _next_chunk(self) -> bytes | None:
        """The next bytes; meanwhile the client tells the daemon in time what is done."""
        assert self._chunks is not None
        due_s = self._following.due_s(time.monotonic())
        if due_s is None:
            return await anext(self._chunks, None)
        failure: httpx.RequestError | None = None
        chunk = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._say_after, due_s)
            try:
                chunk = await anext(self._chunks, None)
            except httpx.RequestError as error:
                failure = error  # Raised below: a task group would wrap it.
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return chunk

    async def _say_after(self, delay_s: float) -> None:
        await anyio.sleep(delay_s)
        await self._say()

    async def _say(self) -> None:
        """Tell the daemon what is done; where it does not hear, that is for later."""
        ask = self._following.say(time.monotonic())
        try:
            await self._client._ask(ask, timeout=http.SAY_TIMEOUT)
        except (LocalError, UnexpectedResponse, Unreachable):
            self._following.unsaid()
        except BaseException:
            self._following.unsaid()
            raise
