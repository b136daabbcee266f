"""What works with whom, as the tests show it, for the table of `docs/spec/partners.md`.

A test says with `shows` which row it is for, and who dials: it is run once with each partner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import pytest

from tests.partners.go import go
from tests.partners.js import js

PARTNERS: Final = {"go": go, "js": js}
OURS: Final = "ours to {}"
THEIRS: Final = "{} to ours"
"""Who dials whom."""
EITHER: Final = "{}"
"""The row says who dials."""

COLUMNS: Final = tuple(way.format(name) for name in PARTNERS for way in (OURS, THEIRS))

SHOWN: Final[dict[tuple[str, str], str]] = {}
"""The test that shows that something works, by row and column."""

Test = TypeVar("Test", bound=Callable[..., None])


def shows(what: str, way: str, names: Sequence[str] = tuple(PARTNERS)) -> Callable[[Test], Test]:
    """A test of one row and one way, with each of these partners."""

    def mark(test: Test) -> Test:
        for name in names:
            assert SHOWN.setdefault((what, way.format(name)), test.__name__) == test.__name__
        each: Any = pytest.mark.parametrize("start", [PARTNERS[name] for name in names], ids=names)
        marked: Test = each(test)
        return marked

    return mark
