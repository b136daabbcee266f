"""What the pieces of a delivery cost a node, each alone and warm, in CPU time.

    python benchmarks/node_pieces.py

An event of 256 bytes: verified, committed alone and in company, and written into the trace. What
links cost, `link_cost.py` measures.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from pulsarcast.model.events import EventDescriptor, Sequence, decode_event, publish_own
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, cid_of, peer_text
from pulsarcast.model.trace import Delivered, Envelope, encode_line
from pulsarcast.protocol.store import MarkState, PutEvent
from pulsarcast.storage.sqlite import SqliteStore

COUNT: Final = 2_048
COMPANY: Final = 64
EPOCH: Final = 7


def main() -> None:
    """Print a line for each piece."""
    identity = Identity.from_seed(bytes(32))
    topic = cid_of(b"a topic")
    events = make_events(identity, topic)
    envelope = Envelope("run", peer_text(identity.peer_id), 1, 1, 1, 1)

    def put(at: int) -> PutEvent:
        event = events[at]
        mark = MarkState(identity.peer_id, EPOCH, 0, at + 1, event.cid)
        return PutEvent(at + 1, event, mark, 1)

    def write_line(at: int) -> object:
        cid = events[at].cid
        record = Delivered(topic, cid, identity.peer_id, EPOCH, at + 1, at + 1, 3)
        return encode_line(envelope, record)

    show("an event verified", lambda at: decode_event(events[at].block))
    show("a line of the trace", write_line)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        alone = SqliteStore(Path(folder, "alone.sqlite"))
        show("an event committed alone", lambda at: alone.apply([put(at)]))
        alone.close()
        unasked = SqliteStore(Path(folder, "unasked.sqlite"))
        show(
            "the same, never asked for",
            lambda at: unasked.apply([msgspec.structs.replace(put(at), asked_for=False)]),
        )
        unasked.close()
        together = SqliteStore(Path(folder, "together.sqlite"))

        def commit(at: int) -> None:
            if at % COMPANY == 0:
                together.apply([put(each) for each in range(at, at + COMPANY)])

        show(f"an event committed among {COMPANY}", commit)
        together.close()


def make_events(identity: Identity, topic: Cid) -> list[EventDescriptor]:
    """Events of one publisher, each linked to the one before."""
    rng = Random(1)
    events: list[EventDescriptor] = []
    for number in range(1, COUNT + 1):
        event = publish_own(
            identity,
            topic=topic,
            version=topic,
            payload=rng.randbytes(256),
            created=1_700_000_000_000_000 + number,
            nonce=rng.randbytes(16),
            sequence=Sequence(EPOCH, number),
            parents=[events[-1].cid] if events else [],
        )
        events.append(event)
    return events


def show(what: str, act: Callable[[int], object]) -> None:
    """Do something for every event, and say what one costs."""
    begun_s, cpu_s = time.perf_counter(), time.process_time()
    for at in range(COUNT):
        act(at)
    used_s, took_s = time.process_time() - cpu_s, time.perf_counter() - begun_s
    print(f"{what:32} {used_s / COUNT * 1e6:6.0f} µs CPU, {took_s / COUNT * 1e6:6.0f} µs in all")


if __name__ == "__main__":
    main()
