"""The verdict: every check over the traces of any number of runs, in one go."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsarcast.pipeline import history
from pulsarcast.pipeline.checks import (
    causal,
    chains,
    coverage,
    deliveries,
    elections,
    ledger,
    order,
    publications,
    total_order,
)
from pulsarcast.pipeline.checks.case import Case, open_case
from pulsarcast.pipeline.checks.findings import union
from pulsarcast.pipeline.checks.names import BITS
from pulsarcast.pipeline.checks.unknown import find_unknown, unread
from pulsarcast.pipeline.scratch import Scratch


class Outcome(enum.IntEnum):
    """What a check comes to; the exit code of the command."""

    CLEAN = 0
    FINDINGS = 1
    UNKNOWN = 2


@dataclass(frozen=True)
class Verdict:
    """What was found, and what could not be known.

    A finding is proved by the lines that there are, so lines that are missing do not take it back:
    findings outrank what is unknown. A trace that is clean but not whole is unknown.
    """

    findings: DataFrame
    """Of the schema `findings.FINDINGS`."""
    unknown: DataFrame
    """Of the schema `unknown.UNKNOWN`."""
    lives: DataFrame
    """As `history.lives`: what there was to read."""

    def counts(self) -> DataFrame:
        """How often each kind was found, by run."""
        return self.findings.groupBy("run_id", "kind").agg(F.sum("count").alias("count"))

    def reasons(self) -> DataFrame:
        """How often each reason not to know applies, by run."""
        return self.unknown.groupBy("run_id", "reason").agg(F.count(F.lit(1)).alias("count"))


def judge(
    lines: DataFrame,
    scratch: Scratch,
    *,
    quarantine: DataFrame | None = None,
    bits: int = BITS,
) -> Verdict:
    """Hold the lines of some runs against every promise.

    The verdict's tables are in the scratch folder, and last as long as that does.
    """
    lives = scratch.keep("lives", history.lives(lines))
    unknown = scratch.keep("unknown", find_unknown(lines, lives, quarantine))
    # A line that is not understood proves nothing: that it is there is `unknown`.
    case = open_case(lines.where("unknown is null"), unread(unknown), scratch, bits=bits)
    found = [
        scratch.keep(f"findings-{family}", union(tables))
        for family, tables in _every_check(case, scratch)
    ]
    return Verdict(union(found), unknown, lives)


def _every_check(case: Case, scratch: Scratch) -> Iterator[tuple[str, list[DataFrame]]]:
    """The findings of every check, by family; those without anything to look at are left out."""
    yield (
        "publications",
        [
            publications.find_in_anothers_name(case),
            publications.find_never_injected(case),
            publications.find_not_allowed(case),
            publications.find_equivocations(case),
            publications.find_published_twice(case),
            publications.find_number_gaps(case),
            publications.find_acknowledged_unpublished(case),
        ],
    )
    yield (
        "chains",
        [
            chains.find_forks(case),
            chains.find_broken_chains(case),
            elections.find_rival_leaders(case),
        ],
    )
    entered = scratch.keep("entered", ledger.enter(case))
    yield (
        "deliveries",
        [
            deliveries.find_forged(case, entered),
            deliveries.find_not_subscribed(entered),
            deliveries.find_before_start(case, entered),
            deliveries.find_duplicates(case, entered),
            deliveries.find_second_twins(case, entered),
        ],
    )
    yield "order", [order.find_disorder(case, entered), order.find_disorder_again(case, entered)]
    odd = scratch.keep("odd", total_order.find_odd(case, entered))
    forked = scratch.keep("forked", total_order.find_forked(case))
    if not (odd.isEmpty() and forked.isEmpty()):
        walked = scratch.keep("walked", total_order.walk(case, odd))
        yield "total_order", [total_order.find_disagreement(case, odd, walked, forked)]
    short = scratch.keep("short", coverage.find_short(case, entered))
    if not short.isEmpty():
        yield "coverage", [coverage.find_lost(case, entered, short)]
    if not case.topics.where(F.col("order") == "causal").isEmpty():
        known = causal.look_up(case, scratch)
        yield "causal_order", [causal.find_broken_causality(case, known)]
        yield "causal_parents", [causal.find_wrong_parents(case, known)]
