import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from libp2p.abc import ISecureConn
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.peer.id import ID
from libp2p.stream_muxer.exceptions import MuxedStreamEOF, MuxedStreamReset
from libp2p.stream_muxer.yamux.yamux import Yamux as StockYamux

from pulsarcast.model.errors import RemoteError
from pulsarcast.network import yamux
from pulsarcast.network.yamux import (
    ACK,
    DATA,
    DATA_BYTES_MAX,
    FIN,
    GO_AWAY,
    HEADER_BYTES,
    PING,
    RST,
    STREAMS_MAX,
    SYN,
    TAKE_BYTES_MAX,
    WINDOW_BYTES,
    WINDOW_UPDATE,
    Yamux,
    YamuxStream,
)

LARGE = random.Random(1).randbytes(5 * WINDOW_BYTES + 77)


def frame(kind: int, flags: int, stream_id: int, length: int = 0, body: bytes = b"") -> bytes:
    return struct.pack(">BBHII", 0, kind, flags, stream_id, length or len(body)) + body


def header(data: bytes) -> tuple[int, ...]:
    return struct.unpack(">BBHII", data[:HEADER_BYTES])


class Ear:
    """Hears everything that one connection calls back, with adjacent data put together."""

    def __init__(self, mux: Yamux) -> None:
        self.heard: list[tuple[object, ...]] = []
        self.streams: list[YamuxStream] = []
        self.sizes: list[int] = []
        mux.on_open = self._open
        mux.on_away = lambda code: self.heard.append(("away", code))

    def _open(self, stream: YamuxStream) -> None:
        self.heard.append(("open", stream.stream_id))
        self.listen(stream)

    def listen(self, stream: YamuxStream) -> None:
        self.streams.append(stream)
        stream.on_data = lambda data: self._data(stream.stream_id, data)
        stream.on_end = lambda was_reset: self.heard.append(("end", stream.stream_id, was_reset))

    def _data(self, stream_id: int, data: bytes) -> None:
        self.sizes.append(len(data))
        match self.heard[-1:]:
            case [("data", of, bytes(before))] if of == stream_id:
                self.heard[-1] = ("data", stream_id, before + data)
            case _:
                self.heard.append(("data", stream_id, data))


def drain(mux: Yamux) -> bytes:
    return b"".join(iter(mux.take, b""))


def exchange(one: Yamux, other: Yamux) -> None:
    """Carry bytes between two until neither has more to say."""
    while one.has_output or other.has_output:
        other.feed(drain(one))
        one.feed(drain(other))


# On their own.


def test_golden_bytes() -> None:
    mux = Yamux(True)
    stream = mux.open()
    stream.send(b"ab")
    stream.send(b"c")
    stream.close()
    assert mux.take() == (
        frame(WINDOW_UPDATE, SYN, 1) + frame(DATA, 0, 1, body=b"abc") + frame(WINDOW_UPDATE, FIN, 1)
    )
    assert mux.take() == b""
    assert Yamux(False).open().stream_id == 2


def test_a_stream_both_ways() -> None:
    one, other = Yamux(True), Yamux(False)
    ear, other_ear = Ear(one), Ear(other)
    stream = one.open()
    ear.listen(stream)
    stream.send(b"ping")
    exchange(one, other)
    other_ear.streams[0].send(b"pong")
    other_ear.streams[0].close()
    exchange(one, other)
    stream.send(b"still open this way")
    stream.close()
    exchange(one, other)
    assert ear.heard == [("data", 1, b"pong"), ("end", 1, False)]
    assert other_ear.heard == [
        ("open", 1),
        ("data", 1, b"pingstill open this way"),
        ("end", 1, False),
    ]
    assert not one._streams
    assert not other._streams


def test_what_does_not_fit_the_window_waits_in_order() -> None:
    mux = Yamux(True)
    stream = mux.open()
    for start in range(0, len(LARGE), 1000):
        stream.send(LARGE[start : start + 1000])
    mux_bytes = drain(mux)
    assert stream.queued_bytes == len(LARGE) - WINDOW_BYTES
    assert not mux.has_output
    other = Yamux(False)
    ear = Ear(other)
    other.feed(mux_bytes)
    exchange(other, mux)
    assert stream.queued_bytes == 0
    assert ear.heard == [("open", 1), ("data", 1, LARGE)]


