"""What no single row can tell: events that are missing, or there twice.

A node counts its log without gaps, so an offset that is missing was taken away. A publisher counts
its own events as well; but a node may have come late, or have missed one, so a number that is
missing is only worth a remark, and so are numbers in another order: a topic need not have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


class Stretch(NamedTuple):
    """Offsets that follow one another."""

    first: int
    last: int
    file: str | None = None

    def __str__(self) -> str:
        if self.first == self.last:
            return f"offset {self.first}"
        return f"offsets {self.first} to {self.last}"


class Flaw(NamedTuple):
    """What is wrong with a topic's offsets, and where one sees it."""

    offset: int
    file: str | None
    reason: str


def flaws_of(
    there: Iterable[Stretch], lost: Iterable[Stretch], note: Mapping[str, int] | None
) -> Iterator[Flaw]:
    """What is missing of a topic, and what is there twice.

    `lost` was known to be gone when it should have been archived; the note says where the topic
    began, and how far it surely went.
    """
    reached = note["first"] - 1 if note else None
    for stretch in sorted(there):
        if reached is not None and stretch.first > reached + 1:
            yield from _missing(Stretch(reached + 1, stretch.first - 1), lost, stretch.file)
        elif reached is not None and stretch.first <= reached:
            again = Stretch(stretch.first, min(stretch.last, reached))
            yield Flaw(again.first, stretch.file, f"{again}: in another file, too")
        reached = stretch.last if reached is None else max(reached, stretch.last)
    if note and reached is not None and reached < note["last"]:
        yield from _missing(Stretch(reached + 1, note["last"]), lost, None)


def _missing(gap: Stretch, lost: Iterable[Stretch], file: str | None) -> Iterator[Flaw]:
    """A gap, without what was known to be lost."""
    at = gap.first
    for known in sorted(lost):
        if known.last < at or known.first > gap.last:
            continue
        if known.first > at:
            yield _gap(Stretch(at, known.first - 1), file)
        at = known.last + 1
    if at <= gap.last:
        yield _gap(Stretch(at, gap.last), file)


def _gap(gap: Stretch, file: str | None) -> Flaw:
    return Flaw(gap.first, file, f"{gap}: missing")


def judge_numbers(numbers: DataFrame) -> DataFrame:
    """Stretches of publishers' numbers, with how each one begins.

    `twice`: how many of its numbers were there; `missing`: how many should have come before it;
    `is_back`: whether the log had a higher one already.
    """
    whose = ("topic", "publisher", "epoch")
    by_number = Window.partitionBy(*whose).orderBy("first", "last", "offset")
    by_offset = Window.partitionBy(*whose).orderBy("offset")
    before = by_number.rowsBetween(Window.unboundedPreceding, -1)
    earlier = by_offset.rowsBetween(Window.unboundedPreceding, -1)
    # Nothing before the first: as if numbers had been there up to it.
    reached = F.coalesce(F.max("last").over(before), F.col("first") - 1)
    highest = F.coalesce(F.max("last").over(earlier), F.col("first"))
    nothing = F.lit(0).cast("bigint")
    return numbers.select(
        *whose,
        "file",
        "offset",
        "first",
        "last",
        F.greatest(F.least("last", reached) - F.col("first") + 1, nothing).alias("twice"),
        F.greatest(F.col("first") - reached - 1, nothing).alias("missing"),
        (F.col("first") < highest).alias("is_back"),
    )


def sum_up(judged: DataFrame) -> dict[str, int]:
    """How many numbers are there twice or missing, and how often they go back."""
    sums = judged.agg(
        F.coalesce(F.sum("twice"), F.lit(0)).alias("twice"),
        F.coalesce(F.sum("missing"), F.lit(0)).alias("missing"),
        F.coalesce(F.count_if("is_back"), F.lit(0)).alias("back"),
    ).first()
    assert sums is not None
    return sums.asDict()


def remarks_of(sums: Mapping[str, int]) -> list[str]:
    """What is worth saying about publishers' numbers, and proves nothing."""
    said = []
    if sums["missing"]:
        said.append(
            f"publishers' own counts lack {sums['missing']:,} events in between: the node did not "
            "get them, or somebody took them away and counted the log anew"
        )
    if sums["back"]:
        said.append(
            f"publishers' own counts go back {sums['back']:,} times: honest where a topic has no "
            "order"
        )
    return said
