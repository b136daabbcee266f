"""Incomplete traces: runs of which something is missing, and what must be said about each."""

from __future__ import annotations

from tests.pipeline.stories import Line, Story, name_of, tell

NAMES = [name_of(node) for node in range(3)]


def _told(run_id: str) -> list[Line]:
    story = Story(run_id, NAMES)
    story.begin(0, 1)
    for _ in range(3):
        event = story.publish(0)
        story.deliver(0, event)
        story.deliver(1, event)
    return tell([story], run_id, fillers=1)


def _without(run_id: str, *, kind: str, node: int = 1) -> list[Line]:
    lines = _told(run_id)
    at = next(
        at
        for at, line in enumerate(lines)
        if line["kind"] == kind and line["node_id"] == NAMES[node]
    )
    return lines[:at] + lines[at + 1 :]


def _newer(run_id: str, *, node: int) -> list[Line]:
    """One node writes a newer version from its second life on."""
    story = Story(run_id, NAMES)
    story.begin(0, 1)
    for life in (1, 2):
        event = story.publish(0, acknowledged=False)
        story.acknowledge(1, event)
        story.deliver(0, event)
        story.deliver(1, event)
        if life == 1:
            story.say(node, "node_stopped", reason="another version is installed")
            story.say(node, "node_started")
    return [
        {**line, "schema_version": 99}
        if line["node_id"] == NAMES[node] and line["incarnation"] == 2
        else line
        for line in tell([story], run_id)
    ]


def _driver(run_id: str, *records: Line) -> list[Line]:
    return [
        {
            **_told(run_id)[0],
            "node_id": "driver",
            "seq": seq,
            **record,
        }
        for seq, record in enumerate(records, 1)
    ]


def _fault(target: str, life: int, action: str = "kill") -> Line:
    hit = {"target": target, "target_incarnation": life, "detail": ""}
    return {"kind": "fault", "action": action, **hit}


INCOMPLETE: dict[str, tuple[list[Line], dict[str, int]]] = {
    "whole": (_told("whole"), {}),
    "a line is missing": (_without("a line is missing", kind="resources"), {"seq_gap": 1}),
    "the first line is missing": (
        _without("the first line is missing", kind="node_started"),
        {"seq_gap": 1},
    ),
    "no end": (_without("no end", kind="node_stopped"), {"no_end": 1}),
    "killed on record": (
        _without("killed on record", kind="node_stopped")
        + _driver("killed on record", _fault(NAMES[1], 1)),
        {},
    ),
    "another life was killed": (
        _without("another life was killed", kind="node_stopped")
        + _driver("another life was killed", _fault(NAMES[1], 2)),
        {"no_end": 1, "no_lines": 1},
    ),
    "restarted on record and never heard of": (
        _without("restarted on record and never heard of", kind="node_stopped")
        + _driver(
            "restarted on record and never heard of",
            _fault(NAMES[1], 1),
            _fault(NAMES[1], 1, "restart"),
        ),
        {"no_lines": 1},
    ),
    "a driver that does not say it started": (
        _told("a driver that does not say it started")
        + _driver("a driver that does not say it started", {"kind": "resources"}),
        {},
    ),
    "a driver that says it started and not that it stopped": (
        _told("a driver that says it started and not that it stopped")
        + _driver(
            "a driver that says it started and not that it stopped", {"kind": "node_started"}
        ),
        {"no_end": 1},
    ),
    "a line of the driver is missing": (
        _told("a line of the driver is missing")
        + _driver("a line of the driver is missing", *({"kind": "resources"},) * 3)[::2],
        {"seq_gap": 1},
    ),
    "asked and never heard of": (
        _told("asked and never heard of")
        + _driver(
            "asked and never heard of",
            {"kind": "injected", "topic": "any", "injection": "1", "author": NAMES[2]},
        ),
        {"no_lines": 1},
    ),
    "nothing happened": (
        tell([Story("", NAMES, said={0: []})], "nothing happened"),
        {"no_events": 1},
    ),
    "from the future": (
        [{**line, "schema_version": 99} for line in _told("from the future")],
        {"newer_version": 2},
    ),
    "a subscriber of the future": (
        _newer("a subscriber of the future", node=1),
        {"newer_version": 1},
    ),
    "a publisher of the future": (
        _newer("a publisher of the future", node=0),
        {"newer_version": 1},
    ),
}
"""By the run's id: its lines, and how often each reason not to know applies."""
