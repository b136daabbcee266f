"""Places in a node's own order, and other small words that several tables share."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

END_OF_LIFE: Final = (1 << 32) - 1
"""A seq after all others of a life: where a subscription ends whose node lost its disk."""

LEVELS: Final = {"accepted": 1, "replicated": 2}
"""What a caller was promised, as a number; 0 is nothing."""

PAIR: Final = ("run_id", "node_id", "topic")
"""What a subscription belongs to; its periods are told apart by a number."""
NUMBERING: Final = ("run_id", "topic", "publisher", "epoch")
"""One publisher's numbers in one topic."""


def of_kind(lines: DataFrame, *kinds: str) -> DataFrame:
    """The lines of these kinds: the filter that every transform starts with."""
    return lines.where(F.col("kind").isin(*kinds))


def is_shared() -> Column:
    """Of a line that says something is out: whether several sequencers count together in its topic.

    Then each of them may say it, and `publisher` names their count and not a node.
    """
    return F.coalesce(F.col("position.term") > 0, F.lit(False))


def in_own_name() -> Column:
    """Whether a node may say that an event is out: it is its own, or that of its sequencers."""
    return (F.col("node_id") == F.col("publisher")) | is_shared()


def place(incarnation: str | Column = "incarnation", seq: str | Column = "seq") -> Column:
    """Where in a node's own order a line stands, as one number.

    One number can be a key of `min_by`, which a pair of columns cannot without sorting every row.
    There is room for 2^31 lives (a start time in seconds would do) of 2^32 lines.
    """
    at = F.col(incarnation) if isinstance(incarnation, str) else incarnation
    in_life = F.col(seq) if isinstance(seq, str) else seq
    return F.shiftleft(at, 32).bitwiseOR(in_life)


def is_within(at: Column, begin: Column, end: Column) -> Column:
    """Whether a place is after `begin` and before `end`, which may be null: not ended yet."""
    return (at > begin) & (end.isNull() | (at < end))


def fingerprint() -> Column:
    """What an event claims to be, as one number: publisher, epoch, number and CID together.

    Two of a billion events in a topic have the same one with a chance of 1 in 37.
    """
    return F.xxhash64("publisher", "epoch", "number", "event")
