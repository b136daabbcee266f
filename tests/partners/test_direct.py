"""go-libp2p and js-libp2p on loopback: they dial us and we dial them."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio

from pulsarcast.model.errors import Rejection, RemoteError, Verdict
from pulsarcast.network import guests, identify, ping
from pulsarcast.network import neighbours as neighbours_module
from pulsarcast.network.host import DialError
from pulsarcast.network.link import PROTOCOL, Link
from pulsarcast.network.streams import Service, Stream
from pulsarcast.protocol.messages import Contact
from pulsarcast.wire.framing import write_frames
from tests.partners.js import Js
from tests.partners.ours import dialled, guest
from tests.partners.partners import Partner, RefusedError, Wire
from tests.partners.speaker import Speaker
from tests.partners.table import OURS, THEIRS, shows
from tests.unit.network.hosts import BEN, Inbox
from tests.unit.network.test_guests import strangers
from tests.unit.network.test_neighbours import Someone, play, someone, until

Start = Callable[[Path], AbstractAsyncContextManager[Partner]]
SECURED = {("/noise", "/yamux/1.0.0")}
ROUNDS = 4
ECHO = "/pulsarcast/tests/echo/1.0.0"
MEBIBYTE = 1 << 20


async def comes_about(ask: Callable[[], object]) -> None:
    """Wait until a partner says so."""
    with trio.fail_after(10):
        while not await ask():  # type: ignore[misc]
            await trio.sleep(0.02)


@shows("connect with Noise and Yamux", OURS)
def test_we_dial_and_agree_on_noise_and_yamux(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us, dialled(us, them) as link:
            assert link.peer == them.peer
            await comes_about(them.connected)
            assert await them.connected() == [us.peer]
            assert await them.secured() == SECURED

    play(scene)


@shows("connect with Noise and Yamux", THEIRS)
def test_they_dial_and_agree_on_noise_and_yamux(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us:
            await them.dial(us.peer, us.hello.addresses[0])
            assert (await guest(us.neighbours, them)).peer == them.peer
            assert await them.connected() == [us.peer]
            assert await them.secured() == SECURED

    play(scene)


@shows("a peer with another id is refused", OURS)
def test_we_refuse_a_partner_that_is_not_the_peer_we_dial(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us:
            with pytest.raises(DialError, match="another peer answers there"):
                await us.host.dial(BEN.peer_id, them.addresses)
            assert await them.connected() == []

    play(scene)


@shows("a peer with another id is refused", THEIRS)
def test_they_refuse_us_if_we_are_not_the_peer_they_dial(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us:
            with pytest.raises(RefusedError):
                await them.dial(BEN.peer_id, us.hello.addresses[0])
            assert us.host.connection_count == 0

    play(scene)


async def identify_each_other(us: Someone, them: Partner, link: Link) -> None:
    said = await identify.ask(link)
    assert said.agent.startswith(them.agent)
    assert {identify.PROTOCOL, ping.PROTOCOL} <= {*said.protocols}
    assert said.addresses == tuple(them.addresses)
    assert said.observed == link.local_address

    async def taken() -> object:
        return await them.identified(us.peer)

    await comes_about(taken)
    if isinstance(them, Js):
        # go-libp2p tells others that it took it, and not what.
        found = await them.identified(us.peer)
        assert found == {
            "agent": identify.AGENT,
            "protocols": [PROTOCOL, *us.host.services],
            "addresses": list(us.hello.addresses),
            "observed": link.remote_address,
        }


@shows("identify, both ways", OURS)
def test_each_side_identifies_the_other_where_we_dialled(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us, dialled(us, them) as link:
            await identify_each_other(us, them, link)

    play(scene)


@shows("identify, both ways", THEIRS)
def test_each_side_identifies_the_other_where_they_dialled(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us:
            await them.dial(us.peer, us.hello.addresses[0])
            await identify_each_other(us, them, await guest(us.neighbours, them))

    play(scene)


async def ping_each_other(us: Someone, them: Partner, link: Link) -> None:
    for _ in range(ROUNDS):
        assert await ping.ping(link) < 5
        await them.ping(us.peer, 1)
    await them.ping(us.peer, ROUNDS)


@shows("ping, both ways, several rounds", OURS)
def test_each_side_pings_the_other_where_we_dialled(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us, dialled(us, them) as link:
            await comes_about(them.connected)
            await ping_each_other(us, them, link)

    play(scene)


@shows("ping, both ways, several rounds", THEIRS)
def test_each_side_pings_the_other_where_they_dialled(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us:
            await them.dial(us.peer, us.hello.addresses[0])
            await ping_each_other(us, them, await guest(us.neighbours, them))

    play(scene)


async def send_back(stream: Stream) -> None:
    while data := await stream.receive(65536):
        await stream.write(data)


@shows("a stream carries a mebibyte there and back", OURS)
def test_our_stream_carries_more_than_windows_hold(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        sent = os.urandom(MEBIBYTE)
        async with (
            start(tmp_path) as them,
            them.handling(ECHO, Wire.send_back),
            someone(1) as us,
            dialled(us, them) as link,
            trio.open_nursery() as nursery,
        ):
            with await link.open_stream(ECHO) as stream:
                nursery.start_soon(stream.write, sent)
                assert await stream.read(MEBIBYTE) == sent

    play(scene)


@shows("a stream carries a mebibyte there and back", THEIRS)
def test_their_stream_carries_more_than_windows_hold(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us:
            us.host.services[ECHO] = Service(send_back, 2, 30.0)
            await them.dial(us.peer, us.hello.addresses[0])
            sent = os.urandom(MEBIBYTE)
            async with them.stream(us.peer, ECHO) as wire, trio.open_nursery() as nursery:
                nursery.start_soon(wire.write, sent)
                assert await wire.read(MEBIBYTE) == sent

    play(scene)


@shows("a program with our frames becomes a neighbour", OURS)
def test_we_dial_a_program_that_speaks_our_protocol(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us:
            program = Speaker(them, us.peer)
            async with them.handling(PROTOCOL, program.serve):
                us.book.heard(Contact(them.peer, tuple(them.addresses)))
                us.neighbours.send(them.peer, write_frames([b"to them"]))
                await until(lambda: program.told == us.hello)
                async with program.speaking() as wire:
                    await until(lambda: program.heard == [b"to them"])
                    await wire.write(write_frames([b"to us"] * 3))
                    await until(lambda: us.ear.heard == [b"to us"] * 3)
                    assert us.ear.story == ["up"]
                    assert us.neighbours.connected() == [them.peer]

    play(scene)


@shows("a program with our frames becomes a neighbour", THEIRS)
def test_a_program_that_speaks_our_protocol_dials_us(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us:
            program = Speaker(them, us.peer)
            async with them.handling(PROTOCOL, program.serve):
                await them.dial(us.peer, us.hello.addresses[0])
                async with program.speaking() as wire:
                    await wire.write(write_frames([b"to us"] * 3))
                    await until(lambda: us.ear.heard == [b"to us"] * 3)
                    us.neighbours.send(them.peer, write_frames([b"to them"]))
                    us.neighbours.flush()
                    await until(lambda: program.heard == [b"to them"])
                    assert program.told == us.hello
                    assert us.ear.story == ["up"]
                    assert len(us.neighbours.guests) == 0

    play(scene)


@shows("a protocol that the listener lacks is declined, and the connection lives on", OURS)
def test_they_decline_our_frames_and_we_may_stay(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us, dialled(us, them) as link:
            with trio.fail_after(5):
                while not link.is_guest:
                    await trio.sleep(0.01)
            with pytest.raises(RemoteError) as declined:
                await link.open_stream("/no/such/protocol")
            assert declined.value.code is Rejection.UNSUPPORTED_PROTOCOL
            assert await ping.ping(link) < 5
            assert await them.connected() == [us.peer]

    play(scene)


@shows("a protocol that the listener lacks is declined, and the connection lives on", THEIRS)
def test_we_decline_a_protocol_and_they_may_stay(start: Start, tmp_path: Path) -> None:
    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us:
            await them.dial(us.peer, us.hello.addresses[0])
            with pytest.raises(RefusedError, match="/no/such/protocol"):
                async with them.stream(us.peer, "/no/such/protocol"):
                    pass
            await them.ping(us.peer, 1)

    play(scene)


@shows("a peer without frames is left alone", OURS)
def test_a_node_hangs_up_on_a_partner_that_it_took_for_a_neighbour(
    start: Start, tmp_path: Path
) -> None:
    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us:
            link = await us.host.dial(them.peer, them.addresses)
            with pytest.raises(RemoteError) as declined:
                await link.run(Inbox().receive)
            assert declined.value.code is Rejection.UNSUPPORTED_PROTOCOL
            # It broke no rule.
            assert declined.value.verdict is Verdict.IGNORE

            async def is_alone() -> bool:
                return await them.connected() == []

            await comes_about(is_alone)

    play(scene)


@shows("a peer without frames is a guest for a while", THEIRS)
def test_a_guest_stays_for_a_while_and_is_no_neighbour(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours_module, "HELLO_S_MAX", 0.2)
    monkeypatch.setattr(guests, "GUEST_S", 2.0)

    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us:
            await them.dial(us.peer, us.hello.addresses[0])
            link = await guest(us.neighbours, them)
            came_s = trio.current_time()
            await trio.sleep_until(came_s + 1.5)
            await them.ping(us.peer, 1)
            assert us.neighbours.connected() == []
            with trio.fail_after(5):
                while link in us.neighbours.guests:
                    await trio.sleep(0.01)

            async def is_alone() -> bool:
                return await them.connected() == []

            await comes_about(is_alone)
            assert trio.current_time() - came_s > 1.9
            assert us.ear.story == []

    play(scene)


@shows("guests beyond the quota are sent away, and may come again", THEIRS)
def test_a_guest_beyond_the_quota_is_sent_away_and_may_come_again(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guests, "GUESTS_PER_PLACE_MAX", 2)

    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us:

            async def is_alone() -> bool:
                return await them.connected() == []

            async with strangers(us, 2):
                with trio.fail_after(5):
                    while len(us.neighbours.guests) < 2:
                        await trio.sleep(0.01)
                await them.dial(us.peer, us.hello.addresses[0])
                await comes_about(is_alone)
                assert len(us.neighbours.guests) == 2
            with trio.fail_after(5):
                while us.neighbours.guests:
                    await trio.sleep(0.01)
            await them.dial(us.peer, us.hello.addresses[0])
            await guest(us.neighbours, them)
            await them.ping(us.peer, 1)

    play(scene)


@pytest.mark.slow
@shows("a connection that nobody uses lives for longer than a minute", THEIRS)
def test_an_idle_connection_lives_on(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guests, "GUEST_S", 100.0)

    async def scene() -> None:
        async with start(tmp_path) as them, someone(1) as us:
            await them.dial(us.peer, us.hello.addresses[0])
            link = await guest(us.neighbours, them)
            # Both ask every 30 s at most whether the other end is there.
            await trio.sleep(65)
            assert await ping.ping(link) < 5
            await them.ping(us.peer, 1)
            assert await them.connected() == [us.peer]

    trio.run(scene)
