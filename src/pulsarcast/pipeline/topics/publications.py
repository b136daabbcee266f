"""Rows of a table into publications.

What only a row shows, such as a null or an attribute with no value, is refused by that row's key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from pulsarcast.model import api
from pulsarcast.model import publications as model
from pulsarcast.model.errors import LocalError
from pulsarcast.model.requests import Attribute
from pulsarcast.pipeline.topics.writable import KEY, Columns

BODY_BYTES: Final = 1 << 20
"""What is sent with one call, unless one event alone is larger; a daemon takes twice as much."""
SHOWN_MAX: Final = 80

_NULL_ATTRIBUTE: Final = "leave it out with map_filter(attributes, (k, v) -> v is not null)"


class Publication(NamedTuple):
    """An event that is to be, and the row's own key, by which people know it."""

    topic: str
    key: bytes
    event: model.Publication
    size: int
    """Bytes of its JSON."""


def publications(columns: Columns, batch: pa.RecordBatch) -> Iterator[Publication]:
    """What the rows ask to have published, in their order."""
    keys = _keys(batch.column(columns.key))
    payloads = _bytes(batch.column(columns.places["payload"]))
    topics = _texts(columns, batch, "topic")
    names = _texts(columns, batch, "name")
    created = _column(columns, batch, "created", lambda found: found.cast(pa.int64()).to_pylist())
    attributes = _texts(columns, batch, "attributes")
    parents = _texts(columns, batch, "parents")
    nonces = Nonces(columns.sink)
    for place, key in enumerate(keys):
        if key is None:
            raise LocalError(
                f"a row has no {KEY}: its column is null. Without one it would be published "
                "again whenever its task runs again; filter such rows out or give them a key"
            )
        topic = topics[place] or columns.topic
        if not topic:
            raise refused(key, "its topic is null, and there is no option topic")
        payload = payloads[place]
        if payload is None:
            raise refused(key, "its payload is null; coalesce(payload, '') makes it empty")
        event = model.Publication(
            payload=payload,
            name=names[place] or "",
            attributes=_attributes(key, attributes[place]),
            parents=_parents(key, parents[place]),
            idempotency_key=nonces.of(key),
            created_us=created[place],
        )
        yield Publication(topic, key, event, len(msgspec.json.encode(api.batch_event(event))))


def _texts(columns: Columns, batch: pa.RecordBatch, name: str) -> list[Any]:
    return _column(columns, batch, name, lambda found: _plain(found, name))


def _column(
    columns: Columns, batch: pa.RecordBatch, name: str, read: Callable[[pa.Array], list[Any]]
) -> list[Any]:
    place = columns.places.get(name)
    return [None] * batch.num_rows if place is None else read(batch.column(place))


class Nonces:
    """Keys as the daemon gets them, one for each (sink name, key): no two pairs make the same."""

    def __init__(self, sink: str) -> None:
        # The sink name goes in but once.
        self._begun = blake2b(_measured(sink.encode()), digest_size=32, person=b"spark-sink")

    def of(self, key: bytes) -> str:
        """What stands for a row's key."""
        hasher = self._begun.copy()
        hasher.update(_measured(key))
        return hasher.hexdigest()


def _measured(data: bytes) -> bytes:
    """With its length before it: where one part ends and the next begins is no matter of taste."""
    return len(data).to_bytes(8, "big") + data


def refused(key: bytes, reason: str) -> LocalError:
    """Why a row cannot become an event."""
    return LocalError(f"the row with the key {shown(key)}: {reason}")


def shown(key: bytes) -> str:
    """A key for people."""
    text = key.decode("utf-8", "replace")
    return repr(text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "...")


def _keys(column: pa.Array) -> list[bytes | None]:
    if pa.types.is_integer(column.type):
        return [None if key is None else b"%d" % key for key in column.to_pylist()]
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return [None if key is None else key.hex().encode() for key in column.to_pylist()]
    return _bytes(column)


def _bytes(column: pa.Array) -> list[bytes | None]:
    """Of text its bytes as they are, for Spark does not mind if they are UTF-8."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    found: list[bytes | None] = column.to_pylist()
    return found


def _plain(column: pa.Array, name: str) -> list[Any]:
    try:
        found: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        raise LocalError(f"column {name} has a text that is not UTF-8") from None
    return found


def _parents(key: bytes, given: list[str | None] | None) -> list[str]:
    found = [each for each in given or () if each is not None]
    if len(found) < len(given or ()):
        raise refused(key, "one of its parents is null")
    return found


def _attributes(
    key: bytes, given: list[tuple[str, str | dict[str, Any] | None]] | None
) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for name, value in given or ():
        if isinstance(value, str):
            found[name] = value
        else:
            found[name] = _typed(key, name, value)
    return found


def _typed(key: bytes, name: str, value: dict[str, Any] | None) -> Attribute:
    given = [each for each in (value or {}).values() if each is not None]
    if not given:
        raise refused(key, f"its attribute {name!r} is null; {_NULL_ATTRIBUTE}")
    if len(given) > 1:
        raise refused(key, f"its attribute {name!r} has {len(given)} values: set one field of it")
    found: Attribute = given[0]
    if isinstance(found, float) and not math.isfinite(found):
        raise refused(key, f"its attribute {name!r} is {found}, which JSON cannot say")
    return found
