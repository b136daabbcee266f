"""What a report puts beside its runs: tables and bars that no trace tells, from whoever has them.

Light on purpose: who writes such a file needs neither Spark nor anything that draws.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pulsarcast.model.errors import LocalError


class Table(msgspec.Struct, kw_only=True):
    """One table, as text."""

    title: str
    head: list[str]
    rows: list[list[str]]
    own: list[bool]
    """Which rows are of the runs themselves, and not what they are put beside."""
    about: str = ""


class Bar(msgspec.Struct, kw_only=True):
    """One bar: whose it is, and in which group it stands."""

    group: str
    whose: str
    value: float
    text: str


class Bars(msgspec.Struct, kw_only=True):
    """One chart of bars, those of a group under each other."""

    name: str
    """Also its picture's, so without blanks."""
    title: str
    about: str
    axis: str
    bars: list[Bar]


class Beside(msgspec.Struct, kw_only=True):
    """All of it, in the order in which a page shows it."""

    tables: list[Table]
    bars: list[Bars] = []


def read_beside(path: Path) -> Beside:
    """Read such a file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Beside)
    except (OSError, msgspec.DecodeError) as error:
        raise LocalError(
            f"{path} says nothing that could stand beside a report: {error}"
        ) from error
