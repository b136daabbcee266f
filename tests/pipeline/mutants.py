"""Mutants: for each kind of finding at least three ways to break a promise, and what they come to.

Each is a small story in a topic of its own. `plant` hides them in the traces of a clean run: it
puts their lines in the place of lines that no promise is about, so that nothing else changes, not
even a seq. That works for a trace of any size: it is given the lines of some nodes' last segments,
and gives back which of them become what, and which findings there must be then, and no others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from tests.pipeline import plots
from tests.pipeline.plots import ROLES
from tests.pipeline.stories import Line, Story

FILLERS: Final = ("rpc_sent", "rpc_received", "resources")
"""Lines that no promise is about."""

Plot: TypeAlias = Callable[[Story], None]
Key: TypeAlias = tuple[str, str, int, int]
"""What names a line: run, node, incarnation, seq."""


class Mutant(NamedTuple):
    """One way to break a promise: told in a topic of this order, found as these."""

    name: str
    order: str
    plot: Plot
    found: Mapping[str, int]


@dataclass
class Planted:
    """Which lines become what, and what must be found then."""

    edits: dict[Key, Line] = field(default_factory=dict)
    expected: Counter[str] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)


def key_of(line: Line) -> Key:
    """What names a line."""
    return line["run_id"], line["node_id"], line["incarnation"], line["seq"]


def plant(lines: Iterable[Line], *, each: int = 3) -> Planted:
    """Hide mutants of every kind, `each` at least, in lines of nodes that run to the end."""
    rooms = _rooms(lines)
    planted = Planted()
    for mutant in select(each):
        # The nodes with most room left: the mutants spread over all of them.
        names = sorted(rooms, key=lambda name: len(rooms[name]), reverse=True)[:ROLES]
        story = Story(f"mutant {mutant.name}", names, mutant.order)
        mutant.plot(story)
        for node, said in story.said.items():
            room = rooms[names[node]]
            assert len(room) >= len(said), f"no room for {mutant.name}: give more lines"
            for line, record in zip(room[: len(said)], said, strict=True):
                planted.edits[key_of(line)] = {**_envelope(line), **record}
            del room[: len(said)]
        planted.expected.update(mutant.found)
        planted.names.append(mutant.name)
    return planted


def apply(planted: Planted, lines: Iterable[Line]) -> Iterator[Line]:
    """The same lines with the mutants among them."""
    for line in lines:
        yield planted.edits.get(key_of(line), line)


def select(each: int) -> list[Mutant]:
    """So many mutants of every kind, or all there are."""
    kinds: Counter[str] = Counter()
    chosen = []
    for mutant in MUTANTS:
        kind = mutant.name.split("/")[0]
        kinds[kind] += 1
        if kinds[kind] <= each:
            chosen.append(mutant)
    return chosen


def _rooms(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """The lines that may be replaced, by node: of its last life, in their sequence."""
    lives: dict[str, int] = {}
    stopped: set[str] = set()
    rooms: dict[str, list[Line]] = {}
    for line in sorted(lines, key=lambda line: (line["node_id"], line["incarnation"], line["seq"])):
        name = line["node_id"]
        if line["incarnation"] != lives.get(name):
            lives[name] = line["incarnation"]
            rooms[name] = []
            stopped.discard(name)
        if line["kind"] in FILLERS:
            rooms[name].append(line)
        elif line["kind"] == "node_stopped":
            stopped.add(name)
    return {name: room for name, room in rooms.items() if name in stopped}


def _envelope(line: Line) -> Line:
    names = ("schema_version", "run_id", "node_id", "incarnation", "seq", "wall_ns", "mono_ns")
    return {name: line[name] for name in names}


MUTANTS: Final = (
    Mutant("lost/one", "none", plots.one_is_missing, {"lost": 1}),
    Mutant("lost/the last", "per-publisher", plots.the_last_is_missing_at_two, {"lost": 2}),
    Mutant("lost/all", "total", plots.one_gets_nothing, {"lost": 2}),
    Mutant("lost/flush", "per-publisher", plots.missing_beside_a_flush, {"lost": 2}),
    Mutant("duplicate/plain", "none", plots.delivered_twice, {"duplicate": 1}),
    Mutant("duplicate/marked", "total", plots.delivered_twice_and_marked, {"duplicate": 1}),
    Mutant("duplicate/twins", "none", plots.both_twins_delivered, {"duplicate": 1}),
    Mutant("order/two", "per-publisher", plots.two_turned_around, {"order": 1}),
    Mutant("order/three", "per-publisher", plots.the_last_comes_first, {"order": 2}),
    Mutant(
        "order/two publishers", "per-publisher", plots.two_publishers_turned_around, {"order": 2}
    ),
    Mutant("total_order/two", "total", plots.total_turned_around, {"order": 1, "total_order": 6}),
    Mutant(
        "total_order/the last",
        "total",
        plots.total_turned_around_at_the_end,
        {"order": 1, "total_order": 3},
    ),
    Mutant("total_order/left out", "total", plots.left_out_before_leaving, {"total_order": 2}),
    Mutant("causal_order/two", "causal", plots.child_before_parent, {"causal_order": 1}),
    Mutant(
        "causal_order/never",
        "causal",
        plots.child_without_parent_before_leaving,
        {"causal_order": 1},
    ),
    Mutant(
        "causal_order/one of two",
        "causal",
        plots.child_before_one_of_two_parents,
        {"causal_order": 1},
    ),
    Mutant("causal_parents/none", "causal", plots.not_linked_at_all, {"causal_parents": 1}),
    Mutant(
        "causal_parents/stale",
        "causal",
        plots.linked_to_what_is_no_head_any_more,
        {"causal_parents": 1},
    ),
    Mutant(
        "causal_parents/unseen",
        "causal",
        plots.linked_to_what_comes_after_it,
        {"causal_order": 1, "causal_parents": 1},
    ),
    Mutant("fork/two publishers", "total", plots.two_at_one_position, {"fork": 1}),
    Mutant("fork/two epochs", "total", plots.the_position_of_an_earlier_epoch, {"fork": 1}),
    Mutant("fork/three", "total", plots.three_at_one_position, {"fork": 2}),
    Mutant("chain/nothing", "total", plots.linked_to_nothing, {"chain": 1}),
    Mutant("chain/too far", "total", plots.linked_to_the_one_before_the_last, {"chain": 1}),
    Mutant("chain/hole", "total", plots.a_position_left_out, {"chain": 1}),
    Mutant("election/two", "total", plots.two_lead_in_one_term, {"election": 1}),
    Mutant("election/three", "total", plots.three_lead_in_one_term, {"election": 2}),
    Mutant("election/later", "total", plots.two_lead_in_a_later_term, {"election": 1}),
    Mutant(
        "equivocation/acknowledged",
        "none",
        plots.another_under_a_number_that_was_acknowledged,
        {"equivocation": 1},
    ),
    Mutant(
        "equivocation/told twice",
        "per-publisher",
        plots.another_under_that_number_told_twice,
        {"equivocation": 2},
    ),
    Mutant(
        "equivocation/delivered",
        "none",
        plots.another_under_a_number_that_was_delivered,
        {"equivocation": 1},
    ),
    Mutant("published_twice/two", "none", plots.two_events_of_an_injection, {"published_twice": 1}),
    Mutant(
        "published_twice/three", "none", plots.three_events_of_an_injection, {"published_twice": 2}
    ),
    Mutant(
        "published_twice/elsewhere",
        "per-publisher",
        plots.an_injection_at_two_publishers,
        {"published_twice": 1},
    ),
    Mutant("forged/unpublished", "none", plots.delivered_and_never_published, {"forged": 1}),
    Mutant("forged/number", "per-publisher", plots.delivered_under_anothers_number, {"forged": 1}),
    Mutant("forged/name", "none", plots.published_in_anothers_name, {"forged": 1}),
    Mutant("forged/uninjected", "none", plots.published_and_never_injected, {"forged": 1}),
    Mutant("not_allowed/plain", "none", plots.published_by_one_who_may_not, {"not_allowed": 1}),
    Mutant(
        "not_allowed/twice",
        "per-publisher",
        plots.published_again_by_one_who_may_not,
        {"not_allowed": 2},
    ),
    Mutant("not_allowed/nobody", "none", plots.published_where_nobody_may, {"not_allowed": 1}),
    Mutant(
        "not_subscribed/never",
        "none",
        plots.delivered_to_one_who_never_subscribed,
        {"not_subscribed": 1},
    ),
    Mutant(
        "not_subscribed/left",
        "per-publisher",
        plots.delivered_to_one_who_has_left,
        {"not_subscribed": 1},
    ),
    Mutant(
        "not_subscribed/too early",
        "total",
        plots.delivered_to_one_who_comes_later,
        {"not_subscribed": 1},
    ),
    Mutant("before_start/one", "none", plots.delivered_from_before_the_start, {"before_start": 1}),
    Mutant("before_start/two", "total", plots.two_from_before_the_start, {"before_start": 2}),
    Mutant(
        "before_start/twice",
        "per-publisher",
        plots.one_from_before_the_start_twice,
        {"before_start": 2},
    ),
    Mutant("number_gap/one", "none", plots.a_number_left_out, {"number_gap": 1}),
    Mutant("number_gap/first", "per-publisher", plots.the_first_number_left_out, {"number_gap": 1}),
    Mutant("number_gap/two", "none", plots.two_numbers_left_out, {"number_gap": 1}),
    Mutant(
        "acknowledged_unpublished/one",
        "none",
        plots.acknowledged_and_unheard_of,
        {"acknowledged_unpublished": 1},
    ),
    Mutant(
        "acknowledged_unpublished/two levels",
        "none",
        plots.acknowledged_twice_and_unheard_of,
        {"acknowledged_unpublished": 2},
    ),
    Mutant(
        "acknowledged_unpublished/second",
        "none",
        plots.acknowledged_beside_another,
        {"acknowledged_unpublished": 1, "equivocation": 1},
    ),
)
"""The kind comes first in a mutant's name; at least three of each kind."""
