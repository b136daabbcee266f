"""The library: a node that a program opens, publishes with and listens to.

    async with Node.open("home") as node:
        topic = await node.ensure_topic("weather")
        async with await node.subscribe(topic) as events:
            await node.publish(topic, "sunny")
            async for event in events:
                print(event.text())

Everything durable is in the folder: key, history, readers. A node that is opened again goes on
where it stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal, overload

import trio
from msgspec import UNSET

from pulsarcast.model.api import (
    WALK_MAX,
    FollowedView,
    Listings,
    PeerView,
    ReachView,
    ReaderView,
    RelayingView,
    cursor_from,
    cursor_text,
    gap_view,
    listing_view,
)
from pulsarcast.model.errors import (
    Closed,
    Conflict,
    LocalError,
    NotFound,
    ReaderNotFound,
    RemoteError,
    TopicNotFound,
    Unavailable,
)
from pulsarcast.model.events import Attribute, decode_event
from pulsarcast.model.fields import is_line
from pulsarcast.model.filters import Filter, parse
from pulsarcast.model.ids import Cid, PeerId, parse_peer, peer_text
from pulsarcast.model.listings import search_for
from pulsarcast.model.pointers import Resolution
from pulsarcast.model.publications import EventRef, Publication
from pulsarcast.model.shown import short
from pulsarcast.model.tickets import Ticket, parse_ticket, ticket_text
from pulsarcast.model.topic_types import EventLinking
from pulsarcast.model.topics import META, TopicDescriptor, TopicSettings, decode_topic
from pulsarcast.network import views, walking
from pulsarcast.network.addresses import parse_contact
from pulsarcast.network.below import BelowSubscription, part_name
from pulsarcast.network.driver import NETWORK, Driver
from pulsarcast.network.filters import Filters, end_of, sid_of
from pulsarcast.network.multiaddrs import is_dialable
from pulsarcast.network.naming import Found, Naming
from pulsarcast.network.offsets import Offsets
from pulsarcast.network.pace import PATIENCE_S, Asked, Make, Pace
from pulsarcast.network.subscriptions import (
    PAGE,
    Begin,
    Event,
    Feed,
    Subscription,
    is_wanted,
)
from pulsarcast.network.tracing import NodeTrace
from pulsarcast.network.values import (
    Ack,
    Published,
    Start,
    Topic,
    TopicRef,
    Walked,
    command_of,
    parse_event,
)
from pulsarcast.protocol.commands.commands import NO_TOPIC
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import (
    AddBootstrap,
    Command,
    CreateTopic,
    FetchBlock,
    FindTopics,
    MoveName,
    ReadHistory,
    Resolve,
    Subscribe,
    SubscribeContent,
    Unsubscribe,
    UpdateTopic,
    Walk,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.storage.home import Home

LISTEN: Final = ("/ip4/127.0.0.1/tcp/0",)
JOIN_S_MAX: Final = 10.0
"""How long a start waits for the first peer; without one the node is alone, and works."""
FIRST_PEER_S_MAX: Final = 5.0
"""How long a search that found nothing waits for it afterwards, to look once more."""
JOIN_LOOK_S: Final = 0.05
SOUGHT: Final = (NotFound.code, TopicNotFound.code)
"""What a search among other peers is refused with where it found nothing."""


class Node:
    """A peer of the network."""

    def __init__(self, home: Home, incarnation: int) -> None:
        self._home = home
        self._incarnation = incarnation
        self._driver: Driver | None = None
        self._offsets = Offsets(home)
        self._pace = Pace(self._ask_some)
        self._filters = Filters(self._offsets)
        self._naming = Naming(lambda: self._running, self._find_name, self._meta_of)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        home: str | Path,
        *,
        listen: Sequence[str] = LISTEN,
        announce: Sequence[str] = (),
        dial_from: str | None = None,
        bootstrap: Iterable[str] = (),
        mdns: bool = False,
        network: str = NETWORK,
        parameters: Parameters | None = None,
        trace_level: str | None = None,
        trace_folder: str | Path | None = None,
        run_id: str = "node",
    ) -> AsyncIterator[Node]:
        """Start the node that lives in a folder, or a new one, and stop it at the end.

        `bootstrap` names peers to dial, as `/ip4/…/tcp/…/p2p/PEER`, now and after every restart;
        with `mdns` the node finds peers of its local network itself. A node that listens on
        `0.0.0.0` or `::` announces the addresses of the interfaces; `announce` lists others to
        advertise instead. `dial_from` is an address of this machine to dial from, where it has
        several. With a `trace_level` (`delivery` or `rpc`) the node writes a trace, below its
        folder or `trace_folder`.
        """
        _check_loop()
        with Home.open(home) as opened, ExitStack() as ending:
            incarnation = opened.start()
            node = cls(opened, incarnation)
            failure: Exception | None = None
            tracing = None
            if trace_level is not None:
                tracing = NodeTrace(
                    Path(trace_folder) if trace_folder is not None else opened.traces,
                    run_id=run_id,
                    node_id=peer_text(opened.identity.peer_id),
                    incarnation=incarnation,
                    level=trace_level,
                )
                ending.callback(_close_trace, tracing)
            driver = node._driver = Driver(
                opened.identity,
                opened.store,
                node._offsets,
                listen=listen,
                announce=announce,
                dial_from=dial_from,
                contacts=[parse_contact(text) for text in bootstrap],
                network=network,
                parameters=parameters,
                trace_to=tracing,
            )
            driver.recall()  # Here: a nursery would wrap what it raises.
            await driver.listen()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(driver.run)
                await driver.started.wait()
                nursery.start_soon(node._offsets.keep, driver)
                nursery.start_soon(node._filters.keep, driver)
                nursery.start_soon(node._pace.keep)
                if mdns:
                    nursery.start_soon(node._find_locally)
                if driver.has_contacts:
                    with trio.move_on_after(JOIN_S_MAX):
                        await driver.joined.wait()
                try:
                    yield node
                except Exception as error:
                    failure = error  # Raised below: a nursery would wrap it.
                finally:
                    with trio.CancelScope(shield=True):
                        node._offsets.close_all(Closed("the node is closed").refusal)
                        node._offsets.write(driver)
                        await driver.stop()
                    nursery.cancel_scope.cancel()
            if failure is not None:
                raise failure

    def __repr__(self) -> str:
        return f"<Node {short(self.peer_id)} in {str(self.home)!r}>"

    # The node.

    @property
    def peer_id(self) -> str:
        """The node's peer id, as text."""
        return peer_text(self._home.identity.peer_id)

    @property
    def identity(self) -> PeerId:
        """The node's peer id, as settings of topics take it."""
        return self._home.identity.peer_id

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses at which peers can dial the node, in the form that `bootstrap` takes."""
        return tuple(f"{each}/p2p/{self.peer_id}" for each in self._running.addresses)

    @property
    def reach(self) -> ReachView:
        """Whether and how other peers can dial the node, and who says so."""
        driver = self._running
        relays = driver.relays.reservations
        holes = driver.neighbours.replaced, driver.punching.failures
        return views.reach_of(driver.core, driver.addresses, driver.bound, relays, holes)

    @property
    def relaying(self) -> RelayingView:
        """What the node does as a relay for peers that cannot be dialled."""
        return views.relaying_of(self._running.relaying)

    def peers(self) -> list[PeerView]:
        """The peers that the node is connected to."""
        return views.peers_of(self._running.neighbours)

    async def add_bootstrap(self, addresses: Sequence[str]) -> None:
        """Join the network through more peers, given as `/ip4/…/tcp/…/p2p/PEER`.

        The node dials them now, and keeps them: it tries them after every restart too.
        """
        if isinstance(addresses, str):
            raise LocalError("give addresses as a list, such as ['/ip4/…/tcp/…/p2p/PEER']")
        driver = self._running
        contacts = tuple(parse_contact(text) for text in addresses)
        await self._ask(lambda call: AddBootstrap(call, contacts))
        driver.book.given(driver.core.dht.bootstrap)

    @property
    def halted(self) -> str | None:
        """Why the node has halted, if it has: its disk refused, or another node has its key."""
        return self._offsets.halted

    @property
    def home(self) -> Path:
        """The node's folder."""
        return self._home.path

    # Topics.

    def topics(self) -> list[FollowedView]:
        """The topics that the node follows."""
        return views.topics_of(self._running.core, self._offsets.by_topic)

    async def create_topic(
        self,
        name: str,
        settings: TopicSettings | None = None,
        *,
        subtopics: Mapping[str, TopicRef] = {},
    ) -> Topic:
        """Create a topic; peers find it by the node's peer id and the name. Raises NameInUse.

        `subtopics` are topics below it, by the names that they have there.
        """
        return await self._create(name, settings, subtopics, None)

    async def ensure_topic(
        self,
        name: str,
        settings: TopicSettings | None = None,
        *,
        subtopics: Mapping[str, TopicRef] = {},
    ) -> Topic:
        """The node's own topic of this name: the one there is, or a new one.

        Raises SettingsDiffer where the one there is has other settings or sub-topics than those
        given; without any it is not compared.
        """
        compared = () if settings is None else TopicSettings.__struct_fields__
        return await self._create(name, settings, subtopics, compared)

    async def _create(
        self,
        name: str,
        settings: TopicSettings | None,
        subtopics: Mapping[str, TopicRef],
        ensure: tuple[str, ...] | None,
    ) -> Topic:
        chosen = settings or TopicSettings()
        below = await self._resolve_all(subtopics)
        reply = await self._ask(lambda call: CreateTopic(call, name, chosen, below, ensure))
        assert reply.block is not None
        return Topic(decode_topic(reply.block))

    async def move_name(self, name: str, topic: TopicRef) -> Topic:
        """Let a name of the node's own lead to another of its topics, for all peers.

        A node that is subscribed to the topic that had the name goes on with that one, and says so.
        """
        cid = await self._resolve(topic)
        reply = await self._ask(lambda call: MoveName(call, name, cid))
        assert reply.block is not None
        return Topic(decode_topic(reply.block))

    async def update_topic(
        self,
        topic: TopicRef,
        settings: TopicSettings,
        *,
        subtopics: Mapping[str, TopicRef] | None = None,
        flush: bool = False,
    ) -> Topic:
        """Publish a new version, as author or by a recovery key; `flush` retires all events so far.

        Its sub-topics stay as they are, unless `subtopics` names all that shall be.
        """
        cid = await self._resolve(topic)
        below = None if subtopics is None else await self._resolve_all(subtopics)
        reply = await self._ask(lambda call: UpdateTopic(call, cid, settings, below, flush=flush))
        assert reply.block is not None
        return Topic(decode_topic(reply.block))

    async def topic(self, topic: TopicRef) -> Topic:
        """Look up a topic's newest version: by its content id, its name, or as `author/name`."""
        return await self._look_up(await self._naming.find(topic))

    async def _look_up(self, named: Found) -> Topic:
        found = await self._fetch_topic(named.version or named.topic)
        if found.topic != named.topic:
            raise NO_TOPIC.error()  # Its author points to a version of another topic.
        if named.version is None:
            with suppress(LocalError):
                found = await self._newest_of(found)
        member = self._running.core.topics.get(found.topic)
        # A member may know a version that no name leads to: a recovery key has signed it.
        is_newer = member is not None and member.descriptor.number > found.number
        newest = member.descriptor if member is not None and is_newer else found
        return Topic(newest, named.notes)

    async def find_topics(
        self,
        words: str = "",
        *,
        tags: Sequence[str] = (),
        author: str | None = None,
        limit: int = 100,
    ) -> Listings:
        """Find listed topics that have all of these words and tags, or those of an author.

        A topic is listed if it has a description or a tag. What a listing says is its author's own
        word. `cut` says whether there are, or may be, more than these.
        """
        if isinstance(tags, str):
            raise LocalError("give tags as a list, such as ['weather']")
        by = None if author is None else parse_peer(author)
        search = search_for(words, tags, by)
        reply = await self._ask(lambda call: FindTopics(call, search, limit))
        return Listings([listing_view(each) for each in reply.listings], reply.cut)

    # Other machines.

    async def invite(self, topic: TopicRef) -> str:
        """A ticket: one line of text that leads another node to a topic, by way of this one.

        It holds no secret, and gives no right that the topic does not give.
        """
        driver = self._running
        if not driver.addresses:
            raise LocalError("the node advertises no address: set node.listen or node.announce")
        found = await self._newest_known(await self._resolve(topic))
        ticket = Ticket(
            network=driver.network,
            peer=driver.me,
            addresses=driver.addresses,
            topic=found.topic,
            author=found.author,
            name=found.name if is_line(found.name) else "",
        )
        return ticket_text(ticket)

    async def join(self, ticket: str) -> Topic:
        """Follow the topic that a ticket leads to, from its beginning.

        The ticket's peer becomes one of the node's bootstrap peers. Raises Unavailable if the topic
        is not found within ten seconds; the peer is kept, so that a later call can succeed. Raises
        Conflict for a ticket of this node.
        """
        invited, driver = parse_ticket(ticket), self._running
        if invited.network != driver.network:
            raise LocalError(
                f"the ticket is for the network {invited.network!r}, and this node is in "
                f"{driver.network!r}: set node.network"
            )
        if invited.peer == driver.me:
            raise Conflict("this ticket is of this node: run join on the other machine")
        await self._meet(invited)
        try:
            topic = await self.topic(invited.topic)
        except TopicNotFound:
            raise Unavailable(
                f"the topic of the ticket was not found: {self._why_not(invited)}. "
                "The node keeps the peer: try again later"
            ) from None
        if topic.descriptor.author != invited.author or invited.name not in ("", topic.name):
            raise LocalError("the ticket names another author or topic than it leads to")
        await self.follow(topic, start="beginning")
        return topic

    async def _meet(self, invited: Ticket) -> None:
        """Connect to the peer of a ticket, if it answers in time."""
        driver = self._running
        known = [each for each in invited.addresses if is_dialable(each, invited.peer)]
        if not known:
            raise LocalError("the ticket has no address that this node can dial")
        await self.add_bootstrap([f"{each}/p2p/{peer_text(invited.peer)}" for each in known])
        with trio.move_on_after(JOIN_S_MAX):
            while not driver.neighbours.is_connected(invited.peer):  # noqa: ASYNC110 (as below)
                await trio.sleep(JOIN_LOOK_S)

    def _why_not(self, invited: Ticket) -> str:
        """Why the peer of a ticket did not show its topic."""
        neighbours = self._running.neighbours
        if neighbours.is_connected(invited.peer):
            return "its peer answers, and does not have it"
        refused = neighbours.refused(invited.peer)
        where = ", ".join(invited.addresses)
        return f"its peer does not answer at {where}" if refused is None else refused.reason

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
        ack: Ack = "replicated",
        idempotency_key: str | None = None,
        patience_s: float | None = PATIENCE_S,
    ) -> Published:
        """Publish an event, or have a peer publish it that may; returns once `ack` holds.

        A payload is bytes, or a text, which is published as UTF-8; `json` is a value to publish
        as JSON instead. `accepted`: the event is on a publisher's disk. `replicated`: several peers
        keep it. Parents are for topics whose linking is CUSTOM; elsewhere nodes link events
        themselves. Calls with the same idempotency key publish once, also after a crash.

        Where the topic's members do not keep up, the call waits for them; after `patience_s`
        (None: never) it raises Busy.
        """
        publication = Publication(
            payload=payload,
            json=json,
            name=name,
            attributes=attributes,
            parents=parents,
            idempotency_key=idempotency_key,
        )
        return await self._publish(topic, publication, ack, patience_s=patience_s)

    async def _publish(
        self,
        topic: TopicRef,
        publication: Publication,
        ack: Ack,
        injection: str = "",
        *,
        patience_s: float | None = PATIENCE_S,
    ) -> Published:
        cid = await self._resolve(topic)
        if publication.parents:
            await self._refuse_unless_custom(cid)
        reply = await self._ask(
            lambda call: command_of(publication, call, cid, ack, injection),
            lambda make: self._pace.publish(cid, make, patience_s),
        )
        assert reply.cid is not None
        self._running.publications += 1
        return Published(reply.cid, reply.replicas)

    async def publish_many(
        self,
        topic: TopicRef,
        events: Sequence[Publication],
        *,
        ack: Ack = "replicated",
        patience_s: float | None = PATIENCE_S,
    ) -> list[Published | LocalError]:
        """Publish events in their order; returns the result of each, once all are known.

        Where the topic takes no parents and an event has some, nothing is published. The events
        share commits, so a thousand cost much less than a thousand calls. Where the topic's members
        do not keep up, the call waits for them; after `patience_s` (None: never) what is left is
        Busy.
        """
        cid = await self._resolve(topic)
        if any(event.parents for event in events):
            await self._refuse_unless_custom(cid)
        replies = await self._pace.publish_many(
            cid,
            [
                lambda call, event=event: command_of(event, call, cid, ack)  # type: ignore[misc]
                for event in events
            ],
            patience_s,
        )
        done = [_published(reply) for reply in replies]
        self._running.publications += sum(isinstance(each, Published) for each in done)
        return done

    async def follow(
        self, topic: TopicRef, *, start: Literal["now", "beginning"] = "now", below: bool = False
    ) -> None:
        """Keep a topic's log, from now on or from its beginning, with or without readers.

        With `below`, the logs of all its sub-topics, too.
        """
        _check_start(start)
        cid = await self._resolve(topic)
        await self._running.rest()
        self._filters.make_way(self._running, cid, None)
        from_start = start == "beginning"
        await self._ask(lambda call: Subscribe(call, cid, below=below, from_start=from_start))

    @overload
    async def subscribe(
        self,
        topic: TopicRef,
        name: str = "",
        start: Start = "now",
        *,
        manual: bool = False,
        take_over: bool = False,
        where: str | None = None,
        below: Literal[False] = False,
    ) -> Subscription: ...

    @overload
    async def subscribe(
        self,
        topic: TopicRef,
        name: str = "",
        start: Start = "now",
        *,
        manual: bool = False,
        take_over: bool = False,
        where: str | None = None,
        below: bool,
    ) -> Subscription | BelowSubscription: ...

    async def subscribe(
        self,
        topic: TopicRef,
        name: str = "",
        start: Start = "now",
        *,
        manual: bool = False,
        take_over: bool = False,
        where: str | None = None,
        below: bool = False,
    ) -> Subscription | BelowSubscription:
        """Subscribe as the reader `name`, which continues behind its last acknowledged event.

        Several readers of one topic are independent. `start` is `now`, `beginning` or an index;
        for a reader that has an offset, `now` and `beginning` mean that offset. With `manual`,
        only `acknowledge` moves the offset. With `take_over`, a subscription that is open under
        the same name ends. `where` is a filter on the topic's attributes: other events are not
        handed out, and count as done. With `below`, events of all sub-topics come, too, and of
        those that later versions add; a filter or an index is for one topic alone.
        """
        _check_start(start)
        if below and (where is not None or isinstance(start, int)):
            raise LocalError("a filter or an index is for one topic: give none with below=True")
        cid = await self._resolve(topic)
        wanted = await self._filter_of(cid, where)
        await self._running.rest()
        self._filters.make_way(self._running, cid, wanted)
        reader = self._offsets.take(cid, name, start=start, take_over=take_over)
        feed = self._offsets.feed(cid)
        subscription = self._listen(feed, name, start, manual=manual, wanted=wanted, below=below)
        try:
            reply = await self._follow(cid, name, wanted, start, below=below)
        except BaseException:
            # Refused, or cancelled: the name is free again.
            subscription.close()
            is_ours = self._offsets.reader(cid, name) is reader and reader.subscription is None
            if is_ours and not reader.is_promised:
                self._offsets.drop(self._running, cid, name)
                self._filters.give_up(self._running, cid, name)
            raise
        feed.place(reply.places[0] if reply.places else 0)
        if not reader.is_promised:
            # An offset that a crash could take away would be no promise.
            reader.is_promised = True
            self._offsets.write(self._running)
        return subscription

    def _listen(
        self,
        feed: Feed,
        name: str,
        start: Start,
        *,
        manual: bool,
        wanted: Filter | None,
        below: bool,
    ) -> Subscription | BelowSubscription:
        """Begin to take events for a reader."""
        sync = partial(self._offsets.write, self._running)
        begin: Begin = "beginning" if start == "beginning" else "now"
        subtopics = self._running.core.following.below.subtopics(feed.topic)
        self._offsets.take_below(feed.topic, name, begin if below else None, subtopics)
        if below:
            whole = BelowSubscription(feed, name, self._read_page, sync, manual=manual)
            self._offsets.add_parts(feed.topic, whole)
            return whole
        return Subscription(
            feed,
            name,
            self._read_page,
            sync,
            start=start if isinstance(start, int) else None,
            manual=manual,
            wanted=wanted,
        )

    async def _follow(
        self, cid: Cid, name: str, wanted: Filter | None, start: Start, *, below: bool
    ) -> Reply:
        """Become a member; or, where events are routed by content, have the matching ones sent."""
        core = self._running.core
        is_new = cid not in core.topics and start == "now"
        if wanted is not None and (is_new or cid in core.content.topics):
            try:
                return await self._ask(
                    lambda call: SubscribeContent(call, cid, wanted.text(), sid_of(name))
                )
            except LocalError:
                pass  # It cannot be routed: a member gets all events, and filters them itself.
        from_start = start == "beginning"
        return await self._ask(
            lambda call: Subscribe(call, cid, below=below, from_start=from_start)
        )

    async def _filter_of(self, topic: TopicRef, where: str | None) -> Filter | None:
        """A filter on a topic's attributes, by the schema of its newest known version."""
        if where is None:
            return None
        known = await self._newest_known(await self._resolve(topic))
        return parse(where, known.attributes)

    async def unsubscribe(self, topic: TopicRef) -> None:
        """Leave a topic: the subscriptions of all its readers end, and their offsets are lost.

        The node also leaves the topics that it followed below this one alone. It stays in a topic
        that another subscription takes in.
        """
        cid = await self._resolve(topic)
        await self._running.rest()
        core = self._running.core
        routed = core.content.topics.get(cid)
        is_followed = routed is not None or cid in core.topics
        if is_followed and core.halted is None and not core.following.is_stopping:
            # The topic's next log counts anew: no place must outlive this one, whether or not
            # the caller, or the node, still waits when we are out.
            if core.following.below.tops_of(cid):
                self._offsets.drop_own(self._running, cid)  # Its log goes on.
            else:
                self._offsets.ended(self._running, cid)
        if routed is None:
            await self._ask(lambda call: Unsubscribe(call, cid))
            return
        *others, last = routed.wanted
        for sid in others:
            self._running.tell(partial(end_of, cid, sid))
        await self._ask(partial(end_of, cid, last))

    async def history(
        self,
        topic: TopicRef,
        *,
        start: int = 1,
        limit: int | None = None,
        where: str | None = None,
    ) -> AsyncGenerator[Event, None]:
        """The stored events of a topic, from an index on; with `where`, those that match."""
        cid = await self._resolve(topic)
        wanted = await self._filter_of(cid, where)
        left = limit
        while left is None or left > 0:
            size = PAGE if left is None or wanted is not None else min(PAGE, left)
            page = await self._read_page(cid, start, size)
            for event in page:
                if wanted is not None and not is_wanted(wanted, event.descriptor):
                    continue
                yield event
                left = None if left is None else left - 1
                if left == 0:
                    return
            if not page:
                return
            start = page[-1].index + 1

    # History by content id.

    async def fetch(self, event: EventRef, *, topic: TopicRef | None = None) -> Event:
        """An event by its content id, whether or not the node follows its topic.

        It comes from the node's disk or from the DHT, which keeps an event for 30 days. An older
        one comes from members of its topic, if `topic` names it.
        """
        cid, named = parse_event(event), await self._resolve_named(topic)
        reply = await self._ask(lambda call: FetchBlock(call, cid, named))
        assert reply.block is not None
        try:
            return Event(0, decode_event(reply.block))
        except RemoteError as error:
            raise LocalError("the content id is not that of a valid event") from error

    async def walk(
        self,
        event: EventRef,
        *,
        limit: int = 100,
        cursor: str = "",
        forward: bool = False,
        topic: TopicRef | None = None,
    ) -> Walked:
        """One page of the events before an event, newest first, beginning with itself.

        Each is verified, and reached by links from the event. What is missing is in `gaps`, with
        its reason. `cursor`, from the page before, goes on. With `forward` the page is from the
        node's own log instead, oldest first; raises NotFollowed if the log lacks the event. `topic`
        is as with `fetch`.
        """
        if not 1 <= limit <= WALK_MAX:
            raise LocalError(f"a page of a walk has 1 to {WALK_MAX} events")
        cid = parse_event(event)
        if forward:
            return await self._walk_forward(cid, limit, cursor)
        place, named = cursor_from(cursor), await self._resolve_named(topic)
        reply = await self._ask(lambda call: Walk(call, cid, limit, place, named))
        events = tuple(Event(0, each) for each in reply.events)
        return Walked(events, tuple(map(gap_view, reply.gaps)), cursor_text(reply.cursor))

    async def rebuild(
        self, event: EventRef, *, limit: int = 10_000, topic: TopicRef | None = None
    ) -> Walked:
        """The history of a topic up to an event, oldest first: the last `limit` events of it.

        No event comes before one that it follows. All of it is in memory; for more, or to begin
        before all is here, `walk`. With an empty `cursor` it is the whole history.
        """
        return await walking.put_together(
            lambda size, cursor: self.walk(event, limit=size, cursor=cursor, topic=topic), limit
        )

    async def _walk_forward(self, cid: Cid, limit: int, cursor: str) -> Walked:
        topic, start = walking.start_forward(self._home.store, cid, cursor)
        page = await self._read_page(topic, start, limit)
        core = self._running.core
        followed = core.topics.get(topic) or core.content.topics.get(topic)
        is_over = not page or followed is None or page[-1].index >= followed.log.newest
        return Walked(tuple(page), (), "" if is_over else str(page[-1].index + 1))

    async def _resolve_named(self, topic: TopicRef | None) -> Cid | None:
        return None if topic is None else await self._resolve(topic)

    # Readers.

    async def readers(self, topic: TopicRef) -> list[ReaderView]:
        """The readers of a topic, and their offsets."""
        feed = self._offsets.by_topic.get(await self._resolve(topic))
        return [] if feed is None else views.readers_of(feed, self._offsets.by_topic)

    async def acknowledge(
        self, topic: TopicRef, name: str, index: int, *, subtopic: TopicRef | None = None
    ) -> None:
        """Move a reader's offset up to an index; raises ReaderNotFound.

        For a reader with sub-topics, `subtopic` is the topic of the event with this index.
        """
        cid = await self._resolve(topic)
        below = cid if subtopic is None else await self._resolve(subtopic)
        place = name if below == cid else part_name(name, cid)
        if not self._offsets.acknowledge(below, place, index):
            raise ReaderNotFound(f"the topic has no reader {name!r}: check the name")

    async def forget(self, topic: TopicRef, name: str) -> None:
        """Delete a reader, and end its subscription; raises ReaderNotFound.

        The node follows the topic still. A filter of the reader ends a while later, unless it is
        the last one of the topic.
        """
        cid = await self._resolve(topic)
        reader = self._offsets.drop(self._running, cid, name)
        if reader is None:
            raise ReaderNotFound(f"the topic has no reader {name!r}: check the name")
        if reader.subscription is not None:
            reader.subscription.close(ReaderNotFound("the reader was deleted").refusal)
        self._running.settle()

    # Within.

    @property
    def _running(self) -> Driver:
        assert self._driver is not None, "a node is opened with `async with Node.open(…)`"
        return self._driver

    async def _ask(
        self,
        make: Make,
        once: Callable[[Make], Awaitable[Reply]] | None = None,
    ) -> Reply:
        """What the core answers; who has found nothing before we knew any peer looks once more."""
        dht = self._running.core.dht
        was_joining = dht.is_joining
        once = self._ask_once if once is None else once
        reply = await once(make)
        refused = reply.refusal
        if was_joining and refused is not None and refused.code in SOUGHT:
            with trio.move_on_after(FIRST_PEER_S_MAX):
                while dht.is_joining:  # noqa: ASYNC110 (the core does not say when it has)
                    await trio.sleep(JOIN_LOOK_S)
            reply = await once(make)
        if reply.refusal is not None:
            raise reply.refusal.error()
        return reply

    def _ask_some(self, asked: Iterable[tuple[Make, Callable[[Reply], None]]]) -> None:
        self._running.ask(asked)

    async def _ask_once(self, make: Callable[[int], Command]) -> Reply:
        _check_loop()
        asked = Asked(make)
        self._running.ask([(make, asked.take)])
        return await asked.answer()

    async def _resolve(self, topic: TopicRef) -> Cid:
        return (await self._naming.find(topic)).topic

    async def _meta_of(self, cid: Cid) -> Cid:
        return (await self._newest_known(cid)).subtopics[META]

    async def _resolve_all(self, topics: Mapping[str, TopicRef]) -> dict[str, Cid]:
        return {name: await self._resolve(topic) for name, topic in topics.items()}

    async def _newest_known(self, cid: Cid) -> TopicDescriptor:
        """A topic as we follow it, or else as we find it."""
        followed = self._running.core.topics.get(cid)
        return followed.descriptor if followed is not None else (await self.topic(cid)).descriptor

    async def _refuse_unless_custom(self, cid: Cid) -> None:
        """Refuse parents that the topic would ignore."""
        if (await self._newest_known(cid)).event_linking is not EventLinking.CUSTOM:
            raise LocalError("the topic takes no parents: give none, or set its linking to CUSTOM")

    async def _newest_of(self, found: TopicDescriptor) -> TopicDescriptor:
        """A topic's newest version, if its name still leads to it."""
        pointer = (await self._find_name(found.author, found.name)).pointer
        return await self._fetch_topic(pointer.cid) if pointer.topic == found.topic else found

    async def _find_name(self, author: PeerId, name: str) -> Resolution:
        reply = await self._ask(lambda call: Resolve(call, author, name))
        assert reply.resolution is not None
        return reply.resolution

    async def _fetch_topic(self, cid: Cid) -> TopicDescriptor:
        try:
            reply = await self._ask(lambda call: FetchBlock(call, cid))
            assert reply.block is not None
            return decode_topic(reply.block)
        except (NotFound, RemoteError) as error:
            # No peer has the block, or it is of another kind.
            raise NO_TOPIC.error() from error

    async def _read_page(self, topic: Cid, index: int, limit: int) -> list[Event]:
        reply = await self._ask(lambda call: ReadHistory(call, topic, index, limit))
        return [
            Event(place, event) for place, event in zip(reply.places, reply.events, strict=True)
        ]

    async def _find_locally(self) -> None:
        """Find peers of the local network, and begin anew when this machine changes its own."""
        while True:
            moved = self._running.moved
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._find_nearby)
                await moved.wait()
                nursery.cancel_scope.cancel()

    async def _find_nearby(self) -> None:
        from pulsarcast.network.mdns import find_locally  # noqa: PLC0415 (only if it is wanted)

        driver = self._running
        try:
            await find_locally(driver.me, driver.local, driver.meet)
        except LocalError as error:
            logging.getLogger(__name__).warning("%s", error)


def _check_loop() -> None:
    """Refuse a program that does not run under Trio, and name what it should take."""
    with suppress(RuntimeError):
        trio.lowlevel.current_task()
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise LocalError(
            "a Node needs Trio: start the program with trio.run(main), or take a daemon and Client"
        ) from None
    raise LocalError(
        "a Node needs Trio, and this program runs under asyncio: take `async with "
        "pulsarcast.asyncio_node(home) as client`, which has the same methods"
    )


def _check_start(start: Start) -> None:
    if not isinstance(start, int) and start not in ("now", "beginning"):
        raise LocalError(f"start={start!r}: give 'now', 'beginning' or an index")


def _close_trace(tracing: NodeTrace) -> None:
    """Close a trace; where the disk refuses, the node has said so already, or is at its end."""
    try:
        tracing.close()
    except OSError as error:
        logging.getLogger(__name__).warning("the trace is not whole: %s", error)


def _published(reply: Reply) -> Published | LocalError:
    if reply.refusal is not None:
        return reply.refusal.error()
    assert reply.cid is not None
    return Published(reply.cid, reply.replicas)
