"""Signed events into columns, some thousand at a time.

They come from a node's own disk, which takes nothing that was not verified: here nothing is judged
again, and no descriptor is built. `model.events` says what the letters mean.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import libipld
import pyarrow as pa

from pulsarcast.model.filters import Filter
from pulsarcast.model.ids import CID_PREFIX, Cid, PeerId, cid_text, parse_cid, peer_text
from pulsarcast.model.pages import Page
from pulsarcast.pipeline.topics.schema import (
    ARROW_ATTRIBUTE,
    ARROW_ATTRIBUTES,
    ARROW_HEADER,
    ARROW_HEADERS,
    ARROW_PARENTS,
    ARROW_SEQUENCE,
    ARROW_TIME,
    arrow_schema,
)

ROWS_MAX: Final = 10_000
"""Rows of one batch: what Spark itself makes of rows."""

_NONE: Final[dict[str, Any]] = {}
_BOOL, _INT, _FLOAT, _TEXT, _BYTES = (ARROW_ATTRIBUTE.field(at).type for at in range(5))


class _PeerTexts(dict[bytes, str]):
    """Few peers publish many events: each is spelled out once."""

    def __missing__(self, peer: bytes) -> str:
        text = self[peer] = peer_text(PeerId(peer))
        return text


class _VersionTexts(dict[bytes, str]):
    """Few versions are named by many events."""

    def __missing__(self, cid: bytes) -> str:
        text = self[cid] = cid_text(Cid(cid))
        return text


class TopicColumns:
    """Makes batches of one topic's events."""

    def __init__(
        self,
        topic: str,
        name: str,
        *,
        headers: bool = False,
        blocks: bool = False,
        wanted: Filter | None = None,
    ) -> None:
        self._topic = topic
        self._topic_cid = parse_cid(topic)
        self._name = name
        self._headers = headers
        self._blocks = blocks
        self._wanted = wanted
        self._schema = arrow_schema(headers=headers, blocks=blocks)

    def batches(self, page: Page) -> Iterator[pa.RecordBatch]:
        """A page's events; no batch has more than `ROWS_MAX`."""
        for first in range(0, len(page), ROWS_MAX):
            yield self._batch(page, first, min(first + ROWS_MAX, len(page)))

    def _batch(self, page: Page, first: int, end: int) -> pa.RecordBatch:
        data, bounds = page.data, page.offsets[first : end + 1]
        decode, spell = libipld.decode_dag_cbor, libipld.encode_multibase
        peers, versions, topic = _PeerTexts(), _VersionTexts(), self._topic_cid
        ids: list[str] = []
        named_versions: list[str] = []
        publishers: list[str] = []
        authors: list[str] = []
        epochs: list[int] = []
        numbers: list[int] = []
        parents: list[str] = []
        parents_ends: list[int] = [0]
        names: list[str] = []
        payloads: list[bytes | None] = []
        attributes = _Attributes()
        created: list[int] = []
        wanted, matching = self._wanted, array("b")
        begin = bounds[0]
        for stop in bounds[1:]:
            block = data[begin:stop]
            begin = stop
            event: Any = decode(block)
            request = event["r"]
            ids.append(spell("b", CID_PREFIX + sha256(block).digest()))
            named_versions.append(versions[event.get("w", topic)])
            author = request["a"]
            authors.append(peers[author])
            publishers.append(peers[event.get("p", author)])
            epoch, number = event["n"]
            epochs.append(epoch)
            numbers.append(number)
            if "l" in event:
                parents.extend([spell("b", link) for link in event["l"]])
            parents_ends.append(len(parents))
            names.append(request.get("m", ""))
            # An opaque string's first byte only guards it (`model.cbor`).
            # A merge of causal order says nothing, which is not the same as something empty.
            payloads.append(None if "g" in event else request["b"][1:])
            attributes.take(request.get("k"))
            created.append(request["c"])
            if wanted is not None:
                # A merge is handed to no subscriber, whatever is asked for.
                matching.append("g" not in event and wanted.matches(request.get("k", _NONE)))
        count = len(ids)
        columns = [
            pa.repeat(pa.scalar(self._topic, pa.string()), count),
            pa.repeat(pa.scalar(self._name, pa.string()), count),
            _numbers(page.indices, first, end),
            pa.array(ids, pa.string()),
            pa.array(named_versions, pa.string()),
            pa.array(publishers, pa.string()),
            pa.array(authors, pa.string()),
            pa.StructArray.from_arrays(
                [pa.array(epochs, pa.int64()), pa.array(numbers, pa.int64())],
                fields=list(ARROW_SEQUENCE),
            ),
            _listed(ARROW_PARENTS, parents_ends, pa.array(parents, pa.string())),
            pa.array(names, pa.string()),
            pa.array(payloads, pa.binary()),
            attributes.as_map(),
            pa.array(created, pa.int64()).view(ARROW_TIME),
            _numbers(page.received_us, first, end).view(ARROW_TIME),
        ]
        if self._headers:
            columns.append(attributes.as_headers())
        if self._blocks:
            columns.append(_blocks(page, first, end))
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return batch if wanted is None else batch.filter(pa.array(matching).cast(pa.bool_()))


