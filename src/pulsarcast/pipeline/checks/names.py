"""Narrow names: one number each for what takes two hundred bytes of text to name.

A delivery names run, node, topic, publisher, epoch, number and event, and there are a hundred of
them for every event. So the few things that they name are numbered by a hash, and only the numbers
travel. That two names never share a number is not left to chance: they are all looked at first,
and another salt is taken if any do. What a delivery names beyond them is compared in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.checks.findings import union

BITS: Final = 64
_SALTS_MAX: Final = 64


class Names(NamedTuple):
    """One way of numbering names."""

    salt: int = 0
    bits: int = BITS
    """Fewer than all only where a test wants names to share a number."""

    def number(self, *columns: str | Column) -> Column:
        """The number of what these columns name together."""
        number = F.xxhash64(F.lit(self.salt), *columns)
        return number if self.bits == BITS else F.shiftrightunsigned(number, BITS - self.bits)


def choose_names(numbered: Callable[[Names], Iterable[DataFrame]], *, bits: int = BITS) -> Names:
    """The first numbering under which no two rows of any of these tables share a number.

    `numbered` gives tables of one column each, the number, with a row for each thing named. (What
    is collected is one word.)
    """
    for salt in range(_SALTS_MAX):
        names = Names(salt, bits)
        tables = [
            table.toDF("number").groupBy("number").count().where("count > 1").select("number")
            for table in numbered(names)
        ]
        if union(tables).isEmpty():
            return names
    raise LocalError(f"no way to number the names of these traces with {bits} bits")
