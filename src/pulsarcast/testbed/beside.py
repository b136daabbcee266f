"""Beside: what finished runs came to, in one table, a column for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.options import shown
from pulsarcast.testbed.sessions import SUMMARY


def beside(folders: Sequence[Path]) -> str:
    """A table in Markdown; figures that only some of the runs have are left empty elsewhere."""
    runs = [_read(folder) for folder in folders]
    # Lists are for whoever looks into one run.
    names = dict.fromkeys(
        name for run in runs for name, value in run.items() if not isinstance(value, list)
    )
    rows = [["", *(folder.name for folder in folders)], ["---"] * (len(runs) + 1)]
    rows += [[name, *(_cell(run.get(name)) for run in runs)] for name in names]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cell(value: Any) -> str:
    return "" if value is None else str(shown(value))


def _read(folder: Path) -> dict[str, Any]:
    try:
        summary = msgspec.json.decode((folder / SUMMARY).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise LocalError(f"{folder} holds no finished run: {error}") from error
    return summary
