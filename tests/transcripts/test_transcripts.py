"""Readable runs, compared with what is checked in.

A change of the protocol shows here as a difference that a person can review. To rewrite them:

    PULSARCAST_REWRITE_TRANSCRIPTS=1 .venv/bin/python -m pytest tests/transcripts
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import Dissemination
from pulsarcast.protocol.parameters import Parameters
from tests.support.lab import Lab
from tests.support.people import unordered
from tests.transcripts.transcript import Transcript

HERE = Path(__file__).parent
REWRITE = os.environ.get("PULSARCAST_REWRITE_TRANSCRIPTS") == "1"
NARROW = Parameters(fanout=2)


def a_parent_dies() -> tuple[Lab, Cid]:
    """Five nodes: create, join, publish, kill a parent, rejoin, catch up."""
    lab = Lab(5, parameters=NARROW)
    topic = lab.create(0)
    lab.subscribe([1, 2, 3, 4], topic)
    lab.publish(0, topic, b"all are here", replicated=False)
    parent = next(index for index in (1, 2, 3, 4) if lab.view(index, topic).children)
    lab.world.kill(parent)
    lab.publish(0, topic, b"nobody below the dead one hears this at first", replicated=False)
    lab.run(5.0)
    lab.world.restart(parent)
    lab.run(5.0)
    return lab, topic


def a_member_leaves() -> tuple[Lab, Cid]:
    """Five nodes: a member with children unsubscribes while events go on."""
    lab = Lab(5, parameters=NARROW)
    topic = lab.create(0)
    lab.subscribe([1, 2, 3, 4], topic)
    parent = next(index for index in (1, 2, 3, 4) if lab.view(index, topic).children)
    lab.unsubscribe(parent, topic)
    lab.publish(0, topic, b"to those who stayed", replicated=False)
    return lab, topic


def a_child_in_a_cube_dies() -> tuple[Lab, Cid]:
    """Six nodes, a cube: come in, publish, lose the first of a bucket, and one leaves."""
    lab = Lab(6)
    topic = lab.create(0, unordered(dissemination=Dissemination.CUBE))
    lab.subscribe([1, 2, 3, 4, 5], topic)
    lab.publish(2, topic, b"all are here", replicated=False)
    child = lab.world.index_of(lab.world.node(2).cubes()[topic].children[0])
    lab.world.kill(child)
    lab.publish(2, topic, b"past the dead one", replicated=False)
    lab.unsubscribe(4 if child != 4 else 5, topic)
    lab.publish(2, topic, b"to those who stayed", replicated=False)
    return lab, topic


RUNS: dict[str, Callable[[], tuple[Lab, Cid]]] = {
    "a_parent_dies": a_parent_dies,
    "a_member_leaves": a_member_leaves,
    "a_child_in_a_cube_dies": a_child_in_a_cube_dies,
}


def render(name: str) -> str:
    """The transcript of a run, with what it is about on top."""
    run = RUNS[name]
    lab, topic = run()
    assert run.__doc__ is not None
    return "\n".join([f"# {run.__doc__}", *Transcript(lab, topic).lines(), ""])


@pytest.mark.parametrize("name", RUNS)
def test_a_run_reads_as_it_did_when_it_was_reviewed(name: str) -> None:
    path = HERE / f"{name}.txt"
    text = render(name)
    if REWRITE:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "review the difference, then rewrite it"


def test_a_transcript_is_the_same_each_time() -> None:
    """Same seed, same lines: else a difference would mean nothing."""
    assert render("a_parent_dies") == render("a_parent_dies")


def test_the_transcript_of_a_dead_parent_tells_the_whole_story() -> None:
    """What the file must show, whatever else changes."""
    text = render("a_parent_dies")
    for sentence in (
        "creates the topic",
        "is subscribed from the beginning",
        "publishes e1 as number 1",
        "delivers e1 at place 1",
        "kill n",
        "publishes e2 as number 2",
        "restart n",
        "delivers e2 at place 2",
    ):
        assert sentence in text
    assert text.count("delivers e2") == 4, "everyone subscribed gets what it missed"
