"""Quality of service: the thesis' metrics, those it wished for, and the tables they come in.

Everything is computed per run, for as many runs at a time as the lines are of. Each metric has a
file: `coverage`, `hops`, `latency`, `repair`, `traffic`, `resources`; they stand on a common
`ground`, which reads the deliveries once, and once more only where something is out of the
ordinary. `history` says what the words mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsarcast.pipeline.quality import latency, nodes, repair, traffic
from pulsarcast.pipeline.quality.coverage import COUNTS, coverage
from pulsarcast.pipeline.quality.ground import Ground, lay
from pulsarcast.pipeline.quality.histograms import SUMMARY, summarise
from pulsarcast.pipeline.quality.hops import hops
from pulsarcast.pipeline.quality.scopes import SCOPE, in_scopes
from pulsarcast.pipeline.scratch import Scratch, open_scratch

__all__ = ["FIGURES", "SORTED", "UNITS", "compute", "computed"]

GAPS: Final = ("gaps_found", "gaps_filled", "gaps_measured")
FIGURES: Final = (*COUNTS, *traffic.MESSAGES, *GAPS, "latency_unmeasured")
"""What is counted per topic and per run; null where the trace has no lines for it."""

UNITS: Final = {
    "hops": "hops",
    "fan_out": "peers",
    "gap_repair": "milliseconds",
    "latency_low": "milliseconds",
    "latency_high": "milliseconds",
    **nodes.MEASURES,
}
"""Every measure with a distribution, and the unit on which its percentiles are exact."""

SORTED: Final = {
    "topics": ("run_id", "topic"),
    "runs": ("run_id", "scope"),
    "nodes": ("run_id", "node_id"),
    "operations": ("run_id", "topic", "operation"),
    "histograms": ("run_id", "measure", "topic", "value"),
    "distributions": ("run_id", "measure", "scope", "topic"),
}
"""The tables, and the order of their rows."""


@contextmanager
def computed(lines: DataFrame, scratch: str | Path | None = None) -> Iterator[dict[str, DataFrame]]:
    """The tables of `SORTED`, for as long as they are needed.

    `scratch` is a folder for what is computed on the way; on a cluster all of it must see it.
    """
    with open_scratch(scratch) as kept:
        yield compute(lines, kept)


def compute(lines: DataFrame, scratch: Scratch) -> dict[str, DataFrame]:
    """The tables of `SORTED`, standing on files in `scratch`, which must stay until they are read.

    - `topics`: one row per topic, its name and order and all `FIGURES`;
    - `runs`: the same per run, for its own topics, those that came with them (`meta`), and `all`;
    - `nodes`: one row per node, what it sent, received and used;
    - `operations`: messages per topic and operation;
    - `histograms`: how often each value of each measure occurred, in `UNITS`;
    - `distributions`: their means, deviations and percentiles, per topic and in total.
    """
    keep = scratch.keep
    ground = lay(lines, scratch)
    messages = keep("messages", traffic.messages(lines))
    latencies = keep("latencies", latency.latencies(ground))
    by_node = keep("nodes", nodes.nodes(ground, messages))
    figures = keep("figures", _figures(ground, messages, latencies))
    histograms = keep("histograms", _histograms(ground, messages, latencies, by_node))
    return _in_order(
        {
            "topics": _topics(ground, figures),
            "runs": _runs(ground, figures),
            "nodes": by_node,
            "operations": traffic.by_operation(messages),
            "histograms": histograms,
            "distributions": _distributions(ground, histograms),
        }
    )


def _figures(ground: Ground, messages: DataFrame, latencies: DataFrame) -> DataFrame:
    """All `FIGURES` per topic; what belongs to no topic is one more row."""
    unmeasured = (
        latencies.where("bound = 'unmeasured'")
        .groupBy("run_id", "topic")
        .agg(F.sum("count").alias("latency_unmeasured"))
    )
    parts = (coverage(ground), traffic.by_topic(messages), repair.repairs(ground.lines), unmeasured)
    return (
        reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
        .groupBy("run_id", "topic")
        .agg(*(F.sum(name).alias(name) for name in FIGURES))
    )


def _topics(ground: Ground, figures: DataFrame) -> DataFrame:
    described = ground.topics.select("run_id", "topic", "name", "order", "is_meta")
    return described.join(figures, ["run_id", "topic"], how="inner")


def _runs(ground: Ground, figures: DataFrame) -> DataFrame:
    return (
        in_scopes(figures, ground.topics)
        .where("scope <> 'topic'")
        .groupBy("run_id", "scope")
        .agg(*(F.sum(name).alias(name) for name in FIGURES))
    )


def _histograms(
    ground: Ground, messages: DataFrame, latencies: DataFrame, by_node: DataFrame
) -> DataFrame:
    """All histograms in one table; those over nodes have no topic."""
    by_topic = {
        "hops": hops(ground),
        "fan_out": traffic.fan_out(messages),
        "gap_repair": repair.repair_times(ground.lines),
        "latency_low": latencies.where("bound = 'low'"),
        "latency_high": latencies.where("bound = 'high'"),
    }
    parts = [
        table.select("run_id", F.lit(measure).alias("measure"), "topic", "value", "count")
        for measure, table in by_topic.items()
    ]
    parts.append(
        nodes.spread(by_node).select(
            "run_id", "measure", F.lit(None).cast("string").alias("topic"), "value", "count"
        )
    )
    return reduce(DataFrame.unionByName, parts)


def _distributions(ground: Ground, histograms: DataFrame) -> DataFrame:
    units = F.create_map(*(F.lit(word) for pair in UNITS.items() for word in pair))
    over_nodes = histograms.where(F.col("measure").isin(*nodes.MEASURES)).select(
        "run_id",
        F.lit("nodes").alias("scope"),
        F.lit(None).cast("string").alias("topic"),
        "measure",
        "value",
        "count",
    )
    over_topics = in_scopes(
        histograms.where(~F.col("measure").isin(*nodes.MEASURES)), ground.topics
    )
    return (
        summarise(over_nodes.unionByName(over_topics), [*SCOPE, "measure"])
        .withColumn("unit", units[F.col("measure")])
        .select(*SCOPE, "measure", "unit", *SUMMARY)
    )


def _in_order(tables: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    return {name: tables[name].orderBy(*order) for name, order in SORTED.items()}
