"""A node in a process of its own, which does what it is told over stdin; see `remote_nodes`.

Run as `python node_worker.py HOME OPTIONS`, where OPTIONS is JSON: the arguments of `Node.open`.
Commands and answers are lines of JSON. Each command has a number, and its answer the same one;
events have none. `PULSARCAST_TEST_PUNCH_TRIES` is how often a node tries to punch a hole: with 0
its relayed connections stay relayed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import trio
from msgspec import to_builtins

from pulsarcast import Node, TopicSettings
from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import parse_peer, peer_text
from pulsarcast.model.publications import Publication
from pulsarcast.model.topic_types import DeliveryOrder
from pulsarcast.network import punching
from pulsarcast.network.insight import Insight
from pulsarcast.network.values import Ack


def say(**line: Any) -> None:
    sys.stdout.write(json.dumps({**line, "s": time.monotonic()}) + "\n")
    sys.stdout.flush()


async def lines() -> AsyncIterator[bytes]:
    rest = b""
    async for data in trio.lowlevel.FdStream(0):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line


class Worker:
    """Carries out commands."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._insight = Insight(node)

    async def do(self, number: int, command: str, **words: Any) -> None:
        """Carry out one command, and say what became of it."""
        try:
            await getattr(self, command)(number, **words)
        except LocalError as error:
            say(to=number, error=f"{type(error).__name__}: {error}")

    async def create(
        self, number: int, name: str, order: str | None = None, publishers: Sequence[str] = ()
    ) -> None:
        """Create a topic, whose author alone publishes unless `publishers` names peers."""
        settings = None
        if order is not None:
            named = tuple(map(parse_peer, publishers))
            settings = TopicSettings(order=DeliveryOrder(order), publishers=named)
        say(to=number, topic=(await self._node.create_topic(name, settings)).id)

    async def invite(self, number: int, topic: str) -> None:
        """Write a ticket."""
        say(to=number, ticket=await self._node.invite(topic))

    async def join(self, number: int, ticket: str) -> None:
        """Follow the topic of a ticket."""
        say(to=number, topic=(await self._node.join(ticket)).id)

    async def subscribe(self, number: int, topic: str) -> None:
        """Read a topic from its beginning on, and say each event."""
        async with await self._node.subscribe(topic, "reader", "beginning") as events:
            say(to=number)
            async for event in events:
                say(event=event.text())

    async def publish(
        self, number: int, topic: str, text: str, ack: Ack = "replicated", injection: str = ""
    ) -> None:
        """Publish a text; `injection` is the load driver's name for it in the trace."""
        publication = Publication(payload=text)
        published = await self._insight.publish(topic, publication, ack=ack, injection=injection)
        say(to=number, id=published.id, replicas=published.replicas)

    async def status(self, number: int) -> None:
        """Say what the node knows of itself."""
        say(
            to=number,
            addresses=self._node.addresses,
            reach=to_builtins(self._node.reach),
            relaying=to_builtins(self._node.relaying),
            peers=to_builtins(self._node.peers()),
            topics=to_builtins(self._node.topics()),
            bytes_in=self._insight.counters.bytes_in,
            cut_off=sum(self._insight.counters.cut_off.values()),
            refused={
                peer_text(peer): [trio.current_time() - each.since_s, each.reason]
                for peer, each in self._node._running.neighbours._refused.items()
            },
        )


async def main() -> None:
    home, options = sys.argv[1], json.loads(sys.argv[2])
    tries = os.environ.get("PULSARCAST_TEST_PUNCH_TRIES")
    if tries is not None:
        vars(punching)["TRIES_MAX"] = int(tries)
    async with Node.open(home, **options) as node, trio.open_nursery() as nursery:
        say(peer=node.peer_id, addresses=node.addresses)
        worker = Worker(node)
        async for line in lines():
            number, command, words = json.loads(line)
            nursery.start_soon(lambda n=number, c=command, w=words: worker.do(n, c, **w))
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
