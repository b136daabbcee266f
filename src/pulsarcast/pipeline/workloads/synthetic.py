"""Made-up comments of any size, shaped after measured ones, for whoever has no dumps.

Topics and authors follow Zipf's law as Mandelbrot wrote it, lengths of bodies are lognormal, times
between comments Weibull; votes follow measured quantiles. Every figure of comment number i is a
function of (seed, i) alone, so that partitions change nothing. Not modelled: the hours of the day,
who likes which topic, words. Nothing here stands for a person.

The parameters were measured with `measure`, from the dumps of December 2005 to March 2006 (topics:
from the comments per subreddit of April 2012); a test measures them again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pulsarcast.model.errors import LocalError

START_UTC: Final = 1_141_171_200
"""The first of March 2006: the month whose rhythm the times have."""

TOPIC_EXPONENT: Final = 1.33
TOPIC_SHIFT: Final = 1.95
"""A topic of rank r gets the share that a density of (x + shift) ** -exponent has from r to r+1."""
TOPICS: Final = 16_440
"""As many as there were in April 2012."""

AUTHOR_EXPONENT: Final = 1.4
AUTHOR_SHIFT: Final = 50.0
COMMENTS_PER_AUTHOR: Final = 3.0
"""The measured months had that many for each author who might have commented: most never do."""

BODY_LOG_MEAN: Final = 4.975
BODY_LOG_DEVIATION: Final = 1.158
BODY_BYTES_MAX: Final = 10_000
"""What the site allowed."""

GAP_SHAPE: Final = 0.875
GAP_SCALE_S: Final = 252.7

UPS_QUANTILES: Final = (
    (0.0, -95),
    (0.01, -8),
    (0.05, -2),
    (0.1, 0),
    (0.25, 1),
    (0.5, 1),
    (0.75, 3),
    (0.9, 7),
    (0.95, 10),
    (0.99, 18),
    (0.999, 35),
    (1.0, 141),
)

ROWS_PER_TASK: Final = 1 << 21
BLOCK: Final = 1 << 16
"""Times are summed up in blocks of so many comments, then over blocks."""

WORDS: Final = (
    *("the", "of", "and", "to", "in", "is", "you", "that", "it", "he", "was", "for", "on", "are"),
    *("as", "with", "they", "at", "be", "this", "have", "from", "or", "one", "had", "by", "word"),
    *("but", "not", "what", "all", "were", "we", "when", "your", "can", "said", "there", "use"),
    *("each", "which", "she", "do", "how", "their", "if", "will", "up", "other", "about", "out"),
    *("many", "then", "them", "these", "so", "some", "her", "would", "make", "like", "him"),
)
_WORD_BYTES: Final = 4
"""Fewer than a word and its space have on average: enough words are drawn, and cut to length."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How much is to be made up."""

    comments: int
    topics: int = TOPICS
    authors: int | None = None
    """How many there might be; None: as many as the measured months had for that many comments."""

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        for name, value in (("comments", self.comments), ("topics", self.topics)):
            if value < 1:
                raise LocalError(f"{name} must be at least 1")
        if self.authors is not None and self.authors < 1:
            raise LocalError("authors must be at least 1")

    @property
    def author_count(self) -> int:
        """How many authors there might be."""
        if self.authors is not None:
            return self.authors
        return max(1, math.ceil(self.comments / COMMENTS_PER_AUTHOR))


def comments(
    spark: SparkSession,
    size: Size,
    *,
    seed: int,
    bodies: bool = False,
    partitions: int | None = None,
) -> DataFrame:
    """So many comments, in the columns that comments of dumps have."""
    i = F.col("i")
    author = zipf(uniform(seed, "author", i), AUTHOR_EXPONENT, AUTHOR_SHIFT, size.author_count)
    topic = zipf(uniform(seed, "topic", i), TOPIC_EXPONENT, TOPIC_SHIFT, size.topics)
    drawn = times(spark, size.comments, seed, partitions).withColumns(
        {"body_bytes": body_bytes(seed, i), "luck": uniform(seed, "ups", i)}
    )
    return drawn.select(
        F.lit(0).alias("file"),
        (i + 1).alias("line_number"),
        "created_utc",
        F.lower(F.conv(i.cast("string"), 10, 36)).alias("id"),
        i.alias("id_number"),
        F.concat(F.lit("author-"), author.cast("string")).alias("author"),
        F.concat(F.lit("topic-"), topic.cast("string")).alias("topic"),
        ups(F.col("luck")).alias("ups"),
        F.lit(0).alias("downs"),
        F.lit(0).alias("controversiality"),
        "body_bytes",
        (body_text(seed, i, F.col("body_bytes")) if bodies else F.lit(None).cast("string")).alias(
            "body"
        ),
    )


