"""Workloads: the events and subscriptions of each user, in the thesis' format (Listing 5.1).

A workload is NDJSON: first a line for each topic, then one for each user. A user stands for a
node; its events come in the order in which they are to be published. The functions here take lines;
their callers open the files.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pulsarcast.model.errors import LocalError


class WorkloadTopic(msgspec.Struct, frozen=True):
    """A topic, and the node that creates it."""

    name: str
    node: str
    event_count: int


class WorkloadEvent(msgspec.Struct, frozen=True, gc=False):
    """One event to be published."""

    internal_id: int  # its place among all events of the workload
    topic: str
    ups: int  # the votes that the comment had: a number for filters to ask about
    body: str = ""  # absent in the files at hand


class WorkloadUser(msgspec.Struct, frozen=True):
    """A user, the node that it stands for, its subscriptions and its events."""

    name: str
    node: str
    events: list[WorkloadEvent]
    subscriptions: list[str]


class Workload(msgspec.Struct, frozen=True):
    """All topics and users of one execution."""

    topics: list[WorkloadTopic]
    users: list[WorkloadUser]


class _TopicLine(msgspec.Struct, tag_field="type", tag="topic", rename="camel"):
    """A topic as the file has it, without its author's name: the acting peers are nodes."""

    name: str
    node: str
    total_number_events: int


class _EventEntry(msgspec.Struct, rename="camel"):
    """An event as it is written; downs and controversiality are always 0, and left aside."""

    internal_id: int
    topic: str
    ups: int = 0
    body: str = ""


class _UserLine(msgspec.Struct, tag_field="type", tag="user"):
    """A user as it is written."""

    name: str
    node: str
    events: list[_EventEntry]
    subscriptions: dict[str, bool]


_line_decoder: msgspec.json.Decoder[_TopicLine | _UserLine] = msgspec.json.Decoder(
    _TopicLine | _UserLine
)


def parse_workload(lines: Iterable[str | bytes]) -> Workload:
    """Read a workload's lines, in any order of topics and users; empty lines are passed over."""
    workload = Workload([], [])
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        match _parse_line(text, number):
            case _TopicLine() as line:
                topic = WorkloadTopic(line.name, line.node, line.total_number_events)
                workload.topics.append(topic)
            case _UserLine() as line:
                workload.users.append(_user(line))
    return workload


def _parse_line(text: str | bytes, number: int) -> _TopicLine | _UserLine:
    try:
        return _line_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise LocalError(f"line {number} of the workload: {error}") from error


def _user(line: _UserLine) -> WorkloadUser:
    return WorkloadUser(
        name=line.name,
        node=line.node,
        events=[WorkloadEvent(e.internal_id, e.topic, e.ups, e.body) for e in line.events],
        subscriptions=[topic for topic, wanted in line.subscriptions.items() if wanted],
    )
