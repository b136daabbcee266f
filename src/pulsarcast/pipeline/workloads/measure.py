"""What comments are like: the figures behind `synthetic`, measured from any workload's tables.

    python -m pulsarcast.pipeline.workloads.measure WORKLOAD [--topics FILE]

prints them as JSON, with the parameters that fit them. `--topics` is a file of lines `(count,name)`
(gzip), where there is one of more topics than the dumps at hand have.
"""

from __future__ import annotations

import argparse
import gzip
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsarcast.pipeline.session import session
from pulsarcast.pipeline.workloads.tables import read

RANKS: Final = (1, 2, 5, 10, 23, 50, 100, 300, 1_000, 5_000)
"""Where the shares of the most popular topics are compared."""
QUANTILES: Final = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)
GAP_S_MIN: Final = 0.5
"""What stands for a gap of 0 s: times are whole seconds."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of a workload's events."""

    events: int
    authors: int
    authors_of_one: int
    """Authors with a single event."""
    top_1_percent: float
    """The share of all events that the most active hundredth of the authors has."""
    top_10_percent: float
    body_log_mean: float
    body_log_deviation: float
    body_quantiles: list[float]
    gap_mean_s: float
    gap_quantiles_s: list[float]
    ups_quantiles: list[float]
    topic_shares: list[float]
    """Of the most popular 1, 2, 5, … topics together (RANKS)."""


