"""Subscriptions to names and events that carry them, from a file of real names.

A line of the file is `(COUNT,NAME)`, as in lists of subreddits by their number of comments. An
event carries a name, drawn by its count. A filter asks for a prefix of a name that is drawn in the
same way, for the name itself, or for names next to each other: people ask for what there is.
"""

from __future__ import annotations

import gzip
import re
from bisect import bisect_left
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, Final

from pulsarcast.model.errors import LocalError
from pulsarcast.model.topic_types import AttributeRule
from pulsarcast.simulation.content.generator import Generator
from pulsarcast.simulation.options import Options

PREFIX: Final = (2, 5)
"""Shortest and longest prefix that a filter asks for, in characters."""
NEIGHBOURS: Final = 20
"""Most names in a range."""
PUBLISHING: Final = 0.1
"""Share of the nodes that publish: names come from feeds, not from each reader."""
_LINE: Final = re.compile(r"\((\d+),(.+)\)")


def names_in(path: Path) -> dict[str, int]:
    """The names of a file, gzipped or plain, with their counts; none if it has other lines."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace")
    except (OSError, EOFError) as error:
        raise LocalError(f"{path} cannot be read: {error}") from error
    return {line[2]: int(line[1]) for line in map(_LINE.fullmatch, text.splitlines()) if line}


def read_names(options: Options, rng: Random) -> Names:
    """The names of a workload."""
    assert options.workload is not None
    if options.skew != 1.0:
        raise LocalError("--skew is for numbers: a workload of names has no ranges to narrow")
    found = names_in(Path(options.workload))
    if not found:
        raise LocalError(f"{options.workload} has no lines of (COUNT,NAME)")
    return Names(rng, found)


class Names(Generator):
    """Draws filters on names, and events that carry them."""

    publishing = PUBLISHING

    def __init__(self, rng: Random, counts: dict[str, int]) -> None:
        super().__init__(rng, ())
        self._names = sorted(counts)
        self._sums = list(accumulate(counts[name] for name in self._names))

    @property
    def schema(self) -> tuple[AttributeRule, ...]:
        """The topic's schema: one text, without bounds."""
        return (AttributeRule("name", "str"),)

    def event(self, within: float = 1.0) -> dict[str, Any]:
        """A name."""
        return {"name": self._names[self._draw()]}

    def _draw(self) -> int:
        return bisect_left(self._sums, self._rng.random() * self._sums[-1])

    def subscription(self) -> str:
        """A filter: seven in ten ask for a prefix."""
        rng, at = self._rng, self._draw()
        name = self._names[at]
        chance = rng.random()
        if chance < 0.7:
            return f"name starts with {_quoted(name[: rng.randint(*PREFIX)])}"
        if chance < 0.85:
            return f"name = {_quoted(name)}"
        last = self._names[min(len(self._names) - 1, at + rng.randint(1, NEIGHBOURS - 1))]
        return f"name in {_quoted(name)}..{_quoted(last)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
