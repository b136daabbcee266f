"""Calls: what is asked of a daemon, and how its answer is read. No IO: both clients share it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from pulsarcast.client.errors import UnexpectedResponse
from pulsarcast.model import api, pages
from pulsarcast.model.errors import REFUSALS, LocalError, Refusal, RemoteError
from pulsarcast.model.lineage import oldest_first
from pulsarcast.model.publications import Publication

T = TypeVar("T")
V = TypeVar("V")

JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
STREAM: Final = "text/event-stream"
PAGE: Final = 500
"""Events of history that are asked for at a time."""
KEY_MAX: Final = 256

TopicRef: TypeAlias = str | api.TopicView | api.FollowedView
"""A topic: its content id, a name of the node's own, an alias, `author/name`, or what the daemon
said of it."""
Start: TypeAlias = int | str
"""Where to begin: `now`, `beginning`, an index, or an event's content id."""


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """One request, and how to read what comes back."""

    method: str
    path: str
    read: Callable[[bytes], T]
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


# The node.


def status() -> Ask[api.StatusView]:
    """What the node is and does."""
    return Ask("GET", "/v1/status", _json(api.StatusView))


def peers() -> Ask[list[api.PeerView]]:
    """Whom the node is connected to."""
    return Ask("GET", "/v1/peers", _json(api.Peers, lambda found: found.peers))


def add_bootstrap(addresses: Sequence[str]) -> Ask[None]:
    """Join the network through more peers."""
    if isinstance(addresses, str):
        raise LocalError("give addresses as a list, such as ['/ip4/…/tcp/…/p2p/PEER']")
    return _with_json(Ask("POST", "/v1/bootstrap", _nothing), api.MoreBootstrap(list(addresses)))


def peer_names() -> Ask[dict[str, str]]:
    """The names that were given to peers, by peer id."""
    return Ask("GET", "/v1/peer-names", _json(api.PeerNames, lambda found: found.peer_names))


def set_peer_name(peer: str, name: str) -> Ask[dict[str, str]]:
    """Give a peer a name."""
    path = f"/v1/peer-names/{_segment(peer)}"
    ask = Ask("PUT", path, _json(api.PeerNames, lambda found: found.peer_names))
    return _with_json(ask, api.PeerName(name))


def drop_peer_name(peer: str) -> Ask[None]:
    """Take it away."""
    return Ask("DELETE", f"/v1/peer-names/{_segment(peer)}", _nothing)


def metrics() -> Ask[str]:
    """Meters, as Prometheus reads them."""
    return Ask("GET", "/metrics", lambda body: body.decode("utf-8", "replace"))


def open_page() -> Ask[str]:
    """An address that opens the node's page in a browser, once."""
    return Ask("POST", "/v1/page", _json(api.PageUrl, lambda page: page.url))


# Topics.


def topics() -> Ask[list[api.FollowedView]]:
    """Every topic that the node follows."""
    return Ask("GET", "/v1/topics", _json(api.Topics, lambda found: found.topics))


def find_topics(
    words: str, tags: Sequence[str], author: str | None, limit: int
) -> Ask[api.Listings]:
    """Listed topics, wherever they are."""
    if isinstance(tags, str):
        raise LocalError("give tags as a list, such as ['weather']")
    query = {
        "words": words,
        "tags": ",".join(tags),
        "limit": str(limit),
        **({} if author is None else {"author": author}),
    }
    for text in query.values():
        api.to_bytes(text, "utf-8")  # A text that is not Unicode cannot be said.
    return Ask("GET", "/v1/listings", _json(api.Listings), query)


def create_topic(
    name: str,
    settings: api.SettingsView | None,
    alias: str | None,
    below: Mapping[str, TopicRef],
) -> Ask[api.TopicView]:
    """A topic of the node's own."""
    new = api.NewTopic(
        name=name, settings=settings or api.SettingsView(), alias=alias, subtopics=_texts(below)
    )
    return _with_json(Ask("POST", "/v1/topics", _json(api.TopicView)), new)


def ensure_topic(
    name: str, settings: api.SettingsView | None, below: Mapping[str, TopicRef]
) -> Ask[api.TopicView]:
    """The node's own topic of a name: the one there is, or a new one."""
    ensured = api.EnsuredTopic(settings=settings, subtopics=_texts(below))
    return _with_json(Ask("PUT", f"/v1/names/{_segment(name)}", _json(api.TopicView)), ensured)


