"""Agreeing on a protocol; `test_host` does so with py-libp2p's own hosts, both ways round."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from pulsarcast.model.errors import RemoteError
from pulsarcast.network.negotiation import (
    HEADER,
    LINE_BYTES_MAX,
    NOT_AVAILABLE,
    TRIES_MAX,
    Wire,
    ask_for,
    line,
    offer,
)
from pulsarcast.wire.framing import write_frames

TEA = "/tea/1.0.0"


class Script:
    """A wire on which a peer says what it is going to say, whatever it hears."""

    def __init__(self, said: bytes) -> None:
        self.said = said
        self.written: list[bytes] = []

    async def read(self, size: int) -> bytes:
        if len(self.said) < size:
            raise RemoteError("closed the connection")
        taken, self.said = self.said[:size], self.said[size:]
        return taken

    async def write(self, data: bytes) -> None:
        self.written.append(data)


def play(side: Callable[[Wire, str], Awaitable[None]], *said: bytes, rest: bytes = b"") -> Script:
    wire = Script(write_frames(said) + rest)

    async def main() -> None:
        await side(wire, TEA)

    trio.run(main)
    return wire


def test_a_dialler_says_all_at_once_and_reads_no_further_than_the_answer() -> None:
    wire = play(ask_for, HEADER, line(TEA), rest=b"and more")
    assert wire.written == [write_frames((HEADER, line(TEA)))]
    assert wire.said == b"and more"


@pytest.mark.parametrize(
    "answers",
    [(HEADER, NOT_AVAILABLE), (NOT_AVAILABLE,), (HEADER, line("/coffee")), (HEADER,), ()],
)
def test_a_listener_that_does_not_speak_it_is_left(answers: tuple[bytes, ...]) -> None:
    with pytest.raises(RemoteError):
        play(ask_for, *answers)


def test_a_listener_agrees_once_it_is_asked_for_what_it_speaks() -> None:
    wire = play(offer, HEADER, line("/coffee"), line("ls"), line(TEA), rest=b"and more")
    answers = (HEADER, NOT_AVAILABLE, NOT_AVAILABLE, line(TEA))
    assert wire.written == [write_frames((answer,)) for answer in answers]
    assert wire.said == b"and more"


def test_who_speaks_something_else_altogether_is_refused() -> None:
    for greeting in (b"GET / HTTP/1.1\n", b"/multistream/2.0.0\n", b""):
        with pytest.raises(RemoteError):
            play(offer, greeting, line(TEA))


def test_who_asks_without_end_is_refused() -> None:
    with pytest.raises(RemoteError, match="does not ask for"):
        play(offer, HEADER, *[line("/coffee")] * TRIES_MAX, line(TEA))


def test_a_line_is_as_long_as_it_may_be_and_no_longer() -> None:
    longest = b"x" * (LINE_BYTES_MAX - 1) + b"\n"
    play(offer, HEADER, longest, line(TEA))
    with pytest.raises(RemoteError, match="too long"):
        play(offer, HEADER, b"x" + longest, line(TEA))
    for endless in (b"\xff" * 10, b"\x80" * 10):
        with pytest.raises(RemoteError, match="too long"):
            play(offer, HEADER, rest=endless)
