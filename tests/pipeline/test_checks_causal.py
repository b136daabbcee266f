"""Causal order and parents: made-up histories, against a plain reading of them."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pulsarcast.pipeline.checks import causal
from pulsarcast.pipeline.checks.case import open_case
from pulsarcast.pipeline.scratch import open_scratch
from tests.pipeline.judging import as_table
from tests.pipeline.stories import Event, Line, Story, name_of, tell

NODES = 3
NAMES = [name_of(node) for node in range(NODES)]
KINDS = ("causal_order", "causal_parents")


class _Reading:
    """One node's lines of a run with one causal topic, gone through one by one."""

    def __init__(self, lines: Sequence[Line], name: str) -> None:
        published = [line for line in lines if line["kind"] == "published"]
        self.parents = {line["event"]: set(line["parents"]) for line in published}
        self.merges = {line["event"] for line in published if line["merge"]}
        self.slots = {
            line["event"]: ((line["publisher"], line["epoch"]), line["number"])
            for line in published
        }
        self.own = [line for line in lines if line["node_id"] == name]
        self.own.sort(key=lambda line: (line["incarnation"], line["seq"]))
        # What was retired counts from the first: nobody minds when it was said.
        self.retired: dict[tuple[str, int], int] = {}
        for line in self.own:
            if line["kind"] == "retired":
                numbering = (line["publisher"], line["epoch"])
                self.retired[numbering] = max(line["number"], self.retired.get(numbering, 0))
        self.start: dict[tuple[str, int], int] = {}
        self.got: list[str] | None = None
        self.late: set[str] = set()
        """Delivered after something that follows them."""
        self.new: set[str] = set()
        """Published and not delivered here yet: judged where they are."""
        self.found: Counter[str] = Counter()

    def read(self) -> Counter[str]:
        for line in self.own:
            match line["kind"]:
                case "subscribed" if self.got is None:
                    self.got = []
                    self.late = set()
                    self.start = {
                        (mark["publisher"], mark["epoch"]): mark["number"] for mark in line["start"]
                    }
                case "unsubscribed":
                    self.got = None
                    self.new = set()
                case "published" if self.got is not None:
                    self.new.add(line["event"])
                case "delivered" if self.got is not None and line["event"] not in self.got:
                    self._deliver(line["event"])
        return +self.found

    def _deliver(self, event: str) -> None:
        assert self.got is not None
        numbering, number = self.slots[event]
        if number <= self.start.get(numbering, 0):
            return  # from before the start: a finding of another kind
        if event in self.new:
            self._judge_parents(event)
        for parent in self.parents[event]:
            self.found["causal_order"] += parent not in self.got and not self._let_off(parent)
        if number <= self._named().get(numbering, 0):
            self.late.add(event)
        self.got.append(event)

    def _named(self) -> dict[tuple[str, int], int]:
        """The highest number of each numbering that anything delivered follows."""
        assert self.got is not None
        named: dict[tuple[str, int], int] = {}
        for each in self.got:
            for parent in self.parents[each] & self.slots.keys():
                of, of_number = self.slots[parent]
                named[of] = max(of_number, named.get(of, 0))
        return named

    def _let_off(self, event: str) -> bool:
        if event not in self.slots:
            return False
        numbering, number = self.slots[event]
        let_off: int = max(self.start.get(numbering, 0), self.retired.get(numbering, 0))
        return bool(number <= let_off)

    def _judge_parents(self, event: str) -> None:
        """All heads are named, and nothing else that was not before the start, or retired."""
        assert self.got is not None
        named = self._named()
        tops: dict[tuple[str, int], int] = {}
        for each in self.got:
            numbering, number = self.slots[each]
            tops[numbering] = max(number, tops.get(numbering, 0))
        heads = {
            each
            for each in self.got
            for numbering, number in (self.slots[each],)
            if number == tops[numbering] and number > named.get(numbering, 0)
        }
        parents = {
            parent
            for parent in self.parents[event]
            if (parent in self.got and parent not in self.late) or not self._let_off(parent)
        }
        is_wrong = not parents <= heads if event in self.merges else parents != heads
        self.found["causal_parents"] += is_wrong


