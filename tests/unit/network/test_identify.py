"""identify and ping between links of ours, and against peers that abuse them.

`tests/partners` has them with go-libp2p and js-libp2p.
"""

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.ids import peer_text
from pulsarcast.network import identify, ping
from pulsarcast.network.link import PROTOCOL, Link
from pulsarcast.network.multiaddrs import address_bytes
from pulsarcast.network.streams import Service, Stream
from pulsarcast.protocol.limits import ADDRESSES_MAX
from pulsarcast.wire.framing import write_frames
from pulsarcast.wire.libp2p_pb2 import Identify
from tests.unit.network.hosts import ANN, BEN, Inbox, linked

ADDRESS = "/ip4/192.0.2.1/tcp/4001"
KEY = BEN.peer_id[2:]


def play(
    scene: Callable[[Link, Link], Awaitable[None]], **served: Callable[[Stream], Awaitable[None]]
) -> None:
    """Two links that run; the second one serves."""
    protocols = {"identify": identify.PROTOCOL, "ping": ping.PROTOCOL}

    async def main() -> None:
        with trio.fail_after(15):
            async with linked() as (one, other), trio.open_nursery() as nursery:
                for name, serve in served.items():
                    other._services[protocols[name]] = Service(serve, 2, math.inf)
                nursery.start_soon(one.run, Inbox().receive)
                nursery.start_soon(other.run, Inbox().receive)
                await scene(one, other)
                one.close()
                other.close()

    trio.run(main)


def answering(data: bytes) -> Callable[[Stream], Awaitable[None]]:
    async def answer(stream: Stream) -> None:
        await stream.write(data)

    return answer


def test_a_peer_says_who_and_where_it_is_and_where_it_sees_us() -> None:
    addresses = [ADDRESS, "/dns4/node.example/tcp/4001", "not an address"]
    answer = partial(
        identify.answer, me=BEN.peer_id, addresses=addresses, protocols=[ping.PROTOCOL]
    )

    async def scene(one: Link, other: Link) -> None:
        said = await identify.ask(one)
        assert said == identify.Identified(
            identify.AGENT,
            (PROTOCOL, ping.PROTOCOL),
            (ADDRESS, "/dns4/node.example/tcp/4001"),
            one.local_address,
        )

    play(scene, identify=answer)


def refused(data: bytes) -> Rejection:
    caught: list[RemoteError] = []

    async def scene(one: Link, other: Link) -> None:
        with pytest.raises(RemoteError) as error:
            await identify.ask(one)
        caught.append(error.value)
        assert not one._streams
        assert not one._closed

    play(scene, identify=answering(data))
    return caught[0].code


def test_a_peer_that_describes_itself_with_another_key_is_refused() -> None:
    message = Identify(publicKey=ANN.peer_id[2:], agentVersion="ann").SerializeToString()
    assert refused(write_frames([message])) is Rejection.BAD_SIGNATURE
    assert refused(write_frames([Identify(publicKey=b"").SerializeToString()])) is (
        Rejection.BAD_SIGNATURE
    )


def test_a_huge_description_is_refused_before_it_is_read() -> None:
    message = Identify(agentVersion="x" * identify.MESSAGE_BYTES_MAX).SerializeToString()
    assert refused(write_frames([message])) is Rejection.OVERSIZE
    assert refused(b"\xff" * 200) is Rejection.OVERSIZE


def test_a_description_that_is_none_is_refused() -> None:
    assert refused(write_frames([b"\xff\xff\xff"])) is Rejection.MALFORMED
    assert refused(b"\x20short") is Rejection.DISCONNECTED
    assert refused(b"") is Rejection.DISCONNECTED


def test_a_description_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identify, "ANSWER_S_MAX", 0.2)

    async def drip(stream: Stream) -> None:
        await stream.write(b"\x80\x20")
        while True:
            await stream.write(b"\x00")
            await trio.sleep(0.05)

    async def scene(one: Link, other: Link) -> None:
        with pytest.raises(RemoteError, match="does not say"):
            await identify.ask(one)

    play(scene, identify=drip)


