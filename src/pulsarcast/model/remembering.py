"""A cache of verified events: the same bytes are decoded and verified once.

Verifying a signature takes 100 µs, and the result depends on nothing but the bytes. A real node
receives many events twice: through the tree, and as a replica. In the simulator all nodes of a
process share one cache; `simulate --no-share-verification` switches that off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor

REMEMBERED_MAX: Final = 2048
"""Events that a node does not decode and verify again: several credit windows, since one that falls
behind is given events by the tree, by recovery and as replicas."""
REMEMBERED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Their bytes."""


class RememberedVerification:
    """Decodes each event once, and keeps the result for the most recent ones."""

    __slots__ = ("_bytes", "_bytes_max", "_count_max", "_decode_event", "_known")

    def __init__(
        self,
        decode_event: Callable[[bytes], EventDescriptor],
        count_max: int,
        bytes_max: int | None = None,
    ) -> None:
        self._decode_event = decode_event
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._known: dict[bytes, EventDescriptor | RemoteError] = {}

    def __call__(self, block: bytes) -> EventDescriptor:
        """The event in these bytes; raises RemoteError where they are none."""
        known = self._known.get(block)
        if known is None:
            known = self._verify(block)
            self._remember(block, known)
        if isinstance(known, RemoteError):
            # A new one each time: an error that is raised again collects one more traceback.
            raise RemoteError(str(known), known.verdict, code=known.code)
        return known

    def know(self, event: EventDescriptor) -> None:
        """Take an event that the node itself made or verified."""
        if event.block not in self._known:
            self._remember(event.block, event)

    def _remember(self, block: bytes, known: EventDescriptor | RemoteError) -> None:
        self._known[block] = known
        self._bytes += len(block)
        while len(self._known) > self._count_max or self._is_too_large():
            # The first one in was decided on longest ago: it has travelled by now.
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._bytes -= len(oldest)

    def _is_too_large(self) -> bool:
        return self._bytes_max is not None and self._bytes > self._bytes_max

    def _verify(self, block: bytes) -> EventDescriptor | RemoteError:
        try:
            return self._decode_event(block)
        except RemoteError as error:
            # A new one: the traceback holds the frames of all callers, and with them the message in
            # which the block came, of which only the block is counted here.
            return RemoteError(str(error), error.verdict, code=error.code)
