"""Answers: JSON, and refusals with a code for programs and a sentence for people."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pulsarcast.model.api import Problem
from pulsarcast.model.errors import LocalError
from pulsarcast.model.filters import FilterError

T = TypeVar("T")

JSON: Final = "application/json"
SAFE: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

# What the core says to a caller, by what HTTP calls it. The sentences are the core's own.
_MEANINGS: Final = (
    ("no such topic was found", 404, "topic"),
    ("no topic of this author has this name", 404, "topic"),
    ("we do not follow this topic", 404, "topic"),
    ("nobody has this block", 404, "block"),
    ("we may neither publish nor request", 403, "rights"),
    ("only the author makes new versions", 403, "rights"),
    ("the payload is larger than the topic allows", 413, "payload"),
    ("the disk refused", 503, "halted"),
    ("another node", 503, "halted"),
    ("the node is closed", 503, "stopping"),
    ("the node is stopping", 503, "stopping"),
    ("the author may not request", 403, "rights"),
    ("the outbox is full", 503, "busy"),
    ("halted: two events are certified", 503, "halted"),
)


class Refusal(Exception):  # noqa: N818 (an answer, and nothing that went wrong)
    """An answer that is not what was asked for."""

    def __init__(self, status: int, code: str, error: str) -> None:
        super().__init__(error)
        self.status = status
        self.code = code
        self.error = error


def refusal_of(error: LocalError) -> Refusal:
    """What an error of the node means to whoever asked."""
    text = str(error)
    if isinstance(error, FilterError):
        return Refusal(422, "where", text)
    for beginning, status, code in _MEANINGS:
        if text.startswith(beginning):
            return Refusal(status, code, text)
    return Refusal(422, "refused", text)


def problem(refusal: Refusal) -> Response:
    """A refusal as an answer."""
    headers = dict(SAFE)
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refusal.status == 503:
        headers["Retry-After"] = "1"
    body = msgspec.json.encode(Problem(refusal.error, refusal.code))
    return Response(body, refusal.status, headers, JSON)


def answer(value: Any, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status, SAFE, JSON)


def nothing() -> Response:
    """Done, and nothing to say."""
    return Response(status_code=204, headers=SAFE)


async def read_body(request: Request, bytes_max: int) -> bytes:
    """A request's body, unless it is too large."""
    pieces: list[bytes] = []
    size = 0
    async with aclosing(request.stream()) as stream:
        try:
            async for piece in stream:
                size += len(piece)
                if size > bytes_max:
                    raise Refusal(413, "body", f"a request of more than {bytes_max} bytes")
                pieces.append(piece)
        except ClientDisconnect as error:
            # Nobody hears this; without it the log would take it for a fault of ours.
            raise Refusal(400, "body", "the request was cut off") from error
    return b"".join(pieces)


async def read_json(request: Request, kind: type[T], bytes_max: int) -> T:
    """A request's body as a value of a kind."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != JSON:
        raise Refusal(415, "content-type", f"this takes {JSON}")
    body = await read_body(request, bytes_max)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, "body", f"the body is not as it should be: {error}") from error


def read_query(request: Request, kind: type[T]) -> T:
    """A request's query as a value of a kind; nothing else may be in it."""
    values: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in values:
            raise Refusal(400, "query", f"{name!r} is there twice")
        values[name] = value
    try:
        return msgspec.convert(values, type=kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refusal(400, "query", f"the query is not as it should be: {error}") from error
