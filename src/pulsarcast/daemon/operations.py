"""The operations of the API, but for subscriptions: topics, events, the node, tokens."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated, Final

import msgspec
from starlette.responses import Response

from pulsarcast.daemon.aliases import free_alias
from pulsarcast.daemon.answers import (
    JSON,
    answer,
    nothing,
    read_body,
    read_json,
    read_query,
)
from pulsarcast.daemon.calls import OCTETS, PATIENCE_S, Call, Index, Operation, Where, resolve
from pulsarcast.daemon.service import Service
from pulsarcast.model import api
from pulsarcast.model.errors import Conflict, Malformed, UnsupportedMediaType
from pulsarcast.model.ids import Cid, cid_text, parse_cid, peer_text
from pulsarcast.model.tickets import parse_ticket
from pulsarcast.model.topic_types import TopicSettings
from pulsarcast.network.subscriptions import Event, is_wanted
from pulsarcast.network.values import Topic

PAGE_MAX: Final = 1000
PAGE_BYTES_MAX: Final = 8 << 20
LOOKED_AT_MAX: Final = 10_000
"""Events that one call of history looks at for those that match a filter."""
KEY_MAX: Final = 256


class HistoryQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which part of a topic's history."""

    start: Index = 1
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = 100
    where: Where = None


class FindQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which listed topics: those that have all of these words and tags, or are of this author."""

    words: str = ""
    tags: str = ""
    """With commas between them."""
    author: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = 100


class PublishQuery(msgspec.Struct, forbid_unknown_fields=True):
    """What goes with a payload that is sent as it is; it goes before what JSON says in its body."""

    name: str | None = None
    ack: api.Ack | None = None


class FetchQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Where to look for an event besides the node's disk and the DHT."""

    topic: str | None = None


class Health(msgspec.Struct):
    """How the daemon does."""

    status: str
    reasons: list[str] = []
    """Stays empty: this is told to anybody, and why is for those with a token (`status`)."""


# Topics.


async def list_topics(call: Call) -> Response:
    """Every topic that the node follows."""
    found = call.service.insight.topics(call.service.aliases.topics)
    topics = call.token.topics
    if topics is not None:
        found = [each for each in found if each.id in topics]
    return answer(api.Topics([call.service.peer_names.fill(each) for each in found]))


async def find_topics(call: Call) -> Response:
    """Listed topics, wherever they are."""
    query = read_query(call.request, FindQuery)
    tags = [tag for tag in query.tags.split(",") if tag]
    names = call.service.peer_names
    author = None if query.author is None else peer_text(names.resolve(query.author))
    found = await call.service.node.find_topics(
        query.words, tags=tags, author=author, limit=query.limit
    )
    for each in found.listings:
        names.fill(each)
    return answer(found)


async def create_topic(call: Call) -> Response:
    """A topic of ours."""
    service = call.service
    given = await read_json(call.request, api.NewTopic, service.settings["http.body_bytes_max"])
    service.check_room()
    await _check_local_names(service, given.name, given.alias)
    topic = await service.node.create_topic(
        given.name,
        _settings_of_new(service, given.settings),
        subtopics=await _below(service, given.subtopics),
    )
    if given.alias not in (None, given.name):
        service.aliases.set(given.alias, topic.id)
    return answer(_topic_view(service, topic), 201)


async def ensure_topic(call: Call) -> Response:
    """The topic of ours that has a name; a new one where there is none."""
    service, name = call.service, call.path("name")
    given = await read_json(call.request, api.EnsuredTopic, service.settings["http.body_bytes_max"])
    service.check_room()
    await _check_local_names(service, name, None)
    topic = await service.insight.ensure_topic(
        name,
        _settings_of_new(service, given.settings or api.SettingsView()),
        () if given.settings is None else api.settings_given(given.settings),
        await _below(service, given.subtopics),
    )
    return answer(_topic_view(service, topic))


async def move_name(call: Call) -> Response:
    """Let a name of ours lead to another topic."""
    service, name = call.service, call.path("name")
    given = await read_json(call.request, api.MovedName, service.settings["http.body_bytes_max"])
    topic = await service.node.move_name(name, await resolve(service, given.topic))
    return answer(_topic_view(service, topic))


