"""Events of a megabyte between real nodes: every one arrives, and no link is given up."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from pulsarcast import Node
from pulsarcast.model.errors import Closed, TopicNotFound
from pulsarcast.network.subscriptions import Subscription
from pulsarcast.testbed.proxies import Delay, Proxies

PAYLOAD_BYTES = 1_000_000
MBIT_S = 10.0
SHARE_MIN = 0.8
"""Of what the publisher's line can carry."""
REPLICAS_ELSEWHERE = 2
"""Three peers keep each event, and the publisher may be one of them."""


class Topic:
    """A publisher, and the subscribers of its topic."""

    def __init__(self, publisher: Node, subscribers: list[Node], topic: str) -> None:
        self.publisher = publisher
        self.subscribers = subscribers
        self.topic = topic
        self.arrived = [0] * len(subscribers)

    async def listen(self, index: int, events: Subscription) -> None:
        with suppress(Closed):
            async for _ in events:
                self.arrived[index] += 1

    async def publish(self, count: int, in_flight: int) -> None:
        left = count

        async def some() -> None:
            nonlocal left
            while left:
                left -= 1
                await self.publisher.publish(
                    self.topic, os.urandom(PAYLOAD_BYTES), ack="accepted", patience_s=300
                )

        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(some)

    async def all_arrived(self, count: int) -> None:
        while min(self.arrived) < count:
            await trio.sleep(0.05)

    @property
    def lost(self) -> int:
        """Connections that were given up, or trees that were left."""
        nodes = [self.publisher, *self.subscribers]
        counts = [node._running.core.counts for node in nodes]
        return sum(each["rejoin"] + each["silent_parent"] for each in counts)

    @property
    def children(self) -> int:
        """How many members get each event from the publisher."""
        core = self.publisher._running.core
        (followed,) = (each for each in core.topics.values() if not each.is_meta)
        return len(followed.overlay.children)


async def subscribe(node: Node, topic: str) -> Subscription:
    """Subscribe; where the machine is busy, the node may know no peer yet."""
    for _ in range(20):
        with suppress(TopicNotFound):
            return await node.subscribe(topic)
        await trio.sleep(0.5)
    return await node.subscribe(topic)


@asynccontextmanager
async def topic(
    folder: Path, subscribers: int, proxies: Proxies | None = None
) -> AsyncIterator[Topic]:
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:

        async def node(index: int, bootstrap: tuple[str, ...]) -> Node:
            home = folder / str(index)
            if proxies is None:
                return await stack.enter_async_context(Node.open(home, bootstrap=bootstrap))
            opening = Node.open(
                home,
                bootstrap=bootstrap,
                listen=(proxies.listen(index),),
                announce=(proxies.announce(index),),
                dial_from=proxies.dial_from(index),
            )
            return await stack.enter_async_context(opening)

        publisher = await node(0, ())
        made = await publisher.create_topic("films")
        others = [await node(1 + index, publisher.addresses) for index in range(subscribers)]
        found = Topic(publisher, others, made.id)
        for index, each in enumerate(others):
            nursery.start_soon(found.listen, index, await subscribe(each, made.id))
        await trio.sleep(0.5)
        yield found
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("subscribers", "in_flight"),
    [
        (3, 1),
        (3, 5),
        pytest.param(9, 1, marks=pytest.mark.slow),
        pytest.param(9, 5, marks=pytest.mark.slow),
        pytest.param(9, 30, marks=pytest.mark.slow),
    ],
)
def test_events_of_a_megabyte_arrive_and_break_no_link(
    tmp_path: Path, subscribers: int, in_flight: int
) -> None:
    count = 4 * (1 + subscribers)

    async def main() -> None:
        with trio.fail_after(300):
            async with topic(tmp_path, subscribers) as films:
                await films.publish(count, in_flight)
                await films.all_arrived(count)
                assert films.lost == 0

    trio.run(main)


@pytest.mark.slow
@pytest.mark.parametrize("in_flight", [1, 5, 30])
def test_narrow_lines_are_used_and_no_node_on_them_is_taken_for_dead(
    tmp_path: Path, in_flight: int
) -> None:
    """The publisher's line could carry each event to its first children and replicas in time."""
    count = 16

    async def main() -> None:
        with trio.fail_after(500), Proxies(10, Delay(mbit_s=MBIT_S)) as proxies:
            async with topic(tmp_path, 9, proxies) as films:
                copies = films.children + REPLICAS_ELSEWHERE
                began_s = trio.current_time()
                await films.publish(count, in_flight)
                await films.all_arrived(count)
                took_s = trio.current_time() - began_s
                assert films.lost == 0
                needed_s = count * copies * PAYLOAD_BYTES * 8 / (MBIT_S * 1e6)
                bytes_out = films.publisher._running.neighbours.bytes_out
                assert needed_s / took_s >= SHARE_MIN, (needed_s, took_s, copies, bytes_out)

    trio.run(main)
