"""One secured connection to one authenticated peer, carrying frames (docs/spec/wire.md).

Sending and receiving are plain calls: bytes go from the socket through Noise, Yamux and the frame
reader without a task switch or a lock in between, since both cost more than the message itself.
Tasks exist only where there is something to wait for: one waits for the socket to bring
something, one for it to take what it did not take at once, one for negotiations to end, and one for
each stream of another protocol that the node serves (`streams.py`).

Each side opens one Yamux stream for its own direction and says its protocol on it
(multistream-select 1.0.0), with its first frames right behind: the peer's answer is checked when it
comes. A peer that does not speak the protocol is a guest: it may use the services.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

import trio

from pulsarcast.model.errors import Rejection, RemoteError, Verdict
from pulsarcast.model.ids import PeerId
from pulsarcast.network.multiaddrs import place_of
from pulsarcast.network.negotiation import (
    HEADER,
    NOT_AVAILABLE,
    TRIES_MAX,
    ask_for,
    cut_line,
    line,
)
from pulsarcast.network.noise import NoiseFraming
from pulsarcast.network.resources import FAULTS_MAX, FAULTS_S, NOTED_BYTES, Turns
from pulsarcast.network.streams import Service, Services, Stream
from pulsarcast.network.yamux import AWAY_NORMAL, AWAY_PROTOCOL_ERROR, Yamux, YamuxStream
from pulsarcast.wire.codec import bytes_max_of
from pulsarcast.wire.framing import FrameReader, write_frames
from pulsarcast.wire.lanes import Lanes
from pulsarcast.wire.parts import PART_BYTES, Joiner

PROTOCOL: Final = "/pulsarcast/3.0.0"
READ_BYTES_MAX: Final = 64 * 1024
"""What one call takes from the socket."""
WINDOW_BYTES: Final = 2 * 1024 * 1024
"""What the peer may send of frames before it hears from this node: they are taken as they come, and
a node may be busy for 100 ms where the line carries 100 Mbit/s."""
MOVING_S: Final = 0.5
"""How often bytes that make no frame yet are worth a word: they show that the peer is alive."""
AHEAD_BYTES: Final = PART_BYTES
"""Payload waits in its lane while this much stands in line before it: control waits for no more."""
NEGOTIATION_S_MAX: Final = 10.0
"""How long a stream may take to say its protocol, to answer ours, or to end after its service."""
PLACE_S_MIN: Final = 0.1
"""How long after a stream of a service the next one in its place is served: a peer that opens and
resets streams as fast as it can costs at most ten tasks a second for each place. A stream that
comes earlier waits: js-libp2p opens one for each ping."""

_PROTOCOL: Final = line(PROTOCOL)
_GREETING: Final = (HEADER, _PROTOCOL)


Receive: TypeAlias = Callable[[list[bytes]], list[bytes] | None]
"""Takes frames, and returns those that are to wait, if any."""


class Link:
    """A connection to a peer that has proved who it is; made by Host only."""

    def __init__(
        self,
        connection: socket.socket,
        noise: NoiseFraming,
        peer: PeerId,
        *,
        dialled: bool,
        remote_address: str,
        local_address: str,
        plaintext: bytes = b"",
        bytes_in: int = 0,
        bytes_out: int = 0,
        services: Services | None = None,
        turns: Turns | None = None,
        on_close: Callable[[Link], None] | None = None,
        relay: PeerId | None = None,
    ) -> None:
        self.peer = peer
        self.relay = relay
        """The relay that carries the connection; None: it is a direct one."""
        self.dialled = dialled
        """Whether we are the one who dialled."""
        self.remote_address = remote_address
        self.local_address = local_address
        self.place = place_of(remote_address)
        """The network prefix that it comes from; of a relayed one, the relay's."""
        self.opened_s = trio.current_time()
        self.reached_at: str | None = None
        """The address that we dialled, as it was told to us."""
        self.bytes_in = bytes_in
        """What came from the socket, handshake included."""
        self.bytes_out = bytes_out
        """What the kernel took, handshake included."""
        self.said_goodbye = False
        """Whether the peer closed it in good order, because nobody used it."""
        self.is_guest = False
        """Whether the peer does not speak our protocol."""
        self.held_until_s = 0.0
        """Until when a service needs the connection, even if it carries no frames."""
        self.circuits = 0
        """How many connections between other peers, or of ours to others, run over this one."""
        self.may_finish = False
        """Whether the peer may end its frames here, to go on over another connection."""
        self.source_ended = False
        """Whether it has: all frames that it sent here have come."""
        self.at_close: list[Callable[[], None]] = []
        """Called once the connection has ended."""
        self.observed_address: str | None = None
        """Where the peer sees our end of it, if it was asked."""
        self._socket = connection
        self._noise = noise
        self._early = plaintext
        """What the peer sent right behind the handshake."""
        self._on_close = on_close
        self._mux = mux = Yamux(dialled)
        mux.on_open = self._meet
        mux.on_away = self._part
        self._reader = FrameReader(bytes_max_of=bytes_max_of)
        self._joiner = Joiner(bytes_max_of)
        self._frames: list[bytes] = []
        self._lanes = Lanes()
        self.took_s = 0.0
        """How long a stranger's turn took: it waits for the next one."""
        self._rest: list[bytes] | None = None
        """Frames that came, and wait for that."""
        self._faults = 0
        self._faults_since_s = 0.0
        self._moved_s = 0.0
        """When something was handed over last."""
        self._finishes = False
        """Whether the stream of frames ends once the lanes are empty."""
        self._unsent: memoryview | None = None
        """Sealed bytes that the kernel did not take; until it has, nothing more is sealed."""
        self._unwritable = False
        self._nursery: trio.Nursery | None = None
        self._negotiating: dict[YamuxStream, float] = {}
        """Until when each stream may take, in that order."""
        self._source: YamuxStream | None = None
        """The stream that the peer's frames come on."""
        self._watching = False
        self._services = Services() if services is None else services
        self._turns = Turns() if turns is None else turns
        self._serving: dict[str, int] = {}
        """How many streams of each protocol are served, or wait for that."""
        self._began_s: dict[str, deque[float]] = {}
        """When the newest stream of each place began to be served, or will."""
        self._streams: dict[Stream, None] = {}
        self._writers: dict[Stream, None] = {}
        """Those whose writers wait for room."""
        self._on_guest: Callable[[], None] | None = None
        self._over = self._closed = False
        self._failure: RemoteError | None = None
        self._room: tuple[int, Callable[[], None]] | None = None
        """What to call once less than this waits."""
        self._stream = stream = mux.open()
        stream.on_data = partial(self._check_answer, bytearray(), list(_GREETING))
        stream.on_end = self._end_own
        stream.send(write_frames(_GREETING))

    @property
    def queued_bytes(self) -> int:
        """What was sent and the kernel has not taken yet."""
        unsent = self._unsent
        waiting = self._lanes.queued_bytes + self._stream.queued_bytes
        return waiting + (0 if unsent is None else len(unsent))

    @property
    def held_bytes(self) -> int:
        """What came of frames that are not whole yet."""
        return self._reader.pending_bytes + self._joiner.held_bytes

    @property
    def pinned_bytes(self) -> int:
        """What the peer makes the node hold: not what the node sends of its own accord."""
        return self.held_bytes + self.queued_bytes - self._lanes.pushed_bytes

    @property
    def is_open(self) -> bool:
        """Whether the connection has not ended."""
        return not self._closed

    @property
    def is_held(self) -> bool:
        """Whether a service needs the connection."""
        return self.circuits > 0 or self.held_until_s > trio.current_time()

    def send(self, data: bytes) -> None:
        """Add frames (as `write_frames` writes them), ahead of payload; a flush sends them."""
        self._stream.send(data)

    def send_payload(self, framed: bytes, topic: Callable[[], Hashable]) -> None:
        """Add one frame to what waits; those of one topic leave in order, and topics in turn."""
        is_next = not self._lanes and self._stream.queued_bytes < AHEAD_BYTES
        if is_next and len(framed) <= PART_BYTES:
            self._stream.send(framed)
        elif not self._closed and not self._unwritable:
            self._lanes.put(topic(), framed)

    def is_at_fault(self) -> bool:
        """Count a fault that no honest peer makes; whether there are too many by now."""
        now_s = trio.current_time()
        if now_s > self._faults_since_s + FAULTS_S:
            self._faults, self._faults_since_s = 0, now_s
        self._faults += 1
        return self._faults >= FAULTS_MAX

    def tell_when_below(self, queued_bytes: int, tell: Callable[[], None]) -> None:
        """Call back, once, when no more than this waits; never if the connection ends before."""
        self._room = (queued_bytes, tell)

    def finish(self) -> None:
        """Send no frame after those that wait already; the peer is told behind the last one."""
        self._finishes = True
        if not self._lanes:
            self._stream.close()
        self.flush()

    @property
    def has_finished(self) -> bool:
        """Whether the kernel has all frames, and the word that there are no more."""
        return not self.queued_bytes and not self._mux.has_output

    def hold_back(self) -> None:
        """Grant the peer no more than one window of frames, until `let_go`."""
        if self._source is not None:
            self._source.pace()

    def let_go(self) -> None:
        """Grant the peer as much as it sends, again."""
        if self._source is not None:
            self._source.unpace()
            self.flush()

    def flush(self) -> None:
        """Give the kernel all that it takes now; a task of `run` goes on with the rest."""
        if self._unsent is None and not self._unwritable:
            all_taken = self._flush_more()
            if not all_taken and self._nursery is not None:
                self._nursery.start_soon(self._write_rest)
            if self._writers:
                self._wake_writers()

    def _flush_more(self) -> bool:
        """Seal and write, until nothing is left or the kernel takes no more (False)."""
        all_taken = self._write_all()
        if self._room is not None and self.queued_bytes <= self._room[0] and self.is_open:
            tell, self._room = self._room[1], None
            tell()
        return all_taken

    def _write_all(self) -> bool:
        while chunk := self._take_more():
            sealed = self._noise.seal(chunk)
            sent = self._write(sealed)
            if sent < len(sealed):
                if not self._unwritable:
                    self._unsent = memoryview(sealed)[sent:]
                return False
        return True

    def _take_more(self) -> bytes:
        """What is due now, with payload behind it as far as there is room."""
        lanes, stream = self._lanes, self._stream
        while lanes and stream.queued_bytes < AHEAD_BYTES:
            stream.send(lanes.take())
            if self._finishes and not lanes:
                stream.close()
        return self._mux.take()

    def close(self, *, goodbye: bool = False) -> None:
        """Close the connection at once, whatever still waits; `run` ends. Twice is as good.

        With `goodbye` the peer is told that it was only idle, and nothing is wrong with us.
        """
        self._close(AWAY_NORMAL if goodbye else None)

    async def open_stream(self, protocol: str) -> Stream:
        """Open a stream of another protocol; `with` closes it. `run` has to run.

        RemoteError where the peer does not speak the protocol, or takes too long to say so.
        """
        if self._closed:
            raise RemoteError("the connection ended", Verdict.IGNORE, code=Rejection.DISCONNECTED)
        raw = self._mux.open()
        raw.pace()
        stream = self._wrap(raw, protocol)
        try:
            with trio.move_on_after(NEGOTIATION_S_MAX):
                await ask_for(stream, protocol)
                return stream
            raise RemoteError(
                f"no answer to {protocol}", Verdict.IGNORE, code=Rejection.UNSUPPORTED_PROTOCOL
            )
        except BaseException:
            stream.reset()
            raise

    async def run(
        self,
        receive: Receive,
        on_guest: Callable[[], None] | None = None,
        first_bytes_max: int | None = None,
    ) -> None:
        """Read until the connection ends, whoever ends it, and close it.

        `receive` gets the frames of each read from the socket in one call; where only parts of them
        come, it gets none now and then, and each time once much is held. Raises RemoteError where
        the peer broke a rule; frames from before that are handed over first. `on_guest` is called
        where the peer does not speak our protocol; without it, that ends the connection. The first
        frame may have to be a small one, and no part. What `receive` returns it gets again in the
        next turn, before anything more is read.
        """
        self._on_guest = on_guest
        if first_bytes_max is not None:
            self._reader.first_bytes_max = first_bytes_max
        failure: Exception | None = None
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    self._start(nursery)
                    await self._read(receive)
                except trio.ClosedResourceError:
                    pass  # by `close`
                except Exception as error:  # raised below: a nursery would wrap it
                    failure = error
                finally:
                    # A nursery that ends takes no more tasks, and others may flush until then.
                    self._nursery = None
                nursery.cancel_scope.cancel()
        finally:
            at_fault = isinstance(failure or self._failure, RemoteError)
            self._close(AWAY_PROTOCOL_ERROR if at_fault else None)
        if failure is not None:
            raise failure
        if self._failure is not None:
            raise self._failure

    def _start(self, nursery: trio.Nursery) -> None:
        """Send what waits already, and give the peer until a deadline to answer."""
        if self._unsent is not None:
            nursery.start_soon(self._write_rest)
        self._expect(self._stream)
        self.flush()

    async def _read(self, receive: Receive) -> None:
        """Take what the socket brings, until it brings no more."""
        connection, descriptor = self._socket, self._socket.fileno()
        early, self._early = self._early, b""
        self._moved_s = trio.current_time()
        going_on = self._take((early,), receive)
        while going_on:
            if self._rest or self.took_s:
                await self._pause(receive)
                continue
            try:
                data = connection.recv(READ_BYTES_MAX)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(descriptor)
                continue
            except OSError:
                return
            if not data:
                return
            self.bytes_in += len(data)
            if not self._take(self._noise.feed(data), receive):
                return
            if self._rest or self.took_s:
                continue
            if len(data) < READ_BYTES_MAX:
                await trio.lowlevel.wait_readable(descriptor)
            else:
                await trio.lowlevel.checkpoint()

    async def _pause(self, receive: Receive) -> None:
        """Let others have their turn, and go on with what is left of this one's."""
        took_s, self.took_s = self.took_s, 0.0
        async with self._turns.next(self.place, took_s):
            rest, self._rest = self._rest, None
            if rest and self.is_open:
                self._rest = receive(rest)

    def _take(self, plaintexts: Iterable[bytes], receive: Receive) -> bool:
        """Hand over the frames in what arrived, send the answers; False where it was the last."""
        feed = self._mux.feed
        try:
            for plaintext in plaintexts:
                feed(plaintext)
        finally:
            frames = self._frames
            now_s = trio.current_time()
            if frames or now_s >= self._moved_s + MOVING_S or self.held_bytes > NOTED_BYTES:
                self._moved_s = now_s
                self._frames = []
                self._rest = receive(frames)
        if self._mux.has_output:
            self.flush()
        return not self._over

    def _write(self, data: bytes | memoryview) -> int:
        """Give the kernel what it takes; once it takes nothing ever again, reading ends, too."""
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self._unwritable = True
            self._unsent = None
            self._lanes.clear()
            self._stream.reset()
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            return 0
        self.bytes_out += sent
        return sent

    async def _write_rest(self) -> None:
        """Wait for the kernel to take what it did not take at once, and flush what came since."""
        while (unsent := self._unsent) is not None:
            try:
                await trio.lowlevel.wait_writable(self._socket.fileno())
            except trio.ClosedResourceError:
                return
            sent = self._write(unsent)
            if sent < len(unsent):
                if not self._unwritable:
                    self._unsent = unsent[sent:]
            else:
                self._unsent = None
                self._flush_more()
                if self._writers:
                    self._wake_writers()

    def _close(self, code: int | None) -> None:
        """Say why if nothing stands in line before that, and close the socket."""
        if self._closed:
            return
        self._closed = self._over = True
        if code is not None and not self.queued_bytes:
            self._mux.go_away(code)
            self.flush()
        self._unwritable = True
        self._unsent = None
        self._lanes.clear()
        # Others may refer to the link for longer.
        self._reader, self._joiner = FrameReader(), Joiner()
        self._stream.reset()
        for stream in list(self._streams):
            stream.break_off("the connection ended")
        trio.lowlevel.notify_closing(self._socket.fileno())
        self._socket.close()
        if self._on_close is not None:
            self._on_close(self)
        for tell in self.at_close:
            tell()

    # Streams, and what is said on them first.

    def _part(self, code: int) -> None:
        """Take the peer's farewell."""
        self.said_goodbye = code == AWAY_NORMAL
        self._over = True

    def _meet(self, stream: YamuxStream) -> None:
        """Take a stream that the peer opened, and wait for what it is for."""
        stream.pace()
        stream.on_data = partial(self._negotiate, stream, bytearray(), [])
        stream.on_end = partial(self._forget, stream)
        self._expect(stream)

    def _negotiate(
        self, stream: YamuxStream, arrived: bytearray, said: list[bytes], data: bytes
    ) -> None:
        """Answer what the peer says first on a stream of its own."""
        arrived += data
        size = len(arrived)
        while (asked := cut_line(arrived)) is not None:
            stream.consumed(size - len(arrived))
            size = len(arrived)
            said.append(asked)
            if len(said) == 1:
                if asked != HEADER:
                    self._refuse(stream)
                    return
                stream.send(write_frames((HEADER,)))
            elif asked == _PROTOCOL:
                stream.send(write_frames((asked,)))
                self._adopt(stream, bytes(arrived))
                return
            elif (service := self._services.get(name := _name(asked))) is not None:
                self._serve(stream, name, service, bytes(arrived))
                return
            elif len(said) > TRIES_MAX:
                self._refuse(stream)
                return
            else:
                stream.send(write_frames((NOT_AVAILABLE,)))

    def _refuse(self, stream: YamuxStream) -> None:
        stream.reset()
        self._forget(stream, True)

    def _adopt(self, stream: YamuxStream, early: bytes) -> None:
        """Read the peer's frames from this stream."""
        if self._source is not None:
            raise RemoteError(f"a second stream of {PROTOCOL}", code=Rejection.BAD_STREAM)
        if self.is_guest:
            raise RemoteError(f"declines {PROTOCOL} and speaks it", code=Rejection.BAD_STREAM)
        del self._negotiating[stream]
        self._source = stream
        stream.unpace()
        stream.window_bytes = WINDOW_BYTES
        stream.on_data = self._receive
        stream.on_end = self._end_source
        if early:
            self._receive(early)

    def _receive(self, data: bytes) -> None:
        """Cut the peer's frames."""
        self._frames += self._joiner.join(self._reader.feed(data))

    def _end_source(self, was_reset: bool) -> None:
        """The peer sends no more frames."""
        if (self._reader.pending_bytes or self._joiner.held_bytes) and not was_reset:
            raise RemoteError("a stream closed in the middle of a frame", code=Rejection.BAD_STREAM)
        if self.may_finish and not was_reset:
            self.source_ended = True
        else:
            self._over = True

    def _forget(self, stream: YamuxStream, was_reset: bool) -> None:
        """A stream ended before it was for anything."""
        self._negotiating.pop(stream, None)
        if not was_reset:
            stream.close()

    def _check_answer(self, arrived: bytearray, expected: list[bytes], data: bytes) -> None:
        """Look at what the peer answers on our stream: our greeting, word for word."""
        arrived += data
        while expected and (answer := cut_line(arrived)) is not None:
            if answer == NOT_AVAILABLE and len(expected) < len(_GREETING):
                self._end_declined(f"does not speak {PROTOCOL}")
                return
            if answer != expected[0]:
                raise RemoteError(
                    "answers a protocol with another", code=Rejection.UNSUPPORTED_PROTOCOL
                )
            del expected[0]
        if not expected:
            self._negotiating.pop(self._stream, None)
            if arrived:
                raise RemoteError(
                    "data against the direction of a stream", code=Rejection.BAD_STREAM
                )

    def _end_own(self, was_reset: bool) -> None:
        """The peer takes no frames any more, or will not answer again, as it need not."""
        if was_reset:
            self._over = True
        elif self._stream in self._negotiating:
            self._end_declined(f"closed a stream without an answer to {PROTOCOL}")

    def _end_declined(self, why: str) -> None:
        """The peer does not speak our protocol: it is a guest, where there may be guests."""
        if self._on_guest is None or self._source is not None:
            raise RemoteError(why, Verdict.IGNORE, code=Rejection.UNSUPPORTED_PROTOCOL)
        self._negotiating.pop(self._stream, None)
        self.is_guest = True
        self._stream.reset()
        self._on_guest()

    # Streams of other protocols.

    def _wrap(self, raw: YamuxStream, protocol: str, early: bytes = b"") -> Stream:
        stream = Stream(self, raw, protocol, self._services, early)
        self._streams[stream] = None
        return stream

    def _serve(self, raw: YamuxStream, protocol: str, service: Service, early: bytes) -> None:
        """Serve a stream that the peer opened, if there is a place for it."""
        served = self._serving.get(protocol, 0)
        if served >= service.streams_max or self._nursery is None:
            self._refuse(raw)
            return
        self._serving[protocol] = served + 1
        del self._negotiating[raw]
        raw.send(write_frames((line(protocol),)))
        began_s = self._began_s.setdefault(protocol, deque(maxlen=service.streams_max))
        begin_s = trio.current_time()
        if len(began_s) == service.streams_max:
            begin_s = max(begin_s, began_s[0] + PLACE_S_MIN)
        began_s.append(begin_s)
        stream = self._wrap(raw, protocol, early)
        self._nursery.start_soon(self._run_service, service, stream, begin_s)

    async def _run_service(self, service: Service, stream: Stream, begin_s: float) -> None:
        await trio.sleep_until(begin_s)
        with suppress(RemoteError, trio.TooSlowError), stream, trio.fail_after(service.s_max):
            await service.serve(stream)
        self._serving[stream.protocol] -= 1

    def let_end(self, raw: YamuxStream, is_closed: bool) -> None:
        """Close our side of a stream, and give the peer a while to close its own."""
        raw.close()
        if not is_closed:
            raw.on_data = _ignore
            raw.on_end = partial(self._forget, raw)
            self._expect(raw)
        self.flush()

    def forget(self, stream: Stream) -> None:
        """A stream is over."""
        self._streams.pop(stream, None)
        self._writers.pop(stream, None)

    def flush_answers(self) -> None:
        """Let the peer have the window that it was granted."""
        if self._mux.has_output:
            self.flush()

    def wake_when_room(self, stream: Stream) -> None:
        """Wake a stream's writer once less waits."""
        self._writers[stream] = None

    def _wake_writers(self) -> None:
        for stream in [each for each in self._writers if each.has_room()]:
            del self._writers[stream]

    def _expect(self, stream: YamuxStream) -> None:
        """Give a stream until a deadline to be for something."""
        self._negotiating[stream] = trio.current_time() + NEGOTIATION_S_MAX
        if not self._watching and self._nursery is not None:
            self._watching = True
            self._nursery.start_soon(self._watch)

    async def _watch(self) -> None:
        """Drop streams whose negotiation takes too long; without ours, the whole connection."""
        while self._negotiating:
            stream, deadline = next(iter(self._negotiating.items()))
            await trio.sleep_until(deadline)
            if self._negotiating.pop(stream, None) is None:
                continue
            if stream is self._stream:
                self._failure = RemoteError(
                    f"no answer to {PROTOCOL}", Verdict.IGNORE, code=Rejection.UNSUPPORTED_PROTOCOL
                )
                self.close()
                return
            stream.reset()
            self.flush()
        self._watching = False


def _name(said: bytes) -> str:
    """The protocol that a line names."""
    return said.decode(errors="replace").removesuffix("\n")


def _ignore(_: bytes) -> None:
    """Take what is said on a stream that was refused."""
