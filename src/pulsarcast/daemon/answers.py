"""Answers: JSON, and refusals with a code for programs and a sentence for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pulsarcast.model.api import Problem
from pulsarcast.model.errors import (
    Busy,
    Closed,
    Conflict,
    DiskFull,
    Gone,
    Halted,
    InsufficientScope,
    Internal,
    InvalidFilter,
    InvalidPayload,
    InvalidToken,
    LocalError,
    LogChanged,
    Malformed,
    MethodNotAllowed,
    Misdirected,
    NameInUse,
    NotAllowed,
    NotFollowed,
    NotFound,
    ReaderNotFound,
    SettingsDiffer,
    TakenOver,
    TooLarge,
    TopicNotFound,
    Unavailable,
    UnsupportedMediaType,
    in_words,
)

T = TypeVar("T")

JSON: Final = "application/json"
SAFE: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

STATUS: Final[Mapping[str, int]] = {
    Malformed.code: 400,
    InvalidToken.code: 401,
    NotAllowed.code: 403,
    InsufficientScope.code: 403,
    NotFound.code: 404,
    TopicNotFound.code: 404,
    NotFollowed.code: 404,
    ReaderNotFound.code: 404,
    MethodNotAllowed.code: 405,
    Conflict.code: 409,
    NameInUse.code: 409,
    SettingsDiffer.code: 409,
    TakenOver.code: 409,
    LogChanged.code: 409,
    Gone.code: 410,
    TooLarge.code: 413,
    UnsupportedMediaType.code: 415,
    Misdirected.code: 421,
    LocalError.code: 422,
    InvalidFilter.code: 422,
    InvalidPayload.code: 422,
    Internal.code: 500,
    Busy.code: 429,
    Unavailable.code: 503,
    Closed.code: 503,
    Halted.code: 503,
    DiskFull.code: 507,
}
"""The HTTP status of each code."""


def problem(error: LocalError) -> Response:
    """A refusal as an answer."""
    headers = dict(SAFE)
    status = STATUS[error.code]
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status in (429, 503):
        headers["Retry-After"] = str(max(1, math.ceil(error.after_s)))
    body = msgspec.json.encode(Problem(str(error), error.code, error.topic, error.after_s or None))
    return Response(body, status, headers, JSON)


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
                    raise TooLarge(
                        f"the request has more than {bytes_max} bytes (http.body_bytes_max)"
                    )
                pieces.append(piece)
        except ClientDisconnect as error:
            # Nobody hears this; without it the log would take it for a fault of ours.
            raise Malformed("the request was cut off") from error
    return b"".join(pieces)


async def read_json(request: Request, kind: type[T], bytes_max: int) -> T:
    """A request's body as a value of a kind."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != JSON:
        raise UnsupportedMediaType(f"this takes {JSON}")
    body = await read_body(request, bytes_max)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"the body is not valid: {in_words(error)}") from error


def read_query(request: Request, kind: type[T]) -> T:
    """A request's query as a value of a kind; nothing else may be in it."""
    values: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in values:
            raise Malformed(f"{name!r} is given twice")
        values[name] = value
    try:
        return msgspec.convert(values, type=kind, strict=False)
    except msgspec.ValidationError as error:
        raise Malformed(f"the query is not valid: {in_words(error)}") from error
