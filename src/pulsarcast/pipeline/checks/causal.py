"""Causal order: parents first, and all heads as parents (docs/spec/pulsarcast.md, Causal order).

For each subscription and event two places are enough: where the event was delivered, and where the
first of its children was. The children must not come first. And until something follows it, the
event is a head: one of those that the next event published there must name as its parents. A
numbering's later events follow its earlier ones, and so does whoever follows a later one. Merges
name heads too, and may leave some for the next.

What an event should name is asked where its publisher was given it, as all that a node holds is
given to its application in the order in which the node got it. Where the node told of it is too
early: an application that is still given old events has not got yet what its node links to, and
after a kill some of it is only told with the deliveries that are made up for.

Of subscriptions with filters nothing is asked: what does not match is not delivered there.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsarcast.pipeline import history
from pulsarcast.pipeline.checks.case import NUMBERING, Case
from pulsarcast.pipeline.checks.findings import findings, reference
from pulsarcast.pipeline.checks.ledger import meet
from pulsarcast.pipeline.scratch import Scratch

HEADS_SHOWN = 6
"""Heads of which a finding shows the deliveries, at most."""


class Causality(NamedTuple):
    """What is known of the events of all causal topics."""

    links: DataFrame
    """One row per event and parent: `stream`, `number`, `of_stream`, `of_number`, `parent`.

    `of_twin`: the parent was published for a request that has another event too."""
    published: DataFrame
    """The events that a subscribed node published and was given, with its `period_key` then.

    `judged_at`: where it was given the event."""
    spans: DataFrame
    """Per period and event, where it was delivered (`born_at`) and its first child (`gone_at`).

    Only those in which a child came first, and those of periods in which the node published.
    """


def look_up(case: Case, scratch: Scratch) -> Causality:
    """Join what the causal checks need, and keep it."""
    causal = case.standing.where(F.col("order") == "causal")
    links = scratch.keep("links", _links(case, causal))
    published = scratch.keep("published", _published(case, causal))
    spans = scratch.keep("spans", _spans(case, links, published))
    return Causality(links, scratch.keep("judged", _judged(published, spans)), spans)


def find_broken_causality(case: Case, known: Causality) -> DataFrame:
    """One row per delivery and parent that should have come first, by the start or by retention."""
    parents = (
        known.spans.where("born_at is null or gone_at < born_at")
        .where("gone_at is not null")
        .select(
            "period_key",
            F.col("stream").alias("of_stream"),
            F.col("number").alias("of_number"),
            "born_at",
        )
    )
    concerned = case.periods.where("not filtered").join(parents, ["period_key"], how="left_semi")
    children = (
        meet(case, concerned)
        .where(F.col("order") == "causal")
        .groupBy("period_key", "stream", "number")
        .agg(F.min("at").alias("at"))
        .join(known.links, ["stream", "number"], how="inner")
        .join(parents, ["period_key", "of_stream", "of_number"], how="inner")
        # Of two events for one request, a node is given one.
        .where("(born_at is null or at < born_at) and not of_twin")
    )
    found = (
        case.describe(children)
        .join(_let_off(case), ["period_key", "of_stream"], how="left")
        .where("let_off is null or of_number > let_off")
        .withColumn("other_event", F.col("parent"))
    )
    return findings(
        "causal_order",
        found,
        reference(F.col("node_id"), F.col("at")),
        reference(F.col("publisher"), F.col("told_at")),
        reference(F.col("node_id"), F.col("born_at")),
    )


def find_wrong_parents(case: Case, known: Causality) -> DataFrame:
    """Events whose parents are not the heads of what their publisher had been delivered."""
    spans = _spans_of_heads(known)
    is_head = (F.col("born_at") < F.col("judged_at")) & (
        F.col("ended_at").isNull() | (F.col("ended_at") >= F.col("judged_at"))
    )
    was_given = F.col("born_at") < F.col("judged_at")
    # What came before the subscription, or was retired before it came, may be named as well. So may
    # what was retired and came all the same, after an event that did not wait for it: its node
    # cannot tell whether what that one names was ever there.
    may_lack = ~F.coalesce(was_given, F.lit(False)) | F.col("came_late")
    is_excused = may_lack & (F.col("of_number") <= F.col("let_off"))
    named = (
        known.published.join(known.links, ["stream", "number"], how="inner")
        .join(spans, ["period_key", "of_stream", "of_number"], how="left")
        .join(_let_off(case), ["period_key", "of_stream"], how="left")
        .where(~F.coalesce(is_excused, F.lit(False)))
        .groupBy("stream", "number")
        .agg(
            F.count(F.lit(1)).alias("named"),
            F.count_if(F.coalesce(is_head, F.lit(False))).alias("rightly"),
        )
    )
    found = (
        _with_heads(known.published, spans)
        .join(named, ["stream", "number"], how="left")
        .withColumn("named", F.coalesce("named", F.lit(0)))
        .withColumn("rightly", F.coalesce("rightly", F.lit(0)))
        .where("named <> rightly or (heads <> named and not merge)")
    )
    # Which heads there were is looked up only for those.
    heads = (
        found.join(spans, ["period_key"], how="left")
        .groupBy("period_key", "stream", "number")
        .agg(
            F.slice(
                F.sort_array(F.collect_list(F.when(is_head, F.col("born_at")))), 1, HEADS_SHOWN
            ).alias("born")
        )
    )
    shown = case.describe(found.drop("told_at").join(heads, ["period_key", "stream", "number"]))
    born = [reference(F.col("node_id"), F.get("born", F.lit(at))) for at in range(HEADS_SHOWN)]
    return findings("causal_parents", shown, reference(F.col("node_id"), F.col("told_at")), *born)


def _spans_of_heads(known: Causality) -> DataFrame:
    """From where to where each event was a head, if it ever was one."""
    later = Window.partitionBy("period_key", "stream").orderBy(F.desc("number"))
    followed = F.min("gone_at").over(later)
    overtaken = F.min("born_at").over(later.rowsBetween(Window.unboundedPreceding, -1))
    ended = F.least(followed, overtaken)
    return (
        known.spans.join(known.published, ["period_key"], how="left_semi")
        .withColumn("ended_at", ended)
        .withColumn("came_late", F.coalesce(followed < F.col("born_at"), F.lit(False)))
        .where("born_at is not null")
        .select(
            "period_key",
            F.col("stream").alias("of_stream"),
            F.col("number").alias("of_number"),
            "born_at",
            # Delivered after its own child: never a head.
            F.when(F.col("ended_at") < F.col("born_at"), F.col("born_at"))
            .otherwise(F.col("ended_at"))
            .alias("ended_at"),
            "came_late",
        )
    )


def _links(case: Case, causal: DataFrame) -> DataFrame:
    """Parents by their numbers; one that nobody published gets a number that no event has."""
    named = causal.select(
        "run_id",
        "topic",
        "stream",
        "number",
        F.explode(F.array_distinct("parents")).alias("parent"),
    )
    all_events = case.standing.select(
        "run_id",
        F.col("event").alias("parent"),
        F.col("topic").alias("of_topic"),
        F.col("stream").alias("of_stream"),
        F.col("number").alias("of_number"),
        F.col("has_twin").alias("of_twin"),
    )
    return (
        named.join(all_events, ["run_id", "parent"], how="left")
        # A caller may link to another topic's event; that is not delivered here.
        .where("of_topic is null or of_topic = topic")
        .select(
            "stream",
            "number",
            F.coalesce("of_stream", case.names.number("run_id", "parent")).alias("of_stream"),
            F.coalesce("of_number", F.lit(0)).alias("of_number"),
            "parent",
            F.coalesce("of_twin", F.lit(False)).alias("of_twin"),
        )
    )


def _published(case: Case, causal: DataFrame) -> DataFrame:
    said = causal.where(F.col("linking") != "CUSTOM").select(
        "run_id",
        F.col("publisher").alias("node_id"),
        "topic",
        "stream",
        "number",
        "told_at",
        "merge",
    )
    full = case.periods.where("not filtered")
    periods = full.select("run_id", "node_id", "topic", "period_key", "from_at", "to_at")
    within = history.is_within(F.col("told_at"), F.col("from_at"), F.col("to_at"))
    return (
        said.join(periods, ["run_id", "node_id", "topic"], how="inner")
        .where(within)
        .select("period_key", "stream", "number", "told_at", "merge")
    )


def _judged(published: DataFrame, spans: DataFrame) -> DataFrame:
    given = spans.where("born_at is not null").select(
        "period_key", "stream", "number", F.col("born_at").alias("judged_at")
    )
    return published.join(given, ["period_key", "stream", "number"], how="inner")


def _spans(case: Case, links: DataFrame, published: DataFrame) -> DataFrame:
    parents = links.groupBy("stream", "number").agg(
        F.collect_list(F.struct("of_stream", "of_number", F.lit(False).alias("itself"))).alias(
            "parents"
        )
    )
    itself = F.struct(
        F.col("stream").alias("of_stream"),
        F.col("number").alias("of_number"),
        F.lit(True).alias("itself"),
    )
    nobody = F.array().cast("array<struct<of_stream:bigint,of_number:bigint,itself:boolean>>")
    at_once = F.concat(F.array(itself), F.coalesce("parents", nobody))
    delivered = (
        meet(case)
        .where((F.col("order") == "causal") & F.col("verdict").isNull())
        .select("period_key", "stream", "number", "at")
    )
    spans = (
        delivered.join(case.sent_along(parents, case.events), ["stream", "number"], how="left")
        .select("period_key", "at", F.explode(at_once).alias("each"))
        .groupBy(
            "period_key",
            F.col("each.of_stream").alias("stream"),
            F.col("each.of_number").alias("number"),
        )
        .agg(
            F.min(_where("each.itself", "at")).alias("born_at"),
            F.min(_where("not each.itself", "at")).alias("gone_at"),
        )
    )
    active = published.select("period_key").distinct().withColumn("active", F.lit(True))
    return (
        spans.join(F.broadcast(active), ["period_key"], how="left")
        .where("active or born_at is null or gone_at < born_at")
        .select("period_key", "stream", "number", "born_at", "gone_at")
    )


def _where(condition: str, column: str) -> Column:
    return F.when(F.expr(condition), F.col(column))


def _let_off(case: Case) -> DataFrame:
    """Up to which number of a stream a period needs no parents: its start, and what retired."""
    streams = case.standing.select(*NUMBERING, "stream").distinct()
    retired = (
        case.lines.where(F.col("kind") == "retired")
        .groupBy("node_id", *NUMBERING)
        .agg(F.max("number").alias("start"))
        .join(streams, [*NUMBERING], how="inner")
        .join(case.periods.drop("start"), ["run_id", "node_id", "topic"], how="inner")
        .select("period_key", "stream", "start")
    )
    return (
        case.starts.unionByName(retired)
        .groupBy("period_key", F.col("stream").alias("of_stream"))
        .agg(F.max("start").alias("let_off"))
    )


def _with_heads(published: DataFrame, spans: DataFrame) -> DataFrame:
    """Publications with how many heads there were then."""
    by_time = Window.partitionBy("period_key").orderBy("at", "phase")
    asked = published.select(
        "period_key",
        F.col("judged_at").alias("at"),
        # What happens in the same place happens behind the question.
        F.lit(0).alias("phase"),
        F.lit(0).alias("more"),
        "stream",
        "number",
        "told_at",
        "judged_at",
        "merge",
    )
    nothing = [
        F.lit(None).cast(asked.schema[name].dataType).alias(name) for name in asked.columns[4:]
    ]
    births = spans.select(
        "period_key", F.col("born_at").alias("at"), F.lit(1).alias("phase"), F.lit(1), *nothing
    )
    ends = spans.where("ended_at is not null").select(
        "period_key", F.col("ended_at").alias("at"), F.lit(1).alias("phase"), F.lit(-1), *nothing
    )
    return (
        asked.union(births)
        .union(ends)
        .withColumn("heads", F.sum("more").over(by_time))
        .where("told_at is not null")
        .select("period_key", "stream", "number", "told_at", "judged_at", "merge", "heads")
    )