def _settings_of_new(service: Service, given: api.SettingsView) -> TopicSettings:
    """The settings of a topic that is made here."""
    if given.retention == api.RetentionView():
        given.retention = service.retention
    return api.settings_from(given, TopicSettings(), service.peer_names.resolve)


async def show_topic(call: Call) -> Response:
    """Its newest version."""
    topic = await call.service.insight.topic(await call.found())
    return answer(_topic_view(call.service, topic))


async def update_topic(call: Call) -> Response:
    """A new version."""
    service = call.service
    cid = await call.topic()
    given = await read_json(call.request, api.TopicUpdate, service.settings["http.body_bytes_max"])
    current = await service.node.topic(cid)
    settings = api.settings_from(
        given.settings, current.descriptor.settings, service.peer_names.resolve
    )
    below = None if given.subtopics is None else await _below(service, given.subtopics)
    topic = await service.node.update_topic(cid, settings, subtopics=below, flush=given.flush)
    return answer(_topic_view(service, topic))


async def unsubscribe(call: Call) -> Response:
    """Unsubscribe the node, for all its readers."""
    await call.service.node.unsubscribe(await call.topic())
    return nothing()


async def list_aliases(call: Call) -> Response:
    """The names that we gave topics."""
    return answer(api.Aliases(call.service.aliases.topics))


async def set_alias(call: Call) -> Response:
    """Give a topic a local name."""
    service, alias = call.service, call.path("alias")
    given = await read_json(call.request, api.Alias, service.settings["http.body_bytes_max"])
    cid = await resolve(service, given.topic)
    own = await service.insight.naming.own(alias)
    if own is not None and own.topic != cid:
        raise Conflict(
            f"{alias!r} is the name of a topic of this node: give another alias",
            topic=cid_text(own.topic),
        )
    if own is None:  # The topic's own name needs no alias.
        service.aliases.set(alias, cid_text(cid))
    return answer(api.Aliases(service.aliases.topics))


async def drop_alias(call: Call) -> Response:
    """Take it away."""
    call.service.aliases.drop(call.path("alias"))
    return nothing()


def _topic_view(service: Service, topic: Topic) -> api.TopicView:
    view = api.topic_view(topic.descriptor, service.aliases.topics, topic.notes)
    return service.peer_names.fill(view)


async def _below(service: Service, named: dict[str, str]) -> dict[str, Cid]:
    """Sub-topics as the node names them."""
    return {name: await resolve(service, topic) for name, topic in named.items()}


async def _check_local_names(service: Service, name: str, alias: str | None) -> None:
    """Refuse an alias in use, and a name that would hide an alias or be hidden by one."""
    aliases, naming = service.aliases, service.insight.naming
    stands_for = aliases.topics.get(name)
    if stands_for is not None:
        own = await naming.own(name)
        if own is None or cid_text(own.topic) != stands_for:
            raise Conflict(
                f"{name!r} is an alias of another topic here: drop it first, or give another name",
                topic=stands_for,
            )
    if alias not in (None, name):
        await _check_alias(service, alias)


async def _check_alias(service: Service, alias: str) -> None:
    """Refuse an alias that is in use, or would be hidden by a name of this node."""
    service.aliases.check(alias)
    if alias in service.aliases.topics:
        raise Conflict(f"the alias {alias!r} is in use: drop it first, or give another")
    if await service.insight.naming.own(alias) is not None:
        raise Conflict(f"{alias!r} is the name of a topic of this node: give another alias")


# Other machines.


async def invite(call: Call) -> Response:
    """A ticket to a topic."""
    return answer(api.TicketView(await call.service.node.invite(await call.topic())))


async def join(call: Call) -> Response:
    """Follow the topic of a ticket, under an alias."""
    service = call.service
    given = await read_json(call.request, api.Join, service.settings["http.body_bytes_max"])
    invited = cid_text(parse_ticket(given.ticket).topic)
    if given.alias is not None and service.aliases.topics.get(given.alias) != invited:
        await _check_alias(service, given.alias)
    if not service.insight.is_subscribed(parse_cid(invited)):
        service.check_room()
    topic = await service.node.join(given.ticket)
    alias = given.alias or free_alias(service.aliases.topics, topic.name, topic.id)
    if alias is not None and (given.alias or await service.insight.naming.own(alias) is None):
        service.aliases.set(alias, topic.id)
    return answer(_topic_view(service, topic))


# Events.


