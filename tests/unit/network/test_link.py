import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio

from pulsarcast.model.errors import RemoteError
from pulsarcast.network import link as link_module
from pulsarcast.network.link import PROTOCOL, Link
from pulsarcast.network.yamux import FIN, GO_AWAY, RST, WINDOW_BYTES, WINDOW_UPDATE, YamuxStream
from pulsarcast.wire.framing import write_frames
from tests.unit.network.hosts import ANN, BEN, RANGE, Inbox, Rogue, linked

GREETING = write_frames((b"/multistream/1.0.0\n", PROTOCOL.encode() + b"\n"))
MEGABYTE = 1024 * 1024


def run(play: Callable[[Link, Link], Awaitable[None]], *, s_max: float = 15) -> None:
    async def main() -> None:
        with trio.fail_after(s_max):
            async with linked() as (one, other):
                await play(one, other)

    trio.run(main)


async def wait_until(has_happened: Callable[[], bool]) -> None:
    while not has_happened():
        await trio.sleep(0.01)


def run_against_rogue(
    misbehave: Callable[[Rogue], Awaitable[None]],
) -> tuple[Inbox, RemoteError | None]:
    """What the honest end got and raised, with a rogue at the one that dialled."""
    inbox = Inbox()
    caught: list[RemoteError] = []

    async def play(one: Link, other: Link) -> None:
        async def honest() -> None:
            try:
                await other.run(inbox.receive)
            except RemoteError as error:
                caught.append(error)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(honest)
            await misbehave(Rogue(one))
            await trio.sleep_forever()

    run(play)
    return inbox, caught[0] if caught else None


def test_frames_travel_both_ways_in_order() -> None:
    async def play(one: Link, other: Link) -> None:
        sent = [b"frame %d" % number for number in range(200)]
        here, there = Inbox(), Inbox()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run, here.receive)
            nursery.start_soon(other.run, there.receive)
            for at in range(0, 200, 10):
                one.send(write_frames(sent[at : at + 10]))
                one.flush()
                other.send(write_frames(sent[at : at + 10]))
                other.flush()
                await trio.lowlevel.checkpoint()
            await here.holds(200)
            await there.holds(200)
            one.close()
        assert here.frames == there.frames == sent
        assert (one.peer, other.peer) == (BEN.peer_id, ANN.peer_id)
        assert (one.dialled, other.dialled) == (True, False)
        # The farewell is read, or not, depending on who was faster.
        assert 0 <= one.bytes_out - other.bytes_in <= 64
        assert other.bytes_out - one.bytes_in <= 64

    run(play)


def test_nothing_leaves_before_a_flush() -> None:
    async def play(one: Link, other: Link) -> None:
        before = one.bytes_out
        one.send(write_frames([b"x" * 500]))
        assert one.queued_bytes > 500
        assert one.bytes_out == before
        one.flush()
        assert one.queued_bytes == 0
        assert one.bytes_out > before + 500

    run(play)


def test_one_call_per_read() -> None:
    async def play(one: Link, other: Link) -> None:
        inbox = Inbox()
        for _ in range(20):
            one.send(write_frames([b"x" * 100] * 5))
            one.flush()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.run, inbox.receive)
            await inbox.holds(100)
            assert inbox.calls == 1
            other.close()

    run(play)


def test_large_frames_both_ways_at_once() -> None:
    async def play(one: Link, other: Link) -> None:
        frames = [RANGE + bytes((10 + number,)) * MEGABYTE for number in range(4)]
        here, there = Inbox(), Inbox()
        for end in (one, other):
            end._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
            end.send(write_frames(frames))
            end.flush()
            assert end.queued_bytes > MEGABYTE
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run, here.receive)
            nursery.start_soon(other.run, there.receive)
            await here.holds(4)
            await there.holds(4)
            assert one.queued_bytes == other.queued_bytes == 0
            one.close()
        assert here.frames == there.frames == frames

    run(play)


def test_a_reader_that_stalls_for_more_than_five_seconds_loses_nothing() -> None:
    async def play(one: Link, other: Link) -> None:
        one._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        other._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        frames = [RANGE + struct.pack("<I", 10 + number) * 16_000 for number in range(40)]
        assert sum(map(len, frames)) > 2 * MEGABYTE
        here, there = Inbox(), Inbox()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run, here.receive)
            one.send(write_frames(frames))
            one.flush()
            await trio.sleep(5.2)
            assert one.queued_bytes > 2 * MEGABYTE
            assert one._unsent is not None
            nursery.start_soon(other.run, there.receive)
            await there.holds(len(frames))
            one.close()
        assert there.frames == frames

    run(play)


def test_a_connection_killed_in_the_middle_of_a_frame_ends_cleanly() -> None:
    async def misbehave(rogue: Rogue) -> None:
        stream = rogue.mux.open()
        stream.send(GREETING + write_frames([b"whole"]) + write_frames([b"x" * 1000])[:500])
        await rogue.say()
        await trio.sleep(0.05)
        # No farewell of any kind: a reset.
        rogue.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        rogue.connection.close()

    inbox, error = run_against_rogue(misbehave)
    assert inbox.frames == [b"whole"]
    assert error is None


