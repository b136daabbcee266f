"""Tampering: the lines of a clean run, each time with one thing in them that was not so.

Only what lines say is changed, never where they stand: nothing is missing then, and every finding
is about what was changed. What is exchanged was out by then, for those who go by the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Final, TypeAlias, TypeVar

from pulsarcast.pipeline.schema import ENVELOPE
from tests.pipeline.stories import Line, cid

Tamper: TypeAlias = Callable[[list[Line]], None]
"""Changes lines, which are in the order of their times."""

T = TypeVar("T")
_WHERE: Final = frozenset(ENVELOPE) - {"kind"}


def tampered(lines: list[Line], tamper: Tamper, run_id: str) -> list[Line]:
    """The same lines as another run, changed."""
    changed = deepcopy(lines)
    tamper(changed)
    return [{**line, "run_id": run_id} for line in changed]


# In any order.


def left_out(lines: list[Line]) -> None:
    """A node was not given an event."""
    _void(_late(_deliveries(lines))[0])


def given_another(lines: list[Line]) -> None:
    """A node was given an event that nobody published."""
    _late(_deliveries(lines))[0]["event"] = cid("nobody's")


def acknowledged_unheard_of(lines: list[Line]) -> None:
    """A caller was promised something about an event that there is not."""
    line = next(line for line in lines if line["kind"] == "acknowledged")
    line["event"] = cid("nobody's")


# In total order, with several sequencers.


def exchanged(lines: list[Line]) -> None:
    """A node was given two events the wrong way round."""
    _exchange(*_late(list(_exchangeable(lines)))[0])


def exchanged_across_terms(lines: list[Line]) -> None:
    """The same, one of the last leader and one of the next."""
    terms = {line["event"]: line["position"]["term"] for line in _published(lines)}
    for one, other in _exchangeable(lines, close=False):
        if terms[one["event"]] < terms[other["event"]]:
            _exchange(one, other)
            return
    raise AssertionError("no leader changed")


def linked_to_another(lines: list[Line]) -> None:
    """An event does not follow the one before."""
    first, *_, line = _published(lines)
    line["parents"] = [first["event"]]


def asked_once_and_placed_twice(lines: list[Line]) -> None:
    """Two events stand for one request."""
    one, *_, other = _published(lines)
    other["request_id"] = one["request_id"]


def two_lead(lines: list[Line]) -> None:
    """Somebody who heard who leads says that it leads itself."""
    heard = [line for line in lines if line["kind"] == "leader_changed"]
    line = next(each for each in heard if each["leader"] not in (None, each["node_id"]))
    line["leader"] = line["node_id"]


def another_at_a_position(lines: list[Line]) -> None:
    """A sequencer lets another event out at a place that is taken."""
    placed = _published(lines)
    first = placed[0]
    line = next(each for each in placed[1:] if each["node_id"] != first["node_id"])
    for name in ("epoch", "number", "position", "parents"):
        line[name] = deepcopy(first[name])


SEQUENCED: Final[dict[str, Tamper]] = {
    "left out": left_out,
    "given another": given_another,
    "acknowledged and unheard of": acknowledged_unheard_of,
    "exchanged": exchanged,
    "exchanged across terms": exchanged_across_terms,
    "linked to another": linked_to_another,
    "asked once and placed twice": asked_once_and_placed_twice,
    "two lead": two_lead,
    "another at a position": another_at_a_position,
}


# In causal order.


def answered_before_asked(lines: list[Line]) -> None:
    """A node was given an event before one that it follows."""
    parents = {line["event"]: line["parents"] for line in _published(lines)}
    for one, other in _exchangeable(lines):
        if one["event"] in parents[other["event"]] and one["publisher"] != other["publisher"]:
            _exchange(one, other)
            return
    raise AssertionError("nothing follows anything")


def a_head_left_out(lines: list[Line]) -> None:
    """An event does not name all that its publisher was given last."""
    line = next(line for line in _published(lines)[3:] if len(line["parents"]) > 1)
    line["parents"] = line["parents"][1:]


def a_stranger_named(lines: list[Line]) -> None:
    """An event names what its publisher was given only later."""
    *_, last = _published(lines)
    line = next(line for line in _published(lines)[3:] if line["node_id"] != last["node_id"])
    line["parents"] = [*line["parents"], last["event"]]


CAUSAL: Final[dict[str, Tamper]] = {
    "left out": left_out,
    "given another": given_another,
    "answered before asked": answered_before_asked,
    "a head left out": a_head_left_out,
    "a stranger named": a_stranger_named,
}


# Looking.


def _published(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["kind"] == "published"]


def _deliveries(lines: list[Line]) -> list[Line]:
    """First deliveries that did not come again after a kill."""
    times: dict[tuple[str, str], int] = {}
    found = [line for line in lines if line["kind"] == "delivered"]
    for line in found:
        key = (line["node_id"], line["event"])
        times[key] = times.get(key, 0) + 1
    return [line for line in found if times[line["node_id"], line["event"]] == 1]


def _exchangeable(lines: list[Line], *, close: bool = True) -> Iterator[tuple[Line, Line]]:
    """Deliveries of one life after another, the second of which was out at the time of the first.

    `close`: right after another.
    """
    out_ns = {line["event"]: line["mono_ns"] for line in _published(lines)}
    lives: dict[tuple[str, int], list[Line]] = {}
    for line in _deliveries(lines):
        earlier = lives.setdefault((line["node_id"], line["incarnation"]), [])
        for one in earlier[-1:] if close else reversed(earlier):
            if out_ns[line["event"]] < one["mono_ns"]:
                yield one, line
        earlier.append(line)


def _late(found: list[T]) -> list[T]:
    """Those in the second half: nothing there is the first of anything."""
    return found[len(found) // 2 :]


def _exchange(one: Line, other: Line) -> None:
    for name in (one.keys() | other.keys()) - _WHERE:
        one[name], other[name] = other.get(name), one.get(name)


def _void(line: Line) -> None:
    """Say something that no promise is about instead."""
    for name in line.keys() - _WHERE:
        del line[name]
    line.update(kind="resources", cpu_s=0.0, rss_bytes=0, bytes_in=0, bytes_out=0)
