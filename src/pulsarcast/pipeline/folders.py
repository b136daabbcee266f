"""Folders of tables: who may write, where work stands aside, and how a change becomes visible.

    OUT/TABLE -> .current/TABLE                the tables, by their names
    OUT/.current -> .generations/000001        the generation that is shown
    OUT/.format.json  .lock  .staging/  .generations/

Whatever changes many files at once makes a new **generation**, of links to the files that stay and
of new files; once all of it is on the disk, one rename of `.current` shows it. The generation
before stays until the next one is made, for those who are reading it. There is no list of valid
files that one engine obeys and another does not know of: every engine sees the same rows.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from pulsarcast.model.errors import LocalError

_FORMAT_FILE: Final = ".format.json"
_CURRENT: Final = ".current"
_GENERATIONS: Final = ".generations"
_STAGING: Final = ".staging"
_LOCK: Final = ".lock"


class IncompatibleTablesError(LocalError):
    """The folder was written by what is not compatible with us, or from something else."""


class TableFolder:
    """The paths of one folder of tables; those who keep some say which, and what is in them."""

    FORMAT: ClassVar[int]
    TABLES: ClassVar[tuple[str, ...]]
    KIND: ClassVar[str]
    """What such a folder is, in words."""
    WRITER: ClassVar[str]
    """The command that makes one and writes to it."""
    ADVICE: ClassVar[str]
    """What to do with a folder that does not fit this version."""

    def __init__(self, folder: str | Path) -> None:
        if "://" in str(folder):
            raise LocalError(f"{folder}: tables need a folder that all executors can write to")
        self.folder = Path(folder).absolute()
        self.checkpoint = self.folder / "checkpoint"

    def columns(self) -> dict[str, str]:
        """The columns that this version writes, by name, and their types."""
        raise NotImplementedError

    def first_notes(self) -> dict[str, Any]:
        """What a new folder says about itself, beside format and columns."""
        raise NotImplementedError

    def table(self, name: str) -> Path:
        """Where a table stands at present; a later generation stands elsewhere."""
        return (self.folder / name).resolve()

    @property
    def exists(self) -> bool:
        """Whether there is such a folder."""
        return (self.folder / _FORMAT_FILE).is_file()

    # Making and checking

    def create(self) -> None:
        """Make the folder, unless it is there."""
        if self.exists:
            self.check()
            return
        self._make_room()
        self._switch(self._make_generation(1))
        for table in self.TABLES:
            link = self.folder / table
            if not link.is_symlink():
                link.symlink_to(Path(_CURRENT) / table)
        self.write_notes({"format": self.FORMAT, "columns": self.columns(), **self.first_notes()})

    def _make_room(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        foreign = [entry.name for entry in self.folder.iterdir() if not self._is_ours(entry)]
        if foreign:
            raise LocalError(f"{self.folder} holds other things ({foreign[0]}): choose another")

    def check(self) -> None:
        """Raise where the folder was written by what does not fit this version."""
        if not self.exists:
            raise LocalError(f"{self.folder} is no {self.KIND}: make one with {self.WRITER}")
        notes = self.notes()
        if notes.get("format") != self.FORMAT:
            raise IncompatibleTablesError(
                f"{self.folder} has format {notes.get('format')}, this version writes "
                f"{self.FORMAT}: {self.ADVICE}"
            )
        then, now = notes["columns"], self.columns()
        changes = [f"{name} is new" for name in now if name not in then]
        changes += [f"{name} is gone" for name in then if name not in now]
        changes += [
            f"{name} was {then[name]} and is {now[name]}"
            for name in now
            if name in then and then[name] != now[name]
        ]
        if changes:
            raise IncompatibleTablesError(
                f"{self.folder} has other columns ({'; '.join(changes)}): {self.ADVICE}"
            )

    def notes(self) -> dict[str, Any]:
        """What the folder says about itself."""
        notes: dict[str, Any] = json.loads((self.folder / _FORMAT_FILE).read_text())
        return notes

    def write_notes(self, notes: dict[str, Any]) -> None:
        """Replace what the folder says about itself, as a whole."""
        new = self.folder / f"{_FORMAT_FILE}.new"
        new.write_text(json.dumps(notes, indent=2) + "\n")
        sync(new)
        new.rename(self.folder / _FORMAT_FILE)
        sync(self.folder)

    def _is_ours(self, entry: Path) -> bool:
        made = {_CURRENT, f"{_CURRENT}.new", f"{_FORMAT_FILE}.new"}
        hidden = {*made, _GENERATIONS, _STAGING, _LOCK}
        return entry.name in hidden or (entry.name in self.TABLES and entry.is_symlink())

    # Writing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer; what an earlier one left half done is cleared away."""
        if not self.exists:
            self._make_room()
        with (self.folder / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LocalError(
                    f"another {self.WRITER.split()[-1]} is writing to {self.folder}"
                ) from None
            self.create()
            shutil.rmtree(self.folder / _STAGING, ignore_errors=True)
            self.drop_unfinished()
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

    def drop_unfinished(self) -> None:
        """Clear away what a crash left: a generation not yet shown. It will be made again."""
        current = (self.folder / _CURRENT).resolve()
        for generation in self._generations():
            if generation.name > current.name:
                shutil.rmtree(generation)

    # Generations

    def _generations(self) -> list[Path]:
        return sorted((self.folder / _GENERATIONS).glob("[0-9]*"))

    def _make_generation(self, number: int) -> Path:
        folder = self.folder / _GENERATIONS / f"{number:06}"
        for table in self.TABLES:
            (folder / table).mkdir(parents=True, exist_ok=True)
        return folder

    def _switch(self, generation: Path) -> None:
        sync_all(generation)
        sync(generation.parent)
        new = self.folder / f"{_CURRENT}.new"
        new.unlink(missing_ok=True)
        new.symlink_to(generation.relative_to(self.folder))
        new.rename(self.folder / _CURRENT)
        sync(self.folder)

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


def sync_all(folder: Path) -> None:
    """Have a folder and all that is in it on the disk, each before what names it."""
    for place, _, files in os.walk(folder, topdown=False):
        for name in files:
            sync(Path(place, name))
        sync(Path(place))


def sync(path: Path) -> None:
    """Have a file, or a folder's names, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
