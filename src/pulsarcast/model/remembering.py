"""A cache of verified events: the same bytes are decoded and verified once.

Verifying a signature takes 100 µs, and the result depends on nothing but the bytes. A real node
receives many events twice: through the tree, and as a replica. In the simulator all nodes of a
process share one cache; `simulate --no-share-verification` switches that off.
"""

from __future__ import annotations

from collections.abc import Callable

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor


class RememberedVerification:
    """Decodes each event once, and keeps the result for the most recent ones."""

    __slots__ = ("_decode_event", "_known", "_most")

    def __init__(self, decode_event: Callable[[bytes], EventDescriptor], most: int) -> None:
        self._decode_event = decode_event
        self._most = most
        self._known: dict[bytes, EventDescriptor | RemoteError] = {}

    def __call__(self, block: bytes) -> EventDescriptor:
        """The event in these bytes; raises RemoteError where they are none."""
        known = self._known.get(block)
        if known is None:
            known = self._known[block] = self._verify(block)
            if len(self._known) > self._most:
                # The first one in was decided on longest ago: it has travelled by now.
                del self._known[next(iter(self._known))]
        if isinstance(known, RemoteError):
            # A new one each time: an error that is raised again collects one more traceback.
            raise RemoteError(str(known), known.verdict, code=known.code)
        return known

    def _verify(self, block: bytes) -> EventDescriptor | RemoteError:
        try:
            return self._decode_event(block)
        except RemoteError as error:
            return error
