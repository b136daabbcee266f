"""Folders of tables: what they say and show outlives a power cut."""

from pathlib import Path

import pytest

from pulsarcast.pipeline import folders
from pulsarcast.pipeline.archive.layout import ArchiveFolder


def test_notes_are_on_the_disk_before_they_take_the_place_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = ArchiveFolder(tmp_path / "archive")
    with layout.writing():
        before = layout.notes()
    synced: list[tuple[str, bool]] = []
    sync = folders.sync

    def watched(path: Path) -> None:
        sync(path)
        synced.append((path.name, layout.notes() == before))

    monkeypatch.setattr(folders, "sync", watched)
    layout.write_notes({**before, "more": 1})
    assert synced == [(".format.json.new", True), ("archive", False)]


def test_a_generation_is_on_the_disk_before_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = ArchiveFolder(tmp_path / "archive")
    with layout.writing():
        shown = layout.table("events")
    synced: dict[Path, bool] = {}
    sync = folders.sync

    def watched(path: Path) -> None:
        sync(path)
        synced.setdefault(path, layout.table("events") == shown)

    monkeypatch.setattr(folders, "sync", watched)
    with layout.next_generation() as new:
        place = new / "events" / "topic=news"
        place.mkdir()
        (place / "some.parquet").write_bytes(b"rows")
    # A file goes before the folder that names it, and both before the pointer to all of it.
    in_order = [place / "some.parquet", place, new / "events", new, new.parent, layout.folder]
    assert list(synced.items()) == [(path, path != layout.folder) for path in in_order]