async def publish(call: Call) -> Response:
    """Publish, or ask somebody who may."""
    service, request = call.service, call.request
    cid = await call.topic()
    bytes_max = service.settings["http.body_bytes_max"]
    key = request.headers.get("idempotency-key")
    if key is not None and not (0 < len(key) <= KEY_MAX and key.isascii()):
        raise Malformed(f"an Idempotency-Key has 1 to {KEY_MAX} ASCII characters")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    query = read_query(request, PublishQuery)
    if kind == JSON:
        given = await read_json(request, api.NewEvent, bytes_max)
        payload = api.payload_from(given)
    elif kind == OCTETS:
        given = api.NewEvent()
        payload = await read_body(request, bytes_max)
    else:
        raise UnsupportedMediaType(f"this takes {JSON} or {OCTETS}")
    service.check_room()
    published = await service.node.publish(
        cid,
        payload,
        name=given.name if query.name is None else query.name,
        attributes={name: api.attribute_from(each) for name, each in given.attributes.items()},
        parents=[parse_cid(parent) for parent in given.parents],
        ack=query.ack or given.ack,
        idempotency_key=key,
        patience_s=PATIENCE_S,
    )
    return answer(api.PublishedView(published.id, published.replicas), 201)


async def read_history(call: Call) -> Response:
    """What the node keeps of a topic, page by page."""
    node = call.service.node
    cid = await call.topic()
    query = read_query(call.request, HistoryQuery)
    wanted = await call.service.insight.filter_of(cid, query.where)
    looked_at = query.limit if wanted is None else LOOKED_AT_MAX
    events: list[api.EventView] = []
    size = last = 0
    async with aclosing(node.history(cid, start=query.start, limit=looked_at)) as history:
        async for event in history:
            last = event.index
            if wanted is not None and not is_wanted(wanted, event.descriptor):
                continue
            events.append(_event_view(call.service, event))
            size += len(event.descriptor.block)
            if size > PAGE_BYTES_MAX or len(events) == query.limit:
                break
    newest = call.service.insight.newest(cid)
    # Retention may have let go of everything from here on: whoever pages must come to an end.
    following = last + 1 if 0 < last < newest else None
    return answer(api.Page(events=events, next=following, newest=newest))


async def fetch(call: Call) -> Response:
    """An event of any topic, by its content id."""
    event = _event_named(call)
    query = read_query(call.request, FetchQuery)
    named = None if query.topic is None else await resolve(call.service, query.topic)
    fetched = await call.service.node.fetch(event, topic=named)
    return answer(_event_view(call.service, fetched))


async def walk(call: Call) -> Response:
    """A page of the events before an event, or of those after it in the node's log."""
    event = _event_named(call)
    bytes_max = call.service.settings["http.body_bytes_max"]
    given = await read_json(call.request, api.WalkFrom, bytes_max)
    named = None if given.topic is None else await resolve(call.service, given.topic)
    walked = await call.service.node.walk(
        event,
        limit=given.limit,
        cursor=given.cursor,
        forward=given.forward,
        topic=named,
    )
    events = [_event_view(call.service, each) for each in walked.events]
    gaps = [call.service.peer_names.fill(gap) for gap in walked.gaps]
    return answer(api.WalkView(events=events, gaps=gaps, cursor=walked.cursor))


def _event_view(service: Service, event: Event) -> api.EventView:
    return service.peer_names.fill(api.event_view(event.index, event.descriptor))


def _event_named(call: Call) -> Cid:
    """The event that the path names."""
    return parse_cid(call.path("event"))


# The node.


async def health(call: Call) -> Response:
    """Whether the process lives."""
    return answer(Health("ok"))


async def ready(call: Call) -> Response:
    """Whether the node keeps its promises at the moment; why not is for those with a token."""
    is_ready = not call.service.reasons()
    return answer(Health("ready" if is_ready else "not ready"), 200 if is_ready else 503)


async def status(call: Call) -> Response:
    """What the node is and does."""
    return answer(call.service.status())


async def peers(call: Call) -> Response:
    """Whom the node is connected to."""
    found = call.service.node.peers()
    for each in found:
        each.name = call.service.peer_names.names.get(each.peer, "")
    return answer(api.Peers(found))


async def list_peer_names(call: Call) -> Response:
    """The names that peers have here."""
    return answer(api.PeerNames(call.service.peer_names.names))


