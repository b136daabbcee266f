"""Our side of a test with a partner: connections to it, whichever side dialled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from pulsarcast.network.link import Link
from pulsarcast.network.neighbours import Neighbours
from tests.partners.partners import Partner
from tests.unit.network.hosts import Inbox
from tests.unit.network.test_neighbours import Someone


@asynccontextmanager
async def dialled(us: Someone, them: Partner) -> AsyncIterator[Link]:
    """A direct connection from us to a partner, which need not speak our protocol."""
    async with run(await us.host.dial(them.peer, them.addresses)) as link:
        yield link


@asynccontextmanager
async def run(link: Link) -> AsyncIterator[Link]:
    """Serve a connection to a peer that need not speak our protocol."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run, Inbox().receive, lambda: None)
        yield link
        link.close()
        nursery.cancel_scope.cancel()


async def guest(neighbours: Neighbours, them: Partner) -> Link:
    """Our end of the connection that a partner dialled, once it is known for a guest."""
    with trio.fail_after(10):
        while (link := neighbours.guests.link_to(them.peer)) is None:
            await trio.sleep(0.01)
    return link
