"""An archive of a real daemon's topics: kept current, each event once, and what it refuses."""

import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from pulsarcast.cli import main
from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.archive import ArchiveFolder, Archiving, compacting, verify
from pulsarcast.pipeline.folders import IncompatibleTablesError
from pulsarcast.storage.backup import backup, restore
from tests.pipeline.archive_jobs import (
    POINTS,
    archive_and_die,
    events_of,
    files_ascend,
    read_by_duckdb,
)
from tests.pipeline.topic_daemon import TopicDaemon, topic_daemon, wait_for
from tests.support.daemons import DaemonProcess


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicDaemon]:
    with topic_daemon(tmp_path_factory.mktemp("daemon")) as made:
        yield made


def archiving(spark: SparkSession, daemon: TopicDaemon, topic: str, out: Path, **more: Any) -> Any:
    place = {**daemon.place, "maxRecordsPerPartition": "400"}
    return Archiving(spark, topic, out, place, **more)


def ids_in(archive: Path) -> list[str]:
    return [event_id for (event_id,) in read_by_duckdb(archive, "event_id")]


def test_an_archive_goes_on_where_it_was_and_every_engine_reads_it(
    spark: SparkSession, daemon: TopicDaemon, tmp_path: Path
) -> None:
    topic = daemon.create()
    ids = daemon.fill(topic, 1000)
    made = archiving(spark, daemon, topic, tmp_path, batch_events=700).available_now()
    assert (made.batches, made.events) == (2, 1000)
    ids += daemon.fill(topic, 500, first=1001)
    made = archiving(spark, daemon, topic, tmp_path).available_now()
    assert (made.batches, made.events) == (1, 500)
    made = archiving(spark, daemon, topic, tmp_path).available_now()
    assert (made.batches, made.events) == (0, 0)

    assert ids_in(tmp_path) == ids
    assert files_ascend(ArchiveFolder(tmp_path))
    read = spark.read.parquet(str(events_of(tmp_path)))
    assert [row.event_id for row in read.orderBy("offset").collect()] == ids
    assert {row.topic for row in read.select("topic").distinct().collect()} == {topic}
    frame = pd.read_parquet(events_of(tmp_path))
    assert frame.sort_values("offset")["event_id"].tolist() == ids
    assert dict(read.dtypes) == ArchiveFolder(tmp_path).columns()

    found = verify(spark, tmp_path)
    assert (found.events, found.problems, found.remarks) == (1500, 0, [])


@pytest.mark.slow
def test_topics_below_come_along_and_small_files_are_merged_when_there_are_many(
    spark: SparkSession, daemon: TopicDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacting, "SMALL_FILES_MAX", 2)
    below = daemon.create()
    top = daemon.create(below={"below": below})
    counts = {top: 900, below: 300}
    expected = {topic: daemon.fill(topic, count) for topic, count in counts.items()}
    made = archiving(spark, daemon, top, tmp_path, below=True).available_now()
    assert (made.events, made.compactions) == (1200, 1)
    found: dict[str, list[str]] = {}
    for topic, event_id in read_by_duckdb(tmp_path, "topic, event_id"):
        found.setdefault(topic, []).append(event_id)
    assert found == expected
    assert len(ArchiveFolder(tmp_path).parts()) == 2
    assert files_ascend(ArchiveFolder(tmp_path))
    # And it goes on behind the merged files.
    daemon.fill(top, 10)
    assert archiving(spark, daemon, top, tmp_path, below=True).available_now().events == 10
    assert verify(spark, tmp_path).problems == 0


@pytest.mark.slow
def test_who_always_merges_does_not_wait_for_the_end(
    spark: SparkSession, daemon: TopicDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacting, "SMALL_FILES_MAX", 2)
    topic = daemon.create()
    daemon.fill(topic, 600)
    files: list[int] = []
    kept = archiving(spark, daemon, topic, tmp_path, batch_events=100, compacting=True)
    kept.on_batch = lambda archived, seconds: files.append(len(kept.folder.parts()))
    assert kept.available_now().batches == 6
    assert max(files) == 2
    assert len(kept.folder.parts()) == 1


@pytest.mark.slow
def test_it_follows_a_topic_until_it_is_told_to_stop(
    spark: SparkSession, daemon: TopicDaemon, tmp_path: Path
) -> None:
    topic = daemon.create()
    ids = daemon.fill(topic, 50)
    stop = threading.Event()
    kept = archiving(spark, daemon, topic, tmp_path, interval_s=0.2)
    thread = threading.Thread(target=kept.continuously, args=(stop,))
    thread.start()
    wait_for(lambda: kept.archived.events == 50, 120)
    ids += daemon.fill(topic, 50, first=51)
    wait_for(lambda: kept.archived.events == 100, 120)
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert ids_in(tmp_path) == ids


@pytest.mark.slow
def test_what_retention_took_is_an_error_or_is_noted(
    spark: SparkSession, daemon: TopicDaemon, tmp_path: Path
) -> None:
    topic = daemon.create()
    ids = daemon.fill(topic, 100)
    archiving(spark, daemon, topic, tmp_path).available_now()
    daemon.fill(topic, 50)
    daemon.flush(topic)
    later = daemon.fill(topic, 30)
    with pytest.raises(LocalError, match=r"50 events of topic .* are gone .* with --allow-loss"):
        archiving(spark, daemon, topic, tmp_path).available_now()
    assert ids_in(tmp_path) == ids
    made = archiving(spark, daemon, topic, tmp_path, allow_loss=True).available_now()
    assert (made.events, made.lost) == (30, 50)
    assert ids_in(tmp_path) == ids + later
    found = verify(spark, tmp_path)
    assert found.problems == 0
    assert any("50 events" in remark and "were gone before" in remark for remark in found.remarks)