def uniform(seed: int, purpose: str, i: Column) -> Column:
    """A number between 0 and 1, both excluded, for comment i."""
    bits = F.shiftrightunsigned(F.xxhash64(F.lit(seed), F.lit(purpose), i), 11)
    return (bits.cast("double") + 0.5) / float(1 << 53)


def zipf(u: Column, exponent: float, shift: float, count: int) -> Column:
    """A rank from 1 to `count`, after Zipf and Mandelbrot, in closed form: no table of weights."""
    power = 1.0 - exponent
    low, high = (1.0 + shift) ** power, (1.0 + count + shift) ** power
    x = F.pow(F.lit(low) + u * F.lit(high - low), F.lit(1.0 / power)) - F.lit(shift)
    return F.least(F.greatest(F.floor(x), F.lit(1)), F.lit(count)).cast("bigint")


def body_bytes(seed: int, i: Column) -> Column:
    """The length of a body: lognormal, by the method of Box and Muller."""
    radius = F.sqrt(F.lit(-2.0) * F.log(uniform(seed, "radius", i)))
    normal = radius * F.cos(F.lit(2 * math.pi) * uniform(seed, "angle", i))
    size = F.round(F.exp(F.lit(BODY_LOG_MEAN) + F.lit(BODY_LOG_DEVIATION) * normal))
    return F.least(F.greatest(size, F.lit(1.0)), F.lit(float(BODY_BYTES_MAX))).cast("int")


def gap_ms(seed: int, i: Column) -> Column:
    """The time from comment i-1 to comment i; whole milliseconds, which add up in any order."""
    weibull = F.pow(-F.log(uniform(seed, "gap", i)), F.lit(1.0 / GAP_SHAPE))
    return F.round(weibull * F.lit(1000.0 * GAP_SCALE_S)).cast("bigint")


def ups(u: Column) -> Column:
    """Votes: the measured quantiles, with straight lines between them."""
    return F.round(_interpolated(u, UPS_QUANTILES)).cast("int")


def _interpolated(u: Column, points: Sequence[tuple[float, float]]) -> Column:
    pieces = None
    for (u0, y0), (u1, y1) in pairwise(points):
        value = F.lit(float(y0)) + (u - F.lit(u0)) * F.lit((y1 - y0) / (u1 - u0))
        pieces = F.when(u < u1, value) if pieces is None else pieces.when(u < u1, value)
    assert pieces is not None
    return pieces.otherwise(F.lit(float(points[-1][1])))


def times(spark: SparkSession, count: int, seed: int, partitions: int | None = None) -> DataFrame:
    """Comment numbers `i` with their `created_utc`: gaps added up, exactly, over any partitions."""
    if partitions is None:
        partitions = max(spark.sparkContext.defaultParallelism, math.ceil(count / ROWS_PER_TASK))
    numbers = spark.range(0, count, 1, partitions).select(
        F.col("id").alias("i"), F.shiftright("id", BLOCK.bit_length() - 1).alias("block")
    )
    gap = gap_ms(seed, F.col("i"))
    sums = numbers.groupBy("block").agg(F.sum(gap).alias("sum"))
    # One partition, of one row for every 65,536 comments.
    before = Window.orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    offsets = sums.select("block", F.coalesce(F.sum("sum").over(before), F.lit(0)).alias("offset"))
    so_far = Window.partitionBy("block").orderBy("i").rowsBetween(Window.unboundedPreceding, 0)
    elapsed_ms = F.col("offset") + F.sum(gap).over(so_far)
    return numbers.join(offsets, on="block", how="inner").select(
        "i",
        (F.lit(START_UTC) + F.call_function("div", elapsed_ms, F.lit(1000))).alias("created_utc"),
    )


def body_text(seed: int, i: Column, size: Column) -> Column:
    """So many bytes of words, drawn one by one."""
    words = F.array(*[F.lit(word) for word in WORDS])
    drawn = F.transform(
        F.sequence(F.lit(1), F.floor(size / _WORD_BYTES) + 1),
        lambda place: F.element_at(
            words,
            (F.pmod(F.xxhash64(F.lit(seed), F.lit("word"), i, place), F.lit(len(WORDS))) + 1).cast(
                "int"
            ),
        ),
    )
    # Padded, for the rare body of short words only.
    return F.rpad(F.array_join(drawn, " "), size, ".")
