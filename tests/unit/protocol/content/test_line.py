"""The cut-off line falls where ranges are narrow, rises where they are not, and does not swing."""

from itertools import pairwise
from random import Random

import pytest

from pulsarcast.protocol.content.line import PIECES_MIN, Lines, moved, wanted_level
from pulsarcast.protocol.content.messages import AskShape
from pulsarcast.protocol.content.place import Place
from pulsarcast.protocol.content.rules import LINE_S, ContentRules
from pulsarcast.protocol.content.space import CUT_OFFS, ROOT, Line, Widths, pieces
from tests.unit.protocol.content.parts import Parts
from tests.unit.protocol.content.stage import TOPIC

LOWEST = len(CUT_OFFS) - 1


def widths(level: int, ranges: list[float], seed: int = 1) -> Widths:
    """Those of ranges that are cut at a level of the line."""
    rng = Random(seed)
    counts, parts = [0] * len(CUT_OFFS), 0
    for width in ranges:
        for piece in pieces(0.0, width, rng, CUT_OFFS[level]):
            wide = piece.high - piece.low
            counts[sum(wide <= cut_off for cut_off in CUT_OFFS[1:])] += 1
            parts += not piece.closed
    return Widths(tuple(counts), parts)


def settled(ranges: list[float], start: int = 0) -> list[int]:
    """The levels that a line takes, for ranges that stay the same."""
    line, levels = Line(start, start), [start]
    for turn in range(20):
        line = moved(line, wanted_level(widths(line.cut, ranges, turn), line.cut))
        assert line.reach <= line.cut, "publishers never search below what subscribers cut by"
        if line.cut == line.reach != levels[-1]:
            levels.append(line.cut)
    return levels


def test_narrow_ranges_take_the_line_down_in_one_move() -> None:
    assert settled([0.001] * 100) == [0, LOWEST]
    assert settled([0.01] * 100) == [0, 4], "a range of 0.01 is whole at 0.0125"


def test_wide_ranges_leave_the_line_where_it_is() -> None:
    assert settled([0.15] * 100) == [0]
    assert settled([1.0] * 100) == [0]


def test_a_few_wide_ranges_hold_the_line_the_higher_the_wider_they_are() -> None:
    assert settled([0.001] * 99 + [0.15])[-1] in (3, 4)
    assert settled([0.001] * 90 + [0.15] * 10) == [0, 1]
    assert settled([0.001] * 80 + [0.15] * 20) == [0]


def test_the_line_rises_level_by_level_where_most_pieces_are_parts() -> None:
    levels = settled([1.0] * 20, start=LOWEST)
    assert levels[:2] == [LOWEST, LOWEST - 1]
    assert levels[-1] == 0


@pytest.mark.parametrize("seed", range(6))
def test_the_line_never_swings_for_the_same_ranges(seed: int) -> None:
    rng = Random(seed)
    widest = rng.choice((0.005, 0.05, 0.5))
    ranges = [rng.random() ** rng.choice((1, 3, 6)) * widest for _ in range(80)]
    for start in (0, LOWEST):
        levels = settled(ranges, start)
        rises = [later < earlier for earlier, later in pairwise(levels)]
        assert len(set(rises)) <= 1, levels


def test_a_line_that_falls_is_told_to_subscribers_first_and_one_that_rises_to_publishers() -> None:
    assert moved(Line(1, 1), 4) == Line(4, 1)
    assert moved(Line(4, 1), 4) == Line(4, 4)
    assert moved(Line(4, 1), 3) == Line(1, 1), "nobody cuts higher yet"
    assert moved(Line(4, 4), 3) == Line(4, 3)
    assert moved(Line(4, 3), 3) == Line(3, 3)
    assert moved(Line(4, 4), 4) == Line(4, 4)


def test_a_handful_of_pieces_moves_nothing() -> None:
    assert wanted_level(widths(0, [0.001] * (PIECES_MIN - 1)), 0) == 0
    assert wanted_level(Widths(), 2) == 2


def lines_of(parts: Parts) -> tuple[Lines, Place]:
    place = parts.hold(ROOT)
    place.is_split = True
    for node in range(1, 1 << 3):
        parts.trees.shape(TOPIC.topic, "price").split(node)
    parts.turn.now = LINE_S
    return Lines(parts.context, parts.trees, parts.places, parts.hints.queries), place


def test_the_home_of_a_root_asks_leaves_and_moves_the_line_no_faster_than_all_can_know() -> None:
    peers = Parts()
    lines, place = lines_of(peers)
    moves: list[float] = []
    for _ in range(40):
        if lines.tend(place):
            moves.append(peers.turn.now)
        level = place.line.cut
        place.sample = widths(level, [0.001] * 50)
        peers.turn.now += LINE_S / 4
    assert place.line == Line(LOWEST, LOWEST)
    assert len(moves) == 2
    assert moves[1] - moves[0] >= 2 * LINE_S


def test_a_leaf_that_is_asked_tells_how_wide_its_pieces_are() -> None:
    parts = Parts()
    lines, place = lines_of(parts)
    leaf = parts.hold(8)
    assert leaf.widths(ContentRules.cut_offs) == Widths((0,) * len(CUT_OFFS), 0)
    lines.tend(place)
    assert not any(place.sample.counts)
    lines.sampled(TOPIC.topic, "price", Widths((1, 2), 1))
    lines.sampled(TOPIC.topic, "price", Widths((1,), 0))
    assert (place.sample.counts[:3], place.sample.parts) == ((2, 2, 0), 1)
    lines.sampled(TOPIC.topic, "size", Widths((1,), 0))


def test_a_root_that_has_not_split_needs_no_line() -> None:
    parts = Parts()
    lines, place = lines_of(parts)
    place.is_split = False
    assert not lines.tend(place)
    assert not [each for each in parts.core.sent() if isinstance(each[1], AskShape)]
