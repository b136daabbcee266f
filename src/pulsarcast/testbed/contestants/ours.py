"""A Pulsarcast node, as a contestant."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid, PeerId, cid_text, parse_peer
from pulsarcast.model.publications import Publication
from pulsarcast.model.requests import Attribute
from pulsarcast.model.topic_types import AttributeRule, DeliveryOrder, TopicSettings
from pulsarcast.network.insight import Insight
from pulsarcast.network.node import Node
from pulsarcast.network.subscriptions import Subscription
from pulsarcast.simulation.applications import settings_for
from pulsarcast.testbed.contestants.contestants import LOGGED, Receipt, Seat, Traffic


class OurNode:
    """One node, and the application that listens to it."""

    def __init__(self, seat: Seat, node: Node, nursery: trio.Nursery) -> None:
        self._seat = seat
        self._node = node
        self._insight = Insight(node)
        self._nursery = nursery
        self.peer = parse_peer(node.peer_id)
        self.addresses: Sequence[str] = node.addresses

    async def join(self, addresses: Sequence[str]) -> None:
        """Nothing to do: a node finds others by itself."""

    async def create_topic(
        self,
        name: str,
        order: str,
        dissemination: str = "tree",
        sequencers: Sequence[PeerId] = (),
    ) -> Cid:
        """Create an open topic that orders and spreads its events so."""
        settings = settings_for(order, self.peer, dissemination, sequencers)
        return (await self._node.ensure_topic(name, settings)).cid

    async def subscribe(self, topic: Cid) -> None:
        """Subscribe, or go on where an earlier life stopped."""
        self._nursery.start_soon(self._consume, await self._node.subscribe(topic))

    async def _consume(self, subscription: Subscription, reader: int = 0) -> None:
        deliver = self._seat.deliver
        try:
            async for event in subscription:
                deliver(event.payload, reader)
        except LocalError as error:
            # A program that listens to a node without a disk is told so, and goes on without it.
            if self._node.halted is None:
                raise
            logging.getLogger(__name__).error("%s: %s", subscription.topic, error)

    async def publish(self, topic: Cid, payload: bytes, *, injection: str, ack: str) -> Receipt:
        """Publish once, however often the same injection is tried."""
        published = await self._insight.publish(
            topic,
            Publication(payload=payload, idempotency_key=injection),
            ack="replicated" if ack == "replicated" else "accepted",
            injection=injection,
        )
        return Receipt(published.cid, published.replicas)

    # By content.

    async def create_routed(self, name: str, attributes: Sequence[AttributeRule]) -> Cid:
        """Create a topic whose descriptor wants its events routed by content."""
        settings = TopicSettings(
            order=DeliveryOrder.NONE,
            open=True,
            attributes=tuple(attributes),
            content_routing=True,
        )
        return (await self._node.ensure_topic(name, settings)).cid

    async def follow(self, topic: Cid) -> None:
        """Become a member."""
        await self._node.follow(topic)

    async def subscribe_where(self, topic: Cid, where: str, reader: int) -> bool:
        """Each reader is a subscriber with a name of its own; says whether we are no member."""
        subscription = await self._node.subscribe(topic, f"reader-{reader}", where=where)
        self._nursery.start_soon(self._consume, subscription, reader)
        name = cid_text(topic)
        return all(seen.id != name or seen.filters for seen in self._node.topics())

    async def publish_with(
        self,
        topic: Cid,
        payload: bytes,
        attributes: Mapping[str, Attribute],
        *,
        injection: str,
        ack: str,
    ) -> Receipt:
        """Publish an event with attributes."""
        published = await self._insight.publish(
            topic,
            Publication(payload=payload, attributes=dict(attributes), idempotency_key=injection),
            ack="replicated" if ack == "replicated" else "accepted",
            injection=injection,
        )
        return Receipt(published.cid, published.replicas)

    def counted(self) -> Mapping[str, int]:
        """What the node's core counts, and the events in its logs."""
        logged = sum(topic.newest for topic in self._node.topics())
        return {**self._insight.recoveries, LOGGED: logged}

    def traffic(self) -> Traffic:
        """What the node counted at its sockets, and of its messages."""
        counters = self._insight.counters
        return Traffic(
            counters.bytes_in, counters.bytes_out, counters.messages_in, counters.messages_out
        )

    def term_led(self, topic: Cid) -> int | None:
        """As the node's own status says."""
        name = cid_text(topic)
        for followed in self._node.topics():
            if followed.id == name and followed.sequencing is not None:
                return followed.sequencing.term if followed.sequencing.leads else None
        return None

    @property
    def halted(self) -> str | None:
        """Whether the disk refused, or somebody else has our key."""
        return self._node.halted


@asynccontextmanager
async def open_node(seat: Seat) -> AsyncIterator[OurNode]:
    """Open the node that lives in the seat's home."""
    settings = seat.settings
    async with (
        Node.open(
            seat.home,
            listen=(seat.listen,),
            announce=seat.announce,
            dial_from=seat.dial_from,
            bootstrap=seat.bootstrap,
            parameters=settings.parameters,
            trace_level=settings.trace_level_of(seat.index),
            trace_folder=settings.trace_folder,
            run_id=settings.run_id,
        ) as node,
        trio.open_nursery() as nursery,
    ):
        yield OurNode(seat, node, nursery)
        nursery.cancel_scope.cancel()
