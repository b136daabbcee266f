"""An ingest folder: where its tables stand, and how a change becomes visible (`folders`).

    OUT/lines/batch=…/run_id=…/kind=…/*.parquet      the table of lines
    OUT/quarantine/batch=…/*.parquet                 what is no line
    OUT/segments/batch=…/*.parquet                   the index: which segment holds what
    OUT/checkpoint/                                  Spark's own notes on what it has read
    OUT/.format.json  .lock  .staging/  .generations/

**A batch** is written aside, below `.staging`, and becomes visible by one rename per table:
quarantine, lines, and last the index, which is the record that the batch is there. Whoever lists
`lines` sees all of a batch or nothing of it, whatever engine it is. A crash between the renames
leaves whole, true rows of a batch that is not on record; it is done again and replaces exactly its
own folders, by their name. Only the last batch can be in that state. In the moment of replacing,
the batch is gone as a whole.

**A rebuild or a compaction** changes many batches at once, and makes a new generation.

**Numbers of batches**: those of the stream are Spark's own, from 0, so that Spark's replay of a
batch meets its folder. All others (batch runs, rebuilt runs, compacted ones) are counted from
`OWN_BATCHES`; the two never meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pulsarcast.pipeline import schema
from pulsarcast.pipeline.folders import IncompatibleTablesError, TableFolder
from pulsarcast.pipeline.traces.writing import SEGMENTS

FORMAT: Final = 1
TABLES: Final = ("quarantine", "lines", "segments")
"""In the order in which a batch's parts become visible: the record that it is there comes last."""
OWN_BATCHES: Final = 500_000_000_000


class Layout(TableFolder):
    """The paths of one ingest folder."""

    FORMAT = FORMAT
    TABLES = TABLES
    KIND = "folder of tables"
    WRITER = "pipeline ingest"
    ADVICE = "land the traces into another folder, or remove this one first"

    def columns(self) -> dict[str, str]:
        """Of the lines: quarantine and index may change as they like."""
        pairs = (column.strip().split(" ", 1) for column in schema.LINES.split(", "))
        return {name.strip("`"): ddl for name, ddl in pairs}

    def first_notes(self) -> dict[str, Any]:
        """No traces yet, and nothing compacted."""
        return {"traces": [], "compacted": -1}

    def note_traces(self, traces: Sequence[Path]) -> None:
        """Remember where the stream reads from; to leave a folder out would leave it half read."""
        notes = self.notes()
        left_out = [
            trace
            for trace in notes["traces"]
            if not any(Path(trace).is_relative_to(folder) for folder in traces)
        ]
        if left_out:
            raise IncompatibleTablesError(
                f"{self.folder} also reads from {', '.join(left_out)}: name it too, or choose "
                "another folder for the tables"
            )
        self.write_notes(notes | {"traces": [str(trace) for trace in traces]})

    def note_compacted(self, batch: int) -> None:
        """Remember up to which of the stream's batches none has a folder of its own any more."""
        self.write_notes(self.notes() | {"compacted": batch})

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

    def drop_unfinished(self) -> None:
        """Clear away what a crash left: batches not on record, a generation not yet shown.

        Both will be done again.
        """
        recorded = {batch_folder(batch) for batch in self.batches()}
        for table in TABLES[:-1]:
            for folder in self.table(table).glob("batch=*"):
                if folder.name not in recorded:
                    with self.staging() as aside:
                        folder.rename(aside / folder.name)
        super().drop_unfinished()


def batch_folder(batch: int) -> str:
    """What a batch's folder is called in each table."""
    return f"batch={batch:012}"


COLUMNS: Final = {
    "lines": schema.LINES,
    "quarantine": schema.QUARANTINE,
    "segments": SEGMENTS,
}


def column_names(columns: str) -> list[str]:
    """The names in a schema's DDL, which has each of them in backticks."""
    return columns.split("`")[1::2]
