"""Proof: the lines that findings refer to, with where they stand."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline.schema import ENVELOPE, FIELDS

_RECORD: Final = ("node_id", "incarnation", "seq", "segment", "line_number", "line")
_KEY: Final = ("run_id", "node_id", "incarnation", "seq")


def first_of_each_kind(findings: DataFrame, limit: int) -> DataFrame:
    """The first few findings of each kind, always the same ones."""
    in_order = Window.partitionBy("kind").orderBy(
        "run_id", "topic", "publisher", "epoch", "number", "event", "node_id", "proof"
    )
    return (
        findings.withColumn("_place", F.row_number().over(in_order))
        .where(F.col("_place") <= limit)
        .drop("_place")
    )


def attach_lines(findings: DataFrame, lines: DataFrame) -> DataFrame:
    """Findings with every record of their proof as `lines` has it.

    `proof` becomes an array of node_id, incarnation, seq, segment, line_number and the line.
    """
    wanted = findings.select(
        *(F.col(name).alias(f"_{name}") for name in findings.columns),
        "run_id",
        F.posexplode_outer("proof").alias("_place", "_record"),
    ).select("*", "_record.*")
    found = lines.join(wanted.select(*_KEY).distinct(), [*_KEY], how="left_semi").select(
        *_KEY,
        "segment",
        "line_number",
        F.to_json(F.struct(*ENVELOPE, *FIELDS)).alias("line"),
    )
    records = F.sort_array(F.collect_list(F.struct("_place", *_RECORD)))
    return (
        wanted.join(found, [*_KEY], how="left")
        .groupBy(*(f"_{name}" for name in findings.columns))
        .agg(records.alias("_records"))
        .select(
            *(F.col(f"_{name}").alias(name) for name in findings.columns if name != "proof"),
            F.transform(
                "_records", lambda each: F.struct(*(each[name].alias(name) for name in _RECORD))
            ).alias("proof"),
        )
    )
