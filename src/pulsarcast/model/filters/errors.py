"""Filter errors: the problem, the line that has it, and a caret under the place."""

from __future__ import annotations

from typing import Final

from pulsarcast.model.errors import InvalidFilter

_SHOWN_MAX: Final = 100  # characters of the line that is wrong: a terminal's width


class FilterError(InvalidFilter):
    """A filter that cannot be had: not in the language, not of the schema, or beyond the bounds."""

    def __init__(
        self, problem: str, text: str, offset: int, *, beyond_bounds: bool = False
    ) -> None:
        offset = max(0, min(offset, len(text)))
        start = text.rfind("\n", 0, offset) + 1
        end = text.find("\n", offset)
        self.problem = problem
        self.offset = offset
        self.line: int = text.count("\n", 0, offset) + 1
        self.column: int = offset - start + 1
        self.beyond_bounds = beyond_bounds
        shown = _shown(text[start : len(text) if end < 0 else end], offset - start)
        super().__init__(f"line {self.line}, column {self.column}: {problem}\n{shown}")


def _shown(line: str, place: int) -> str:
    """The line, or what is near the place if it is long, and a caret below the place."""
    first = max(0, place - _SHOWN_MAX // 2)
    part = line[first : first + _SHOWN_MAX]
    # A character that a terminal obeys or does not show becomes a blank: the caret stays in place.
    part = "".join(sign if sign.isprintable() else " " for sign in part)
    return f"  {part}\n  {' ' * (place - first)}^"
