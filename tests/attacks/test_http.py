"""Strangers at the HTTP port: what they can make a daemon hold, and what it takes them for."""

from pathlib import Path

import httpx
import pytest
import trio

from pulsarcast.daemon import connection
from pulsarcast.daemon.connection import HEAD_BYTES_MAX, STRANGERS_MAX
from tests.support.daemon_in_process import Desk, daemon, play

UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


async def dial(desk: Desk) -> trio.SocketStream:
    url = httpx.URL(desk.url)
    assert url.port is not None
    return await trio.open_tcp_stream(url.host, url.port)


async def answers(desk: Desk, request: bytes) -> list[bytes]:
    """The status lines of all that comes until the daemon closes the connection."""
    host = httpx.URL(desk.url).netloc
    stream = await dial(desk)
    async with stream:
        await stream.send_all(request.replace(b"HOST", host))
        said = b""
        with trio.fail_after(5):
            async for data in stream:
                said += data
    return [line for line in said.split(b"\r\n") if line.startswith(b"HTTP/")]


async def ask(desk: Desk, stream: trio.SocketStream, *, token: bool = False) -> bytes:
    """What the daemon answers over a connection that stays open."""
    host, shown = httpx.URL(desk.url).netloc, desk.secret.encode()
    path, said = b"/v1/health", b""
    if token:
        path, said = b"/v1/status", b"Authorization: Bearer " + shown + b"\r\n"
    await stream.send_all(b"GET %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (path, host, said))
    with trio.fail_after(5):
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += await stream.receive_some()
        head, _, body = answer.partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split()[0])
        while len(body) < size:
            body += await stream.receive_some()
    return head


async def is_open(stream: trio.SocketStream) -> bool:
    ended = False
    with trio.move_on_after(0.01):
        try:
            ended = await stream.receive_some() == b""
        except trio.BrokenResourceError:
            ended = True
    return not ended


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET /v1/health HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n", b"200"),
        (b"GET /v1/status HTTP/1.1\r\nHost: HOST\r\n" + UPGRADE + b"\r\n", b"401"),
        (b"GET /v1/status HTTP/1.1\r\nHost: evil\r\n" + UPGRADE + b"\r\n", b"421"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), b"505"),
    ],
    ids=["HTTP/1.1", "an upgrade without a token", "an upgrade elsewhere", "HTTP/2 at once"],
)
def test_http_2_is_not_spoken(
    request_head: bytes, status: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STRANGER_S", 0.3)

    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            (line,) = await answers(desk, request_head)
            assert line.split()[1] == status

    play(scene)


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_request_of_two_lengths_is_refused_and_what_follows_is_not_read(
    version: bytes, tmp_path: Path
) -> None:
    """A proxy that believes the other length would pass a stranger's request on as another's."""

    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            hidden = b"GET /v1/health HTTP/1.1\r\nHost: HOST\r\n\r\n"
            request = (
                b"POST /v1/topics HTTP/" + version + b"\r\nHost: HOST\r\nContent-Length: 4\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden
            )
            (line,) = await answers(desk, request)
            assert line.split()[1] == b"400"

    play(scene)


def test_half_requests_are_bounded_and_others_are_answered(tmp_path: Path) -> None:
    half = b"GET /v1/status HTTP/1.1\r\nHost: x\r\nX: " + bytes(HEAD_BYTES_MAX - 1000).replace(
        b"\0", b"a"
    )

    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            known = await dial(desk)
            assert (await ask(desk, known, token=True)).startswith(b"HTTP/1.1 200")
            streams: list[trio.SocketStream] = []
            for number in range(3 * STRANGERS_MAX):
                streams.append(await dial(desk))
                await streams[-1].send_all(half)
                if number % STRANGERS_MAX == 0:
                    honest = await dial(desk)
                    assert (await ask(desk, honest)).startswith(b"HTTP/1.1 200")
                    await honest.aclose()
            await trio.sleep(0.2)
            still = [stream for stream in streams if await is_open(stream)]
            assert len(still) <= STRANGERS_MAX
            assert streams[-1] in still
            assert (await ask(desk, known, token=True)).startswith(b"HTTP/1.1 200")
            for stream in (known, *streams):
                await trio.aclose_forcefully(stream)

    play(scene)


def test_a_head_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            head = b"GET /v1/health HTTP/1.1\r\nHost: HOST\r\nX: " + b"a" * HEAD_BYTES_MAX
            (line,) = await answers(desk, head)
            assert line.split()[1] == b"431"

    play(scene)


@pytest.mark.parametrize("too_many", [0, 1])
def test_a_head_is_taken_up_to_its_bound_and_not_a_byte_further(
    tmp_path: Path, too_many: int
) -> None:
    """Also where all of it arrives at once."""

    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            host = httpx.URL(desk.url).netloc
            head = b"GET /v1/health HTTP/1.1\r\nHost: %b\r\nConnection: close\r\nX: " % host
            padding = b"a" * (HEAD_BYTES_MAX + too_many - len(head) - len(b"\r\n\r\n"))
            (line,) = await answers(desk, head + padding + b"\r\n\r\n")
            assert line.split()[1] == (b"431" if too_many else b"200")

    play(scene)


def test_a_stranger_has_little_time_and_a_program_with_a_token_has_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STRANGER_S", 0.3)

    async def scene() -> None:
        async with daemon(tmp_path) as desk:
            silent, answered, known = [await dial(desk) for _ in range(3)]
            assert (await ask(desk, answered)).startswith(b"HTTP/1.1 200")
            assert (await ask(desk, known, token=True)).startswith(b"HTTP/1.1 200")
            await trio.sleep(1.0)
            still = [await is_open(each) for each in (silent, answered, known)]
            assert still == [False, False, True]
            for stream in (silent, answered, known):
                await trio.aclose_forcefully(stream)

    play(scene)
