"""Which of two events with one number stands, where two sequencers contradict each other."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from pulsarcast.pipeline.history.publications import standing
from tests.pipeline.judging import as_table
from tests.pipeline.stories import Event, Line, Story, name_of, tell

NAMES = sorted(name_of(node) for node in range(3))
COUNT = name_of("the count of all sequencers")


def contradict(run_id: str, *delivered: int) -> list[Line]:
    """Two sequencers say two events of one number, each as the second line of its trace.

    The third node delivers those that are named.
    """
    story = Story(run_id, [*NAMES, COUNT], "total")
    events = [Event(f"{run_id}: said by {sayer}", 3, epoch=0, number=1) for sayer in range(2)]
    for sayer, event in enumerate(events):
        story.tell_published(event, said_by=sayer)
        story.said[sayer][-1]["position"] = {"term": 1 + sayer, "number": 1}
    story.deliver(2, *(events[sayer] for sayer in delivered))
    return tell([story], run_id)


def test_of_two_sequencers_at_one_place_one_stands(spark: SparkSession, tmp_path: Path) -> None:
    """Places are as high, so names decide: the first of those that left, or else the last."""
    expected = {"neither left": 1, "both left": 0, "the first left": 0, "the second left": 1}
    lines = [
        *contradict("neither left"),
        *contradict("both left", 1, 0),
        *contradict("the first left", 0),
        *contradict("the second left", 1),
    ]
    said = [line for line in lines if line["kind"] == "published"]
    assert {(line["incarnation"], line["seq"]) for line in said} == {(1, 2)}
    rows = standing(as_table(spark, lines, tmp_path)).collect()
    stands = sorted((row["run_id"], row["event"], row["node_id"]) for row in rows)
    assert stands == sorted(
        (run_id, f"{run_id}: said by {sayer}", NAMES[sayer]) for run_id, sayer in expected.items()
    )