def move_name(name: str, ref: TopicRef) -> Ask[api.TopicView]:
    """Let a name of the node's own lead to another of its topics."""
    path = f"/v1/names/{_segment(name)}/move"
    return _with_json(Ask("POST", path, _json(api.TopicView)), api.MovedName(topic=_text(ref)))


def topic(ref: TopicRef) -> Ask[api.TopicView]:
    """A topic in its newest version."""
    return Ask("GET", _path(ref), _json(api.TopicView))


def update_topic(
    ref: TopicRef,
    settings: api.SettingsView,
    *,
    flush: bool,
    below: Mapping[str, TopicRef] | None,
) -> Ask[api.TopicView]:
    """A new version."""
    update = api.TopicUpdate(
        settings=settings, flush=flush, subtopics=None if below is None else _texts(below)
    )
    return _with_json(Ask("PUT", _path(ref), _json(api.TopicView)), update)


def follow(ref: TopicRef, start: Literal["now", "beginning"], *, below: bool) -> Ask[None]:
    """Let the node keep a topic's log, even if no subscription listens."""
    given = api.Follow(start, below)
    return _with_json(Ask("POST", _path(ref, "subscription"), _nothing), given)


def unsubscribe(ref: TopicRef) -> Ask[None]:
    """Unsubscribe the node, for all its readers."""
    return Ask("DELETE", _path(ref, "subscription"), _nothing)


def aliases() -> Ask[dict[str, str]]:
    """The names that were given to topics."""
    return Ask("GET", "/v1/aliases", _json(api.Aliases, lambda found: found.aliases))


def set_alias(alias: str, ref: TopicRef) -> Ask[dict[str, str]]:
    """Give a topic a name."""
    path = f"/v1/aliases/{_segment(alias)}"
    ask = Ask("PUT", path, _json(api.Aliases, lambda found: found.aliases))
    return _with_json(ask, api.Alias(_text(ref)))


def drop_alias(alias: str) -> Ask[None]:
    """Take it away."""
    return Ask("DELETE", f"/v1/aliases/{_segment(alias)}", _nothing)


# Other machines.


def invite(ref: TopicRef) -> Ask[str]:
    """A ticket to a topic."""
    return Ask("GET", _path(ref, "ticket"), _json(api.TicketView, lambda found: found.ticket))


def join(ticket: str, alias: str | None) -> Ask[api.TopicView]:
    """Follow the topic of a ticket."""
    ask = Ask("POST", "/v1/join", _json(api.TopicView))
    return _with_json(ask, api.Join(ticket=ticket, alias=alias))


# Events.


def publish(ref: TopicRef, publication: Publication, ack: api.Ack) -> Ask[api.PublishedView]:
    """Publish, or ask a peer that may; sent again, it publishes once."""
    path = _path(ref, "events")
    key = publication.idempotency_key
    headers = {"Idempotency-Key": secrets.token_hex(16) if key is None else _checked_key(key)}
    read = _json(api.PublishedView)
    api.to_bytes(publication.name, "utf-8")  # A text that is not Unicode cannot be said.
    if not publication.attributes and not publication.parents:
        # As it is: neither client nor daemon has to escape anything.
        query = {"name": publication.name, "ack": ack}
        octets = {**headers, "Content-Type": OCTETS}
        return Ask("POST", path, read, query, octets, publication.data)
    said = api.batch_event(publication)
    event = api.NewEvent(
        payload=said.payload,
        encoding=said.encoding,
        name=said.name,
        attributes=said.attributes,
        parents=said.parents,
        ack=ack,
    )
    return _with_json(Ask("POST", path, read, headers=headers), event)


def publish_many(
    ref: TopicRef, events: Sequence[Publication], ack: api.Ack
) -> Ask[list[api.BatchResult]]:
    """Publish many, in their order; sent again, those with keys are published once."""
    read = _json(api.BatchResults, lambda found: found.events)
    given = api.NewEvents(events=[api.batch_event(event) for event in events], ack=ack)
    return _with_json(Ask("POST", _path(ref, "batch"), read), given)


def log(ref: TopicRef) -> Ask[api.LogView]:
    """What the node keeps of a topic."""
    return Ask("GET", _path(ref, "log"), _json(api.LogView))