async def set_peer_name(call: Call) -> Response:
    """Give a peer a name."""
    given = await read_json(
        call.request, api.PeerName, call.service.settings["http.body_bytes_max"]
    )
    names = call.service.peer_names
    names.set(names.resolve(call.path("peer")), given.name)
    return answer(api.PeerNames(names.names))


async def drop_peer_name(call: Call) -> Response:
    """Take it away."""
    names = call.service.peer_names
    names.drop(names.resolve(call.path("peer")))
    return nothing()


async def add_bootstrap(call: Call) -> Response:
    """Join the network through more peers, now and after every restart."""
    bytes_max = call.service.settings["http.body_bytes_max"]
    given = await read_json(call.request, api.MoreBootstrap, bytes_max)
    await call.service.node.add_bootstrap(given.addresses)
    return nothing()


async def open_page(call: Call) -> Response:
    """An address that opens the page in a browser, once."""
    code = call.service.sessions.new_code()
    return answer(api.PageUrl(f"{call.service.url}/?code={code}"), 201)


# Tokens.


async def list_tokens(call: Call) -> Response:
    """Every token that is good."""
    return answer(api.Tokens([token.view() for token in call.service.tokens.list()]))


async def create_token(call: Call) -> Response:
    """A new one, whose secret is shown this once."""
    given = await read_json(
        call.request, api.NewToken, call.service.settings["http.body_bytes_max"]
    )
    topics = given.topics
    if topics is not None:
        topics = [cid_text(await resolve(call.service, each)) for each in topics]
    token, secret = call.service.tokens.make(given.name, given.scopes, topics)
    return answer(token.view(secret), 201)


async def revoke_token(call: Call) -> Response:
    """Make one worthless."""
    call.service.tokens.revoke(call.path("token_id"))
    return nothing()


_KEY_HEADER: Final = (
    "Idempotency-Key",
    "The same call with the same key, also after a crash, publishes once.",
)

