"""Jobs that publish through Spark's sink, as processes that can be killed in the middle.

Run as a script with a job in JSON; says at its end how long it wrote. Every row has a key of its
own; the first two say the same. A cluster here has two hosts, because Spark runs a second attempt
of a slow task on another host only.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import libipld
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsarcast.client import Client
from pulsarcast.model.cbor import plain
from pulsarcast.pipeline.session import LITTLE, session
from pulsarcast.pipeline.topics.publications import Nonces
from pulsarcast.pipeline.topics.source import TopicSource
from pulsarcast.protocol.commands.publications import nonce_of
from tests.pipeline.cluster import Cluster, _daemon, _wait_for, running_cluster

ROOT = Path(__file__).parents[2]
SINK = "jobs"
OTHER_HOST = "127.0.0.2"
BATCH_ROWS = 500
"""Rows that a task gets at a time."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to publish, and how."""

    url: str
    token: str
    topic: str
    rows: int
    partitions: int
    seed: int
    """By which rows come into partitions."""
    events: str
    """A folder for Spark's event log."""
    log: str
    """A file for what it says."""
    master: str = "local[2]"
    slow_s: float = 0.0
    """How long the first attempt of the first task dawdles, so that Spark starts another one."""
    stream: str = ""
    """A folder for a stream's input and checkpoint, where it is to be one."""
    log_level: str = "ERROR"

    def start(self, environment: dict[str, str] | None = None) -> "subprocess.Popen[bytes]":
        """Run it as a process, in a session of its own, so that all of it can be killed."""
        words = ["-m", "tests.pipeline.sink_jobs", json.dumps(dataclasses.asdict(self))]
        with Path(self.log).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def rows_of(spark: SparkSession, job: Job) -> DataFrame:
    """The rows, shuffled."""
    says = F.concat(F.lit("event "), F.greatest(F.col("id"), F.lit(1)))
    return (
        spark.range(0, job.rows, 1, 4)
        .select(F.concat(F.lit("key "), "id").alias("idempotencyKey"), says.alias("payload"))
        .repartition(job.partitions, F.rand(job.seed))
    )


def dawdling(slow_s: float) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Let the first attempt of the first task take its time over each batch of rows."""

    def dawdle(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        is_slow = context.partitionId() == 0 and context.attemptNumber() == 0
        for batch in batches:
            if is_slow:
                time.sleep(slow_s)
            yield batch

    return dawdle


def write(spark: SparkSession, job: Job) -> None:
    """Publish the rows of a table, or of a stream of files."""
    options = {"url": job.url, "token": job.token, "topic": job.topic, "sinkName": SINK}
    table = rows_of(spark, job)
    if job.slow_s:
        table = table.mapInArrow(dawdling(job.slow_s), table.schema)
    if not job.stream:
        table.write.format("pulsarcast").options(**options).mode("append").save()
        return
    files = Path(job.stream, "files")
    if not files.exists():
        table.write.parquet(str(files))
    query = (
        spark.readStream.schema(table.schema)
        .option("maxFilesPerTrigger", 2)
        .parquet(str(files))
        .writeStream.format("pulsarcast")
        .options(**options)
        .option("checkpointLocation", str(Path(job.stream, "checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(text: str) -> None:
    job = Job(**json.loads(text))
    settings = {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": job.events,
        "spark.log.level": job.log_level,
        **(SPECULATION if job.slow_s else {}),
        **(LITTLE if job.master.startswith("local") else {}),
    }
    with session("sink", master=job.master, settings=settings) as spark:
        spark.dataSource.register(TopicSource)
        begun_s = time.monotonic()
        write(spark, job)
        click.echo(json.dumps({"write_s": round(time.monotonic() - begun_s, 2)}))


# Whoever starts jobs.


def kill(process: "subprocess.Popen[bytes]", cluster: Cluster | None = None) -> None:
    """End a job with all its processes at once, as of a power cut; on a cluster its executors, too.

    Spark's Python workers have a group of their own, so a signal to the job's would miss them.
    """
    roots = [process.pid, *(cluster.executors() if cluster is not None else ())]
    for pid in [*roots, *processes_below(*roots)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def processes_below(*roots: int) -> dict[int, float]:
    """Every process below some, and what CPU seconds it has used by itself."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    parents: dict[int, int] = {}
    used_s: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            used_s[int(folder.name)] = (int(fields[11]) + int(fields[12])) * tick_s

    def is_below(pid: int) -> bool:
        while (pid := parents.get(pid, 0)) > 0:
            if pid in roots:
                return True
        return False

    return {pid: used_s[pid] for pid in parents if is_below(pid)}


def wait_for(client: Client, job: Job, count: int, process: "subprocess.Popen[bytes]") -> int:
    """Wait until a job has published so many events; how many there are."""
    while (newest := client.log(job.topic).newest) < count:
        assert process.poll() is None, Path(job.log).read_text()
        time.sleep(0.02)
    return newest


def published(client: Client, topic: str) -> list[tuple[bytes, bytes]]:
    """Nonce and payload of each event in the node's own log, sorted."""
    log = client.log(topic)
    found: list[tuple[bytes, bytes]] = []
    for page in client.log_pages(topic, log.log, log.oldest, log.newest + 1):
        for block in page.blocks():
            request: Any = libipld.decode_dag_cbor(block)["r"]
            found.append((plain(request["n"]), plain(request["b"])))
    return sorted(found)


def expected(rows: int) -> list[tuple[bytes, bytes]]:
    """What there has to be once a job's rows are published: one event for each key, sorted."""
    nonces = Nonces(SINK)
    return sorted(
        (nonce_of(nonces.of(b"key %d" % row).encode()), b"event %d" % max(row, 1))
        for row in range(rows)
    )


def speculated(events: Path) -> tuple[int, int]:
    """How many tasks Spark started a second attempt of, and how many attempts were ended for it."""
    started = killed = 0
    for log in events.iterdir():
        for line in log.read_text().splitlines():
            if line.startswith('{"Event":"SparkListenerTaskStart"'):
                started += json.loads(line)["Task Info"]["Speculative"]
            elif line.startswith('{"Event":"SparkListenerTaskEnd"'):
                killed += json.loads(line)["Task Info"]["Killed"]
    return started, killed


@contextmanager
def cluster_of_two_hosts(folder: Path) -> Iterator[Cluster]:
    """A cluster with a worker more, which has another address."""
    with running_cluster(folder) as cluster:
        log = folder / "worker-other.log"
        size = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work-other")]
        place = ["--host", OTHER_HOST, "--webui-port", "0"]
        command = ["org.apache.spark.deploy.worker.Worker", cluster.master, *place, *size]
        with _daemon(command, {**cluster.environment, "SPARK_LOCAL_IP": OTHER_HOST}, log) as worker:
            _wait_for(log, "Successfully registered with master")
            cluster.workers.append(worker)
            yield cluster


if __name__ == "__main__":
    main(*sys.argv[1:])
