"""How long a daemon takes from its start to being ready, with a large store.

    python -m benchmarks.daemon_start [--events 1000000] [--work DIR]

Fills a home with events of one topic (kept in DIR for the next time), starts the daemon on it, and
looks at /v1/health/ready. Then the store is made one of the schema before, and the daemon started
on that: it copies it aside, changes it, and starts. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import trio

from benchmarks.daemon_readers import rss_mib
from benchmarks.prometheus_ten import DAEMON
from pulsarcast import DeliveryOrder, Node, TopicSettings
from pulsarcast.model.events import Sequence, publish_own
from pulsarcast.protocol.store import MarkState, PutEvent, PutState, StateRow
from pulsarcast.storage.home import Home

BATCH = 1000
PAYLOAD_BYTES = 256


def main() -> None:
    """Fill, start, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--work", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = (given.work or Path(folder)) / "home"
        if not home.exists():
            trio.run(follow, home)
            fill(home, given.events)
        times = [start(home) for _ in range(4)]
        size = (home / "store.sqlite").stat().st_size
        downgrade(home)
        upgrade_s, _ = start(home)
        print(
            json.dumps(
                {
                    "events": given.events,
                    "store_mib": round(size / 2**20),
                    "first_s": round(times[0][0], 2),
                    "best_s": round(min(time_s for time_s, _ in times), 2),
                    "rss_mib": times[-1][1],
                    "first_after_upgrade_s": round(upgrade_s, 2),
                    "copy_is_there": (home / "store.sqlite.schema-1").exists(),
                }
            )
        )


async def follow(home: Path) -> None:
    """A node that is subscribed to a topic of its own, and has a reader that is done with it."""
    async with Node.open(home) as node:
        topic = await node.create_topic("large", TopicSettings(order=DeliveryOrder.NONE))
        await node.subscribe(topic, "reader")
        (home / "topic").write_bytes(topic.cid)


def fill(home: Path, count: int) -> None:
    """Events in the log, as if they had been published; their signatures are real."""
    topic = (home / "topic").read_bytes()
    with Home.open(home) as lived_in:
        identity, store = lived_in.identity, lived_in.store
        for first in range(1, count + 1, BATCH):
            writes: list[PutEvent] = []
            for number in range(first, min(first + BATCH, count + 1)):
                event = publish_own(
                    identity,
                    topic=topic,  # type: ignore[arg-type] # a content id as bytes
                    version=topic,  # type: ignore[arg-type]
                    payload=os.urandom(PAYLOAD_BYTES),
                    created=1_700_000_000_000_000 + number,
                    nonce=os.urandom(16),
                    sequence=Sequence(7, number),
                    parents=[],
                )
                mark = MarkState(identity.peer_id, 7, 0, number, event.cid)
                writes.append(PutEvent(number, event, mark, 1))
            # As a node has it that runs: the log is done with.
            done = StateRow("cursor", topic, writes[-1].index.to_bytes(8, "big"))
            store.apply([*writes, PutState(done)])


def downgrade(home: Path) -> None:
    """Undo what schema 2 changed."""
    (home / "store.sqlite.schema-1").unlink(missing_ok=True)
    with closing(sqlite3.connect(home / "store.sqlite", isolation_level=None)) as database:
        database.execute("DROP INDEX event_by_nonce")
        database.execute("CREATE INDEX event_by_nonce ON event (nonce)")
        database.execute("PRAGMA user_version = 1")


def start(home: Path) -> tuple[float, float]:
    """Seconds until ready, and what the daemon has in memory then."""
    began_s = time.monotonic()
    daemon = subprocess.Popen([sys.executable, "-c", DAEMON, str(home)])
    try:
        while not (home / "http").exists():
            if time.monotonic() - began_s > 120:
                raise TimeoutError("the daemon did not start")
            time.sleep(0.01)
        url = (home / "http").read_text().strip()
        while True:
            try:
                urllib.request.urlopen(f"{url}/v1/health/ready", timeout=10).close()
                break
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() - began_s > 120:
                    raise
                time.sleep(0.01)
        return time.monotonic() - began_s, rss_mib(daemon.pid)
    finally:
        daemon.terminate()
        daemon.wait(30)


if __name__ == "__main__":
    main()
