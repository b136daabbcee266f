"""An ingest folder: where its tables stand, who may write, and how a change becomes visible.

    OUT/lines/batch=…/run_id=…/kind=…/*.parquet      the table of lines
    OUT/quarantine/batch=…/*.parquet                 what is no line
    OUT/segments/batch=…/*.parquet                   the index: which segment holds what
    OUT/checkpoint/                                  Spark's own notes on what it has read
    OUT/.format.json  .lock  .staging/  .generations/

**A batch** is written aside, below `.staging`, and becomes visible by one rename per table:
quarantine, lines, and last the index, which is the record that the batch is there. Whoever lists
`lines` sees all of a batch or nothing of it, whatever engine it is: there is no list of valid files
that one engine obeys and another does not know of. A crash between the renames leaves whole, true
rows of a batch that is not on record; it is done again and replaces exactly its own folders, by
their name. Only the last batch can be in that state. In the moment of replacing, the batch is gone
as a whole.

**A rebuild or a compaction** changes many batches at once. So the three tables stand in one
generation, and `OUT/lines` is a link through `OUT/.current` to it: a new generation is made of
links to the files that stay and of new files, and one rename of `.current` shows it. The generation
before stays until the next one is made, for those who are reading it.

**Numbers of batches**: those of the stream are Spark's own, from 0, so that Spark's replay of a
batch meets its folder. All others (batch runs, rebuilt runs, compacted ones) are counted from
`OWN_BATCHES`; the two never meet.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline import schema
from pulsarcast.pipeline.traces.writing import SEGMENTS

FORMAT: Final = 1
TABLES: Final = ("quarantine", "lines", "segments")
"""In the order in which a batch's parts become visible: the record that it is there comes last."""
OWN_BATCHES: Final = 500_000_000_000

_FORMAT_FILE: Final = ".format.json"
_CURRENT: Final = ".current"
_GENERATIONS: Final = ".generations"
_STAGING: Final = ".staging"
_LOCK: Final = ".lock"


class IncompatibleTablesError(LocalError):
    """The folder was written by what is not compatible with us, or from something else."""