def log_page(ref: TopicRef, log_id: str, start: int, end: int) -> Ask[pages.Page]:
    """Events of a log as they are on the node's disk."""
    query = {"log": log_id, "start": str(start), "end": str(end)}
    headers = {"Accept": pages.MEDIA_TYPE, "Accept-Encoding": "identity"}
    return Ask("GET", _path(ref, "log", "events"), pages.decode_page, query, headers)


def page(ref: TopicRef, start: int, limit: int | None, where: str | None = None) -> Ask[api.Page]:
    """Some of what the node keeps of a topic."""
    count = PAGE if limit is None else min(PAGE, limit)
    query = {"start": str(start), "limit": str(count), **_where(where)}
    return Ask("GET", _path(ref, "events"), _json(api.Page), query)


class Pages:
    """The way through a topic's history, page by page."""

    def __init__(self, start: int, limit: int | None, where: str | None = None) -> None:
        self._start: int | None = start
        self._left = limit
        self._where = where

    def next(self, ref: TopicRef) -> Ask[api.Page] | None:
        """The next page to ask for, if there is one."""
        if self._start is None or (self._left is not None and self._left <= 0):
            return None
        return page(ref, self._start, self._left, self._where)

    def take(self, found: api.Page) -> list[api.EventView]:
        """What a page has."""
        # With a filter a page may be empty, and the next one not.
        goes_on = found.events or self._where is not None
        self._start = found.next if goes_on else None
        if self._left is not None:
            self._left -= len(found.events)
        return found.events


def fetch(event: str, ref: TopicRef | None) -> Ask[api.EventView]:
    """An event by its content id."""
    query = {} if ref is None else {"topic": _text(ref)}
    return Ask("GET", f"/v1/events/{_segment(event)}", _json(api.EventView), query)


def walk(
    event: str, limit: int, cursor: str, *, forward: bool, ref: TopicRef | None
) -> Ask[api.WalkView]:
    """One page of a walk from an event."""
    path = f"/v1/events/{_segment(event)}/walk"
    topic = None if ref is None else _text(ref)
    given = api.WalkFrom(limit=limit, cursor=cursor, forward=forward, topic=topic)
    return _with_json(Ask("POST", path, _json(api.WalkView)), given)


class Rebuilding:
    """The way back through a history, page by page, and all of it in one order."""

    def __init__(self, event: str, limit: int, ref: TopicRef | None) -> None:
        self._event = event
        self._limit = limit
        self._ref = ref
        self._found = api.WalkView(events=[], gaps=[], cursor="")
        self._is_over = False

    def next(self) -> Ask[api.WalkView] | None:
        """The next page to ask for, if there is one."""
        left = self._limit - len(self._found.events)
        if self._is_over or left <= 0:
            return None
        size = min(api.WALK_MAX, left)
        return walk(self._event, size, self._found.cursor, forward=False, ref=self._ref)

    def take(self, page: api.WalkView) -> None:
        """Take a page in."""
        self._found.events += page.events
        self._found.gaps += page.gaps
        self._found.cursor = page.cursor
        self._is_over = not page.cursor

    def done(self) -> api.WalkView:
        """All events, oldest first."""
        self._found.events = oldest_first(self._found.events, api.links_of)
        return self._found


def subscribe(
    ref: TopicRef,
    name: str,
    start: Start,
    last: int | None,
    where: str | None = None,
    *,
    below: bool = False,
) -> Ask[None]:
    """A stream of events, behind the last one that was seen."""
    headers = {"Accept": STREAM, "Accept-Encoding": "identity", "Cache-Control": "no-store"}
    if last is not None:
        headers["Last-Event-ID"] = str(last)
    query = {
        "start": str(start),
        **({"name": name} if name else {}),
        **_where(where),
        **({"below": "true"} if below else {}),
    }
    return Ask("GET", _path(ref, "subscribe"), _nothing, query, headers)


def readers(ref: TopicRef) -> Ask[list[api.ReaderView]]:
    """The readers of a topic, and their offsets."""
    return Ask("GET", _path(ref, "readers"), _json(api.Readers, lambda found: found.readers))


def acknowledge(
    ref: TopicRef, name: str, index: int, subtopic: TopicRef | None = None
) -> Ask[None]:
    """A reader is done with everything up to an index."""
    done = api.Done(index) if subtopic is None else api.Done(0, {_text(subtopic): index})
    return acknowledge_all(ref, name, done)