def read_plainly(lines: Sequence[Line]) -> Counter[str]:
    """What is wrong in a run with one causal topic, by going through it line by line."""
    found: Counter[str] = Counter()
    for name in {line["node_id"] for line in lines}:
        found += _Reading(lines, name).read()
    return found


def judge_causally(spark: SparkSession, lines: Sequence[Line]) -> dict[str, Counter[str]]:
    """What the checks find, by run."""
    found: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder, open_scratch(folder) as scratch:
        table = as_table(spark, lines, Path(folder))
        case = open_case(table, table.where("false"), scratch)
        known = causal.look_up(case, scratch)
        findings = causal.find_broken_causality(case, known).unionByName(
            causal.find_wrong_parents(case, known)
        )
        for row in findings.groupBy("run_id", "kind").count().collect():
            found.setdefault(row["run_id"], Counter())[row["kind"]] = row["count"]
    return found


@st.composite
def causal_runs(draw: st.DrawFn) -> tuple[int, int]:
    """A seed and a length: the history follows from them."""
    return draw(st.integers(0, 1 << 32)), draw(st.integers(4, 40))


def make_run(run_id: str, seed: int, length: int) -> list[Line]:
    """A history in which nodes do what they like, more often right than wrong."""
    rng = Random(seed)
    story = Story(run_id, NAMES, "causal")
    story.create()
    events: list[Event] = []
    got: dict[int, list[Event]] = {}
    for _ in range(length):
        node = rng.randrange(NODES)
        act = rng.random()
        if node not in got:
            if act < 0.7:
                start = rng.sample(events, min(len(events), rng.randrange(3)))
                latest = {each.publisher: each for each in sorted(start, key=lambda e: e.number)}
                story.subscribe(node, *latest.values())
                got[node] = []
            elif act < 0.8:
                events.append(story.publish(node))
        elif act < 0.05:
            story.unsubscribe(node)
            del got[node]
        elif act < 0.08:
            story.say(node, "node_started")
        elif act < 0.35:
            parents = None
            if rng.random() < 0.3:
                known = [event.cid for event in events] + ["nobody's"]
                parents = rng.sample(known, min(len(known), rng.randrange(3)))
            merge = rng.random() < 0.2
            events.append(story.publish(node, parents=parents, merge=merge))
            if rng.random() < 0.7:
                got[node].append(events[-1])
                story.deliver(node, events[-1])
        elif act < 0.4 and events:
            story.retire(node, rng.choice(events))
        elif events:
            # Mostly the oldest that is missing: then parents come first.
            missing = [event for event in events if event not in got[node]]
            if missing:
                event = missing[0] if rng.random() < 0.8 else rng.choice(missing)
                got[node].append(event)
                story.deliver(node, event)
    return tell([story], run_id)


def _compare(spark: SparkSession, runs: Sequence[tuple[int, int]]) -> Counter[str]:
    told = {f"run {at}": make_run(f"run {at}", *run) for at, run in enumerate(runs)}
    found = judge_causally(spark, [line for lines in told.values() for line in lines])
    total: Counter[str] = Counter()
    for run_id, lines in told.items():
        expected = read_plainly(lines)
        assert found.get(run_id, Counter()) == expected, (run_id, runs[int(run_id.split()[1])])
        total += expected
    return total


@settings(
    max_examples=1,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(runs=st.lists(causal_runs(), min_size=60, max_size=60))
def test_made_up_histories_are_judged_as_a_plain_reading_judges_them(
    spark: SparkSession, runs: list[tuple[int, int]]
) -> None:
    _compare(spark, runs)


@pytest.mark.slow
def test_many_made_up_histories_are_judged_as_a_plain_reading_judges_them(
    spark: SparkSession,
) -> None:
    total = _compare(spark, [(seed, 10 + seed % 60) for seed in range(2_000)])
    # A comparison of nothing with nothing would always succeed.
    assert all(total[kind] > 500 for kind in KINDS)
