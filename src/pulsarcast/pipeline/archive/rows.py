"""Rows of an archive held against the signed events in them. No Spark, no IO.

The block is the truth: it is decoded and verified in full, by the same rules by which a node takes
an event from a stranger. Then all columns that say something about the event are made anew from the
block and compared, as arrays. What the event itself cannot know, where and when a node took it in,
is not judged here.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

import pyarrow as pa

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import decode_event
from pulsarcast.model.ids import cid_text, parse_cid
from pulsarcast.model.pages import Page
from pulsarcast.pipeline.topics.columns import TopicColumns

JUDGED: Final = (
    "event_id",
    "version",
    "publisher",
    "author",
    "sequence",
    "parents",
    "name",
    "payload",
    "attributes",
    "created",
)
"""The columns that the block says everything about."""


@dataclass
class Checked:
    """What is wrong with which row, and what the others are."""

    wrong: dict[int, str] = field(default_factory=dict)
    right: pa.Table | None = None
    """Rows that are what their blocks say, as made from the blocks."""


def check_rows(topic: str, rows: pa.Table) -> Checked:
    """Hold each row against its block, and the block against its own signatures."""
    checked = Checked()
    wrong = checked.wrong
    expected_topic = parse_cid(topic)
    offsets = rows["offset"].to_pylist()
    received = rows["received"].cast(pa.int64()).to_pylist()
    good: list[int] = []
    blocks: list[bytes] = []
    for at, block in enumerate(rows["block"].to_pylist()):
        try:
            event = decode_event(block if block is not None else b"")
        except RemoteError as error:
            wrong[at] = f"the block is no valid event: {error}"
            continue
        if event.topic != expected_topic:
            wrong[at] = f"the block is an event of topic {cid_text(event.topic)}"
        elif offsets[at] is None or received[at] is None:
            wrong[at] = "the offset or the time of receipt is missing"
        else:
            good.append(at)
            blocks.append(block)
    if not good:
        return checked
    page = Page(
        array("q", [offsets[at] for at in good]),
        array("q", [received[at] for at in good]),
        array("i", [0, *accumulate(map(len, blocks))]),
        b"".join(blocks),
    )
    made = pa.Table.from_batches(TopicColumns(topic, "").batches(page))
    found = rows if len(good) == len(rows) else rows.take(good)
    differing: dict[int, list[str]] = {}
    for name in JUDGED:
        for at in _differing(_whole(found[name]), _whole(made[name])):
            differing.setdefault(at, []).append(name)
    for at, names in differing.items():
        verb = "is" if len(names) == 1 else "are"
        wrong[good[at]] = f"{', '.join(names)} {verb} not what the block says"
    if differing:
        made = made.filter(pa.array([at not in differing for at in range(len(good))]))
    checked.right = made
    return checked


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    # Times as numbers: Python has none beyond the year 9999.
    return whole.cast(pa.int64()) if pa.types.is_timestamp(whole.type) else whole


def _differing(found: pa.Array, made: pa.Array) -> list[int]:
    """Where two columns differ; they seldom do."""
    if found.equals(made) and _float_bits(found).equals(_float_bits(made)):
        return []
    pairs = zip(found.to_pylist(), made.to_pylist(), strict=True)
    return [at for at, (ours, theirs) in enumerate(pairs) if repr(ours) != repr(theirs)]


def _float_bits(column: pa.Array) -> pa.Array:
    """Numbers as they are stored: to compare them is to take 0.0 and -0.0 for the same."""
    if not pa.types.is_map(column.type):
        return pa.nulls(0)
    return column.items.field("float").view(pa.int64())