def test_a_connection_cut_in_the_middle_of_a_noise_message_ends_cleanly() -> None:
    async def misbehave(rogue: Rogue) -> None:
        rogue.connection.send(b"\x40\x00 and then nothing")
        rogue.connection.shutdown(socket.SHUT_WR)

    inbox, error = run_against_rogue(misbehave)
    assert inbox.frames == []
    assert error is None


def test_sending_into_a_dead_connection_ends_cleanly() -> None:
    async def play(one: Link, other: Link) -> None:
        inbox = Inbox()
        other._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        await trio.sleep(0.02)
        for _ in range(10):
            one.send(write_frames([b"x" * 1000]))
            one.flush()
        assert one.queued_bytes == 0
        await one.run(inbox.receive)

    run(play)


def test_close_ends_both_sides_and_may_be_called_again() -> None:
    async def play(one: Link, other: Link) -> None:
        inbox = Inbox()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run, inbox.receive)
            nursery.start_soon(other.run, inbox.receive)
            await trio.sleep(0.02)
            one.close()
            one.close()
        one.send(b"nobody hears this")
        one.flush()
        assert one.queued_bytes == 0
        await one.run(inbox.receive)

    run(play)


def test_close_from_within_receive() -> None:
    async def play(one: Link, other: Link) -> None:
        one.send(write_frames([b"first"]))
        one.flush()
        await other.run(lambda _: other.close())

    run(play)


def test_errors_of_the_receiver_come_out_as_they_are() -> None:
    def fail(_: list[bytes]) -> None:
        raise KeyError("ours")

    async def play(one: Link, other: Link) -> None:
        one.send(write_frames([b"first"]))
        one.flush()
        with pytest.raises(KeyError):
            await other.run(fail)

    run(play)


# Streams.


def test_other_protocols_are_declined_and_ours_goes_on() -> None:
    async def play(one: Link, other: Link) -> None:
        inbox = Inbox()
        rogue = Rogue(one)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.run, inbox.receive)
            stream = rogue.mux.open()
            rogue.listen(stream)
            stream.send(write_frames((b"/multistream/1.0.0\n", b"/ipfs/id/1.0.0\n")))
            await rogue.say()
            answer = write_frames((b"/multistream/1.0.0\n", b"na\n"))
            while rogue.heard[stream.stream_id] != answer:
                await rogue.hear()
            stream.close()
            ours = rogue.mux.open()
            ours.send(GREETING + write_frames([b"hello"]))
            await rogue.say()
            await inbox.holds(1)
            assert not other._mux._peer_streams - 1
            assert stream not in other._negotiating
            other.close()
        assert inbox.frames == [b"hello"]

    run(play)


def test_a_peer_that_declines_our_protocol_is_not_at_fault() -> None:
    async def misbehave(rogue: Rogue) -> None:
        while not rogue.opened:
            await rogue.hear()
        rogue.opened[0].send(write_frames((b"/multistream/1.0.0\n", b"na\n")))
        await rogue.say()

    _, error = run_against_rogue(misbehave)
    assert error is not None
    assert "does not speak" in str(error)
    assert error.verdict.value == "ignore"


def test_frames_before_a_broken_rule_are_handed_over() -> None:
    async def misbehave(rogue: Rogue) -> None:
        stream = rogue.mux.open()
        stream.send(GREETING + write_frames([b"one", b"two"]))
        await rogue.say(b"\xff" * 12)

    inbox, error = run_against_rogue(misbehave)
    assert inbox.frames == [b"one", b"two"]
    assert error is not None


def _greet_twice(rogue: Rogue) -> None:
    for _ in range(2):
        rogue.mux.open().send(GREETING)


def _never_end_a_name(rogue: Rogue) -> None:
    rogue.mux.open().send(write_frames([b"x" * 100_000])[:50_000])


def _close_within_a_frame(rogue: Rogue) -> None:
    stream = rogue.mux.open()
    stream.send(GREETING + b"\x05abc")
    stream.close()


def _send_a_frame_too_large(rogue: Rogue) -> None:
    rogue.mux.open().send(GREETING + b"\xff\xff\xff\x7f")


@pytest.mark.parametrize(
    "speak", [_greet_twice, _never_end_a_name, _close_within_a_frame, _send_a_frame_too_large]
)
def test_a_broken_rule_of_streams(speak: Callable[[Rogue], None]) -> None:
    async def misbehave(rogue: Rogue) -> None:
        speak(rogue)
        await rogue.say()

    _, error = run_against_rogue(misbehave)
    assert error is not None


@pytest.mark.parametrize("answer", [b"/plaintext\n", GREETING + b"\x01x", GREETING + b"\x05abc"])
def test_a_wrong_answer(answer: bytes) -> None:
    async def misbehave(rogue: Rogue) -> None:
        while not rogue.opened:
            await rogue.hear()
        rogue.opened[0].send(answer if answer.startswith(GREETING) else write_frames([answer]))
        await rogue.say()

    _, error = run_against_rogue(misbehave)
    assert error is not None


