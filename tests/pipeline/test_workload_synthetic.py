"""Made-up comments: the same on any partitions, and shaped as the measured ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.workloads import Options, Size, make_from_dumps, make_synthetic, read
from pulsarcast.pipeline.workloads import synthetic as made_up
from pulsarcast.pipeline.workloads.measure import (
    QUANTILES,
    RANKS,
    Figures,
    fit_topics,
    fit_weibull,
    measure,
    predict_shares,
    read_topic_counts,
    shares,
)
from tests.pipeline.test_workload import FOUR_MONTHS, dumps, part_files, partitions

Find = Callable[[str], Path]

MEASURED = Figures(
    events=20_231,
    authors=3_204,
    authors_of_one=1_614,
    top_1_percent=0.2176,
    top_10_percent=0.6514,
    body_log_mean=4.975,
    body_log_deviation=1.158,
    body_quantiles=[0, 6, 20, 33, 68, 151, 326, 607, 872, 1_701, 3_246, 8_371],
    gap_mean_s=271.6,
    gap_quantiles_s=[0, 2, 12, 24, 64, 157, 343, 643, 921, 1_678, 3_127, 6_705],
    ups_quantiles=[-95, -8, -2, 0, 1, 1, 3, 7, 10, 18, 35, 141],
    topic_shares=[0.1308, 0.1845, 0.2858, 0.3868, 0.5127, 0.6202, 0.7082, 0.8336, 0.9387, 0.9953],
)
"""Of the dumps of four months; gaps: of the last of them; topics: of April 2012. Slow tests measure
all of it again."""


@pytest.mark.parametrize("bodies", [False, True])
def test_comments_are_the_same_on_1_and_64_partitions(spark: SparkSession, bodies: bool) -> None:
    count = 1_000 if bodies else 70_000  # more than a block of times
    made = {}
    for partition_count in (1, 64):
        comments = made_up.comments(
            spark,
            Size(comments=count, topics=50),
            seed=3,
            bodies=bodies,
            partitions=partition_count,
        )
        made[partition_count] = comments.agg(
            F.count("*"),
            F.count_distinct("id"),
            F.count_if(F.octet_length("body") == F.col("body_bytes")),
            F.sum(F.xxhash64(*comments.columns).cast("decimal(38)")),
        ).collect()[0]
    assert made[1] == made[64]
    assert made[1][:3] == (count, count, count if bodies else 0)


def test_times_never_go_back_and_ids_are_their_order(spark: SparkSession) -> None:
    rows = made_up.comments(spark, Size(comments=70_000), seed=1).select(
        "created_utc", "id", "id_number", "line_number"
    )
    found = sorted(tuple(row) for row in rows.collect())
    assert [row[2] for row in found] == list(range(70_000))
    assert [int(row[1], 36) for row in found[::1_000]] == list(range(0, 70_000, 1_000))


def near(found: float, wanted: float, share: float, least: float = 0.0) -> bool:
    return abs(found - wanted) <= max(share * abs(wanted), least)


def test_made_up_comments_have_the_measured_figures(spark: SparkSession) -> None:
    comments = made_up.comments(spark, Size(comments=MEASURED.events), seed=1).cache()
    figures, _ = measure(comments.withColumnRenamed("id_number", "internal_id"))
    comments.unpersist()

    assert figures.events == MEASURED.events
    # Ten per cent, of whatever the law leaves free.
    assert near(figures.authors, MEASURED.authors, 0.1)
    assert near(figures.authors_of_one, MEASURED.authors_of_one, 0.1)
    assert near(figures.top_1_percent, MEASURED.top_1_percent, 0.1)
    assert near(figures.top_10_percent, MEASURED.top_10_percent, 0.1)
    assert near(figures.gap_mean_s, MEASURED.gap_mean_s, 0.05)
    assert near(figures.body_log_mean, MEASURED.body_log_mean, 0.01)
    assert near(figures.body_log_deviation, MEASURED.body_log_deviation, 0.02)
    for place, quantile in enumerate(QUANTILES):
        if 0.05 <= quantile <= 0.95:
            got, wanted = figures.body_quantiles[place], MEASURED.body_quantiles[place]
            assert near(got, wanted, 0.15, least=3), ("body", quantile)
            got, wanted = figures.gap_quantiles_s[place], MEASURED.gap_quantiles_s[place]
            assert near(got, wanted, 0.15, least=5), ("gap", quantile)
        if 0.01 <= quantile <= 0.99:
            got, wanted = figures.ups_quantiles[place], MEASURED.ups_quantiles[place]
            assert near(got, wanted, 0.15, least=1), ("ups", quantile)
    for rank, got, wanted in zip(RANKS, figures.topic_shares, MEASURED.topic_shares, strict=False):
        assert near(got, wanted, 0, least=0.045), rank


def test_the_parameters_of_topics_are_the_measured_ones(shared_data: Find) -> None:
    counts = read_topic_counts(shared_data("topics/subreddit-comments-2012-04.txt.gz"))
    assert len(counts) == made_up.TOPICS
    measured = shares(counts, sum(counts))
    assert measured == pytest.approx(MEASURED.topic_shares, abs=5e-5)
    error, exponent, shift = fit_topics(measured, len(counts))
    assert (exponent, shift) == (made_up.TOPIC_EXPONENT, made_up.TOPIC_SHIFT)
    assert error < 0.034


@pytest.mark.slow
def test_the_other_parameters_are_the_measured_ones(
    spark: SparkSession, shared_data: Find, tmp_path: Path
) -> None:
    files = dumps(shared_data, FOUR_MONTHS)
    for name, some in (("four", files), ("march", files[-1:])):
        make_from_dumps(spark, some, Options(), tmp_path / name)
    figures, fits = measure(read(spark, tmp_path / "four", "events"))
    march, march_fits = measure(read(spark, tmp_path / "march", "events"))

    assert (figures.events, figures.authors) == (MEASURED.events, MEASURED.authors)
    assert figures.authors_of_one == MEASURED.authors_of_one
    assert figures.top_1_percent == pytest.approx(MEASURED.top_1_percent, abs=5e-5)
    assert figures.top_10_percent == pytest.approx(MEASURED.top_10_percent, abs=5e-5)
    assert figures.body_quantiles == MEASURED.body_quantiles
    assert figures.ups_quantiles == MEASURED.ups_quantiles
    assert march.gap_quantiles_s == MEASURED.gap_quantiles_s
    assert march.gap_mean_s == pytest.approx(MEASURED.gap_mean_s, abs=0.05)

    assert figures.body_log_mean == pytest.approx(made_up.BODY_LOG_MEAN, abs=5e-4)
    assert figures.body_log_deviation == pytest.approx(made_up.BODY_LOG_DEVIATION, abs=5e-4)
    assert march_fits.gap_shape == pytest.approx(made_up.GAP_SHAPE, abs=5e-4)
    assert march_fits.gap_scale_s == pytest.approx(made_up.GAP_SCALE_S, abs=0.05)
    assert (fits.author_exponent, fits.author_shift, fits.comments_per_author) == (
        made_up.AUTHOR_EXPONENT,
        made_up.AUTHOR_SHIFT,
        made_up.COMMENTS_PER_AUTHOR,
    )
    assert fits.author_error < 0.06
    assert list(zip(QUANTILES, MEASURED.ups_quantiles, strict=True)) == list(made_up.UPS_QUANTILES)


@pytest.mark.slow
def test_a_made_up_workload_is_the_same_on_1_and_64_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    size = Size(comments=100_000, topics=500, authors=4_000)
    tables = {}
    for count in (1, 64):
        with partitions(spark, count):
            out = tmp_path / str(count)
            counts = make_synthetic(spark, size, Options(nodes=50, seed=2), out)
            tables[count] = (
                counts,
                (out / "workload.json").read_bytes(),
                *(
                    sorted(tuple(row) for row in read(spark, out, name).collect())
                    for name in ("events", "users", "authors", "topics", "subscriptions")
                ),
            )
    assert part_files(tmp_path / "64", "subscriptions") > 32
    assert tables[1] == tables[64]
    assert (counts.lines, counts.taken, counts.events) == (100_000, 100_000, 100_000)
    assert (counts.broken, counts.deleted, counts.repeated, counts.nodes) == (0, 0, 0, 50)


def test_a_weibull_distribution_is_found_again() -> None:
    import random

    rng = random.Random(5)
    gaps: dict[int, int] = {}
    for _ in range(50_000):
        gap = round(rng.weibullvariate(3_000.0, 0.8))
        gaps[gap] = gaps.get(gap, 0) + 1
    shape, scale = fit_weibull(gaps)
    assert shape == pytest.approx(0.8, rel=0.02)
    assert scale == pytest.approx(3_000, rel=0.02)


def test_ranks_are_drawn_as_the_law_predicts(spark: SparkSession) -> None:
    u = (F.col("id") + 0.5) / 100_000
    ranks = spark.range(100_000).select(made_up.zipf(u, 1.33, 1.95, 200).alias("rank"))
    counts = dict(tuple(row) for row in ranks.groupBy("rank").count().collect())
    assert min(counts) == 1
    assert max(counts) == 200
    wanted = predict_shares([1, 5, 50, 200], 1.33, 1.95, 200)
    for rank, share in zip((1, 5, 50, 200), wanted, strict=True):
        found = sum(count for other, count in counts.items() if other <= rank)
        assert abs(found - 100_000 * share) <= 1


@pytest.mark.parametrize("changes", [{"comments": 0}, {"topics": 0}, {"authors": 0}])
def test_sizes_without_meaning_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(LocalError):
        Size(**{"comments": 1, **changes})