OPERATIONS: Final = (
    Operation(
        method="GET", path="/v1/health", name="health", summary="Whether the process lives.",
        scope=None, handle=health, answer=Health,
    ),
    Operation(
        method="GET", path="/v1/health/ready", name="ready",
        summary="Whether the node keeps its promises at the moment.", scope=None, handle=ready,
        answer=Health, errors=(503,),
    ),
    Operation(
        method="GET", path="/v1/status", name="status", summary="What the node is and does.",
        scope="read", handle=status, answer=api.StatusView,
    ),
    Operation(
        method="GET", path="/v1/peers", name="peers", summary="Whom the node is connected to.",
        scope="read", handle=peers, answer=api.Peers,
    ),
    Operation(
        method="POST", path="/v1/bootstrap", name="add_bootstrap",
        summary="Join the network through more peers, now and after every restart.",
        scope="admin", handle=add_bootstrap, body=api.MoreBootstrap, status=204,
    ),
    Operation(
        method="GET", path="/v1/peer-names", name="list_peer_names",
        summary="The names that were given to peers here.", scope="read",
        handle=list_peer_names, answer=api.PeerNames,
    ),
    Operation(
        method="PUT", path="/v1/peer-names/{peer}", name="set_peer_name",
        summary="Give a peer a name on this node.", scope="admin", handle=set_peer_name,
        body=api.PeerName, answer=api.PeerNames, errors=(409,),
    ),
    Operation(
        method="DELETE", path="/v1/peer-names/{peer}", name="drop_peer_name",
        summary="Take the name of a peer away.", scope="admin", handle=drop_peer_name,
        status=204, errors=(404,),
    ),
    Operation(
        method="GET", path="/v1/topics", name="list_topics",
        summary="The topics that the node follows.", scope="read", handle=list_topics,
        answer=api.Topics, of_one_topic=True,
    ),
    Operation(
        method="GET", path="/v1/listings", name="find_topics",
        summary="Listed topics by words, tags and author, from the whole network.", scope="read",
        handle=find_topics, query=FindQuery, answer=api.Listings, errors=(404, 422),
    ),
    Operation(
        method="POST", path="/v1/topics", name="create_topic", summary="Create a topic.",
        scope="admin", handle=create_topic, body=api.NewTopic, answer=api.TopicView, status=201,
        errors=(404, 409, 507),
    ),
    Operation(
        method="PUT", path="/v1/names/{name}", name="ensure_topic",
        summary="The node's topic of a name: the one there is, or a new one.", scope="admin",
        handle=ensure_topic, body=api.EnsuredTopic, answer=api.TopicView,
        errors=(404, 409, 507),
    ),
    Operation(
        method="POST", path="/v1/names/{name}/move", name="move_name",
        summary="Let a name of the node lead to another of its topics.", scope="admin",
        handle=move_name, body=api.MovedName, answer=api.TopicView, errors=(404,),
    ),
    Operation(
        method="GET", path="/v1/topics/{topic}", name="show_topic",
        summary="A topic in its newest version.", scope="read", handle=show_topic,
        answer=api.TopicView, errors=(404,), of_one_topic=True,
    ),
    Operation(
        method="PUT", path="/v1/topics/{topic}", name="update_topic",
        summary="Make a new version of a topic of ours.", scope="admin", handle=update_topic,
        body=api.TopicUpdate, answer=api.TopicView, errors=(404,),
    ),
    Operation(
        method="DELETE", path="/v1/topics/{topic}/subscription", name="unsubscribe",
        summary="Unsubscribe the node from a topic, for all its readers.", scope="admin",
        handle=unsubscribe, status=204, errors=(404,),
    ),
    Operation(
        method="GET", path="/v1/topics/{topic}/ticket", name="invite",
        summary="A ticket that leads a node on another machine to a topic.", scope="read",
        handle=invite, answer=api.TicketView, errors=(404,), of_one_topic=True,
    ),
    Operation(
        method="POST", path="/v1/join", name="join",
        summary="Follow the topic of a ticket, and give it an alias.", scope="admin",
        handle=join, body=api.Join, answer=api.TopicView, errors=(409, 503, 507),
    ),
    Operation(
        method="POST", path="/v1/topics/{topic}/events", name="publish",
        summary="Publish an event, or ask somebody who may.", scope="publish", handle=publish,
        body=api.NewEvent, octets=True, query=PublishQuery, headers=(_KEY_HEADER,),
        answer=api.PublishedView, status=201, errors=(404, 413, 507), of_one_topic=True,
    ),
    Operation(
        method="GET", path="/v1/topics/{topic}/events", name="history",
        summary="What the node keeps of a topic, page by page.", scope="read",
        handle=read_history, query=HistoryQuery, answer=api.Page, errors=(404,),
        of_one_topic=True,
    ),
    Operation(
        method="GET", path="/v1/events/{event}", name="fetch",
        summary="An event of any topic, by its content id.", scope="read", handle=fetch,
        query=FetchQuery, answer=api.EventView, errors=(404,),
    ),
    Operation(
        method="POST", path="/v1/events/{event}/walk", name="walk",
        summary="A page of the events before an event, newest first.", scope="read", handle=walk,
        body=api.WalkFrom, answer=api.WalkView, errors=(404,),
    ),
    Operation(
        method="GET", path="/v1/aliases", name="list_aliases",
        summary="The names that were given to topics here.", scope="read", handle=list_aliases,
        answer=api.Aliases,
    ),
    Operation(
        method="PUT", path="/v1/aliases/{alias}", name="set_alias",
        summary="Give a topic a local name.", scope="admin", handle=set_alias, body=api.Alias,
        answer=api.Aliases, errors=(404, 409),
    ),
    Operation(
        method="DELETE", path="/v1/aliases/{alias}", name="drop_alias",
        summary="Take the name away.", scope="admin", handle=drop_alias, status=204,
        errors=(404,),
    ),
    Operation(
        method="GET", path="/v1/tokens", name="list_tokens", summary="Every token that is good.",
        scope="admin", handle=list_tokens, answer=api.Tokens,
    ),
    Operation(
        method="POST", path="/v1/tokens", name="create_token",
        summary="Create a token; its secret is shown this once.", scope="admin",
        handle=create_token, body=api.NewToken, answer=api.TokenView, status=201, errors=(404,),
    ),
    Operation(
        method="DELETE", path="/v1/tokens/{token_id}", name="revoke_token",
        summary="Make a token worthless.", scope="admin", handle=revoke_token, status=204,
        errors=(404,),
    ),
    Operation(
        method="POST", path="/v1/page", name="open_page",
        summary="An address that opens the page in a browser, once.", scope="admin",
        handle=open_page, answer=api.PageUrl, status=201,
    ),
)  # fmt: skip