def test_a_paced_stream_that_nobody_reads_is_granted_nothing() -> None:
    one, other = Yamux(True), Yamux(False)
    ear = Ear(other)
    stream = one.open()
    stream.send(LARGE)

    def open_paced(opened: YamuxStream) -> None:
        ear.listen(opened)
        opened.pace()

    other.on_open = open_paced
    exchange(one, other)
    assert ear.heard == [("data", 1, LARGE[:WINDOW_BYTES])]
    paced = ear.streams[0]
    paced.consumed(WINDOW_BYTES // 2 - 1)
    exchange(one, other)
    assert stream.queued_bytes == len(LARGE) - WINDOW_BYTES
    paced.consumed(1)
    exchange(one, other)
    assert stream.queued_bytes == len(LARGE) - WINDOW_BYTES * 3 // 2
    with pytest.raises(RemoteError, match="window"):
        other.feed(frame(DATA, 0, 1, 1))


def test_a_stream_that_is_paced_no_more_flows() -> None:
    one, other = Yamux(True), Yamux(False)
    ear = Ear(other)
    stream = one.open()
    stream.send(LARGE)

    def open_paced(opened: YamuxStream) -> None:
        ear.listen(opened)
        opened.pace()

    other.on_open = open_paced
    exchange(one, other)
    ear.streams[0].unpace()
    exchange(one, other)
    assert stream.queued_bytes == 0
    assert ear.heard == [("data", 1, LARGE)]


def test_nothing_is_granted_on_a_stream_that_is_over() -> None:
    one, other = Yamux(True), Yamux(False)
    ear = Ear(other)
    stream = one.open()
    exchange(one, other)
    paced = ear.streams[0]
    paced.pace()
    stream.send(bytes(WINDOW_BYTES))
    stream.close()
    exchange(one, other)
    paced.consumed(WINDOW_BYTES)
    paced.reset()
    paced.consumed(WINDOW_BYTES)
    assert drain(other) == frame(WINDOW_UPDATE, RST, 1)


def test_a_close_waits_for_what_waits_before_it() -> None:
    one, other = Yamux(True), Yamux(False)
    ear = Ear(other)
    stream = one.open()
    stream.send(LARGE)
    stream.close()
    stream.send(b"too late")
    exchange(one, other)
    assert ear.heard == [("open", 1), ("data", 1, LARGE), ("end", 1, False)]


def test_frames_and_what_is_taken_at_once_are_bounded() -> None:
    mux = Yamux(True)
    stream = mux.open()
    mux.feed(frame(WINDOW_UPDATE, ACK, 1, 16 * 1024 * 1024))
    stream.send(bytes(2 * TAKE_BYTES_MAX))
    taken = mux.take()
    assert len(taken) == HEADER_BYTES + TAKE_BYTES_MAX + 4 * HEADER_BYTES
    at = HEADER_BYTES
    for _ in range(4):
        assert header(taken[at:]) == (0, DATA, 0, 1, DATA_BYTES_MAX)
        at += HEADER_BYTES + DATA_BYTES_MAX
    assert DATA_BYTES_MAX <= 64 * 1024 - 12


def test_no_stream_starves_another() -> None:
    mux = Yamux(True)
    first, second = mux.open(), mux.open()
    for stream in (first, second):
        mux.feed(frame(WINDOW_UPDATE, ACK, stream.stream_id, 16 * 1024 * 1024))
        stream.send(bytes(2 * TAKE_BYTES_MAX))
    mux.take()
    mux.take()
    assert first.queued_bytes == second.queued_bytes == TAKE_BYTES_MAX


def test_half_a_window_consumed_is_granted_again() -> None:
    mux = Yamux(False)
    Ear(mux)
    half = bytes(WINDOW_BYTES // 2)
    mux.feed(frame(DATA, SYN, 1, body=half[1:]))
    assert mux.take() == frame(WINDOW_UPDATE, ACK, 1)
    mux.feed(frame(DATA, 0, 1, body=b"x"))
    assert mux.take() == frame(WINDOW_UPDATE, 0, 1, WINDOW_BYTES // 2)


def test_a_reset_drops_what_waits_and_what_comes() -> None:
    one, other = Yamux(True), Yamux(False)
    ear, other_ear = Ear(one), Ear(other)
    stream = one.open()
    ear.listen(stream)
    stream.send(LARGE)
    exchange(one, other)
    stream.send(LARGE)
    other_ear.streams[0].send(b"on its way")
    on_its_way = drain(other)
    stream.reset()
    stream.reset()
    assert stream.queued_bytes == 0
    one.feed(on_its_way)
    assert drain(one) == frame(WINDOW_UPDATE, RST, 1)
    other.feed(frame(WINDOW_UPDATE, RST, 1))
    assert ear.heard == []
    assert other_ear.heard[-1] == ("end", 1, True)


def test_pings_are_answered() -> None:
    mux = Yamux(False)
    mux.feed(frame(PING, SYN, 0, 0xDEADBEEF) + frame(PING, ACK, 0, 7))
    assert mux.take() == frame(PING, ACK, 0, 0xDEADBEEF)


def test_nothing_is_heard_after_a_farewell() -> None:
    mux = Yamux(False)
    ear = Ear(mux)
    mux.feed(frame(GO_AWAY, 0, 0, 2) + frame(WINDOW_UPDATE, SYN, 1) + b"\xff" * 40)
    mux.feed(b"\xff" * 40)
    assert ear.heard == [("away", 2)]


def test_streams_without_a_listener_are_reset() -> None:
    mux = Yamux(False)
    mux.feed(frame(WINDOW_UPDATE, SYN, 1))
    assert mux.take() == frame(WINDOW_UPDATE, ACK, 1) + frame(WINDOW_UPDATE, RST, 1)


@st.composite
def speeches(draw: st.DrawFn) -> bytes:
    """What an honest initiator says in a while."""
    mux = Yamux(True)
    streams: list[YamuxStream] = []
    said: list[bytes] = []
    for _ in range(draw(st.integers(0, 12))):
        match draw(st.sampled_from(["open", "send", "send", "close", "reset", "ping", "take"])):
            case "open":
                streams.append(mux.open())
            case "ping":
                said.append(mux.take() + frame(PING, SYN, 0, draw(st.integers(1, 99))))
            case "take":
                said.append(mux.take())
            case act if streams:
                stream = draw(st.sampled_from(streams))
                if act == "send":
                    stream.send(draw(st.binary(min_size=1, max_size=60)))
                elif act == "close":
                    stream.close()
                else:
                    stream.reset()
    return b"".join(said) + drain(mux)


@given(speeches(), st.lists(st.integers(0, 1200), max_size=10))
def test_a_speech_means_the_same_however_it_is_split(speech: bytes, cuts: list[int]) -> None:
    whole, parts = Yamux(False), Yamux(False)
    whole_ear, parts_ear = Ear(whole), Ear(parts)
    whole.feed(speech)
    ends = [0, *sorted(min(cut, len(speech)) for cut in cuts), len(speech)]
    for start, end in pairwise(ends):
        parts.feed(speech[start:end])
    assert parts_ear.heard == whole_ear.heard
    assert drain(parts) == drain(whole)


def test_a_speech_byte_by_byte() -> None:
    mux = Yamux(False)
    ear = Ear(mux)
    speech = frame(DATA, SYN | FIN, 1, body=b"abc") + frame(PING, SYN, 0, 5)
    speech += frame(DATA, SYN | RST, 3, body=b"de")
    for octet in speech:
        mux.feed(bytes((octet,)))
    assert ear.heard == [
        ("open", 1),
        ("data", 1, b"abc"),
        ("end", 1, False),
        ("open", 3),
        ("data", 3, b"de"),
        ("end", 3, True),
    ]


# Hostile peers.

OPENED = frame(WINDOW_UPDATE, SYN, 1)


@pytest.mark.parametrize(
    ("speech", "reason"),
    [
        (b"\x01" + bytes(11), "version"),
        (frame(4, 0, 0), "version"),
        (frame(DATA, 0x10, 1), "version"),
        (frame(WINDOW_UPDATE, SYN, 2), "next"),
        (frame(WINDOW_UPDATE, SYN, 0), "next"),
        (OPENED + OPENED, "next"),
        (OPENED + frame(WINDOW_UPDATE, RST, 1) + OPENED, "next"),
        (frame(WINDOW_UPDATE, SYN, 5) + frame(WINDOW_UPDATE, SYN, 3), "next"),
        (frame(DATA, 0, 1, body=b"x"), "nobody opened"),
        (frame(DATA, 0, 2, body=b"x"), "nobody opened"),
        (frame(DATA, 0, 0, body=b"x"), "nobody opened"),
        (frame(WINDOW_UPDATE, FIN, 3), "nobody opened"),
        (OPENED + frame(DATA, 0, 1, WINDOW_BYTES + 1), "window"),
        (frame(DATA, SYN, 1, 2**32 - 1), "window"),
        (OPENED + frame(WINDOW_UPDATE, RST, 1) + frame(DATA, 0, 1, 2**32 - 1), "window"),
        (OPENED + frame(WINDOW_UPDATE, 0, 1, 2**32 - 1), "32 bits"),
        (OPENED + frame(WINDOW_UPDATE, FIN, 1) + frame(DATA, 0, 1, body=b"x"), "closed"),
        (OPENED + 2 * frame(WINDOW_UPDATE, FIN, 1), "twice"),
        (frame(PING, SYN, 1, 5), "on a stream"),
        (frame(GO_AWAY, 0, 1, 5), "on a stream"),
    ],
)
def test_a_broken_rule(speech: bytes, reason: str) -> None:
    mux = Yamux(False)
    Ear(mux)
    with pytest.raises(RemoteError, match=reason):
        mux.feed(speech)


def test_more_data_than_granted_over_many_frames() -> None:
    mux = Yamux(False)
    Ear(mux)
    nearly_half = frame(DATA, 0, 1, body=bytes(WINDOW_BYTES // 2 - 1))
    mux.feed(OPENED + nearly_half)
    with pytest.raises(RemoteError, match="window"):
        mux.feed(frame(DATA, 0, 1, WINDOW_BYTES // 2 + 2))


def test_too_many_streams_at_once() -> None:
    mux = Yamux(False)
    Ear(mux)
    for number in range(STREAMS_MAX):
        mux.feed(frame(WINDOW_UPDATE, SYN, 2 * number + 1))
    drain(mux)
    mux.feed(frame(DATA, SYN, 2 * STREAMS_MAX + 1, body=b"for nobody"))
    mux.feed(frame(DATA, 0, 2 * STREAMS_MAX + 1, body=b"nor this"))
    assert drain(mux) == frame(WINDOW_UPDATE, RST, 2 * STREAMS_MAX + 1)
    assert len(mux._streams) == STREAMS_MAX
    with pytest.raises(RemoteError, match="window"):
        mux.feed(frame(DATA, SYN, 2 * STREAMS_MAX + 3, WINDOW_BYTES + 1))


def test_streams_one_after_another_leave_nothing_behind() -> None:
    mux = Yamux(False)
    ear = Ear(mux)
    for number in range(10 * STREAMS_MAX):
        mux.feed(frame(WINDOW_UPDATE, SYN | FIN, 2 * number + 1))
        ear.streams[-1].close()
        mux.take()
    assert not mux._streams
    assert not mux._sending


@pytest.mark.parametrize("flood", ["pings", "streams"])
def test_a_flood_whose_answers_nobody_reads(flood: str) -> None:
    mux = Yamux(False)
    if flood == "pings":
        speech = [frame(PING, SYN, 0, number) for number in range(10_000)]
    else:
        speech = [frame(WINDOW_UPDATE, SYN | RST, number) for number in range(1, 20_000, 2)]
    with pytest.raises(RemoteError, match="answers"):
        mux.feed(b"".join(speech))
    assert len(mux.take()) <= 2 * yamux.CONTROL_BYTES_MAX


def test_an_announced_body_costs_no_memory() -> None:
    mux = Yamux(False)
    ear = Ear(mux)
    mux.feed(frame(DATA, SYN, 1, WINDOW_BYTES))
    for _ in range(10):
        mux.feed(b"x" * 10)
    assert ear.sizes == [10] * 10
    assert mux._held == b""


@given(st.lists(st.binary(max_size=60), max_size=6), st.booleans())
def test_any_bytes_are_understood_or_refused(pieces: list[bytes], plausible: bool) -> None:
    mux = Yamux(False)
    Ear(mux)
    try:
        for piece in pieces:
            mux.feed(OPENED[:1] * plausible + piece)
    except RemoteError:
        pass
    assert len(mux._held) < HEADER_BYTES
    assert len(mux._streams) <= STREAMS_MAX


# With py-libp2p's own.


class Between:
    """The connection that py-libp2p's Yamux reads and writes, with ours at its other end."""

    def __init__(self, mux: Yamux, initiator: bool) -> None:
        self.is_initiator = initiator
        self._mux = mux
        self._buffer = bytearray()
        self._news = trio.Event()
        self._closed = False

    def pump(self) -> None:
        while chunk := self._mux.take():
            self._buffer += chunk
        self._news.set()

    async def read(self, n: int) -> bytes:
        while len(self._buffer) < n:
            if self._closed:
                raise ConnectionClosedError("closed")
            self._news = trio.Event()
            await self._news.wait()
        data = bytes(self._buffer[:n])
        del self._buffer[:n]
        return data

    async def write(self, data: bytes) -> None:
        self._mux.feed(data)
        self.pump()
        await trio.lowlevel.checkpoint()

    async def close(self) -> None:
        self._closed = True
        self._news.set()


@asynccontextmanager
async def stock(ours: Yamux, initiator: bool) -> AsyncIterator[tuple[StockYamux, Between]]:
    between = Between(ours, not initiator)
    # It reads, writes and closes, and asks who dialled.
    theirs = StockYamux(cast(ISecureConn, between), ID(b"peer"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(theirs.start)
        await theirs.event_started.wait()
        yield theirs, between
        nursery.cancel_scope.cancel()


def run_with_stock(
    initiator: bool, play: Callable[[Yamux, Ear, StockYamux, Between], Awaitable[None]]
) -> None:
    async def main() -> None:
        ours = Yamux(initiator)
        ear = Ear(ours)
        with trio.fail_after(20):
            async with stock(ours, initiator) as (theirs, between):
                await play(ours, ear, theirs, between)

    trio.run(main)


ROLES = pytest.mark.parametrize("initiator", [True, False])


@ROLES
def test_a_stock_peer_reads_what_we_send(initiator: bool) -> None:
    async def play(ours: Yamux, ear: Ear, theirs: StockYamux, between: Between) -> None:
        stream = ours.open()
        ear.listen(stream)
        stream.send(LARGE)
        stream.close()
        between.pump()
        accepted = await theirs.accept_stream()
        received = b""
        while len(received) < len(LARGE):
            received += await accepted.read(65536)
            between.pump()
        assert received == LARGE
        with pytest.raises(MuxedStreamEOF):
            await accepted.read(1)
        await accepted.close()
        assert ear.heard == [("end", stream.stream_id, False)]
        assert not ours._streams

    run_with_stock(initiator, play)


@ROLES
def test_we_read_what_a_stock_peer_sends(initiator: bool) -> None:
    async def play(ours: Yamux, ear: Ear, theirs: StockYamux, between: Between) -> None:
        stream = await theirs.open_stream()
        await stream.write(LARGE)
        await stream.close()
        number = stream.stream_id
        assert ear.heard == [("open", number), ("data", number, LARGE), ("end", number, False)]

    run_with_stock(initiator, play)


@ROLES
def test_large_transfers_both_ways_at_once(initiator: bool) -> None:
    async def play(ours: Yamux, ear: Ear, theirs: StockYamux, between: Between) -> None:
        stream = await theirs.open_stream()
        received = b""

        async def read() -> None:
            nonlocal received
            while len(received) < len(LARGE):
                received += await stream.read(50_000)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            ear.streams[0].send(LARGE)
            between.pump()
            await stream.write(LARGE)
        assert received == LARGE
        assert ear.heard == [("open", stream.stream_id), ("data", stream.stream_id, LARGE)]

    run_with_stock(initiator, play)


@ROLES
def test_resets_both_ways(initiator: bool) -> None:
    async def play(ours: Yamux, ear: Ear, theirs: StockYamux, between: Between) -> None:
        stream = await theirs.open_stream()
        await stream.reset()
        assert ear.heard == [("open", stream.stream_id), ("end", stream.stream_id, True)]
        own = ours.open()
        own.send(b"x")
        between.pump()
        accepted = await theirs.accept_stream()
        assert await accepted.read(1) == b"x"
        own.reset()
        between.pump()
        with pytest.raises((MuxedStreamReset, MuxedStreamEOF)):
            await accepted.read(1)

    run_with_stock(initiator, play)


def test_a_stock_peer_measures_its_round_trip() -> None:
    async def play(ours: Yamux, ear: Ear, theirs: StockYamux, between: Between) -> None:
        await trio.sleep(0.5)
        while not theirs.rtt():
            await trio.sleep(0.05)

    run_with_stock(True, play)


def test_farewells_both_ways() -> None:
    async def leave(ours: Yamux, ear: Ear, theirs: StockYamux, between: Between) -> None:
        await theirs.close()
        assert ear.heard == [("away", 0)]

    async def be_left(ours: Yamux, ear: Ear, theirs: StockYamux, between: Between) -> None:
        ours.go_away()
        between.pump()
        await theirs.event_shutting_down.wait()

    run_with_stock(True, leave)
    run_with_stock(True, be_left)
