"""Peers that name others which never answer, and a node that has peers to reach."""

from __future__ import annotations

import os

import pytest
import trio

from pulsarcast.model.ids import PEER_ID_PREFIX, PeerId
from pulsarcast.network.dials import DIALS_PER_NAMER_MAX, WAITING_DIALS_MAX
from pulsarcast.protocol.messages import Contact
from tests.unit.network.test_neighbours import play, someone, until

REACHED_S_MAX = 2.0
NAMED = 100


@pytest.mark.parametrize("is_known", [True, False])
def test_contacts_at_a_tarpit_keep_a_node_from_nobody_else(*, is_known: bool) -> None:
    """One peer named enough of them to hold all dials: another was reached after 39 s."""
    taken = 0

    async def take(stream: trio.SocketStream) -> None:
        nonlocal taken
        taken += 1
        await trio.sleep_forever()

    async def scene() -> None:
        async with someone(1) as one, someone(2) as two, trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, take, 0)
            port = listeners[0].socket.getsockname()[1]
            for _ in range(NAMED):
                peer = PeerId(PEER_ID_PREFIX + os.urandom(32))
                one.book.heard(Contact(peer, (f"/ip4/127.0.0.1/tcp/{port}",)), "127.66.0.0/24")
                one.neighbours.meet(peer)
            await until(lambda: taken == DIALS_PER_NAMER_MAX)
            # What comes after so many fails at once, and is tried again later.
            assert len(one.ear.reasons) == NAMED - DIALS_PER_NAMER_MAX - WAITING_DIALS_MAX
            contact = Contact(two.peer, two.hello.addresses)
            one.book.given([contact]) if is_known else one.book.heard(contact, "127.0.0.0/24")
            one.neighbours.meet(two.peer)
            with trio.fail_after(REACHED_S_MAX):
                await until(lambda: one.ear.story[-1:] == ["up"])
            nursery.cancel_scope.cancel()

    play(scene)
