"""The trace of a contestant that writes none by itself: as much as ours writes at this level.

So that none is faster for want of writing. What there is no word for in a stock network (versions,
parents, epochs, hops) is left empty, and nobody judges by it: the checkers hold nodes to promises
that these never made.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

from pulsarcast.model import trace_records as trace
from pulsarcast.model.ids import Cid, PeerId, peer_text
from pulsarcast.network.tracing import NodeTrace
from pulsarcast.protocol.inputs import Now
from pulsarcast.testbed.contestants.contestants import Seat

EPOCH: Final = 1


class StockTrace:
    """What one life of a stock node did; writes nothing where nothing is to be traced."""

    def __init__(self, seat: Seat, peer: PeerId) -> None:
        settings = seat.settings
        level = settings.trace_level_of(seat.index)
        self._peer = peer
        self._delivered: Counter[Cid] = Counter()
        self._trace: NodeTrace | None = None
        if level is not None and settings.trace_folder is not None:
            self._trace = NodeTrace(
                settings.trace_folder,
                run_id=settings.run_id,
                node_id=peer_text(peer),
                incarnation=seat.life,
                level=level,
            )
        self._write(trace.NodeStarted())

    def subscribe(self, topic: Cid) -> None:
        """A subscription began."""
        self._write(trace.Subscribed(topic, ()))

    def publish(self, topic: Cid, event: Cid, number: int, injection: str) -> None:
        """We published."""
        self._write(
            trace.Published(
                topic=topic,
                event=event,
                version=topic,
                publisher=self._peer,
                author=self._peer,
                epoch=EPOCH,
                number=number,
                parents=(),
                position=None,
                request_id=b"",
                injection=injection,
            )
        )

    def deliver(self, topic: Cid, event: Cid, publisher: PeerId, number: int) -> None:
        """The application was handed an event."""
        if self._trace is None:
            return
        self._delivered[topic] += 1
        index = self._delivered[topic]
        self._write(trace.Delivered(topic, event, publisher, EPOCH, number, index, hops=0))

    def close(self) -> None:
        """Say that we stop."""
        self._write(trace.NodeStopped(trace.StopReason.ASKED))
        if self._trace is not None:
            self._trace.close()

    def _write(self, record: trace.Record) -> None:
        if self._trace is None:
            return
        self._trace.record(Now(time.monotonic(), time.time_ns() // 1000), record)
        self._trace.flush()
