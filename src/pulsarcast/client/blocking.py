"""The client for programs that wait: `Client`, and its subscriptions."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, TypeVar

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


class Client:
    """A daemon, from a program that waits for each answer.

        with Client() as client:
            client.publish("weather", "sunny")

    Without a URL it is the daemon that `connect` finds. What the daemon refuses raises
    the same error as the library (`NotFound`, `Busy` …); where none can be reached,
    `Unreachable` is raised. It may be used from several threads; a subscription belongs to one.
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
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        target = find_target(url, token, context=context, home=home)
        self.url: str = target.url
        self._met = False
        """Whether the daemon ever answered; one that never did is not waited for."""
        self._http = http.make(
            httpx.Client, target, answer_s=answer_s, verify=verify, transport=transport
        )

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Client:
        """Be a context: the connections end with it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    # The node.

    def status(self) -> api.StatusView:
        """What the node is and does."""
        return self._ask(calls.status())

    def peers(self) -> list[api.PeerView]:
        """The peers that the node is connected to."""
        return self._ask(calls.peers())

    def add_bootstrap(self, addresses: Sequence[str]) -> None:
        """Join the network through more peers, given as `/ip4/…/tcp/…/p2p/PEER`.

        The node dials them now, and keeps them: it tries them after every restart too.
        """
        self._ask(calls.add_bootstrap(addresses))

    def peer_names(self) -> dict[str, str]:
        """The names that peers have on this node, by peer id."""
        return self._ask(calls.peer_names())

    def set_peer_name(self, peer: str, name: str) -> dict[str, str]:
        """Name a peer on this node, and nowhere else; all names that there are now.

        A name is valid wherever the daemon takes a peer id.
        """
        return self._ask(calls.set_peer_name(peer, name))

    def drop_peer_name(self, peer: str) -> None:
        """Take a peer's name away."""
        self._ask(calls.drop_peer_name(peer))

    def metrics(self) -> str:
        """Meters, as Prometheus reads them."""
        return self._ask(calls.metrics())

    def open_page(self) -> str:
        """An address that opens the node's page in a browser, once."""
        return self._ask(calls.open_page())

    # Topics.

    def topics(self) -> list[api.FollowedView]:
        """The topics that the node follows."""
        return self._ask(calls.topics())

    def find_topics(
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
        return self._ask(calls.find_topics(words, tags, author, limit))

    def create_topic(
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
        return self._ask(calls.create_topic(name, settings, alias, subtopics))

    def ensure_topic(
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
        return self._ask(calls.ensure_topic(name, settings, subtopics))

    def move_name(self, name: str, topic: TopicRef) -> api.TopicView:
        """Let a name of the node's own lead to another of its topics, for all peers.

        A node that is subscribed to the topic that had the name goes on with that one, and says so.
        """
        return self._ask(calls.move_name(name, topic))

    def topic(self, topic: TopicRef) -> api.TopicView:
        """Look up a topic's newest version."""
        return self._ask(calls.topic(topic))

    def update_topic(
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
        return self._ask(ask)

    def follow(
        self, topic: TopicRef, *, start: Literal["now", "beginning"] = "now", below: bool = False
    ) -> None:
        """Keep a topic's log, from now on or from its beginning, with or without readers.

        With `below`, the logs of all its sub-topics, too.
        """
        self._ask(calls.follow(topic, start, below=below))

    def unsubscribe(self, topic: TopicRef) -> None:
        """Leave a topic: the subscriptions of all its readers end, and their offsets are lost.

        The node also leaves the topics that it followed below this one alone. It stays in a topic
        that another subscription takes in.
        """
        self._ask(calls.unsubscribe(topic))

    def aliases(self) -> dict[str, str]:
        """The names that were given to topics here, and the topics' content ids."""
        return self._ask(calls.aliases())

    def set_alias(self, alias: str, topic: TopicRef) -> dict[str, str]:
        """Give a topic a name; all that there are now."""
        return self._ask(calls.set_alias(alias, topic))

    def drop_alias(self, alias: str) -> None:
        """Take the name away."""
        self._ask(calls.drop_alias(alias))

    # Other machines.

    def invite(self, topic: TopicRef) -> str:
        """A ticket: one line of text that leads another node to a topic, by way of this one.

        It holds no secret, and gives no right that the topic does not give.
        """
        return self._ask(calls.invite(topic))

    def join(self, ticket: str, *, alias: str | None = None) -> api.TopicView:
        """Follow the topic that a ticket leads to, from its beginning.

        The ticket's peer becomes one of the node's bootstrap peers. Raises Unavailable if the topic
        is not found within ten seconds; the peer is kept, so that a later call can succeed. The
        topic gets an alias on this node: by default its name, if no other topic has it. Raises
        Conflict for a ticket of this node.
        """
        return self._ask(calls.join(ticket, alias))

    # Events.

    def publish(
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
        return self._ask(calls.publish(topic, publication, ack), patience_s)

    def history(
        self,
        topic: TopicRef,
        *,
        start: int = 1,
        limit: int | None = None,
        where: str | None = None,
    ) -> Iterator[api.EventView]:
        """The events of a topic that the node keeps, from one of its indices on.

        `where` is a filter on the topic's attributes; `limit` counts what matches.
        """
        pages = calls.Pages(start, limit, where)
        while (ask := pages.next(topic)) is not None:
            yield from pages.take(self._ask(ask))

    def fetch(self, event: str, *, topic: TopicRef | None = None) -> api.EventView:
        """An event by its content id, whether or not the node follows its topic.

        It comes from the node's disk or from the DHT, which keeps an event for 30 days. An older
        one comes from members of its topic, if `topic` names it.
        """
        return self._ask(calls.fetch(event, topic))

    def walk(
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
        return self._ask(ask)

    def rebuild(
        self, event: str, *, limit: int = 10_000, topic: TopicRef | None = None
    ) -> api.WalkView:
        """The history of a topic up to an event, oldest first: the last `limit` events of it.

        No event comes before one that it follows. With an empty `cursor` it is the whole history.
        """
        rebuilding = calls.Rebuilding(event, limit, topic)
        while (ask := rebuilding.next()) is not None:
            rebuilding.take(self._ask(ask))
        return rebuilding.done()

    def publish_many(
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
        return self._ask(ask, patience_s if may_repeat else 0.0)

    def log(self, topic: TopicRef) -> api.LogView:
        """What the node keeps of a topic, and the id of that log."""
        return self._ask(calls.log(topic))

    def log_pages(self, topic: TopicRef, log: str, start: int, end: int) -> Iterator[Page]:
        """Signed events of a log with start <= index < end, some MiB at a time.

        Raises LogChanged where the node has another log of this topic now, and Gone where it
        keeps the first of them no more.
        """
        while start < end:
            page = self._ask(calls.log_page(topic, log, start, end))
            if not len(page):
                return
            yield page
            start = page.indices[-1] + 1

    def subscribe(
        self,
        topic: TopicRef,
        name: str = "",
        start: Start = "now",
        *,
        manual: bool = False,
        patience_s: float | None = PATIENCE_S,
        where: str | None = None,
        below: bool = False,
    ) -> Subscription:
        """Listen to a topic; a name goes on where it stopped before.

        `start` is `now`, `beginning`, an index or an event's id; for a name that has a place
        already, `now` and `beginning` mean that place. With `manual` only `acknowledge` says
        what is done. After a broken connection it goes on, and gives up with `Unreachable` when
        that takes longer than `patience_s` (None: never). `where` is a filter on the topic's
        attributes: what does not match does not come, and counts as done. With `below`, events of
        all sub-topics come, too, and of those that later versions add; a filter or an index is for
        one topic alone.
        """
        following = follow(topic, name, start, manual=manual, where=where, below=below)
        return Subscription(self, following, patience_s)

    def readers(self, topic: TopicRef) -> list[api.ReaderView]:
        """The readers of a topic, and their offsets."""
        return self._ask(calls.readers(topic))

    def acknowledge(
        self, topic: TopicRef, name: str, index: int, *, subtopic: TopicRef | None = None
    ) -> None:
        """Move a reader's offset up to an index; raises ReaderNotFound.

        For a reader with sub-topics, `subtopic` is the topic of the event with this index.
        """
        self._ask(calls.acknowledge(topic, name, index, subtopic))

    def forget(self, topic: TopicRef, name: str) -> None:
        """Delete a reader, and end its subscription; raises ReaderNotFound."""
        self._ask(calls.forget(topic, name))

    # Tokens.

    def tokens(self) -> list[api.TokenView]:
        """Every token that is good."""
        return self._ask(calls.tokens())

    def create_token(
        self,
        name: str,
        scopes: Iterable[api.Scope] = ("read",),
        *,
        topics: Iterable[TopicRef] | None = None,
    ) -> api.TokenView:
        """Make a token; this is the only time that its secret is shown."""
        return self._ask(calls.create_token(name, scopes, topics))

    def revoke_token(self, token_id: str) -> None:
        """Make a token worthless, at once."""
        self._ask(calls.revoke_token(token_id))

    # Within.

    def _ask(self, ask: Ask[T], patience_s: float | None = 0.0, **more: Any) -> T:
        """Send a request, again and again where that may help, and read the answer."""
        backoff = Backoff(patience_s)
        while True:
            try:
                response = self._send(ask, **more)
                return calls.read_answer(ask, response.status_code, response.content)
            except PulsarcastError as error:
                if not http.may_help(error, has_met=self._met):
                    raise
                delay_s = backoff.failed(time.monotonic(), after_s_of(error))
                if delay_s is None:
                    raise
            time.sleep(delay_s)

    def _send(self, ask: Ask[T], *, stream: bool = False, **more: Any) -> httpx.Response:
        http.check_open(self._http)
        try:
            response = self._http.send(http.build(self._http, ask, **more), stream=stream)
        except httpx.RequestError as error:
            raise http.unreachable(self.url, error) from error
        self._met = True
        return response

    def _open(self, ask: Ask[None]) -> httpx.Response:
        """Begin to read a stream."""
        response = self._send(ask, stream=True, timeout=http.STREAM_TIMEOUT)
        try:
            if response.status_code != 200:
                raise calls.problem(response.status_code, response.read())
            calls.check_stream(response.status_code, response.headers.get("content-type", ""))
        except BaseException as error:
            response.close()
            if isinstance(error, httpx.RequestError):
                raise http.unreachable(self.url, error) from error
            raise
        return response


class Subscription:
    """Iterate over it; an event is done when the next one is asked for.

    With `manual` only `acknowledge` says what is done.
    """

    def __init__(self, client: Client, following: Following, patience_s: float | None) -> None:
        self._client: Final = client
        self._following: Final = following
        self._backoff = Backoff(patience_s)
        self._patience_s = patience_s
        self._response: httpx.Response | None = None
        self._chunks: Iterator[bytes] = iter(())
        self._closed = False
        self._timer: threading.Timer | None = None
        self._connect()

    def __repr__(self) -> str:
        topic = self._following.topic
        of = topic if isinstance(topic, str) else topic.name
        return f"<Subscription {self.name!r} of {of}>"

    @property
    def name(self) -> str:
        """The name that the subscription listens under."""
        return self._following.name

    @property
    def last(self) -> int | None:
        """The index of the event that was handed out last."""
        return self._following.last

    def acknowledge(self, index: int | None = None, subtopic: str | None = None) -> None:
        """Say now that everything up to the last event, or up to an index, is done.

        With sub-topics, an index is one of `subtopic`, the topic of the event.
        """
        ask = self._following.finish(index, subtopic)
        if ask is not None:
            self._client._ask(ask, self._patience_s)
            self._following.say(time.monotonic())

    def close(self) -> None:
        """Listen no more, and say what was done; the place of a name is kept."""
        if self._closed:
            return
        self._closed = True
        self._drop()
        timer = self._timer
        if timer is not None:
            timer.cancel()
            timer.join()
        if self._following.due_s(time.monotonic()) is not None:
            self._say()
        if (ask := self._following.end()) is not None:
            with suppress(LocalError, UnexpectedResponse, Unreachable):
                self._client._ask(ask, timeout=http.SAY_TIMEOUT)

    def __iter__(self) -> Subscription:
        """Iterate over what comes."""
        return self

    def __next__(self) -> api.EventView:
        """The next event, whenever it comes."""
        following = self._following
        if not self._closed:
            following.go_on()
        while not self._closed:
            if following.due_s(time.monotonic()) == 0:
                self._say()
            event = following.take()
            if event is not None:
                return event
            self._read()
        raise StopIteration

    def __enter__(self) -> Subscription:
        """Be a context: `with client.subscribe(…) as events`."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self) -> None:
        """Take what comes next, over a new connection where the old one has ended."""
        following = self._following
        try:
            if self._response is None:
                self._connect()  # An earlier call was interrupted.
            self._arm()
            chunk = None if following.ended is not None else next(self._chunks, None)
            if chunk is None:
                following.check_end()
                raise http.ended(self._client.url, following.ended)
        except BaseException as error:
            self._drop()
            self._reconnect(http.passing(self._client.url, error))
            return
        if following.receive(chunk):
            self._backoff.progressed()

    def _connect(self) -> None:
        self._response = self._client._open(self._following.connect())
        self._chunks = self._response.iter_bytes()
        self._following.connected()
        self._backoff.connected()

    def _reconnect(self, cause: PulsarcastError) -> None:
        while self._response is None:
            delay_s = self._backoff.failed(time.monotonic())
            if delay_s is None:
                raise cause
            time.sleep(delay_s)
            try:
                self._connect()
            except PulsarcastError as error:
                cause = http.passing(self._client.url, error)

    def _drop(self) -> None:
        self._chunks = iter(())
        if self._response is not None:
            self._response.close()
            self._response = None

    def _arm(self) -> None:
        """While the caller waits for events, a timer tells the daemon in time what is done."""
        due_s = self._following.due_s(time.monotonic())
        if due_s is not None and self._timer is None and not self._closed:
            self._timer = threading.Timer(due_s, self._fire)
            self._timer.daemon = True
            self._timer.start()

    def _fire(self) -> None:
        if not self._closed and self._following.due_s(time.monotonic()) == 0:
            self._say()
        self._timer = None
        self._arm()

    def _say(self) -> None:
        """Tell the daemon what is done; where it does not hear, that is for later."""
        ask = self._following.say(time.monotonic())
        try:
            self._client._ask(ask, timeout=http.SAY_TIMEOUT)
        except (LocalError, UnexpectedResponse, Unreachable):
            self._following.unsaid()
