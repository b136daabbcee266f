"""The library: a node that a program opens, publishes with and listens to.

    async with Node.open("home") as node:
        topic = await node.create_topic("weather")
        async with await node.subscribe(topic) as events:
            await node.publish(topic, b"sunny")
            async for event in events:
                print(event.payload)

Everything durable is in the folder: key, history, subscriptions. Whoever opens it again goes on
where it stopped.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio

from pulsarcast.model import trace
from pulsarcast.model.api import FollowedView, PeerView, ReaderView
from pulsarcast.model.errors import (
    Closed,
    LocalError,
    NotFollowed,
    NotFound,
    ReaderNotFound,
    Refusal,
    RemoteError,
    TopicNotFound,
)
from pulsarcast.model.events import Attribute, EventDescriptor, read_own_event
from pulsarcast.model.filters import Filter, parse
from pulsarcast.model.ids import Cid, PeerId, parse_cid, parse_peer, peer_text
from pulsarcast.model.topic_types import EventLinking
from pulsarcast.model.topics import TopicDescriptor, TopicSettings, decode_topic
from pulsarcast.network import insight
from pulsarcast.network.addresses import parse_contact
from pulsarcast.network.driver import NETWORK, Counters, Driver
from pulsarcast.network.filters import Filters, end_of, sid_of
from pulsarcast.network.offsets import Offsets
from pulsarcast.network.subscriptions import (
    PAGE,
    Event,
    Subscription,
    is_wanted,
)
from pulsarcast.network.tracing import NodeTrace
from pulsarcast.network.values import Ack, Publication, Published, Topic, TopicRef
from pulsarcast.protocol.commands.commands import NO_TOPIC
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import (
    Command,
    CreateTopic,
    FetchBlock,
    ReadHistory,
    Resolve,
    Subscribe,
    SubscribeContent,
    Unsubscribe,
    UpdateTopic,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import (
    Block,
    Events,
    LoadBlock,
    LoadNumbers,
)
from pulsarcast.storage.home import Home
from pulsarcast.storage.logs import LogState

LISTEN: Final = ("/ip4/127.0.0.1/tcp/0",)
JOIN_S_MAX: Final = 10.0
"""How long a start waits for the first peer; without one the node is alone, and works."""
FIRST_PEER_S_MAX: Final = 5.0
"""How long a search that found nothing waits for it afterwards, to look once more."""
JOIN_LOOK_S: Final = 0.05
SOUGHT: Final = (NotFound.code, TopicNotFound.code)
"""What a search among other peers is refused with where it found nothing."""
TOGETHER: Final = 32
"""Publications that go to the disk together before anybody else has a turn."""


class Node:
    """A peer of the network."""

    def __init__(self, home: Home, incarnation: int) -> None:
        self._home = home
        self._log_reader = home.log_reader()
        self._incarnation = incarnation
        self._driver: Driver | None = None
        self._offsets = Offsets(home)
        self._filters = Filters(self._offsets)
        self._halted: str | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: str | Path,
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

        `bootstrap` names peers to begin with, as `/ip4/…/tcp/…/p2p/PEER`; with `mdns` those of the
        same local network need no naming. `announce` is where others are told to dial us, and
        `dial_from` an address of this machine to dial from, where it has several. With a
        `trace_level` (`delivery` or `rpc`) it writes down what it does, below its folder or
        `trace_folder`.
        """
        with Home.open(path) as home, ExitStack() as ending:
            incarnation = home.start()
            node = cls(home, incarnation)
            failure: Exception | None = None
            tracing = None
            if trace_level is not None:
                tracing = NodeTrace(
                    Path(trace_folder) if trace_folder is not None else home.traces,
                    run_id=run_id,
                    node_id=peer_text(home.identity.peer_id),
                    incarnation=incarnation,
                    level=trace_level,
                )
                ending.callback(_close_trace, tracing)
            driver = node._driver = Driver(
                home.identity,
                home.store,
                node,
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

    # Who and where we are.

    @property
    def peer_id(self) -> str:
        """Who we are."""
        return peer_text(self._home.identity.peer_id)

    @property
    def identity(self) -> PeerId:
        """Who we are, as topics' settings name peers."""
        return self._home.identity.peer_id

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where others can dial us, in the form that `bootstrap` takes."""
        return tuple(f"{each}/p2p/{self.peer_id}" for each in self._running.addresses)

    @property
    def incarnation(self) -> int:
        """Which life of the node this is."""
        return self._incarnation

    @property
    def peers(self) -> tuple[str, ...]:
        """Whom we are connected to."""
        return tuple(peer_text(peer) for peer in self._running.neighbours.connected())

    @property
    def counters(self) -> Counters:
        """What we have done since we started."""
        return self._running.counters()

    @property
    def halted(self) -> str | None:
        """Why the node has fallen silent, where it has."""
        return self._halted

    @property
    def home(self) -> Path:
        """The folder that we live in."""
        return self._home.path

    # What can be seen of it.

    def followed(self, aliases: Mapping[str, str] = {}) -> list[FollowedView]:
        """The topics that we follow, and how they do."""
        core = self._running.core
        feeds = self._offsets.by_topic
        return [
            *insight.followed(core.topics, feeds, aliases, core.seats.by_topic),
            *insight.followed_by_content(core.content.topics, feeds, aliases),
        ]

    def neighbours(self) -> list[PeerView]:
        """The connections to other peers."""
        return insight.peers_of(self._running.neighbours)

    def readers(self, topic: Cid) -> list[ReaderView]:
        """Everybody who has a place in a topic."""
        feed = self._offsets.by_topic.get(topic)
        return [] if feed is None else insight.readers_of(feed)

    @property
    def topics_read(self) -> tuple[Cid, ...]:
        """The topics in which somebody has a place."""
        return tuple(self._offsets.by_topic)

    def newest(self, topic: Cid) -> int:
        """The index of the newest event of a topic in our log, 0 if we have none."""
        core = self._running.core
        followed = core.topics.get(topic) or core.content.topics.get(topic)
        return 0 if followed is None else followed.log.newest

    def descriptor(self, topic: Cid) -> TopicDescriptor:
        """The newest version that we know of a topic that we follow."""
        return self._running.core.topics[topic].descriptor

    def is_subscribed(self, topic: Cid) -> bool:
        """Whether somebody on this node listens to a topic, or did and may come back."""
        core = self._running.core
        followed = core.topics.get(topic)
        return topic in core.content.topics if followed is None else followed.subscribed

    @property
    def peers_known(self) -> int:
        """How many peers are in our routing table."""
        return self._running.core.dht.known_count

    def footprint(self) -> dict[str, int]:
        """How much of everything we hold in memory."""
        return self._running.core.footprint()

    @property
    def recoveries(self) -> Mapping[str, int]:
        """How often each way of recovering was taken."""
        return self._running.core.counts

    # Topics.

    async def create_topic(
        self, name: str, settings: TopicSettings | None = None, *, subtopics: Mapping[str, Cid] = {}
    ) -> Topic:
        """Create a topic of ours; whoever knows our peer id and the name finds it."""
        chosen = settings or TopicSettings()
        reply = await self._ask(lambda call: CreateTopic(call, name, chosen, dict(subtopics)))
        assert reply.block is not None
        return Topic(decode_topic(reply.block))

    async def update_topic(
        self,
        topic: TopicRef,
        settings: TopicSettings,
        *,
        subtopics: Mapping[str, Cid] | None = None,
        flush: bool = False,
    ) -> Topic:
        """Publish a new version of a topic of ours; `flush` forgets all events up to now.

        Its sub-topics stay as they are, unless others are named.
        """
        cid = await self._resolve(topic)
        below = None if subtopics is None else dict(subtopics)
        reply = await self._ask(lambda call: UpdateTopic(call, cid, settings, below, flush=flush))
        assert reply.block is not None
        return Topic(decode_topic(reply.block))

    async def topic(self, topic: TopicRef) -> Topic:
        """Look up a topic's newest version: by its content id, or as `author/name`."""
        if isinstance(topic, str) and "/" in topic:
            return Topic(await self._find_by_name(topic))
        first = await self._fetch_topic(await self._resolve(topic))
        try:
            newest = await self._find_newest(first.author, first.name)
        except LocalError:
            return Topic(first)
        # The author may have made another topic of the same name since.
        return Topic(newest if newest.topic == first.topic else first)

    # Events.

    async def publish(
        self,
        topic: TopicRef,
        payload: bytes,
        *,
        name: str = "",
        attributes: Mapping[str, Attribute] = {},
        parents: Sequence[Cid] = (),
        ack: Ack = "replicated",
        idempotency_key: bytes | str | None = None,
        created_us: int | None = None,
        injection: str = "",
    ) -> Published:
        """Publish, or ask someone who may; returns once the promise that was asked for holds.

        `accepted`: it is on a publisher's disk. `replicated`: several peers keep it. Parents are
        for topics whose linking is CUSTOM; elsewhere nodes link events themselves. With an
        idempotency key the same call can be made again, also after a crash, and publishes once;
        `created_us` is then that of the first time.
        """
        cid = await self._resolve(topic)
        if parents:
            await self._refuse_unless_custom(cid)
        publication = Publication(
            payload=payload,
            name=name,
            attributes=attributes,
            parents=parents,
            idempotency_key=idempotency_key,
            created_us=created_us,
        )
        reply = await self._ask(lambda call: publication.command(call, cid, ack, injection))
        assert reply.cid is not None
        return Published(reply.cid, reply.replicas)

    async def publish_many(
        self, topic: TopicRef, publications: Sequence[Publication], *, ack: Ack = "replicated"
    ) -> list[Published | LocalError]:
        """Publish all of these in their order; what became of each, once that is known of all.

        Where the topic takes no parents and one has some, nothing is published. They share commits,
        so a thousand cost much less than a thousand calls would.
        """
        cid = await self._resolve(topic)
        if any(publication.parents for publication in publications):
            await self._refuse_unless_custom(cid)
        replies: dict[int, Reply] = {}
        answered = trio.Event()

        def asking(
            place: int,
        ) -> tuple[Callable[[int], Command], Callable[[Reply], None]]:
            def then(reply: Reply) -> None:
                replies[place] = reply
                if len(replies) == len(publications):
                    answered.set()

            return lambda call: publications[place].command(call, cid, ack), then

        for first in range(0, len(publications), TOGETHER):
            some = range(first, min(first + TOGETHER, len(publications)))
            self._running.ask_some([asking(place) for place in some])
            await trio.lowlevel.checkpoint()
        if publications:
            await answered.wait()
        return [_published(replies[place]) for place in range(len(publications))]

    async def follow(self, topic: TopicRef, *, from_start: bool = False) -> None:
        """Keep a topic's log from now on, or from its start, whether or not anybody listens."""
        cid = await self._resolve(topic)
        await self._running.rest()
        self._filters.make_way(self._running, cid, None)
        await self._ask(lambda call: Subscribe(call, cid, from_start=from_start))

    async def subscribe(
        self,
        topic: TopicRef,
        name: str = "",
        *,
        from_start: bool = False,
        start: int | None = None,
        manual: bool = False,
        take_over: bool = False,
        where: str | None = None,
    ) -> Subscription:
        """Listen to a topic, from now on or from its start, and go on where `name` stopped before.

        Several names listen to one topic independently of each other. With `start` it goes on at
        an index of the caller's own choice, with `manual` only `acknowledge` says what is done,
        with `take_over` whoever listens under the same name is sent away. `where` is a filter on
        the topic's attributes: what does not match is not handed out, and counts as done.
        """
        cid = await self._resolve(topic)
        wanted = await self.filter_of(cid, where)
        await self._running.rest()
        self._filters.make_way(self._running, cid, wanted)
        reader = self._offsets.take(
            cid, name, from_start=from_start, start=start, take_over=take_over
        )
        feed = self._offsets.feed(cid)
        subscription = Subscription(
            feed,
            name,
            self._read_page,
            partial(self._offsets.write, self._running),
            start=start,
            manual=manual,
            wanted=wanted,
        )
        try:
            reply = await self._follow(cid, name, wanted, from_start=from_start, start=start)
        except BaseException:
            # Refused, or the caller waits no more: the name is free again.
            subscription.close()
            is_ours = self._offsets.reader(cid, name) is reader and reader.subscription is None
            if is_ours and not reader.is_promised:
                self._offsets.drop(self._running, cid, name)
                self._filters.give_up(self._running, cid, name)
            raise
        feed.place(reply.places[0] if reply.places else 0)
        if not reader.is_promised:
            # A place that a crash could take away would be no promise.
            reader.is_promised = True
            self._offsets.write(self._running)
        return subscription

    async def _follow(
        self, cid: Cid, name: str, wanted: Filter | None, *, from_start: bool, start: int | None
    ) -> Reply:
        """Become a member; or, where events are routed by content, have what matches sent to us."""
        core = self._running.core
        is_new = cid not in core.topics and not from_start and start is None
        if wanted is not None and (is_new or cid in core.content.topics):
            try:
                return await self._ask(
                    lambda call: SubscribeContent(call, cid, wanted.text(), sid_of(name))
                )
            except LocalError:
                pass  # It cannot be routed: as a member we get everything, and filter it here.
        return await self._ask(lambda call: Subscribe(call, cid, from_start=from_start))

    async def filter_of(self, topic: TopicRef, where: str | None) -> Filter | None:
        """A filter on a topic's attributes, by the schema of its newest version that we know."""
        if where is None:
            return None
        known = await self._newest_known(await self._resolve(topic))
        return parse(where, known.attributes)

    def acknowledge(self, topic: Cid, name: str, index: int) -> bool:
        """Say for a name that it is done up to an index; whether it has a place here."""
        return self._offsets.acknowledge(topic, name, index)

    async def forget(self, topic: TopicRef, name: str) -> bool:
        """Forget the place of a name, and send away whoever listens under it; whether it had one.

        The topic is still followed, for other names and for those to come. Where it is followed by
        content, the name's filter ends a while later, unless it is the last one.
        """
        cid = await self._resolve(topic)
        reader = self._offsets.drop(self._running, cid, name)
        if reader is None:
            return False
        if reader.subscription is not None:
            reader.subscription.close(ReaderNotFound("the name was forgotten").refusal)
        self._running.settle()
        return True

    async def unsubscribe(self, topic: TopicRef) -> None:
        """Leave a topic: all names that listen to it end, and their places are forgotten."""
        cid = await self._resolve(topic)
        await self._running.rest()
        core = self._running.core
        routed = core.content.topics.get(cid)
        is_followed = routed is not None or cid in core.topics
        if is_followed and core.halted is None and not core.following.is_stopping:
            # The topic's next log counts anew: no place must outlive this one, whether or not
            # the caller, or the node, still waits when we are out.
            for reader in self._offsets.drop_topic(self._running, cid):
                if reader.subscription is not None:
                    reader.subscription.close(
                        NotFollowed("the topic was unsubscribed from").refusal
                    )
        if routed is None:
            await self._ask(lambda call: Unsubscribe(call, cid))
            return
        *others, last = routed.wanted
        for sid in others:
            self._running.ask(partial(end_of, cid, sid))
        await self._ask(partial(end_of, cid, last))

    async def history(
        self,
        topic: TopicRef,
        *,
        start: int = 1,
        limit: int | None = None,
        where: str | None = None,
    ) -> AsyncGenerator[Event, None]:
        """The events of a topic that we keep, from one of our indices on; with a filter, of it."""
        cid = await self._resolve(topic)
        wanted = await self.filter_of(cid, where)
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

    @property
    def store_id(self) -> str:
        """Which store this is; a copy, or one that was restored, has another id."""
        return self._log_reader.store

    def log(self, topic: Cid) -> LogState | None:
        """Which part of a topic's log is on our disk, if we follow it."""
        return self._log_reader.state(topic) if topic in self._running.core.topics else None

    def read_log(
        self, topic: Cid, first: int, end: int, bytes_max: int
    ) -> list[tuple[int, int, bytes]]:
        """Index, time of receipt and signed bytes of events with first <= index < end."""
        return self._log_reader.read(topic, first, end, bytes_max)

    async def index_of(self, topic: TopicRef, event: Cid) -> int | None:
        """Where an event stands in our log of a topic, if we have it there."""
        cid = await self._resolve(topic)
        found = self._home.store.answer(LoadBlock(event))
        if not isinstance(found, Block) or found.block is None:
            return None
        try:
            descriptor = read_own_event(found.block)
        except RemoteError:
            return None  # It is a block of another kind.
        source, (epoch, number) = descriptor.numbered_by, descriptor.sequence
        places = self._home.store.answer(LoadNumbers(cid, source, epoch, number, number, 1))
        assert isinstance(places, Events)
        return next((place for place, held in places.events if place and held.cid == event), None)

    def close_readers(self, refusal: Refusal) -> None:
        """Send everybody away who listens; their places are kept."""
        self._offsets.close_all(refusal)

    # For the driver.

    def deliver(self, event: EventDescriptor, record: trace.Delivered) -> None:
        """An event has come."""
        self._offsets.feed(event.topic).deliver(record.index, event)

    def halted_because(self, refusal: Refusal) -> None:
        """The disk refused, or somebody else has our key."""
        self._halted = refusal.message
        self._offsets.close_all(refusal)

    def before_commit(self) -> None:
        """The disk is about to be synced: what is worth no commit of its own goes with it."""
        self._offsets.before_commit(self._running)

    # Within.

    @property
    def _running(self) -> Driver:
        assert self._driver is not None, "a node is opened with `async with Node.open(…)`"
        return self._driver

    async def _ask(self, make: Callable[[int], Command]) -> Reply:
        """What the core answers; who has found nothing before we knew any peer looks once more."""
        dht = self._running.core.dht
        was_joining = dht.is_joining
        reply = await self._ask_once(make)
        refused = reply.refusal
        if was_joining and refused is not None and refused.code in SOUGHT:
            with trio.move_on_after(FIRST_PEER_S_MAX):
                while dht.is_joining:  # noqa: ASYNC110 (the core does not say when it has)
                    await trio.sleep(JOIN_LOOK_S)
            reply = await self._ask_once(make)
        if reply.refusal is not None:
            raise reply.refusal.error()
        return reply

    async def _ask_once(self, make: Callable[[int], Command]) -> Reply:
        answered = trio.Event()
        replies: list[Reply] = []

        def then(reply: Reply) -> None:
            replies.append(reply)
            answered.set()

        self._running.ask(make, then)
        await answered.wait()
        return replies[0]

    async def _resolve(self, topic: TopicRef) -> Cid:
        if isinstance(topic, Topic):
            return topic.cid
        if isinstance(topic, bytes):
            return topic
        if "/" in topic:
            return (await self._find_by_name(topic)).topic
        return parse_cid(topic)

    async def _newest_known(self, cid: Cid) -> TopicDescriptor:
        """A topic as we follow it, or else as we find it."""
        followed = self._running.core.topics.get(cid)
        return followed.descriptor if followed is not None else (await self.topic(cid)).descriptor

    async def _refuse_unless_custom(self, cid: Cid) -> None:
        """Whoever names parents expects them to be an event's."""
        if (await self._newest_known(cid)).event_linking is not EventLinking.CUSTOM:
            raise LocalError("this topic takes no parents: its linking is not CUSTOM")

    async def _find_by_name(self, text: str) -> TopicDescriptor:
        author, _, name = text.partition("/")
        return await self._find_newest(parse_peer(author), name)

    async def _find_newest(self, author: PeerId, name: str) -> TopicDescriptor:
        reply = await self._ask(lambda call: Resolve(call, author, name))
        assert reply.cid is not None
        return await self._fetch_topic(reply.cid)

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
        from pulsarcast.network.mdns import find_locally  # noqa: PLC0415 (only if it is wanted)

        driver = self._running
        try:
            await find_locally(driver.me, driver.addresses or driver.bound, driver.meet)
        except LocalError as error:
            logging.getLogger(__name__).warning("%s", error)


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
