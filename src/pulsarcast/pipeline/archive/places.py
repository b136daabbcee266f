"""Offsets in a file: rows that stand where they do not belong, or are there twice. No Spark, no IO.

A file that has as many rows as its name says has no gap, so the place of a row tells its offset.
Where rows were taken away and others added that says nothing, and the offsets are held against each
other. Whatever explains what is there with fewer changes is believed.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, TypeAlias

import numpy as np

Numbers: TypeAlias = np.ndarray[Any, Any]


def judge_offsets(
    offsets: Numbers, first: int, last: int, start: int | None
) -> tuple[dict[int, str], Numbers]:
    """What is wrong with which row, and the offsets that are there.

    The file's are `first` to `last`; `start` is the offset that belongs to the first row here, if
    its place tells that.
    """
    inside = (offsets >= first) & (offsets <= last)
    if start is not None:
        places = np.arange(start, start + len(offsets))
        elsewhere = np.flatnonzero(offsets != places)
        if not len(elsewhere):
            return {}, places
        missing = len(np.setdiff1d(places, offsets))
        changes = missing + len(repeated(offsets)) + len(misplaced(_once(offsets)[1]))
        if len(elsewhere) <= 2 * changes:
            belongs = "it stands where offset {} belongs"
            return {at: belongs.format(places[at]) for at in elsewhere.tolist()}, places
    wrong = {at: f"offset {offsets[at]} is there twice" for at in repeated(offsets)}
    rows, once = _once(offsets)
    for at in misplaced(once):
        wrong[int(rows[at])] = "it stands where it does not belong"
    for at in np.flatnonzero(~inside).tolist():
        wrong[at] = f"offset {offsets[at]} is none of this file"
    return wrong, offsets[inside]


def _once(offsets: Numbers) -> tuple[Numbers, Numbers]:
    """Rows whose offset was not there before, and their offsets."""
    rows = np.delete(np.arange(len(offsets)), repeated(offsets))
    return rows, offsets[rows]


def repeated(offsets: Numbers) -> list[int]:
    """Rows whose offset was there before."""
    _, firsts = np.unique(offsets, return_index=True)
    if len(firsts) == len(offsets):
        return []
    return sorted(set(range(len(offsets))) - set(firsts.tolist()))


def misplaced(offsets: Numbers) -> list[int]:
    """Rows that are out of order, of rows that are all different.

    Where rows changed places, these are meant, and otherwise the fewest without which the others
    ascend.
    """
    if np.all(offsets[1:] > offsets[:-1]):
        return []
    fewest = _outside_ascent(offsets.tolist())
    swapped: list[int] = np.flatnonzero(offsets != np.sort(offsets)).tolist()
    return swapped if len(swapped) <= 2 * len(fewest) else fewest


def _outside_ascent(numbers: list[int]) -> list[int]:
    """All that is not in a longest ascending part."""
    tails: list[int] = []
    at_tail: list[int] = []
    before = [-1] * len(numbers)
    for at, number in enumerate(numbers):
        place = bisect_left(tails, number)
        tails[place : place + 1] = [number]
        at_tail[place : place + 1] = [at]
        before[at] = at_tail[place - 1] if place else -1
    kept = set()
    at = at_tail[-1]
    while at >= 0:
        kept.add(at)
        at = before[at]
    return [at for at in range(len(numbers)) if at not in kept]


def stretches(numbers: Numbers) -> list[tuple[int, int]]:
    """Numbers as first and last of each run of neighbours."""
    ordered = np.unique(numbers)
    if not len(ordered):
        return []
    cuts = np.flatnonzero(np.diff(ordered) != 1) + 1
    return [(int(run[0]), int(run[-1])) for run in np.split(ordered, cuts)]