def acknowledge_all(ref: TopicRef, name: str, done: api.Done) -> Ask[None]:
    """A reader is done with everything up to an index, in one topic or in many."""
    path = _path(ref, "readers", name, "done")
    return _with_json(Ask("POST", path, _nothing), done)


def forget(ref: TopicRef, name: str) -> Ask[None]:
    """Delete a reader."""
    return Ask("DELETE", _path(ref, "readers", name), _nothing)


# Tokens.


def tokens() -> Ask[list[api.TokenView]]:
    """Every token that is good."""
    return Ask("GET", "/v1/tokens", _json(api.Tokens, lambda found: found.tokens))


def create_token(
    name: str, scopes: Iterable[api.Scope], refs: Iterable[TopicRef] | None
) -> Ask[api.TokenView]:
    """A new one, whose secret is shown this once."""
    if isinstance(scopes, str):
        raise LocalError("give scopes as a list, such as ['read']")
    for_topics = None if refs is None else [_text(ref) for ref in refs]
    new = api.NewToken(name=name, scopes=list(scopes), topics=for_topics)
    return _with_json(Ask("POST", "/v1/tokens", _json(api.TokenView)), new)


def revoke_token(token_id: str) -> Ask[None]:
    """Make one worthless."""
    return Ask("DELETE", f"/v1/tokens/{_segment(token_id)}", _nothing)


# Answers.


def read_answer(ask: Ask[T], status_code: int, body: bytes) -> T:
    """What an answer says; raises the refusal where it says no."""
    if not 200 <= status_code < 300:
        raise problem(status_code, body)
    try:
        return ask.read(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RemoteError) as error:
        raise strange(status_code, str(error)) from error


def problem(status_code: int, body: bytes) -> LocalError | UnexpectedResponse:
    """A refusal as the error that the library raises for it."""
    try:
        said = msgspec.json.decode(body, type=api.Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Not the daemon's own words: a proxy's, or another program's.
        return UnexpectedResponse(status_code, f"the answer was HTTP {status_code}")
    if said.code not in REFUSALS:
        # A newer daemon's: its status still says whether to try again.
        return UnexpectedResponse(status_code, f"{said.error} ({said.code})")
    return Refusal(said.code, said.error, said.topic, said.after_s or 0.0).error()


def check_stream(status_code: int, content_type: str) -> None:
    """Refuse what is no stream of events."""
    if content_type.partition(";")[0].strip().lower() != STREAM:
        raise strange(status_code, f"{content_type or 'nothing'} instead of {STREAM}")


def strange(status_code: int, what: str) -> UnexpectedResponse:
    """An answer that no daemon gives."""
    return UnexpectedResponse(status_code, f"no answer of a daemon, check the URL: {what}")


# Within.


def _json(kind: type[V], pick: Callable[[V], Any] | None = None) -> Callable[[bytes], Any]:
    decode = msgspec.json.Decoder(kind).decode
    return decode if pick is None else lambda body: pick(decode(body))


def _nothing(body: bytes) -> None:
    return None


def _with_json(ask: Ask[T], value: object) -> Ask[T]:
    try:
        body = msgspec.json.encode(value)
    except (TypeError, UnicodeEncodeError, OverflowError) as error:
        raise LocalError(f"not to be encoded as JSON: {error}") from error
    headers = {**ask.headers, "Content-Type": JSON}
    return Ask(ask.method, ask.path, ask.read, ask.query, headers, body)


def _where(where: str | None) -> dict[str, str]:
    """A filter as a query says it."""
    if where is None:
        return {}
    api.to_bytes(where, "utf-8")  # A text that is not Unicode cannot be said.
    return {"where": where}


def _text(ref: TopicRef) -> str:
    return ref if isinstance(ref, str) else ref.id


def _texts(refs: Mapping[str, TopicRef]) -> dict[str, str]:
    return {name: _text(ref) for name, ref in refs.items()}


def _path(ref: TopicRef, *rest: str) -> str:
    return "/".join(("/v1/topics", *map(_segment, (_text(ref), *rest))))


def _checked_key(key: str) -> str:
    if not 0 < len(key) <= KEY_MAX or not key.isascii() or not key.isprintable():
        raise LocalError(f"an idempotency key has 1 to {KEY_MAX} printable ASCII characters")
    return key


def _segment(text: str) -> str:
    """A part of a path; a slash in it stays in it."""
    if text in ("", ".", ".."):
        raise LocalError(f"{text!r} is not a name or an id")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise LocalError("the text is not Unicode") from error
