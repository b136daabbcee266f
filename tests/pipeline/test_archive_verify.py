"""Verification on Spark: nothing is found in a good archive, and what was done to others is."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from pulsarcast.cli import main
from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import cid_text
from pulsarcast.pipeline.archive import ArchiveFolder, Verification, compact, verify
from pulsarcast.pipeline.archive.layout import EVENTS, Part
from pulsarcast.pipeline.archive.verifying import _Verifying
from pulsarcast.pipeline.folders import link_tree
from tests.pipeline.archive_jobs import (
    TOPIC,
    files_ascend,
    make_archive,
    make_events,
    read_by_duckdb,
    table_of,
    tamper,
    write_file,
)

COUNT = 500
MADE = make_events(COUNT)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive") / "good"
    make_archive(folder, MADE, file_rows=200, group_rows=100)
    return folder


@pytest.fixture
def archive(good: Path, tmp_path: Path) -> ArchiveFolder:
    """A copy to be tampered with."""
    shutil.copytree(good, tmp_path / "archive", symlinks=True)
    return ArchiveFolder(tmp_path / "archive")


@pytest.fixture(autouse=True)
def _shared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command makes a session of its own and ends it; here it gets that of all tests."""

    @contextmanager
    def shared_session(name: str, **_: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("pulsarcast.pipeline.session.session", shared_session)


def command(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["pipeline", "archive", *map(str, words)])


def reasons(found: Verification) -> dict[int | None, str]:
    return {each.offset: each.reason for each in found.findings}


def test_nothing_is_found_in_a_good_archive(spark: SparkSession, good: Path) -> None:
    found = verify(spark, good)
    assert (found.problems, found.findings, found.remarks) == (0, [], [])
    assert (found.events, found.topics, found.files) == (COUNT, 1, 3)
    assert found.events_per_s > 0
    assert found.cpu_s > 0


def test_exactly_what_was_changed_is_found_and_named(
    spark: SparkSession, archive: ArchiveFolder
) -> None:
    one, other, last = archive.parts()

    def change(rows: list[dict[str, Any]]) -> None:
        rows[10]["payload"] = b"another"
        rows[20]["block"] = bytes([*rows[20]["block"][:-1], rows[20]["block"][-1] ^ 1])
        rows[30]["author"] = rows[31]["publisher"] + "x"
        rows[40], rows[60] = rows[60], rows[40]
        rows[150]["topic_name"] = "another"

    def remove(rows: list[dict[str, Any]]) -> None:
        del rows[50]  # offset 251
        rows.insert(120, rows[119])  # offset 321
        rows.insert(121, rows[119])
        del rows[0]  # offset 201

    tamper(one.path, change)
    tamper(other.path, remove)
    found = verify(spark, archive.folder)
    assert reasons(found).keys() == {11, 21, 31, 41, 61, 151, 201, 251, 321}
    assert found.problems == 10  # One of them is there three times.
    by_offset = {each.offset: each for each in found.findings}
    assert by_offset[11].event_id == cid_text(MADE[10].cid)
    assert by_offset[11].file == f"events/topic={cid_text(TOPIC)}/{one.path.name}"
    assert by_offset[251].reason == "offset 251: missing"
    assert by_offset[321].reason == "offset 321 is there twice"
    assert last.path.name not in {Path(each.file).name for each in found.findings}

    shown = command("--out", archive.folder, "--verify", "--limit", "2")
    assert shown.exit_code == 1
    assert "10 problems" in shown.stdout
    assert "payload is not what the block says" in shown.stdout
    assert "and 8 more" in shown.stdout
    told = json.loads(command("--out", archive.folder, "--verify", "--json").stdout)["verified"]
    assert (told["problems"], len(told["findings"])) == (10, 10)


def test_rows_taken_away_are_found_wherever_they_were(
    spark: SparkSession, archive: ArchiveFolder
) -> None:
    first, middle, last = archive.parts()
    first.path.unlink()
    tamper(last.path, lambda rows: rows.__delitem__(-1))
    assert reasons(verify(spark, archive.folder)) == {
        1: "offsets 1 to 200: missing",
        500: "offset 500: missing",
    }
    last.path.unlink()
    middle.path.unlink()
    assert reasons(verify(spark, archive.folder)) == {1: "offsets 1 to 500: missing"}


def test_an_event_that_is_there_again_at_the_end_is_found(
    spark: SparkSession, archive: ArchiveFolder
) -> None:
    """With an offset of its own, so that no gap and no order tells it."""
    again = archive.parts()[-1].path.with_name(f"{501:015}-{501:015}.parquet")
    write_file(again, table_of([MADE[77]], first=501))
    found = verify(spark, archive.folder)
    assert list(reasons(found)) == [501]
    assert "there twice" in reasons(found)[501]


def test_a_log_counted_anew_behind_a_removed_event_is_worth_a_remark(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_archive(tmp_path, MADE[:50] + MADE[51:100], file_rows=60, group_rows=30)
    found = verify(spark, tmp_path)
    assert found.problems == 0
    assert "lack 1 events" in found.remarks[0]


def spoil_footer(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def spoil_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("spoil", [spoil_footer, spoil_page])
def test_a_file_that_cannot_be_read_is_named(
    spoil: Callable[[Path], None], spark: SparkSession, archive: ArchiveFolder
) -> None:
    path = archive.parts()[1].path
    spoil(path)
    found = verify(spark, archive.folder)
    assert found.problems == len(found.findings) == 1
    assert found.findings[0].file.endswith(path.name)
    assert "cannot be read" in found.findings[0].reason


def test_what_does_not_belong_there_is_found(spark: SparkSession, archive: ArchiveFolder) -> None:
    """An engine would read it."""
    events = archive.parts()[0].path.parent
    shutil.copy(archive.parts()[0].path, events / "more.parquet")
    (events.parent / "topic=mine").mkdir()
    shutil.copy(archive.parts()[0].path, events.parent / "topic=mine")
    found = verify(spark, archive.folder)
    assert [each.reason for each in found.findings] == [
        "it is no file of an archive",
        "its folder does not name a topic",
    ]


def test_compaction_changes_no_row(spark: SparkSession, tmp_path: Path) -> None:
    archive = make_archive(tmp_path, MADE, file_rows=20, group_rows=20)
    before = read_by_duckdb(tmp_path, "*")
    largest = max(part.path.stat().st_size for part in archive.parts())
    made = compact(spark, tmp_path, file_bytes=4 * largest)
    assert made.files_before == 25
    assert made.files_after == len(archive.parts()) < 10
    assert files_ascend(archive)
    assert read_by_duckdb(tmp_path, "*") == before
    assert verify(spark, tmp_path).problems == 0
    assert compact(spark, tmp_path, file_bytes=largest).files_before == made.files_after


def test_a_compaction_that_is_cut_short_is_made_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = make_archive(tmp_path, MADE[:100], file_rows=20, group_rows=20)
    before = read_by_duckdb(tmp_path, "*")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ArchiveFolder, "_switch", die)
        # Not even what would be cleared away by who can.
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            compact(spark, tmp_path)
    assert read_by_duckdb(tmp_path, "*") == before
    assert len(list((tmp_path / ".generations").iterdir())) == 2
    assert compact(spark, tmp_path).files_after == len(archive.parts()) == 1
    assert read_by_duckdb(tmp_path, "*") == before


def test_the_command_says_what_it_lacks(tmp_path: Path) -> None:
    assert "name a TOPIC" in command("--out", tmp_path / "none").stderr
    refused = command("--out", tmp_path / "none", "--verify")
    assert refused.exit_code == 1
    assert "is no archive: make one with pipeline archive" in refused.stderr


# While it is written


def test_files_that_come_meanwhile_are_no_strangers(spark: SparkSession, tmp_path: Path) -> None:
    made = make_events(60)
    archive = make_archive(tmp_path, made[:40], file_rows=20, group_rows=20)
    verifying = _Verifying(spark, archive, 100)
    with archive.writing(), archive.staging() as staged:
        write_file(staged / "new.parquet", table_of(made[40:], first=41))
        archive.publish([Part(cid_text(TOPIC), 41, 60, staged / "new.parquet")])
    found = verifying.run()
    assert (found.events, found.problems) == (40, 0)


def test_files_that_were_merged_away_meanwhile_are_not_called_damaged(
    spark: SparkSession, tmp_path: Path
) -> None:
    archive = make_archive(tmp_path, make_events(40), file_rows=10, group_rows=10)
    verifying = _Verifying(spark, archive, 100)
    with archive.writing():
        for _ in range(2):
            with archive.next_generation() as new:
                link_tree(archive.folder / EVENTS, new / EVENTS, f"topic={cid_text(TOPIC)}")
    with pytest.raises(LocalError, match="verify it again"):
        verifying.run()
    assert verify(spark, tmp_path).problems == 0
