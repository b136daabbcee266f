"""Streams of server-sent events for tests, as a daemon would send them."""

from __future__ import annotations

import msgspec

from pulsarcast.model.api import EventView


def sse_event(index: int, *, payload: str = "", redelivery: bool = False) -> bytes:
    """One event of a stream."""
    view = EventView(
        index=index, id=f"event-{index}", topic="topic", author="author", publisher="publisher",
        epoch="1", number=index, _payload=payload, redelivery=redelivery,
    )  # fmt: skip
    return b"id: %d\ndata: %b\n\n" % (index, msgspec.json.encode(view))
