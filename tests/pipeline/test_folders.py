"""Folders of tables: what they say about themselves outlives a power cut."""

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
