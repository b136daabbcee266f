"""Floodsub and gossipsub of py-libp2p, as contestants.

Both sign every message and check every signature (StrictSign, the default), as ours do. Both run
on the same random graph.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import trio
from libp2p.abc import IHost, ISubscriptionAPI
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.pubsub import floodsub, gossipsub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.tools.anyio_service import background_trio_service

from pulsarcast.model.ids import Cid, PeerId, cid_of, cid_text
from pulsarcast.testbed.contestants import stock
from pulsarcast.testbed.contestants.contestants import Receipt, Seat, Traffic
from pulsarcast.testbed.contestants.stock_trace import StockTrace
from pulsarcast.testbed.contestants.topologies import random_graph

MESHSUB: Final = TProtocol("/meshsub/1.1.0")
"""Its 1.2 costs twice the processor time here: it tells every neighbour of every message, however
small, that it need not be sent."""
# Mesh and heartbeat as libp2p's specification of gossipsub 1.0 gives them.
DEGREE: Final = 6
DEGREE_LOW: Final = 4
DEGREE_HIGH: Final = 12
HEARTBEAT_S: Final = 1
SEEN_S: Final = 4 * 3_600
"""How long a node knows a message again. With the default of 120 s, whoever falls further behind
than that takes old messages for new ones and floods them once more, for ever."""
STREAM_S_MAX: Final = 20.0
"""When a neighbour with whom there is no stream yet is asked for one again."""


class PubsubNode:
    """One host with a pubsub router."""

    def __init__(self, seat: Seat, host: IHost, pubsub: Pubsub, nursery: trio.Nursery) -> None:
        self._seat = seat
        self._host = host
        self._pubsub = pubsub
        self._nursery = nursery
        self.halted: str | None = None
        self.peer = PeerId(host.get_id().to_bytes())
        self.addresses: Sequence[str] = stock.addresses_of(host)
        self.trace = StockTrace(seat, self.peer)

    async def join(self, addresses: Sequence[str]) -> None:
        """Dial our part of the graph, then wait for those whose part we are."""
        settings, me = self._seat.settings, self._seat.index
        graph = random_graph(size=len(addresses), dials=settings.dials, seed=settings.seed)
        ours = {stock.peer_of(addresses[other]): addresses[other] for other in graph[me]}
        for address in ours.values():
            await stock.dial(self._host, address)
        theirs = {stock.peer_of(addresses[i]) for i, dialled in enumerate(graph) if me in dialled}
        wanted = ours.keys() | theirs
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._insist, wanted, ours)
            await stock.wait_for(lambda: wanted <= self._pubsub.peers.keys(), "pubsub streams")
            nursery.cancel_scope.cancel()

    async def _insist(self, wanted: Set[ID], ours: Mapping[ID, str]) -> None:
        """On a busy machine a stream can miss its 10 s, and then nobody opens it again but we."""
        while True:
            await trio.sleep(STREAM_S_MAX)
            for peer in wanted - self._pubsub.peers.keys():
                opened = await self._pubsub.ensure_peer_stream(peer)
                if not opened and peer in ours:
                    await self._host.disconnect(peer)
                    await stock.dial(self._host, ours[peer])

    async def create_topic(
        self,
        name: str,
        order: str,
        dissemination: str = "tree",
        sequencers: Sequence[PeerId] = (),
    ) -> Cid:
        """A topic is no more than a name; a CID is made of it for the traces."""
        return cid_of(name.encode())

    def term_led(self, topic: Cid) -> int | None:
        """Nobody leads here."""
        return None

    async def subscribe(self, topic: Cid) -> None:
        """Subscribe, and hand on what comes."""
        subscription = await self._pubsub.subscribe(cid_text(topic))
        self.trace.subscribe(topic)
        self._nursery.start_soon(self._consume, topic, subscription)

    async def _consume(self, topic: Cid, subscription: ISubscriptionAPI) -> None:
        deliver = self._seat.deliver
        while True:
            message = await subscription.get()
            number = int.from_bytes(message.seqno, "big")
            self.trace.deliver(topic, cid_of(message.data), PeerId(message.from_id), number)
            deliver(message.data)

    async def publish(self, topic: Cid, payload: bytes, *, injection: str, ack: str) -> Receipt:
        """Publish; nobody acknowledges anything."""
        event = cid_of(payload)
        # It takes the next number before it waits for anything.
        self.trace.publish(topic, event, self._pubsub.counter + 1, injection)
        await self._pubsub.publish(cid_text(topic), payload)
        return Receipt(event, 0)

    def traffic(self) -> Traffic:
        """Bytes of this process."""
        return stock.traffic()


@asynccontextmanager
async def open_floodsub(seat: Seat) -> AsyncIterator[PubsubNode]:
    """A node that sends every message to every neighbour."""
    async with _open(seat, floodsub.FloodSub([floodsub.PROTOCOL_ID])) as node:
        yield node


@asynccontextmanager
async def open_gossipsub(seat: Seat) -> AsyncIterator[PubsubNode]:
    """A node that sends messages along a mesh, and gossips about them beside it."""
    router = gossipsub.GossipSub(
        [MESHSUB],
        degree=DEGREE,
        degree_low=DEGREE_LOW,
        degree_high=DEGREE_HIGH,
        heartbeat_interval=HEARTBEAT_S,
        # It would drop what is above ten messages a second from one peer in one topic.
        spam_protection_enabled=False,
        # It would rebuild meshes for want of different addresses: all of ours are one.
        eclipse_protection_enabled=False,
    )
    async with _open(seat, router) as node:
        yield node


@asynccontextmanager
async def _open(
    seat: Seat, router: floodsub.FloodSub | gossipsub.GossipSub
) -> AsyncIterator[PubsubNode]:
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(stock.open_host(seat.listen))
        pubsub = Pubsub(host, router, seen_ttl=SEEN_S)
        await stack.enter_async_context(background_trio_service(pubsub))
        if isinstance(router, gossipsub.GossipSub):
            await stack.enter_async_context(background_trio_service(router))
        await pubsub.wait_until_ready()
        async with trio.open_nursery() as nursery:
            node = PubsubNode(seat, host, pubsub, nursery)
            yield node
            nursery.cancel_scope.cancel()
        node.trace.close()
