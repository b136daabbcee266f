"""The simulator's own checkers come to the same: they hear the mutants' stories as they happen.

So what a mutant is expected to be found as is not only this pipeline's opinion.
"""

from __future__ import annotations

import json

import pytest

from pulsarcast.model import trace
from pulsarcast.model.ids import parse_peer
from pulsarcast.pipeline.checks import COMMON
from pulsarcast.protocol.inputs import Now
from pulsarcast.simulation.checkers.causality import settle_causality
from pulsarcast.simulation.checkers.coverage import check_coverage
from pulsarcast.simulation.observer import Observer
from tests.pipeline.mutants import MUTANTS, Mutant
from tests.pipeline.shared_runs import NAMES
from tests.pipeline.stories import Story, Trace


def hear(story: Story) -> dict[str, int]:
    """What the simulator's observer finds in a story."""
    observer = Observer()
    nodes = [Trace("a run", name) for name in story.names]
    for index, name in enumerate(story.names):
        observer.peers[index] = parse_peer(name)
    for time_s, (index, record) in enumerate(story.sequence):
        nodes[index].say(record)
        line = trace.decode_line(json.dumps(nodes[index].lines[-1]))
        said = line.record
        if isinstance(said, trace.TopicCreated):
            allowed = None if said.allowed is None else frozenset(said.allowed)
            observer.allow(said.version, allowed)
            observer.book(said.topic).retention_count = said.retention_count
        observer.record(float(time_s), index, 1, Now(0, 0), said)
        if isinstance(said, trace.Subscribed):
            observer.confirmed(index, said.topic)
    settle_causality(observer)
    check_coverage(observer, now_s=float(len(story.sequence)))
    return observer.findings.by_kind()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_simulators_checkers_find_the_same_in_a_mutant(mutant: Mutant) -> None:
    story = Story(mutant.name, NAMES, mutant.order)
    mutant.plot(story)
    expected = {kind: count for kind, count in mutant.found.items() if kind in COMMON}
    if mutant.name == "forged/uninjected":
        # Nobody tells the simulator's checkers what was injected.
        expected = {}
    assert hear(story) == expected