def test_a_tampered_message_is_the_peers_fault() -> None:
    async def misbehave(rogue: Rogue) -> None:
        rogue.connection.send(b"\x00\x14" + bytes(20))

    _, error = run_against_rogue(misbehave)
    assert error is not None


@pytest.mark.parametrize("farewell", ["go away", "reset theirs", "reset ours", "close"])
def test_a_peer_may_leave_at_any_time(farewell: str) -> None:
    def header(kind: int, flags: int, stream_id: int) -> bytes:
        return struct.pack(">BBHII", 0, kind, flags, stream_id, 0)

    async def misbehave(rogue: Rogue) -> None:
        rogue.mux.open().send(GREETING + write_frames([b"last words"]))
        while not rogue.opened:
            await rogue.hear()
        own: YamuxStream = rogue.opened[0]
        match farewell:
            case "go away":
                await rogue.say(header(GO_AWAY, 0, 0))
            case "reset theirs":
                await rogue.say(header(WINDOW_UPDATE, RST, own.stream_id))
            case "reset ours":
                await rogue.say(header(WINDOW_UPDATE, RST, 1))
            case "close":
                await rogue.say(header(WINDOW_UPDATE, FIN, 1))

    inbox, error = run_against_rogue(misbehave)
    assert inbox.frames == [b"last words"]
    assert error is None


def test_streams_that_say_nothing_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "NEGOTIATION_S_MAX", 0.2)

    async def play(one: Link, other: Link) -> None:
        rogue = Rogue(one)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.run, Inbox().receive)
            silent = rogue.mux.open()
            rogue.listen(silent)
            await rogue.say()
            while not rogue.opened:
                await rogue.hear()
            rogue.opened[0].send(GREETING)
            await rogue.say()
            while not rogue.reset:
                await rogue.hear()
            assert rogue.reset == [silent.stream_id]
            assert not other._mux._peer_streams
            other.close()

    run(play)


def test_a_peer_that_never_answers_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "NEGOTIATION_S_MAX", 0.2)

    async def misbehave(rogue: Rogue) -> None:
        while await rogue.hear():
            pass

    _, error = run_against_rogue(misbehave)
    assert error is not None
    assert "no answer" in str(error)


def test_a_flood_of_pings_costs_bounded_memory() -> None:
    async def play(one: Link, other: Link) -> None:
        other._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        one._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        rogue = Rogue(one)
        ping = struct.pack(">BBHII", 0, 2, 1, 0, 7)

        async def honest() -> None:
            with pytest.raises(RemoteError, match="answers"):
                await other.run(Inbox().receive)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(honest)
            with suppress(ConnectionError):
                while True:
                    await rogue.say(ping * 500)
            await trio.sleep_forever()

    run(play)


def test_a_full_window_waits_in_the_stream_and_not_in_the_kernel() -> None:
    async def play(one: Link, other: Link) -> None:
        one.send(write_frames([bytes(MEGABYTE)] * 2))
        one.flush()
        assert one.queued_bytes >= 2 * MEGABYTE - WINDOW_BYTES

    run(play)


def test_control_waits_for_no_more_than_a_part_or_two_of_payload() -> None:
    async def play(one: Link, other: Link) -> None:
        film = [RANGE + bytes((10 + number,)) * MEGABYTE for number in range(4)]
        inbox = Inbox()
        for each in film:
            one.send_payload(write_frames([each]), lambda: "film")
        one.flush()
        before = one.queued_bytes
        one.send(write_frames([b"\x1aheartbeat"]))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run, Inbox().receive)
            nursery.start_soon(other.run, inbox.receive)
            await inbox.holds(1)
            assert inbox.frames[0] == b"\x1aheartbeat"
            assert before - one.queued_bytes < 2 * MEGABYTE
            await inbox.holds(5)
            assert one.queued_bytes == 0
            one.close()
        assert inbox.frames[1:] == film

    run(play)


def test_a_link_that_finishes_sends_what_waits_in_its_lanes() -> None:
    async def play(one: Link, other: Link) -> None:
        inbox = Inbox()
        other.may_finish = True
        for number in range(3):
            one.send_payload(
                write_frames([RANGE + bytes((10 + number,)) * MEGABYTE]), lambda: "topic"
            )
        one.finish()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run, Inbox().receive)
            nursery.start_soon(other.run, inbox.receive)
            await inbox.holds(3)
            await wait_until(lambda: other.source_ended)
            assert one.has_finished
            one.close()

    run(play)


def test_a_stream_that_closes_in_the_middle_of_a_frame_in_parts_breaks_the_rules() -> None:
    async def misbehave(rogue: Rogue) -> None:
        stream = rogue.mux.open()
        stream.send(GREETING + write_frames([b"whole", b"\x00\x00half"]))
        stream.close()
        await rogue.say()

    inbox, error = run_against_rogue(misbehave)
    assert "middle of a frame" in str(error)
    assert inbox.frames == [b"whole"]
