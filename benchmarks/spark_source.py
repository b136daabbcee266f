"""A daemon's whole history as a Spark stream: each event exactly once though the job is killed.

    python -m benchmarks.spark_source [--events 1000000] [--kills 5] [--home DIR] [--cluster]

Publishes the events through the daemon (or takes the home of an earlier run), reads them with
`readStream.format("pulsarcast")` into Parquet and kills the job (SIGKILL, the JVM and all its
Python processes) inside batches, at moments drawn by `--seed`; then counts what the table has.
Then the same query once more without being killed, for its speed: into Parquet, and into nothing.
Meanwhile somebody publishes to another topic of the same daemon and listens to it: that is the
daemon's own latency, before and during. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.daemon_readers import cpu_of
from benchmarks.measuring import Usage, session_cpu_s
from benchmarks.prometheus_ten import DAEMON
from pulsarcast.client import Client
from pulsarcast.model import api

BATCH: Final = 1000
ALIAS: Final = "large"
PROBES_A_SECOND: Final = 50
JOB_S_MAX: Final = 900.0


def main() -> None:
    """Fill, read and kill, count, measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--batch", type=int, default=100_000, help="Events of a batch.")
    parser.add_argument("--home", type=Path, help="Filled if it is new; kept.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", action="store_true", help="On a standalone cluster.")
    given = parser.parse_args()
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-source-")))
        home = given.home or work / "home"
        url, pid = stack.enter_context(daemon(home))
        environment, master = {}, "local[2]"
        if given.cluster:
            from tests.pipeline.cluster import running_cluster

            (work / "cluster").mkdir()
            cluster = stack.enter_context(running_cluster(work / "cluster"))
            environment, master = cluster.environment, cluster.master
        client = stack.enter_context(Client(url, token_of(home)))
        newest = fill(client, given.events)
        job = Job(home, work, master, environment, given.batch)
        found: dict[str, Any] = {"events": newest, "master": "cluster" if given.cluster else master}
        found["killed"] = job.run_killed(given.kills, random.Random(given.seed))
        found["exactly_once"] = count(work / "killed", newest)
        with Probe(client) as alone:
            time.sleep(10)
        found["daemon_alone_ms"] = alone.latencies()
        for sink in ("parquet", "noop"):
            cpu_s = cpu_of(pid)
            with Probe(client) as probe:
                usage, told = job.run(sink)
            assert told["rows"] == newest, told
            found[sink] = {
                "rows_per_s": round(newest / told["stream_s"]),
                "stream_s": round(told["stream_s"], 1),
                "rows_per_s_after_the_first_batch": round(told["later_rows"] / told["later_s"]),
                "whole_job_s": round(usage.wall_s, 1),
                "job_cpu_s": round(usage.cpu_s, 1),
                "daemon_cpu_s": round(cpu_of(pid) - cpu_s, 1),
                "batches": told["batches"],
                "daemon_meanwhile_ms": probe.latencies(),
            }
        print(json.dumps(found))


# The daemon and its history.


@contextmanager
def daemon(home: Path) -> Iterator[tuple[str, int]]:
    """A daemon that lives in a home: its address and its process."""
    (home / "http").unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, "-c", DAEMON, str(home)])
    try:
        end_s = time.monotonic() + 60
        while not (home / "http").exists():
            if process.poll() is not None or time.monotonic() > end_s:
                raise RuntimeError("the daemon did not start")
            time.sleep(0.05)
        yield (home / "http").read_text().strip(), process.pid
    finally:
        process.terminate()
        process.wait(30)


def token_of(home: Path) -> str:
    """The operator's token."""
    return (home / "token").read_text().strip()


def fill(client: Client, count: int) -> int:
    """Publish until the topic has so many events; how many it has."""
    if ALIAS not in client.aliases():
        client.create_topic(ALIAS, api.SettingsView(order="none"), alias=ALIAS)
    newest = client.log(ALIAS).newest
    for first in range(newest, count, BATCH):
        numbers = range(first, min(first + BATCH, count))
        events = [
            api.BatchEvent(
                payload=f"event {number} " + "x" * 100,
                key=f"k{number}",
                attributes={"price": number / 7, "n": number} if number % 2 else {},
            )
            for number in numbers
        ]
        results = client.publish_many(ALIAS, events, ack="accepted")
        assert all(each.id is not None for each in results), results
    return client.log(ALIAS).newest


# The job.