class Fits(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `synthetic`, with the largest error of what they predict."""

    gap_shape: float
    gap_scale_s: float
    author_exponent: float
    author_shift: float
    comments_per_author: float
    author_error: float
    """Relative: of authors, authors_of_one and both shares."""
    topic_exponent: float
    topic_shift: float
    topic_error: float
    """Absolute: of the shares."""


def measure(events: DataFrame) -> tuple[Figures, Fits]:
    """Measure a table `events`; what is collected are histograms and a thousand topics."""
    by_count = _histogram(events.groupBy("author").count().select("count"), "count")
    gaps = _histogram(gaps_s(events), "gap_s")
    sizes = events.where("body_bytes > 0").agg(
        F.avg(F.log("body_bytes")), F.stddev_pop(F.log("body_bytes"))
    )
    log_mean, log_deviation = sizes.collect()[0]
    count = sum(size * authors for size, authors in by_count.items())
    top = events.groupBy("topic").count().orderBy(F.desc("count")).limit(RANKS[-1]).collect()
    topic_counts = [row["count"] for row in top]
    figures = Figures(
        events=count,
        authors=sum(by_count.values()),
        authors_of_one=by_count.get(1, 0),
        top_1_percent=_top_share(by_count, 0.01),
        top_10_percent=_top_share(by_count, 0.1),
        body_log_mean=log_mean,
        body_log_deviation=log_deviation,
        body_quantiles=quantiles(_histogram(events, "body_bytes")),
        gap_mean_s=sum(gap * n for gap, n in gaps.items()) / max(1, sum(gaps.values())),
        gap_quantiles_s=quantiles(gaps),
        ups_quantiles=quantiles(_histogram(events, "ups")),
        topic_shares=shares(topic_counts, count),
    )
    shape, scale = fit_weibull(gaps)
    author_error, comments_per_author, author_exponent, author_shift = fit_authors(figures)
    topics = events.select("topic").distinct().count()
    topic_error, topic_exponent, topic_shift = fit_topics(figures.topic_shares, topics)
    return figures, Fits(
        gap_shape=shape,
        gap_scale_s=scale,
        author_exponent=author_exponent,
        author_shift=author_shift,
        comments_per_author=comments_per_author,
        author_error=author_error,
        topic_exponent=topic_exponent,
        topic_shift=topic_shift,
        topic_error=topic_error,
    )


def gaps_s(events: DataFrame) -> DataFrame:
    """The seconds between each event and the one before it, as `gap_s`."""
    before = events.select(
        (F.col("internal_id") + 1).alias("internal_id"), F.col("created_utc").alias("before")
    )
    return events.join(before, on="internal_id", how="inner").select(
        (F.col("created_utc") - F.col("before")).alias("gap_s")
    )


def _histogram(rows: DataFrame, name: str) -> dict[int, int]:
    return {
        row[name]: row["n"] for row in rows.groupBy(name).agg(F.count("*").alias("n")).collect()
    }


def quantiles(histogram: Mapping[int, int]) -> list[float]:
    """The smallest value that so much of the whole does not exceed, for each of QUANTILES."""
    values = sorted(histogram)
    sums = np.cumsum([histogram[value] for value in values])
    places = [np.searchsorted(sums, max(1, math.ceil(q * sums[-1]))) for q in QUANTILES]
    return [float(values[place]) for place in places]


def _top_share(by_count: Mapping[int, int], share: float) -> float:
    left = int(sum(by_count.values()) * share)
    total = 0
    for count in sorted(by_count, reverse=True):
        some = min(left, by_count[count])
        total += some * count
        left -= some
    return total / sum(count * authors for count, authors in by_count.items())


def shares(counts: Sequence[int], total: int) -> list[float]:
    """What the most popular topics have together, for each of RANKS that there is."""
    sums = np.cumsum(sorted(counts, reverse=True))
    return [float(sums[rank - 1] / total) for rank in RANKS if rank <= len(sums)]


# Fits: by likelihood where there is a formula, else by trying all of a grid.


def fit_weibull(gaps: Mapping[int, int]) -> tuple[float, float]:
    """Shape and scale of the Weibull distribution under which these gaps are most likely."""
    x = np.maximum(np.array(list(gaps), dtype=float), GAP_S_MIN)
    weights = np.array(list(gaps.values()), dtype=float)
    log_x = np.log(x)
    mean_log = float(np.average(log_x, weights=weights))
    low, high = 0.05, 20.0
    while high - low > 1e-9:  # the condition for a maximum rises with the shape
        shape = (low + high) / 2
        powers = weights * np.exp(shape * (log_x - log_x.max()))
        if float((powers * log_x).sum() / powers.sum()) - 1 / shape - mean_log > 0:
            high = shape
        else:
            low = shape
    scale = float(np.average(x**low, weights=weights)) ** (1 / low)
    return low, scale


def predict_shares(ranks: Iterable[int], exponent: float, shift: float, count: int) -> list[float]:
    """What the first so many ranks have together, by the law that `synthetic.zipf` draws from."""
    power = 1.0 - exponent
    low, high = (1.0 + shift) ** power, (1.0 + count + shift) ** power
    return [((1.0 + rank + shift) ** power - low) / (high - low) for rank in ranks]


def fit_topics(measured: Sequence[float], count: int) -> tuple[float, float, float]:
    """Largest error, exponent and shift of the law that comes closest to these shares."""
    ranks = RANKS[: len(measured)]
    return min(
        (
            max(
                abs(a - b)
                for a, b in zip(
                    predict_shares(ranks, exponent, shift, count), measured, strict=True
                )
            ),
            exponent,
            shift,
        )
        for exponent in (step / 100 for step in range(80, 220, 1) if step != 100)
        for shift in (step / 20 for step in range(-19, 200))
    )


def fit_authors(figures: Figures) -> tuple[float, float, float, float]:
    """Largest error, comments per author, exponent and shift of the law that comes closest."""
    measured = np.array(
        [figures.authors, figures.authors_of_one, figures.top_1_percent, figures.top_10_percent]
    )
    tried = []
    for per_author, exponent, shift in product(
        (1.5, 2.0, 2.5, 3.0, 4.0, 6.0),
        (step / 10 for step in range(6, 24) if step != 10),
        (0.0, 5.0, 10.0, 20.0, 30.0, 50.0, 80.0, 120.0, 200.0),
    ):
        count = math.ceil(figures.events / per_author)
        edges = (np.arange(1, count + 2) + shift) ** (1.0 - exponent)
        p = np.diff(edges) / (edges[-1] - edges[0])
        expected = figures.events * p
        seen = float((1 - np.exp(-expected)).sum())
        predicted = np.array(
            [
                seen,
                float((expected * np.exp(-expected)).sum()),
                float(p[: int(seen / 100)].sum()),
                float(p[: int(seen / 10)].sum()),
            ]
        )
        error = float(np.abs(predicted / measured - 1).max())
        tried.append((error, per_author, exponent, shift))
    return min(tried)


def read_topic_counts(path: Path) -> list[int]:
    """Counts of a gzip file of lines `(count,name)`."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [int(found[1]) for line in lines if (found := re.match(r"\((\d+),", line))]


def main(arguments: Sequence[str]) -> None:
    """Measure a workload's folder, and print what was found."""
    parser = argparse.ArgumentParser(prog="measure")
    parser.add_argument("workload")
    parser.add_argument("--topics", type=Path)
    given = parser.parse_args(arguments)
    with session("measure") as spark:
        figures, fits = measure(read(spark, given.workload, "events"))
    if given.topics is not None:
        counts = read_topic_counts(given.topics)
        measured = shares(counts, sum(counts))
        error, exponent, shift = fit_topics(measured, len(counts))
        figures = msgspec.structs.replace(figures, topic_shares=measured)
        fits = msgspec.structs.replace(
            fits, topic_exponent=exponent, topic_shift=shift, topic_error=error
        )
    found = msgspec.json.encode({"figures": figures, "fits": fits})
    sys.stdout.write(msgspec.json.format(found).decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
