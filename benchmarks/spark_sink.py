"""A job that publishes through Spark's sink, killed and run again: how fast, and each row once?

    python -m benchmarks.spark_sink [--rows 100000] [--master spark://...]

One daemon, alone. A job is killed with SIGKILL, all its processes at once, when half of its rows
are published. It is run again with the rows in other partitions and with speculation, and one of
its tasks is so slow that Spark runs it a second time beside the first. Two rows say the same under
different keys. Then the whole log is read and held against the keys. Prints one line of JSON.

Without a master it starts a cluster of two hosts on loopback: Spark speculates neither on a local
master nor on one host. CPU is that of all processes below this one, the cluster's own daemons not
counted; of another master's executors it knows nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks.daemon_readers import cpu_of
from benchmarks.prometheus_ten import DAEMON
from pulsarcast.client import Client
from pulsarcast.model.api import SettingsView
from tests.pipeline.cluster import Cluster
from tests.pipeline.sink_jobs import (
    Job,
    cluster_of_two_hosts,
    expected,
    kill,
    processes_below,
    published,
    speculated,
    wait_for,
)

SAMPLE_S = 0.2
PARTITIONS, PARTITIONS_AGAIN = 8, 12


def main() -> None:
    """Measure once, and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--master", help="a cluster that runs already, or local[2]")
    parser.add_argument("--slow-s", type=float, default=2.0, help="for each 500 rows of one task")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cluster").mkdir()
        own = nullcontext() if given.master else cluster_of_two_hosts(folder / "cluster")
        with own as cluster, daemon(folder / "home") as pid:
            print(json.dumps(measure(given, folder, cluster, pid)))


def measure(
    given: argparse.Namespace, folder: Path, cluster: Cluster | None, daemon_pid: int
) -> dict[str, Any]:
    """One job killed, and run again."""
    url, token = ((folder / "home" / name).read_text().strip() for name in ("http", "token"))
    for name in ("first", "again"):
        (folder / name).mkdir()
    environment = None if cluster is None else cluster.environment
    with Client(url, token) as client, Meter() as meter:
        job = Job(
            url=url,
            token=token,
            topic=client.create_topic("jobs", SettingsView(order="none")).id,
            rows=given.rows,
            partitions=PARTITIONS,
            seed=1,
            events=str(folder / "first"),
            log=str(folder / "log"),
            master=given.master or (cluster.master if cluster else ""),
        )
        begun_cpu_s = cpu_of(daemon_pid)
        process = job.start(environment)
        begun = wait_for(client, job, 1, process)
        begun_s = time.monotonic()
        half = wait_for(client, job, given.rows // 2, process)
        first_s = time.monotonic() - begun_s
        kill(process, cluster)
        first_cpu_s, killed_cpu_s = meter.take(), cpu_of(daemon_pid)
        time.sleep(2)  # What the daemon had read already, it publishes.
        before = client.log(job.topic).newest
        again = dataclasses.replace(
            job,
            partitions=PARTITIONS_AGAIN,
            seed=2,
            events=str(folder / "again"),
            slow_s=given.slow_s,
        )
        process = again.start(environment)
        if process.wait() != 0:
            raise SystemExit(Path(job.log).read_text())
        again_s = json.loads(Path(job.log).read_text().splitlines()[-1])["write_s"]
        again_cpu_s, ended_cpu_s = meter.take(), cpu_of(daemon_pid)
        found, wanted = published(client, job.topic), expected(given.rows)
    counts = Counter(nonce for nonce, _ in found)
    started, ended = speculated(folder / "again")
    return {
        "rows": given.rows,
        "master": given.master or "cluster of two hosts",
        "killed_at": before,
        "first_rows_per_s": round((half - begun) / first_s),
        "again_rows_per_s": round(given.rows / again_s),
        "again_s": again_s,
        "second_attempts": started,
        "attempts_ended": ended,
        "events": len(found),
        "duplicates": len(found) - len(counts),
        "missing": len({nonce for nonce, _ in wanted} - set(counts)),
        "as_expected": found == wanted,
        "job_cpu_s": [round(first_cpu_s, 1), round(again_cpu_s, 1)],
        "daemon_cpu_s": [
            round(killed_cpu_s - begun_cpu_s, 1),
            round(ended_cpu_s - killed_cpu_s, 1),
        ],
    }


@contextmanager
def daemon(home: Path) -> Iterator[int]:
    """A daemon; its process id."""
    process = subprocess.Popen([sys.executable, "-c", DAEMON, str(home)])
    try:
        while not (home / "http").exists():
            assert process.poll() is None, "the daemon did not start"
            time.sleep(0.05)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


class Meter:
    """CPU of all processes that were started below this one since the meter was, also of the dead.

    What a process used in its last moments, after it was last looked at, is not known.
    """

    def __init__(self) -> None:
        self._older = set(processes_below(os.getpid()))
        self._used_s: dict[int, float] = {}
        self._taken_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Meter:
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def take(self) -> float:
        """What was used since the last time, in seconds."""
        whole_s = sum(list(self._used_s.values()))
        used_s, self._taken_s = whole_s - self._taken_s, whole_s
        return used_s

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_S):
            for pid, cpu_s in processes_below(os.getpid()).items():
                if pid not in self._older:
                    self._used_s[pid] = cpu_s


if __name__ == "__main__":
    main()
