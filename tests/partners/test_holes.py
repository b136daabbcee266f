"""DCUtR with js-libp2p: a direct connection in the place of a relayed one.

All peers are on one machine of their own whose loopback has public addresses: js-libp2p dials no
others here. There is no NAT: js-libp2p cannot dial from the port that it listens at.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from pulsarcast.model.reach import Reach
from pulsarcast.network.link import PROTOCOL
from pulsarcast.network.replacing import REPLACES
from pulsarcast.protocol.messages import Contact
from pulsarcast.wire.framing import write_frames
from tests.partners.js import js
from tests.partners.partners import Partner
from tests.partners.speaker import Speaker
from tests.partners.table import EITHER, shows
from tests.partners.test_relays import whole
from tests.support.namespaces import Host, Lab, entered
from tests.unit.network.relayed import Party, party, play, until

RELAY, OURS, THEIRS = "11.9.0.1", "11.1.0.1", "11.2.0.1"


def at(address: str) -> str:
    return f"/ip4/{address}/tcp/4001"


@pytest.fixture
def machine() -> Iterator[Host]:
    with Lab() as lab:
        host = lab.host("all")
        for address in (RELAY, OURS, THEIRS):
            host.ip("addr", "add", f"{address}/32", "dev", "lo")
        with entered(host):
            yield host


async def becomes_direct(us: Party, them: Partner) -> None:
    """Wait for a direct connection to a partner, beside the relayed one or in its place."""
    await until(
        lambda: any(link.peer == them.peer and link.relay is None for link in us.host._links)
    )


@shows("it dials a node through a relay, and DCUtR makes it a direct connection", EITHER, ["js"])
def test_a_node_begins_to_punch(start: object, tmp_path: Path, machine: Host) -> None:
    async def scene() -> None:
        async with (
            party(100, Reach.PUBLIC, listen=at(RELAY)) as relay,
            party(1, listen=at(OURS)) as ben,
            js(tmp_path, listen=[at(THEIRS)], punch=True, inside=machine.inside([])) as them,
        ):
            ben.punches = True
            await ben.meets(relay)
            await until(lambda: len(ben.relays.reservations) == 1)
            program = Speaker(them, ben.peer)
            async with them.handling(PROTOCOL, program.serve):
                await them.dial(ben.peer, ben.relays.addresses[0])
                assert await them.is_limited(ben.peer)
                async with program.speaking():
                    await becomes_direct(ben, them)
                # It closes the relayed one by itself.
                await until(lambda: relay.relaying.circuit_count == 0)
                async with program.speaking() as wire:
                    await wire.write(write_frames([b"direct"]))
                    await until(lambda: ben.ear.heard == [b"direct"])
                    assert ben.punching.failures == 0

    play(scene)


@shows("a node dials it through a relay, and DCUtR makes it a direct connection", EITHER, ["js"])
def test_a_partner_begins_to_punch(start: object, tmp_path: Path, machine: Host) -> None:
    async def scene() -> None:
        async with (
            party(100, Reach.PUBLIC, listen=at(RELAY)) as relay,
            party(1, listen=at(OURS)) as ann,
        ):
            where = whole(relay.direct[0], relay.peer)
            ann.punches = True
            async with js(
                tmp_path,
                listen=[at(THEIRS)],
                reserve_at=where,
                punch=True,
                inside=machine.inside([]),
            ) as them:
                program = Speaker(them, ann.peer)
                async with them.handling(PROTOCOL, program.serve):
                    ann.book.heard(Contact(them.peer, (f"{where}/p2p-circuit",)))
                    ann.neighbours.send(them.peer, write_frames([b"relayed"]))
                    await until(lambda: program.told is not None)
                    await trio.sleep(0.5)  # It has begun to punch by now.
                    async with program.speaking():
                        await until(lambda: program.heard == [b"relayed"])
                        await until(lambda: program.streams == 2)
                        assert program.told is not None
                        assert program.told.features == (REPLACES,)
                    assert ann.punching.failures == 0

    play(scene)
