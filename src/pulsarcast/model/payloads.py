"""Payloads: bytes, which applications give and read as bytes, as text or as JSON.

A descriptor says nothing about what its payload's bytes mean: that is the application's word. JSON
is written in one form, so that equal values give equal bytes: UTF-8, keys sorted by code point, no
white space, and only values that every reader reads alike (I-JSON, RFC 7493).
"""

from __future__ import annotations

import math
from datetime import date, time
from decimal import Decimal
from json import dumps, loads
from typing import Any, Final, TypeAlias

import msgspec

from pulsarcast.model.errors import InvalidPayload

Keys: TypeAlias = tuple[str | int, ...]
"""The place of a value in another: the keys and indices that lead to it."""

INT_MAX: Final = (1 << 53) - 1
"""Bounds integers: JavaScript, and readers like it, round larger ones (RFC 7493, 2.2)."""
DEPTH_MAX: Final = 64
"""Bounds how deeply values are nested; it also ends a value that holds itself."""
SHOWN_MAX: Final = 40
"""Bounds the characters of a key in a sentence."""


def payload_bytes(payload: object, json: object) -> bytes:
    """The bytes to publish: of a payload, or of a JSON value if one is given."""
    if json is not msgspec.UNSET:
        if payload is not None:
            raise InvalidPayload("give a payload or json=VALUE, not both")
        return encode_json(json)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    if isinstance(payload, str):
        return encode_text(payload)
    if payload is None:
        raise InvalidPayload("give a payload, as bytes or text, or json=VALUE")
    kind = type(payload).__name__
    raise InvalidPayload(
        f"a payload is bytes or text, not {kind}: publish(topic, json=VALUE) publishes a value"
    )


def encode_text(text: str) -> bytes:
    """A text as UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidPayload("the text is not Unicode: it has half of a surrogate pair") from error


def decode_text(payload: bytes) -> str:
    """The text that a payload is."""
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise InvalidPayload("the payload is not text: read its bytes (payload)") from error


def encode_json(value: object) -> bytes:
    """A value in the one form that JSON has here."""
    _check(value, ())
    text = dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    return encode_text(text)


def decode_json(payload: bytes, what: str = "the payload") -> Any:
    """The JSON value that some bytes are, in whichever form of JSON; `what` names them."""
    try:
        value = msgspec.json.decode(payload)
        if b"{" in payload:
            loads(payload, object_pairs_hook=_refuse_twice)
    except RecursionError as error:
        raise InvalidPayload(f"{what} is nested too deeply to be read as JSON") from error
    except (msgspec.MsgspecError, ValueError) as error:
        why = str(error).removeprefix("JSON is malformed: ")
        raise InvalidPayload(f"{what} is not JSON: {why}") from error
    return value


def _refuse_twice(pairs: list[tuple[str, object]]) -> None:
    """Refuse an object with one key twice: readers differ in which of the two they take."""
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"an object has the key {_shown(key)} twice")
        seen.add(key)


def _check(value: object, at: Keys) -> None:
    """Refuse what JSON cannot say, or what another reader would read as something else."""
    if len(at) > DEPTH_MAX:
        raise InvalidPayload(f"json= has more than {DEPTH_MAX} levels: make it flatter")
    match value:
        case None | bool() | str():
            return
        case int():
            if abs(value) > INT_MAX:
                raise _refused(
                    at, "is an integer of more than 53 bits, which some readers round",
                    "give it as text: str(value)",
                )  # fmt: skip
        case float():
            if not math.isfinite(value):
                raise _refused(at, f"is {value}, which JSON does not have", "give None or text")
        case dict():
            for key, each in value.items():
                if not isinstance(key, str):
                    raise _refused(
                        at, f"has the key {_shown(key)}, and keys are text in JSON",
                        "give str(key)",
                    )  # fmt: skip
                _check(each, (*at, key))
        case list() | tuple():
            for place, each in enumerate(value):
                _check(each, (*at, place))
        case _:
            kind = type(value).__name__
            raise _refused(at, f"is of type {kind}, which JSON does not have", _advice(value))


def _advice(value: object) -> str:
    match value:
        case date() | time():
            return "give it as text: value.isoformat()"
        case Decimal():
            return "give it as text: str(value)"
        case bytes() | bytearray() | memoryview():
            return "publish bytes as the payload itself, or in base64 as text"
        case set() | frozenset():
            return "give a list"
        case _:
            return "give text, a number, True, False, None, a list or a dict"


def _refused(at: Keys, what: str, advice: str) -> InvalidPayload:
    place = "".join(f"[{_shown(key)}]" for key in at)
    return InvalidPayload(f"json{place or '='} {what}: {advice}")


def _shown(key: object) -> str:
    text = repr(key)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