class Job:
    """A streaming query in a process of its own."""

    def __init__(
        self, home: Path, work: Path, master: str, environment: dict[str, str], batch: int
    ) -> None:
        self._work = work
        self._command = [sys.executable, "-m", "benchmarks.spark_source_job", master, str(home)]
        self._environment = environment
        self._batch = batch

    def run_killed(self, kills: int, rng: random.Random) -> dict[str, Any]:
        """Kill it inside batches, start it again each time, and let it end."""
        out = self._work / "killed"
        inside = [self._kill_inside_a_batch(out, rng) for _ in range(kills)]
        _, told = self.run("parquet", out)
        return {"kills": kills, "inside": inside, "rows_of_the_last_run": told["rows"]}

    def run(self, sink: str, out: Path | None = None) -> tuple[Usage, dict[str, Any]]:
        """Let it run to its end; what it took, and what it said."""
        log = self._work / f"{sink}.log"
        log.unlink(missing_ok=True)
        began_s = time.monotonic()
        process = self._start(sink, out or self._work / sink, log)
        used_s: dict[int, float] = {}
        while process.poll() is None:
            used_s.update(session_cpu_s(process.pid))
            if time.monotonic() - began_s > JOB_S_MAX:
                kill_session(process.pid)
            time.sleep(0.1)
        if process.returncode:
            raise RuntimeError(log.read_text()[-4000:])
        told = json.loads(log.read_text().strip().splitlines()[-1])
        return Usage(sum(used_s.values()), time.monotonic() - began_s, 0), told

    def _start(self, sink: str, out: Path, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                [*self._command, sink, str(out), str(self._batch)],
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **self._environment},
            )

    def _kill_inside_a_batch(self, out: Path, rng: random.Random) -> dict[str, Any]:
        """Wait until a batch is begun and not done, and a little longer; then kill everything."""
        committed = last(out / "checkpoint" / "commits")
        log = self._work / "killed.log"
        process = self._start("parquet", out, log)
        end_s = time.monotonic() + JOB_S_MAX
        # At least one batch further than the kill before, so that they are at different places.
        while True:
            assert process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < end_s
            begun, done = (last(out / "checkpoint" / name) for name in ("offsets", "commits"))
            if begun > done > committed or (begun > done and committed < 0 and begun > 0):
                break
            time.sleep(0.002)
        delay_s = rng.uniform(0.0, 1.0)
        time.sleep(delay_s)
        begun, done = (last(out / "checkpoint" / name) for name in ("offsets", "commits"))
        kill_session(process.pid)
        process.wait()
        return {"batch": begun, "was_open": begun > done, "after_s": round(delay_s, 2)}


def kill_session(session: int) -> None:
    """Kill a job with its JVM and all its Python processes, which have groups of their own."""
    for pid in session_cpu_s(session):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def last(folder: Path) -> int:
    """The highest number that a folder of a checkpoint has."""
    if not folder.exists():
        return -1
    return max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=-1)


def count(out: Path, events: int) -> dict[str, Any]:
    """What the table has, as Spark's own record of its files says."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    files: dict[str, None] = {}
    # The newest compacted record and what came after it.
    folder = out / "table" / "_spark_metadata"
    numbers = sorted(int(path.name.removesuffix(".compact")) for path in folder.glob("[0-9]*"))
    compacted = [number for number in numbers if (folder / f"{number}.compact").exists()]
    for number in numbers:
        if compacted and number < compacted[-1]:
            continue
        name = f"{number}.compact" if number in compacted else str(number)
        for line in (folder / name).read_text().splitlines()[1:]:
            files[json.loads(line)["path"].removeprefix("file://")] = None
    table = pq.ParquetFile(next(iter(files))).schema_arrow
    assert "offset" in table.names
    offsets = pq.read_table(list(files), columns=["offset", "event_id"])
    distinct = pc.count_distinct(offsets["offset"]).as_py()
    rows = offsets.num_rows
    on_disk = len(list((out / "table").glob("*.parquet")))
    return {
        "rows": rows,
        "distinct": distinct,
        "distinct_ids": pc.count_distinct(offsets["event_id"]).as_py(),
        "missing": events - distinct,
        "twice": rows - distinct,
        "files": len(files),
        "files_of_killed_tasks": on_disk - len(files),
    }


# What others notice.


class Probe:
    """Somebody who publishes to another topic and listens to it; from publishing to getting it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._found: list[float] = []
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Probe:
        if "probe" not in self._client.aliases():
            self._client.create_topic("probe", api.SettingsView(order="none"), alias="probe")
        self._events = self._client.subscribe("probe")
        self._threads = [
            threading.Thread(target=each, daemon=True) for each in (self._listen, self._publish)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads[1:]:
            thread.join(30)
        time.sleep(1)
        self._client.publish("probe", "end", ack="accepted")
        self._threads[0].join(30)
        self._events.close()

    def _publish(self) -> None:
        while not self._stop.wait(1 / PROBES_A_SECOND):
            self._client.publish("probe", repr(time.monotonic()), ack="accepted")

    def _listen(self) -> None:
        for event in self._events:
            if event.payload == "end":
                return
            self._found.append(1000 * (time.monotonic() - float(event.payload)))

    def latencies(self) -> dict[str, Any]:
        """In milliseconds."""
        found = sorted(self._found)
        return {
            "events": len(found),
            "p50": round(statistics.median(found), 1),
            "p99": round(found[int(0.99 * len(found))], 1),
            "max": round(found[-1], 1),
        }


if __name__ == "__main__":
    main()