class _Attributes:
    """The attributes of all events of a batch, one behind the other."""

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._values: list[Any] = []
        self._ends: list[int] = [0]

    def take(self, found: dict[str, Any] | None) -> None:
        """The next event's."""
        if found:
            self._keys.extend(found)
            self._values.extend(found.values())
        self._ends.append(len(self._keys))

    def as_map(self) -> pa.Array:
        """With each value in the field of its type."""
        values = self._values
        kinds = list(map(type, values))
        present = set(kinds)
        count = len(values)

        def of(kind: type, arrow: pa.DataType) -> pa.Array:
            if kind not in present:
                return pa.nulls(count, arrow)
            chosen = zip(values, kinds, strict=True)
            return pa.array([value if own is kind else None for value, own in chosen], arrow)

        found = pa.nulls(count, _BYTES)
        if bytes in present:
            chosen = zip(values, kinds, strict=True)
            opened = [value[1:] if own is bytes else None for value, own in chosen]
            found = pa.array(opened, _BYTES)
        fields = [of(bool, _BOOL), of(int, _INT), of(float, _FLOAT), of(str, _TEXT), found]
        items = pa.StructArray.from_arrays(fields, fields=list(ARROW_ATTRIBUTE))
        ends = pa.array(self._ends, pa.int32())
        keys = pa.array(self._keys, pa.string())
        return pa.MapArray.from_arrays(ends, keys, items, type=ARROW_ATTRIBUTES)

    def as_headers(self) -> pa.Array:
        """In Kafka's shape: bytes and text as they are, all else as JSON."""
        values = pa.array([_header(value) for value in self._values], pa.binary())
        keys = pa.array(self._keys, pa.string())
        pairs = pa.StructArray.from_arrays([keys, values], fields=list(ARROW_HEADER))
        return _listed(ARROW_HEADERS, self._ends, pairs)


def _header(value: Any) -> bytes:
    if type(value) is bytes:
        return value[1:]
    return (value if type(value) is str else json.dumps(value)).encode()


def _listed(kind: pa.DataType, ends: list[int], items: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, type=kind)


def _numbers(column: Any, first: int, end: int) -> pa.Array:
    """A page's column as it is: nothing is copied."""
    whole = pa.Array.from_buffers(pa.int64(), len(column), [None, pa.py_buffer(column)])
    return whole[first:end]


def _blocks(page: Page, first: int, end: int) -> pa.Array:
    buffers = [None, pa.py_buffer(page.offsets), pa.py_buffer(page.data)]
    return pa.Array.from_buffers(pa.binary(), len(page), buffers)[first:end]
