import gc
import socket
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
import trio
from libp2p import new_host
from libp2p.abc import IHost, INetStream
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.custom_types import TProtocol, TSecurityOptions
from libp2p.exceptions import BaseLibp2pError
from libp2p.network.config import ConnectionConfig
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo
from libp2p.security.insecure.transport import PLAINTEXT_PROTOCOL_ID, InsecureTransport
from multiaddr import Multiaddr

from pulsarcast.model.errors import LocalError
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import peer_text
from pulsarcast.network.host import DialError, Host
from pulsarcast.network.link import PROTOCOL, Link
from pulsarcast.network.resources import Resources
from pulsarcast.wire.framing import FrameReader, write_frames
from tests.unit.network.hosts import ANN, BEN, LOOPBACK, STOCK, Inbox

STOCK_KEYS = create_new_key_pair(STOCK.seed)
FRAMES = [b"frame %d " % number * 50 for number in range(100)]


def run(play: Callable[[], Awaitable[None]], *, s_max: float = 15) -> None:
    async def main() -> None:
        with trio.fail_after(s_max):
            await play()

    trio.run(main)


def run_with_stock(play: Callable[[], Awaitable[None]]) -> None:
    """Run with a host of py-libp2p's, which leaves some of its sockets to the garbage collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        run(play)
        gc.collect()


@asynccontextmanager
async def serving(
    host: Host, accepted: Callable[[Link], Awaitable[None]], address: str = LOOPBACK
) -> AsyncIterator[tuple[str, ...]]:
    addresses = await host.listen(address)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.serve, accepted)
        try:
            yield addresses
        finally:
            nursery.cancel_scope.cancel()


async def ignore_frames(link: Link) -> None:
    await link.run(lambda _: None)


@asynccontextmanager
async def stock_host(sec_opt: TSecurityOptions | None = None) -> AsyncIterator[IHost]:
    config = ConnectionConfig(max_connections_per_peer=1)
    host = new_host(key_pair=STOCK_KEYS, sec_opt=sec_opt, connection_config=config)
    async with host.run(listen_addrs=[Multiaddr(LOOPBACK)]):
        yield host


def port_of(address: str) -> int:
    return int(address.rsplit("/", 1)[1])


async def open_socket(address: str) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", port_of(address))


async def is_closed_by_peer(stream: trio.SocketStream) -> bool:
    try:
        while await stream.receive_some(4096):
            pass
    except trio.BrokenResourceError:
        pass
    return True


@pytest.mark.parametrize("octet", [0, 1, 7, 255])
def test_libp2p_and_we_give_one_peer_one_id(octet: int) -> None:
    identity = Identity(bytes((octet,)) * 32)
    assert ID.from_pubkey(create_new_key_pair(identity.seed).public_key).to_bytes() == (
        identity.peer_id
    )


# With py-libp2p's own.


def test_a_stock_host_dials_us_and_exchanges_frames() -> None:
    async def play() -> None:
        inbox, back, read = Inbox(), FrameReader(), Inbox()

        async def accepted(link: Link) -> None:
            assert link.peer == STOCK.peer_id
            assert not link.dialled
            link.send(write_frames(FRAMES))
            link.flush()
            await link.run(inbox.receive)

        async def handle(stream: INetStream) -> None:
            while len(read.frames) < len(FRAMES):
                read.receive(back.feed(await stream.read(4096)))

        async with stock_host() as stock, serving(Host(ANN), accepted) as addresses:
            stock.set_stream_handler(TProtocol(PROTOCOL), handle)
            await stock.connect(PeerInfo(ID(ANN.peer_id), [Multiaddr(addresses[0])]))
            stream = await stock.new_stream(ID(ANN.peer_id), [TProtocol(PROTOCOL)])
            for frame in FRAMES:
                await stream.write(write_frames([frame]))
            await inbox.holds(len(FRAMES))
            await read.holds(len(FRAMES))
        assert inbox.frames == read.frames == FRAMES

    run_with_stock(play)


def test_we_dial_a_stock_host_and_exchange_frames() -> None:
    async def play() -> None:
        inbox, back, read = Inbox(), FrameReader(), Inbox()

        async def handle(stream: INetStream) -> None:
            answers = await stock.new_stream(ID(BEN.peer_id), [TProtocol(PROTOCOL)])
            await answers.write(write_frames(FRAMES))
            while len(read.frames) < len(FRAMES):
                read.receive(back.feed(await stream.read(4096)))

        async with stock_host() as stock:
            stock.set_stream_handler(TProtocol(PROTOCOL), handle)
            addresses = [str(address) for address in stock.get_addrs()]
            link = await Host(BEN).dial(STOCK.peer_id, addresses)
            assert link.dialled
            async with trio.open_nursery() as nursery:
                nursery.start_soon(link.run, inbox.receive)
                link.send(write_frames(FRAMES))
                link.flush()
                await inbox.holds(len(FRAMES))
                await read.holds(len(FRAMES))
                link.close()
        assert inbox.frames == read.frames == FRAMES

    run_with_stock(play)


def test_a_stock_host_without_our_protocol_is_left() -> None:
    async def play() -> None:
        async with stock_host() as stock:
            addresses = [str(address) for address in stock.get_addrs()]
            link = await Host(BEN).dial(STOCK.peer_id, addresses)
            with pytest.raises(Exception, match="does not speak"):
                await link.run(lambda _: None)

    run_with_stock(play)


def test_a_plaintext_dialler_is_refused() -> None:
    async def play() -> None:
        met: list[Link] = []

        async def accepted(link: Link) -> None:
            met.append(link)

        plaintext = {PLAINTEXT_PROTOCOL_ID: InsecureTransport(STOCK_KEYS)}
        async with (
            serving(Host(ANN), accepted) as addresses,
            stock_host(plaintext) as stock,
        ):
            with pytest.raises(BaseLibp2pError):
                await stock.connect(PeerInfo(ID(ANN.peer_id), [Multiaddr(addresses[0])]))
        assert met == []

    run_with_stock(play)


# With ours.


def test_a_peer_under_another_id_is_refused() -> None:
    async def play() -> None:
        async with serving(Host(ANN), ignore_frames) as addresses:
            host = Host(BEN)
            with pytest.raises(
                DialError, match=f"another peer answers there: {peer_text(ANN.peer_id)}"
            ):
                await host.dial(STOCK.peer_id, addresses)
            assert host.connection_count == 0

    run(play)


def test_a_dial_on_loopback_is_quick() -> None:
    async def play() -> None:
        async with serving(Host(ANN), ignore_frames) as addresses:
            took_s = []
            for _ in range(5):
                start = trio.current_time()
                (await Host(BEN).dial(ANN.peer_id, addresses)).close()
                took_s.append(trio.current_time() - start)
            assert min(took_s) < 0.15

    run(play)


@pytest.mark.parametrize(
    ("listened", "dialled"),
    [
        ("/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/tcp/{}/p2p/{}"),
        ("/ip4/127.0.0.1/tcp/0", "/dns4/localhost/tcp/{}"),
        ("/dns4/localhost/tcp/0", "/dns/localhost/tcp/{}"),
        ("/ip6/::1/tcp/0", "/ip6/::1/tcp/{}"),
    ],
)
def test_names_of_all_kinds(listened: str, dialled: str) -> None:
    if "ip6" in listened:
        with socket.socket(socket.AF_INET6) as probe:
            try:
                probe.bind(("::1", 0))
            except OSError:
                pytest.skip("no IPv6 here")

    async def play() -> None:
        async with serving(Host(ANN), ignore_frames, listened) as addresses:
            address = dialled.format(port_of(addresses[0]), peer_text(ANN.peer_id))
            link = await Host(BEN).dial(ANN.peer_id, [address])
            assert link.remote_address == addresses[0]
            link.close()

    run(play)


def test_addresses_are_tried_in_turn() -> None:
    async def play() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            refused = f"/ip4/127.0.0.1/tcp/{unused.getsockname()[1]}"
            async with serving(Host(ANN), ignore_frames) as addresses:
                other = f"{addresses[0]}/p2p/{peer_text(STOCK.peer_id)}"
                link = await Host(BEN).dial(
                    ANN.peer_id, [refused, "/ip4/127.0.0.1/udp/1/quic-v1", other, *addresses]
                )
                link.close()
            with pytest.raises(DialError, match=r"connection refused.*names another peer"):
                await Host(BEN).dial(ANN.peer_id, [refused, other])

    run(play)


def test_a_peer_without_addresses() -> None:
    async def play() -> None:
        with pytest.raises(DialError, match="no address"):
            await Host(BEN).dial(ANN.peer_id, [])

    run(play)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "/ip4/127.0.0.1",
        "/ip4/localhost/tcp/1",
        "/ip4/::1/tcp/1",
        "/ip6/127.0.0.1/tcp/1",
        "/ip4/127.0.0.1/tcp/65536",
        "/ip4/127.0.0.1/tcp/-1",
        "/ip4/127.0.0.1/tcp/ 1",
        "/ip4/127.0.0.1/tcp/1/ws",
        "/dns4//tcp/1",
        "/dns4/❤/tcp/1",
        "/dns4/two..dots/tcp/1",
        "/dns4/.dot/tcp/1",
        "/dns4/./tcp/1",
        "/dns4/a b/tcp/1",
        f"/dns4/{'a' * 64}/tcp/1",
        f"/dns4/{'a.' * 128}/tcp/1",
        "/ip6/fe80::1%\0/tcp/1",
        "/ip6/fe80::1%❤/tcp/1",
        "/onion3/abc/tcp/1",
    ],
)
def test_what_is_no_address(address: str) -> None:
    async def play() -> None:
        with pytest.raises(LocalError):
            await Host(ANN).listen(address)
        with pytest.raises(DialError):
            await Host(ANN).dial(BEN.peer_id, [address])

    run(play)


def test_whatever_the_resolver_says_of_a_name_a_dial_only_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object) -> None:
        raise UnicodeError("label too long")

    monkeypatch.setattr(trio.socket, "getaddrinfo", refuse)

    async def play() -> None:
        with pytest.raises(DialError, match="label too long"):
            await Host(ANN).dial(BEN.peer_id, ["/dns4/example.org/tcp/1"])

    run(play)


def test_to_listen_under_a_name_that_nobody_has_is_a_local_error() -> None:
    async def play() -> None:
        with pytest.raises(LocalError, match=r"cannot listen at /dns4/nowhere\.invalid/tcp/0"):
            await Host(ANN).listen("/dns4/nowhere.invalid/tcp/0")

    run(play)


def test_a_port_in_use_is_a_local_error() -> None:
    async def play() -> None:
        ann, ben = Host(ANN), Host(BEN)
        (address,) = await ann.listen(LOOPBACK)
        with pytest.raises(LocalError, match="in use"):
            await ben.listen(address)
        ann.close()
        await ben.listen(address)
        ben.close()

    run(play)


def test_an_answer_that_never_comes_ends_a_dial() -> None:
    async def play() -> None:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen(4)
            address = f"/ip4/127.0.0.1/tcp/{silent.getsockname()[1]}"
            async with serving(Host(ANN), ignore_frames) as addresses:
                host = Host(BEN, dial_s_max=0.6)
                # Each has its share of the time: a silent address leaves the next its own.
                link = await host.dial(ANN.peer_id, [address, *addresses])
                link.close()
                with pytest.raises(DialError, match="says nothing"):
                    await host.dial(ANN.peer_id, [address])

    run(play)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 200,
        b"\x13/multistream/1.0.0\n\xff\xff\xff\xff\x0f",
        b"\x13/multistream/1.0.0\n\x03\xff\xfe\n",
        b"\x13/multistream/1.0.0\n\x07/noise\n\x00\x05hello",
        b"\x13/multistream/1.0.0\n\x07/noise\n\x00\x20" + bytes(32) + b"\x00\x40" + bytes(64),
        b"",
    ],
)
def test_nonsense_instead_of_a_handshake(nonsense: bytes) -> None:
    async def play() -> None:
        host = Host(ANN)
        async with serving(host, ignore_frames) as addresses:
            stream = await open_socket(addresses[0])
            async with stream:
                await stream.send_all(nonsense)
                await stream.send_eof()
                assert await is_closed_by_peer(stream)
            (await Host(BEN).dial(ANN.peer_id, addresses)).close()

    run(play)


def test_half_open_handshakes_are_bounded_and_time_out() -> None:
    async def play() -> None:
        host = Host(ANN, resources=Resources(handshakes_max=3), handshake_s_max=0.5)
        async with serving(host, ignore_frames) as addresses, AsyncExitStack() as stack:
            silent = [
                await stack.enter_async_context(await open_socket(addresses[0])) for _ in range(3)
            ]
            await trio.sleep(0.05)
            assert len(host.resources.handshakes) == 3
            start = trio.current_time()
            link = await Host(BEN).dial(ANN.peer_id, addresses)
            assert trio.current_time() - start > 0.2
            for stream in silent:
                assert await is_closed_by_peer(stream)
            assert len(host.resources.handshakes) == 0
            link.close()

    run(play)


def test_a_handshake_drop_by_drop_times_out() -> None:
    async def play() -> None:
        host = Host(ANN, handshake_s_max=0.3)
        async with serving(host, ignore_frames) as addresses:
            async with await open_socket(addresses[0]) as stream:
                with suppress(trio.BrokenResourceError):
                    for octet in b"\x13/multistream/1.0.0\n" * 5:
                        await stream.send_all(bytes((octet,)))
                        await trio.sleep(0.02)
                assert await is_closed_by_peer(stream)
            assert host.connection_count == 0

    run(play)


def test_a_peer_that_breaks_a_rule_does_not_end_the_server() -> None:
    async def play() -> None:
        host = Host(ANN)
        async with serving(host, ignore_frames) as addresses:
            link = await Host(BEN).dial(ANN.peer_id, addresses)
            link._socket.send(b"\x00\x10" + bytes(16))
            await link.run(lambda _: None)
            (await Host(BEN).dial(ANN.peer_id, addresses)).close()

    run(play)


def test_what_comes_right_behind_the_handshake_is_not_lost() -> None:
    async def play() -> None:
        async def accepted(link: Link) -> None:
            # Without a wait in between: the dialler finds it in the same read as the last answer.
            link.send(write_frames([b"early" * 500]))
            await link.run(lambda _: None)

        inbox = Inbox()
        async with serving(Host(ANN), accepted) as addresses, trio.open_nursery() as nursery:
            link = await Host(BEN).dial(ANN.peer_id, addresses)
            assert link._early
            nursery.start_soon(link.run, inbox.receive)
            await inbox.holds(1)
            assert inbox.frames == [b"early" * 500]
            link.close()

    run(play)


def test_a_host_sees_what_has_arrived_until_it_is_read_and_forgets_closed_links() -> None:
    async def play() -> None:
        ann, ben = Host(ANN), Host(BEN)
        accepted, reading = trio.Event(), trio.Event()
        inbox = Inbox()

        async def hold(link: Link) -> None:
            accepted.set()
            await reading.wait()
            await link.run(inbox.receive)

        async with serving(ben, hold) as addresses:
            link = await ann.dial(BEN.peer_id, addresses)
            await accepted.wait()
            link.send(write_frames(FRAMES))
            link.flush()
            while not ben.has_arrivals():
                await trio.sleep(0.001)
            assert not ann.has_arrivals()
            reading.set()
            await inbox.holds(len(FRAMES))
            assert not ben.has_arrivals()
            link.close()
            assert not ann.has_arrivals()
            while ben.connection_count:
                await trio.sleep(0.001)
            assert not ben.has_arrivals()

    run(play)