@pytest.mark.slow
def test_another_log_never_gets_in(
    spark: SparkSession, daemon: TopicDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restored store counts on from an older state: the same offsets would be other events."""
    topic = daemon.create()
    daemon.fill(topic, 20)
    out = tmp_path / "archive"
    archiving(spark, daemon, topic, out).available_now()
    before = ids_in(out)
    backup(daemon.process.home, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    restored = DaemonProcess(tmp_path / "restored")
    restored.start()
    try:
        place = {"url": restored.url, "token": restored.token}
        for allow_loss in (False, True):
            with pytest.raises(IncompatibleTablesError, match="has another log of topic"):
                Archiving(spark, topic, out, place, allow_loss=allow_loss).available_now()
        # Nor if it becomes another one just then.
        monkeypatch.setattr(Archiving, "_check_logs", lambda _: None)
        with pytest.raises(IncompatibleTablesError, match="has another log of topic"):
            Archiving(spark, topic, out, place, allow_loss=True).available_now()
        with pytest.raises(LocalError, match="the offsets belong to another store"):
            Archiving(spark, topic, out, place).available_now()
    finally:
        restored.close()
    assert ids_in(out) == before
    more = daemon.fill(topic, 10)
    archiving(spark, daemon, topic, out).available_now()
    assert ids_in(out) == before + more


def test_files_that_are_gone_are_not_passed_over(
    spark: SparkSession, daemon: TopicDaemon, tmp_path: Path
) -> None:
    topic = daemon.create()
    daemon.fill(topic, 500)
    out = tmp_path / "archive"
    archiving(spark, daemon, topic, out).available_now()
    daemon.fill(topic, 10)
    first, last = (part.path for part in ArchiveFolder(out).parts())
    for path, words in ((first, "from offset 1 on and has them from 251"), (last, "up to 250")):
        path.rename(tmp_path / "aside")
        with pytest.raises(IncompatibleTablesError, match=words):
            archiving(spark, daemon, topic, out).available_now()
        (tmp_path / "aside").rename(path)
    shutil.move(out / "checkpoint", tmp_path / "checkpoint")
    with pytest.raises(IncompatibleTablesError, match="no checkpoint any more"):
        archiving(spark, daemon, topic, out).available_now()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_changes_nothing(
    point: str, spark: SparkSession, daemon: TopicDaemon, tmp_path: Path
) -> None:
    """Kill an archive in its first batch; then go on, with more to read."""
    archive = tmp_path
    topic = daemon.create()
    ids = daemon.fill(topic, 3000)
    archive_and_die(point, topic, archive, daemon.place)
    seen = ids_in(archive) if ArchiveFolder(archive).parts() else []
    assert seen == ids[: len(seen)], "whoever reads meanwhile sees the log up to some event"
    ids += daemon.fill(topic, 200, first=3001)
    archiving(spark, daemon, topic, archive).available_now()
    assert ids_in(archive) == ids
    assert files_ascend(ArchiveFolder(archive))
    read = spark.read.parquet(str(events_of(archive)))
    assert [row.event_id for row in read.orderBy("offset").collect()] == ids
    assert not list((archive / ".staging").iterdir())
    assert verify(spark, archive).problems == 0


# The command


@pytest.fixture
def _shared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command makes a session of its own and ends it; here it gets that of all tests."""

    @contextmanager
    def shared_session(name: str, **_: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("pulsarcast.pipeline.session.session", shared_session)


def command(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["pipeline", "archive", *map(str, words)])


@pytest.mark.usefixtures("_shared")
def test_the_command_says_what_it_did_and_never_the_token(
    daemon: TopicDaemon, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = daemon.create()
    daemon.fill(topic, 20)
    out = tmp_path / "archive"
    made = command(topic, "--home", daemon.process.home, "--out", out, "--verify", "--compact")
    assert made.exit_code == 0, made.output
    assert f"{out}: 20 new events in 1 batches" in made.stdout
    assert "20 events of 1 topic: all is as it was signed" in made.stdout

    token = str(daemon.client.create_token("reader", ["read"], topics=[topic]).token)
    place = ("--url", daemon.process.url, "--token", token)
    assert command(topic, *place, "--out", out).exit_code == 0
    other = daemon.create()
    refused = command(other, *place, "--out", tmp_path / "other")
    assert refused.exit_code == 4
    told = "".join((made.output, refused.output, *capfd.readouterr()))
    assert token not in told
    assert daemon.process.token not in told
    assert not any(token in path.read_text("latin-1") for path in out.rglob("*") if path.is_file())


@pytest.mark.usefixtures("_shared")
def test_the_command_ends_with_the_codes_of_all_commands(
    daemon: TopicDaemon, tmp_path: Path
) -> None:
    place = ("--url", daemon.process.url, "--token", daemon.process.token)
    unknown = command("nothing", *place, "--out", tmp_path / "out")
    assert unknown.exit_code == 5, unknown.output
    assert unknown.stderr.count("\n") == 1
    nowhere = command("nothing", "--url", "http://127.0.0.1:9", "--out", tmp_path / "out")
    assert nowhere.exit_code == 3
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
