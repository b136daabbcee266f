"""Further streams of a link: services, streams that the node opens, and peers that abuse them."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.network import link as link_module
from pulsarcast.network import streams as streams_module
from pulsarcast.network.link import PROTOCOL, Link
from pulsarcast.network.negotiation import HEADER, LINE_BYTES_MAX, NOT_AVAILABLE, TRIES_MAX, line
from pulsarcast.network.streams import WRITE_BYTES_MAX, Service, Stream
from pulsarcast.network.yamux import STREAMS_MAX, WINDOW_BYTES, YamuxStream
from pulsarcast.wire.framing import write_frames
from tests.unit.network.hosts import Inbox, Rogue, linked

TEA = "/tea/1.0.0"
ORDER = write_frames((HEADER, line(TEA)))


async def nothing(stream: Stream) -> None:
    await trio.sleep_forever()


async def echo(stream: Stream) -> None:
    while data := await stream.receive(1000):
        await stream.write(data)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await trio.sleep(0.005)


def play(
    scene: Callable[[Link, Link, Inbox], Awaitable[None]],
    serve: Callable[[Stream], Awaitable[None]] = echo,
    *,
    streams_max: int = 4,
    s_max: float = 10,
) -> None:
    """Two links that run; the second one serves tea."""

    async def main() -> None:
        with trio.fail_after(15):
            async with linked() as (one, other), trio.open_nursery() as nursery:
                other._services[TEA] = Service(serve, streams_max, s_max)
                inbox = Inbox()
                nursery.start_soon(one.run, Inbox().receive)
                nursery.start_soon(other.run, inbox.receive)
                await scene(one, other, inbox)
                one.close()
                other.close()

    trio.run(main)


def play_rogue(
    scene: Callable[[Rogue, Link], Awaitable[None]],
    serve: Callable[[Stream], Awaitable[None]] = echo,
    *,
    streams_max: int = 4,
) -> RemoteError | None:
    """A link that serves tea to a rogue; returns what it raised."""
    caught: list[RemoteError] = []

    async def main() -> None:
        with trio.fail_after(15):
            async with linked() as (one, other), trio.open_nursery() as nursery:
                other._services[TEA] = Service(serve, streams_max, 10)

                async def honest() -> None:
                    try:
                        await other.run(Inbox().receive)
                    except RemoteError as error:
                        caught.append(error)
                        nursery.cancel_scope.cancel()

                nursery.start_soon(honest)
                await scene(Rogue(one), other)
                nursery.cancel_scope.cancel()

    trio.run(main)
    return caught[0] if caught else None


async def order(rogue: Rogue, speech: bytes = ORDER) -> YamuxStream:
    stream = rogue.mux.open()
    rogue.listen(stream)
    stream.send(speech)
    await rogue.say()
    return stream


async def hears(rogue: Rogue, stream: YamuxStream, speech: bytes) -> None:
    while len(rogue.heard[stream.stream_id]) < len(speech):
        assert await rogue.hear()
    assert rogue.heard[stream.stream_id] == speech


def test_a_stream_of_another_protocol_both_ways_beside_frames() -> None:
    async def scene(one: Link, other: Link, inbox: Inbox) -> None:
        with await one.open_stream(TEA) as stream:
            assert (stream.protocol, stream.link) == (TEA, one)
            one.send(write_frames([b"a frame"]))
            await stream.write(b"with milk")
            assert await stream.read(4) == b"with"
            assert await stream.receive(100) == b" milk"
            stream.close()
            assert await stream.receive(100) == b""
            with pytest.raises(RemoteError, match="in the middle"):
                await stream.read(1)
        await inbox.holds(1)
        await until(lambda: not other._streams and len(other._mux._streams) == 2)
        assert not one._streams
        await until(lambda: len(one._mux._streams) == 2)

    play(scene)


def test_messages_behind_their_length() -> None:
    async def scene(one: Link, other: Link, inbox: Inbox) -> None:
        with await one.open_stream(TEA) as stream:
            messages = [b"", b"x" * 127, b"y" * 300, b"z" * 70_000]
            await stream.write(write_frames(messages))
            assert [await stream.read_message(len(each)) for each in messages] == messages
            await stream.write(write_frames([b"x" * 128]))
            with pytest.raises(RemoteError) as caught:
                await stream.read_message(127)
            assert caught.value.code is Rejection.OVERSIZE

    play(scene)


def test_a_length_that_never_ends_is_refused() -> None:
    async def scene(one: Link, other: Link, inbox: Inbox) -> None:
        with await one.open_stream(TEA) as stream:
            await stream.write(b"\x80" * 100)
            with pytest.raises(RemoteError, match="too long"):
                await stream.read_message(1000)

    play(scene)


def test_a_protocol_that_nobody_serves() -> None:
    async def scene(one: Link, other: Link, inbox: Inbox) -> None:
        with pytest.raises(RemoteError) as caught:
            await one.open_stream("/coffee/1.0.0")
        assert caught.value.code is Rejection.UNSUPPORTED_PROTOCOL
        with await one.open_stream(TEA) as stream:
            await stream.write(b"tea")
            assert await stream.read(3) == b"tea"

    play(scene)


def test_a_megabyte_through_a_slow_reader_waits_at_the_writer() -> None:
    released = trio.Event()
    got: list[int] = []

    async def slow(stream: Stream) -> None:
        await released.wait()
        while data := await stream.receive(50_000):
            got.append(len(data))
        stream.close()

    async def scene(one: Link, other: Link, inbox: Inbox) -> None:
        with await one.open_stream(TEA) as stream:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.write, bytes(1024 * 1024))
                await until(lambda: other._services.unread_bytes == WINDOW_BYTES - len(ORDER))
                assert stream._stream.queued_bytes <= 2 * WRITE_BYTES_MAX
                # Frames do not wait for it.
                one.send(write_frames([b"x"]))
                one.flush()
                await inbox.holds(1)
                released.set()
            stream.close()
            assert await stream.receive(1) == b""
        assert sum(got) == 1024 * 1024
        assert other._services.unread_bytes == 0

    play(scene, slow)


def test_whoever_waits_is_told_that_the_connection_ended() -> None:
    async def scene(one: Link, other: Link, inbox: Inbox) -> None:
        stream = await one.open_stream(TEA)
        full = await one.open_stream(TEA)
        told: list[Rejection] = []

        async def wait(what: Callable[[], Awaitable[object]]) -> None:
            with pytest.raises(RemoteError) as caught:
                await what()
            told.append(caught.value.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, lambda: stream.read(1))
            nursery.start_soon(wait, lambda: full.write(bytes(2 * WINDOW_BYTES)))
            await trio.sleep(0.05)
            one.close()
        assert told == [Rejection.DISCONNECTED] * 2
        assert one._services.unread_bytes == 0
        with pytest.raises(RemoteError):
            await one.open_stream(TEA)
        with pytest.raises(RemoteError):
            await stream.write(b"x")

    play(scene, nothing)


def test_what_came_before_a_reset_can_be_read() -> None:
    async def curt(stream: Stream) -> None:
        await stream.write(b"last words")
        await trio.sleep(0.02)
        raise RemoteError("no reason")

    async def scene(one: Link, other: Link, inbox: Inbox) -> None:
        with await one.open_stream(TEA) as stream:
            await trio.sleep(0.1)
            assert await stream.read(10) == b"last words"
            with pytest.raises(RemoteError, match="reset"):
                await stream.read(1)
        # The connection goes on.
        one.send(write_frames([b"x"]))
        one.flush()
        await inbox.holds(1)

    play(scene, curt)


def test_a_service_takes_no_longer_than_it_may() -> None:
    async def scene(one: Link, other: Link, inbox: Inbox) -> None:
        with await one.open_stream(TEA) as stream:
            with pytest.raises(RemoteError, match="reset"):
                await stream.read(1)
        assert not other._streams

    play(scene, nothing, s_max=0.05)


def test_data_right_behind_the_protocol_is_the_services() -> None:
    async def scene(rogue: Rogue, other: Link) -> None:
        speech = bytes(range(0x80, 0x100)) * 2
        stream = await order(rogue, ORDER + speech)
        await hears(rogue, stream, ORDER + speech)

    assert play_rogue(scene) is None


def test_a_stream_may_ask_for_several_protocols() -> None:
    async def scene(rogue: Rogue, other: Link) -> None:
        asked = (HEADER, line("/coffee"), line("ls"), b"\xff\xfe\n", b"", line(TEA))
        stream = await order(rogue, write_frames(asked) + b"!")
        answers = (HEADER, *[NOT_AVAILABLE] * 4, line(TEA))
        await hears(rogue, stream, write_frames(answers) + b"!")

    assert play_rogue(scene) is None


# Attacks.


def test_a_stream_that_asks_for_a_thousand_protocols_is_reset() -> None:
    async def scene(rogue: Rogue, other: Link) -> None:
        asked = [line(f"/coffee/{number}") for number in range(1000)]
        stream = await order(rogue, write_frames([HEADER, *asked]))
        while not rogue.reset:
            assert await rogue.hear()
        assert rogue.reset == [stream.stream_id]
        answers = write_frames([HEADER, *[NOT_AVAILABLE] * TRIES_MAX])
        assert len(rogue.heard[stream.stream_id]) <= len(answers)
        assert stream not in other._negotiating
        await order(rogue)

    assert play_rogue(scene) is None


def test_a_negotiation_of_one_byte_at_a_time_ends_at_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_module, "NEGOTIATION_S_MAX", 0.6)

    async def scene(rogue: Rogue, other: Link) -> None:
        while not rogue.opened:
            await rogue.hear()
        rogue.opened[0].send(write_frames((HEADER, line(PROTOCOL))))
        await rogue.say()
        stream = rogue.mux.open()
        rogue.listen(stream)
        for octet in ORDER:
            stream.send(bytes((octet,)))
            await rogue.say()
            await trio.sleep(0.03)
        while not rogue.reset:
            assert await rogue.hear()

    assert play_rogue(scene) is None


def test_a_name_that_is_too_long_ends_the_connection() -> None:
    async def scene(rogue: Rogue, other: Link) -> None:
        await order(rogue, write_frames((HEADER, b"x" * (LINE_BYTES_MAX + 1))))
        await trio.sleep_forever()

    error = play_rogue(scene)
    assert error is not None
    assert error.code is Rejection.OVERSIZE


def test_more_streams_than_places_are_reset_and_places_are_given_back_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_module, "PLACE_S_MIN", 0.3)
    began: list[Stream] = []

    async def note(stream: Stream) -> None:
        began.append(stream)

    async def scene(rogue: Rogue, other: Link) -> None:
        for _ in range(20):
            stream = rogue.mux.open()
            rogue.listen(stream)
            stream.send(ORDER)
        await rogue.say()
        while len(rogue.reset) < 17:
            assert await rogue.hear()
        await until(lambda: len(began) == 3 and not other._streams)
        await trio.sleep(0.4)
        await order(rogue)
        await until(lambda: len(began) == 4)

    assert play_rogue(scene, note, streams_max=3) is None


def test_streams_one_after_the_other_wait_for_a_place_and_are_all_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_module, "PLACE_S_MIN", 0.1)

    async def scene(one: Link, other: Link, inbox: Inbox) -> None:
        began_s = trio.current_time()
        for _ in range(5):
            with await one.open_stream(TEA) as stream:
                await stream.write(b"a cup")
                assert await stream.read(5) == b"a cup"
        assert trio.current_time() - began_s >= 0.2

    play(scene, streams_max=2)


def test_thirty_three_streams_at_once() -> None:
    async def scene(rogue: Rogue, other: Link) -> None:
        for _ in range(STREAMS_MAX + 1):
            last = await order(rogue)
        while not rogue.reset:
            assert await rogue.hear()
        assert rogue.reset == [last.stream_id]
        assert len(other._streams) == STREAMS_MAX

    assert play_rogue(scene, nothing, streams_max=100) is None


def test_data_beyond_the_window_of_a_service_ends_the_connection() -> None:
    async def scene(rogue: Rogue, other: Link) -> None:
        stream = await order(rogue)
        stream._send_window = 10 * WINDOW_BYTES
        stream.send(bytes(WINDOW_BYTES + 1))
        await rogue.say(rogue.mux.take(), rogue.mux.take())
        await trio.sleep_forever()

    error = play_rogue(scene, nothing)
    assert error is not None
    assert "window" in str(error)


def test_what_all_streams_hold_unread_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_module, "UNREAD_BYTES_MAX", 2 * WINDOW_BYTES)

    async def scene(rogue: Rogue, other: Link) -> None:
        for _ in range(3):
            stream = await order(rogue, ORDER + bytes(WINDOW_BYTES - len(ORDER)))
            while speech := rogue.mux.take():
                await rogue.say(speech)
        while not rogue.reset:
            assert await rogue.hear()
        assert rogue.reset == [stream.stream_id]
        assert other._services.unread_bytes <= 2 * WINDOW_BYTES
        other.close()
        assert other._services.unread_bytes == 0

    assert play_rogue(scene, nothing) is None


def test_a_peer_that_never_reads_what_it_asked_for_makes_the_writer_wait() -> None:
    written: list[int] = []

    async def pour(stream: Stream) -> None:
        while True:
            await stream.write(bytes(10_000))
            written.append(10_000)

    async def scene(rogue: Rogue, other: Link) -> None:
        for _ in range(3):
            stream = await order(rogue)
            rogue.mux._streams.pop(stream.stream_id)
        so_far = -1
        while so_far < sum(written):
            so_far = sum(written)
            await trio.sleep(0.2)
        assert sum(written) >= WINDOW_BYTES
        assert sum(written) <= 3 * (WINDOW_BYTES + WRITE_BYTES_MAX + 10_000)
        assert all(each._stream.queued_bytes <= 2 * WRITE_BYTES_MAX for each in other._streams)

    assert play_rogue(scene, pour) is None


def test_a_peer_that_never_closes_its_side_loses_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_module, "NEGOTIATION_S_MAX", 0.6)

    async def farewell(stream: Stream) -> None:
        await stream.write(b"bye")

    async def scene(rogue: Rogue, other: Link) -> None:
        while not rogue.opened:
            await rogue.hear()
        rogue.opened[0].send(write_frames((HEADER, line(PROTOCOL))))
        stream = await order(rogue)
        await hears(rogue, stream, ORDER + b"bye")
        stream.send(bytes(100_000))
        await rogue.say()
        while not rogue.reset:
            assert await rogue.hear()
        assert other._services.unread_bytes == 0
        assert other._mux._peer_streams == 0

    assert play_rogue(scene, farewell) is None


# Guests.


def test_a_peer_without_our_protocol_is_a_guest_where_there_may_be_guests() -> None:
    async def main() -> None:
        with trio.fail_after(15):
            async with linked() as (one, other), trio.open_nursery() as nursery:
                other._services[TEA] = Service(echo, 4, 10)
                rogue = Rogue(one)
                came = trio.Event()
                nursery.start_soon(other.run, Inbox().receive, came.set)
                while not rogue.opened:
                    await rogue.hear()
                rogue.opened[0].send(write_frames((HEADER, NOT_AVAILABLE)))
                await rogue.say()
                await came.wait()
                assert other.is_guest
                stream = await order(rogue, ORDER + b"tea")
                await hears(rogue, stream, ORDER + b"tea")
                assert other.queued_bytes == 0
                other.close()

    trio.run(main)


def test_a_guest_does_not_speak_our_protocol_after_all() -> None:
    async def main() -> None:
        with trio.fail_after(15):
            async with linked() as (one, other), trio.open_nursery() as nursery:
                rogue = Rogue(one)

                async def misbehave() -> None:
                    while not rogue.opened:
                        await rogue.hear()
                    rogue.opened[0].send(write_frames((HEADER, NOT_AVAILABLE)))
                    await order(rogue, write_frames((HEADER, line(PROTOCOL))))

                nursery.start_soon(misbehave)
                with pytest.raises(RemoteError, match="declines"):
                    await other.run(Inbox().receive, lambda: None)

    trio.run(main)
