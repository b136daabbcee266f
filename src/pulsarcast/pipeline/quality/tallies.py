"""Tallies: all deliveries of a run, counted where they are read.

Every delivered line is looked at once. What travels is a few rows per node and topic, however many
events there were, and whether a node got exactly what was due to it shows in them: it has the same
number of deliveries as there are events, and the same sum of fingerprints (`expected`). Only where
that is not so does anyone have to look at single events (`closely`).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsarcast.pipeline.history.places import PAIR, fingerprint, of_kind, place


def tally(lines: DataFrame) -> DataFrame:
    """Deliveries by node and topic, by whether they are of one's own events, and by hops."""
    return (
        of_kind(lines, "delivered")
        .groupBy(*PAIR, (F.col("node_id") == F.col("publisher")).alias("of_own"), "hops")
        .agg(
            F.count(F.lit(1)).alias("lines"),
            F.count_if("redelivery").alias("marked"),
            # Twice the same cancels out, but then there are too many lines.
            F.bit_xor(fingerprint()).alias("fingerprints"),
            F.min(place()).alias("first_place"),
        )
    )


def by_subscriber(tallies: DataFrame) -> DataFrame:
    """The same by node and topic alone."""
    return tallies.groupBy(*PAIR).agg(
        F.sum("lines").alias("lines"),
        F.sum("marked").alias("marked"),
        F.bit_xor("fingerprints").alias("fingerprints"),
        F.min("first_place").alias("first_place"),
    )