class Layout:
    """The paths of one ingest folder."""

    def __init__(self, folder: str | Path) -> None:
        if "://" in str(folder):
            raise LocalError(f"{folder}: tables need a folder that all executors can write to")
        self.folder = Path(folder).absolute()
        self.checkpoint = self.folder / "checkpoint"

    def table(self, name: str) -> Path:
        """Where a table stands at present; a later generation stands elsewhere."""
        return (self.folder / name).resolve()

    @property
    def exists(self) -> bool:
        """Whether this is an ingest folder."""
        return (self.folder / _FORMAT_FILE).is_file()

    # Making and checking

    def create(self) -> None:
        """Make the folder, unless it is there."""
        if self.exists:
            self.check()
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        foreign = [entry.name for entry in self.folder.iterdir() if not self._is_ours(entry)]
        if foreign:
            raise LocalError(f"{self.folder} holds other things ({foreign[0]}): choose another")
        self._switch(self._make_generation(1))
        for table in TABLES:
            link = self.folder / table
            if not link.is_symlink():
                link.symlink_to(Path(_CURRENT) / table)
        self._write_notes({"format": FORMAT, "columns": _columns(), "traces": [], "compacted": -1})

    def check(self) -> None:
        """Raise where the folder was written by what does not fit this version."""
        if not self.exists:
            raise LocalError(f"{self.folder} is no folder of tables: make one with pipeline ingest")
        notes = self.notes()
        advice = "land the traces into another folder, or remove this one first"
        if notes.get("format") != FORMAT:
            raise IncompatibleTablesError(
                f"{self.folder} has format {notes.get('format')}, this version writes "
                f"{FORMAT}: {advice}"
            )
        then, now = notes["columns"], _columns()
        changes = [f"{name} is new" for name in now if name not in then]
        changes += [f"{name} is gone" for name in then if name not in now]
        changes += [
            f"{name} was {then[name]} and is {now[name]}"
            for name in now
            if name in then and then[name] != now[name]
        ]
        if changes:
            raise IncompatibleTablesError(
                f"{self.folder} has other columns ({'; '.join(changes)}): {advice}"
            )

    def notes(self) -> dict[str, Any]:
        """What the folder says about itself."""
        notes: dict[str, Any] = json.loads((self.folder / _FORMAT_FILE).read_text())
        return notes

    def note_traces(self, traces: Sequence[Path]) -> None:
        """Remember where the stream reads from; to leave a folder out would leave it half read."""
        notes = self.notes()
        left_out = [trace for trace in notes["traces"] if Path(trace) not in traces]
        if left_out:
            raise IncompatibleTablesError(
                f"{self.folder} also reads from {', '.join(left_out)}: name it too, or choose "
                "another folder for the tables"
            )
        self._write_notes(notes | {"traces": [str(trace) for trace in traces]})

    def note_compacted(self, batch: int) -> None:
        """Remember up to which of the stream's batches none has a folder of its own any more."""
        self._write_notes(self.notes() | {"compacted": batch})

    def _write_notes(self, notes: dict[str, Any]) -> None:
        new = self.folder / f"{_FORMAT_FILE}.new"
        new.write_text(json.dumps(notes, indent=2) + "\n")
        new.rename(self.folder / _FORMAT_FILE)

    def _is_ours(self, entry: Path) -> bool:
        hidden = {_CURRENT, _GENERATIONS, _STAGING, _LOCK, f"{_FORMAT_FILE}.new"}
        return entry.name in hidden or (entry.name in TABLES and entry.is_symlink())

    # Writing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer; what an earlier one left half done is cleared away."""
        self.create()
        with (self.folder / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LocalError(f"another ingest is writing to {self.folder}") from None
            shutil.rmtree(self.folder / _STAGING, ignore_errors=True)
            self._drop_unfinished()
            yield

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A folder of our own, gone at the end, on the file system of the tables."""
        folder = self.folder / _STAGING / uuid.uuid4().hex
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def publish(self, batch: int, staged: Path) -> None:
        """Make a batch visible, instead of what may be there under its number."""
        name = batch_folder(batch)
        replaced = staged / "replaced"
        replaced.mkdir()
        record = self.table(TABLES[-1]) / name
        if record.exists():
            record.rename(replaced / TABLES[-1])
        for table in TABLES:
            target = self.table(table) / name
            if target.exists():
                target.rename(replaced / table)
            if (staged / table).exists():
                (staged / table).rename(target)

    def batches(self) -> list[int]:
        """The batches on record, in order."""
        folders = self.table(TABLES[-1]).glob("batch=*")
        return sorted(int(folder.name.partition("=")[2]) for folder in folders)

    def next_own_batch(self) -> int:
        """The number of a batch that is not the stream's."""
        return max(OWN_BATCHES - 1, *self.batches(), 0) + 1

    def _drop_unfinished(self) -> None:
        """Clear away what a crash left: batches not on record, a generation not yet shown.

        Both will be done again.
        """
        recorded = {batch_folder(batch) for batch in self.batches()}
        for table in TABLES[:-1]:
            for folder in self.table(table).glob("batch=*"):
                if folder.name not in recorded:
                    with self.staging() as aside:
                        folder.rename(aside / folder.name)
        current = (self.folder / _CURRENT).resolve()
        for generation in self._generations():
            if generation.name > current.name:
                shutil.rmtree(generation)

    # Generations

    def _generations(self) -> list[Path]:
        return sorted((self.folder / _GENERATIONS).glob("[0-9]*"))

    def _make_generation(self, number: int) -> Path:
        folder = self.folder / _GENERATIONS / f"{number:06}"
        for table in TABLES:
            (folder / table).mkdir(parents=True, exist_ok=True)
        return folder

    def _switch(self, generation: Path) -> None:
        new = self.folder / f"{_CURRENT}.new"
        new.unlink(missing_ok=True)
        new.symlink_to(generation.relative_to(self.folder))
        new.rename(self.folder / _CURRENT)

    @contextmanager
    def next_generation(self) -> Iterator[Path]:
        """A new generation to fill, shown at the end if nothing went wrong."""
        current = (self.folder / _CURRENT).resolve()
        for generation in self._generations():
            if generation.name < current.name:
                shutil.rmtree(generation)
        new = self._make_generation(int(current.name) + 1)
        try:
            yield new
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        self._switch(new)


def batch_folder(batch: int) -> str:
    """What a batch's folder is called in each table."""
    return f"batch={batch:012}"


def link_tree(source: Path, target: Path, name: str) -> None:
    """Show what stands under a name in one folder in another one too; no data is copied."""
    if (source / name).exists():
        shutil.copytree(source / name, target / name, copy_function=os.link)


def gather(source: Path, target: Path) -> None:
    """Move the tables' files below one folder to the same places below another."""
    for file in source.rglob("*.parquet"):
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        file.rename(place)


COLUMNS: Final = {
    "lines": schema.LINES,
    "quarantine": schema.QUARANTINE,
    "segments": SEGMENTS,
}


def column_names(columns: str) -> list[str]:
    """The names in a schema's DDL, which has each of them in backticks."""
    return columns.split("`")[1::2]


def _columns() -> dict[str, str]:
    pairs = (column.strip().split(" ", 1) for column in schema.LINES.split(", "))
    return {name.strip("`"): ddl for name, ddl in pairs}
