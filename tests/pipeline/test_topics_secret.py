"""A token that was given as an option shows nowhere: not in plans, logs, checkpoints, errors.

Spark hides options whose names look secret; the rest is ours. Everything that a session leaves is
searched here, with its logging turned up and tracebacks that print local variables.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.topic_daemon import topic_daemon

WRONG = "wrong-5ecret-that-opens-nothing"

PROGRAM = """
import json, sys
from pathlib import Path
from pulsarcast.pipeline.session import LITTLE, session

given = json.loads(sys.stdin.read())
folder, place, wrong = Path(given["folder"]), given["place"], given["wrong"]
settings = {
    **LITTLE,
    "spark.log.level": "INFO",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": folder.as_uri(),
    "spark.eventLog.compress": "false",
    "spark.ui.enabled": "false",
    "spark.local.dir": str(folder / "local"),
    "spark.sql.warehouse.dir": str(folder / "warehouse"),
}

def failing(what, call):
    try:
        call()
    except Exception as error:
        print("FAILED", what, repr(error), str(error))
    else:
        print("DID NOT FAIL", what)

with session("secret", master="local[1]", settings=settings) as spark:
    frame = spark.read.format("pulsarcast").options(**place).load()
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        frame.where("offset > 0").explain(mode)
    print(frame, frame.schema, frame._jdf.queryExecution().toString())
    print("ROWS", frame.count())
    frame.createOrReplaceTempView("topic")
    spark.sql("SELECT name FROM topic LIMIT 1").show()

    stream = spark.readStream.format("pulsarcast").options(**place, startingOffsets="earliest")
    query = (
        stream.load().writeStream.format("parquet").queryName("secret")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    query.explain(True)
    print(query, query.status, query.lastProgress, query.recentProgress)
    query.stop()

    other = {**place, "token": wrong}
    read = spark.read.format("pulsarcast").options(**other)
    failing("batch", lambda: read.load().collect())
    bad_stream = spark.readStream.format("pulsarcast").options(**other).load()
    def run():
        bad = bad_stream.writeStream.format("noop").start()
        try:
            bad.awaitTermination()
        finally:
            print(bad.exception())
    failing("stream", run)
    misspelled = spark.read.format("pulsarcast").options(**place, strtingOffsets="earliest")
    failing("option", misspelled.load)
    narrow = spark.read.format("pulsarcast").options(**place).schema("a int")
    failing("schema", lambda: narrow.load().collect())
    spaced = spark.read.format("pulsarcast").options(**{**place, "token": wrong + " x"})
    failing("token", lambda: spaced.load().collect())
    away = spark.read.format("pulsarcast").options(**{**place, "url": "http://127.0.0.1:1"})
    failing("away", lambda: away.load().collect())
"""


@pytest.mark.slow
def test_a_token_shows_nowhere(tmp_path: Path) -> None:
    folder = tmp_path / "spark"
    (folder / "local").mkdir(parents=True)
    with topic_daemon(tmp_path) as daemon:
        topic = daemon.create()
        daemon.fill(topic, 20)
        place = {**daemon.place, "topics": topic}
        given = {"folder": str(folder), "place": place, "wrong": WRONG}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, "SPARK_TRACEBACK_WITH_LOCALS": "1"},
        )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-4000:]
    assert "ROWS 20" in said
    for what in ("batch", "stream", "option", "schema", "token", "away"):
        assert f"\nFAILED {what} " in said, said[-4000:]
    events = [path for path in folder.iterdir() if path.name.startswith(("local-", "eventlog"))]
    assert events, "there is no event log"
    offsets = (folder / "checkpoint" / "offsets" / "0").read_text()
    assert topic in offsets
    places = {"what was said": said.encode()}
    for path in folder.rglob("*"):
        if path.is_file():
            places[str(path.relative_to(folder))] = path.read_bytes()
    assert any("checkpoint" in name for name in places)
    for secret in (place["token"], WRONG):
        found = [name for name, data in places.items() if secret.encode() in data]
        assert found == []