def test_lists_without_end_are_cut() -> None:
    said = identify.read(
        BEN.peer_id,
        Identify(
            publicKey=KEY,
            listenAddrs=[b"\xff", b"", *[address_bytes(ADDRESS)] * 300],
            protocols=["/x"] * 1000,
            observedAddr=b"\x04\x7f",
        ).SerializeToString(),
    )
    assert said.addresses == (ADDRESS,) * (ADDRESSES_MAX - 2)
    assert len(said.protocols) == identify.PROTOCOLS_MAX
    assert said.observed is None


def test_where_a_peer_sees_us_is_read_without_our_id() -> None:
    dialled = f"{ADDRESS}/p2p/{peer_text(ANN.peer_id)}"
    relayed = f"{dialled}/p2p-circuit"
    for address, observed in ((dialled, ADDRESS), (ADDRESS, ADDRESS), (relayed, relayed)):
        message = Identify(publicKey=KEY, observedAddr=address_bytes(address))
        assert identify.read(BEN.peer_id, message.SerializeToString()).observed == observed


@settings(max_examples=50)
@given(st.binary(max_size=300))
def test_whatever_a_peer_says_is_read_or_refused(data: bytes) -> None:
    with suppress(RemoteError):
        identify.read(BEN.peer_id, data)


def test_a_ping_comes_back() -> None:
    async def scene(one: Link, other: Link) -> None:
        for _ in range(3):
            assert 0 < await ping.ping(one) < 10
            await trio.sleep(0.1)

    play(scene, ping=ping.answer)


def test_a_stream_of_pings_ends_as_soon_as_the_peer_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ping, "PAUSE_S", 3.0)

    async def scene(one: Link, other: Link) -> None:
        began_s = trio.current_time()
        with await one.open_stream(ping.PROTOCOL) as stream:
            await stream.write(bytes(ping.PING_BYTES))
            stream.close()
            assert await stream.read(ping.PING_BYTES) == bytes(ping.PING_BYTES)
            assert await stream.receive(1) == b""
        assert trio.current_time() - began_s < 2

    play(scene, ping=ping.answer)


def test_a_ping_that_comes_back_changed_is_refused() -> None:
    async def lie(stream: Stream) -> None:
        await stream.write(bytes(len(await stream.read(ping.PING_BYTES))))

    async def scene(one: Link, other: Link) -> None:
        with pytest.raises(RemoteError, match="another"):
            await ping.ping(one)

    play(scene, ping=lie)


def test_pings_on_one_stream_in_pieces() -> None:
    async def scene(one: Link, other: Link) -> None:
        with await one.open_stream(ping.PROTOCOL) as stream:
            await stream.write(b"a" * 20)
            await trio.sleep(0.02)
            await stream.write(b"a" * 12 + b"b" * 32)
            assert await stream.read(64) == b"a" * 32 + b"b" * 32
            stream.close()
            assert await stream.receive(1) == b""

    play(scene, ping=ping.answer)


def test_a_flood_of_pings_is_answered_slowly_and_waits_at_its_sender() -> None:
    async def scene(one: Link, other: Link) -> None:
        flood = await one.open_stream(ping.PROTOCOL)
        with trio.move_on_after(0.5) as flooding:
            while not flooding.cancel_called:
                await flood.write(bytes(32 * 100))
        assert other._services.unread_bytes <= 256 * 1024
        assert len(flood._unread) <= 32 * 0.6 / ping.PAUSE_S
        # Others are unharmed: a second stream is served, a third is not.
        assert await ping.ping(one) < 5
        flood.reset()

    play(scene, ping=ping.answer)


def test_half_a_ping_is_waited_for_no_longer_than_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ping, "IDLE_S_MAX", 0.1)

    async def scene(one: Link, other: Link) -> None:
        with await one.open_stream(ping.PROTOCOL) as stream:
            await stream.write(bytes(31))
            with pytest.raises(RemoteError, match="reset"):
                await stream.read(1)

    play(scene, ping=ping.answer)
