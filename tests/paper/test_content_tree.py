"""The 2d-tree thesis, "content-based publish/subscribe over a DHT": its examples, and its claims.

Where we part from it: a record travels with its probe (3.3), so installing takes one way and not
two; leaves are found by everyone who has been told the tree's shape, not only by the homes above
them; a filter is routed by its most selective attribute, not by a random one (3.3); and an event
without an attribute matches no filter that asks for it, the first of the two ways in 3.4.1.
"""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.filters.domains import Domain
from pulsarcast.model.ids import cid_of
from pulsarcast.protocol.content.homes import _jump
from pulsarcast.protocol.content.shape import Shape
from pulsarcast.protocol.content.space import (
    CUT_OFF,
    DEPTH_MAX,
    REACH,
    WIDENING,
    Area,
    area,
    key_of_node,
    level,
    node_at,
    pieces,
    point_of,
    probes,
    touches,
    unit,
)
from pulsarcast.simulation.content.generator import THESIS, Generator

DOMAIN = Domain("Attribute1", "float", 0.0, 100.0)
NO_CUT_OFF = 1.0
FIGURE_3_2 = {
    "A": "000",
    "B": "001",
    "C": "0100",
    "D": "0101",
    "E": "0110",
    "F": "0111",
    "G": "1",
}
"""The leaves of figure 3.2, by the bits behind the attribute's name."""

shares = st.floats(0.0, 1.0)
ranges = st.tuples(shares, shares).map(lambda ends: tuple(sorted(ends)))


def node(bits: str) -> int:
    return int("1" + bits, 2)


def figure_3_2() -> Shape:
    shape = Shape()
    for bits in ("", "0", "00", "01", "010", "011"):
        shape.split(node(bits))
    return shape


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        ("0100", (0, 25, 50, 75)),
        ("0101", (0, 25, 75, 100)),
        ("0110", (25, 50, 50, 75)),
        ("0111", (25, 50, 75, 100)),
    ],
)
def test_table_3_1_gives_the_areas_of_the_leaves_below_101(
    bits: str, expected: tuple[float, ...]
) -> None:
    assert tuple(100 * edge for edge in area(node(bits))) == expected


def test_figure_3_2_has_these_leaves() -> None:
    leaves = set(figure_3_2().all_leaves())
    assert leaves == {node(bits) for bits in FIGURE_3_2.values()}


def test_section_3_2_1_the_subscription_10_to_80_falls_into_leaf_d() -> None:
    leaf = figure_3_2().leaf(unit(DOMAIN, 10), unit(DOMAIN, 80))
    assert leaf == node(FIGURE_3_2["D"])


def test_section_3_2_1_the_event_15_queries_the_leaves_a_c_and_d() -> None:
    found = figure_3_2().leaves(unit(DOMAIN, 15), reach=NO_CUT_OFF)
    assert found == [node(FIGURE_3_2[name]) for name in "ACD"]


def test_section_3_2_1_children_halve_x_and_y_in_turn() -> None:
    assert area(1) == Area(0.0, 1.0, 0.0, 1.0)
    assert area(node("0")) == Area(0.0, 0.5, 0.0, 1.0)
    assert area(node("1")) == Area(0.5, 1.0, 0.0, 1.0)
    assert area(node("01")) == Area(0.0, 0.5, 0.5, 1.0)


@given(ranges, st.integers(0, 12))
def test_program_3_2_the_random_node_of_a_level_holds_the_point(
    point: tuple[float, float], depth: int
) -> None:
    found = node_at(*point, depth)
    x_low, x_high, y_low, y_high = area(found)
    assert level(found) == depth
    assert x_low <= point[0] <= x_high
    assert y_low <= point[1] <= y_high


def test_section_3_3_a_guess_that_is_too_deep_jumps_to_half_the_level() -> None:
    assert _jump(node("01101101")) == node("0110")
    assert _jump(node("011")) == node("0")
    assert _jump(node("0")) == 1


def test_section_3_3_jumping_to_half_the_level_is_a_binary_search() -> None:
    at, jumps = node("01" * (DEPTH_MAX // 2)), 0
    while at != 1:
        at, jumps = _jump(at), jumps + 1
    assert jumps == DEPTH_MAX.bit_length()


def test_section_3_1_topics_with_schemas_of_their_own_share_one_network() -> None:
    """Chapter 3: a platform to host multiple services; a tree's nodes are hashed to the DHT."""
    one, other = cid_of(b"one schema"), cid_of(b"another")
    roots = {key_of_node(topic, name, 1) for topic in (one, other) for name in ("price", "size")}
    assert len(roots) == 4, "equal attributes of two topics have two trees"
    assert key_of_node(one, "price", 2) not in roots


@given(ranges, shares, st.integers(0, 3), st.integers(3, 8), st.randoms(use_true_random=False))
def test_section_3_4_1_probes_cover_every_subscription_that_holds_the_value_once(
    point: tuple[float, float], share: float, first: int, last: int, rng: Random
) -> None:
    value = point[0] + share * (point[1] - point[0])
    chosen = probes(value, first=first, last=last, chance=0.5, rng=rng, reach=NO_CUT_OFF)
    covering = [at for at in chosen if node_at(*point, level(at)) == at]
    assert len(covering) == 1


@given(ranges, shares)
def test_section_3_4_1_the_leaves_that_an_event_queries_hold_all_that_match(
    point: tuple[float, float], share: float
) -> None:
    value = point[0] + share * (point[1] - point[0])
    shape = figure_3_2()
    assert shape.leaf(*point) in shape.leaves(value, reach=NO_CUT_OFF)


def test_section_3_5_a_wide_range_becomes_points_below_the_cut_off_line() -> None:
    found = list(pieces(0.1, 0.9, Random(1)))
    assert len(found) > 1
    assert found[0].low == 0.1
    assert found[-1].high == 0.9
    for before, after in pairwise(found):
        assert before.high == after.low
        assert not before.closed
    assert all(piece.high - piece.low <= CUT_OFF for piece in found)


@given(ranges, shares, st.randoms(use_true_random=False))
def test_section_3_5_a_value_is_in_one_piece_and_its_leaf_is_searched(
    ends: tuple[float, float], share: float, rng: Random
) -> None:
    low, high = ends
    value = min(high, low + share * (high - low))
    holding = [piece for piece in pieces(low, high, rng) if piece.holds(value)]
    assert len(holding) == 1
    x, y = point_of(holding[0], b"somebody")
    for depth in range(12):
        assert touches(node_at(x, y, depth), value, REACH)


def test_section_3_5_the_corner_that_nearly_every_event_searched_is_searched_by_none() -> None:
    corner = node("0101")  # ranges that begin in the first quarter and end in the last
    values = [number / 100 for number in range(101)]
    without = [value for value in values if touches(corner, value, NO_CUT_OFF)]
    assert len(without) / len(values) > 0.9
    assert not [value for value in values if touches(corner, value)]


def test_section_3_3_equal_ranges_are_told_apart_by_widening_them_a_little() -> None:
    (piece,) = pieces(0.25, 0.3, Random(1))
    points = {point_of(piece, b"%d" % owner) for owner in range(100)}
    assert len(points) == 100
    for x, y in points:
        assert 0.25 - WIDENING <= x <= 0.25
        assert 0.3 <= y <= 0.3 + WIDENING


def test_table_4_3_subscriptions_are_of_the_sizes_and_attributes_it_says() -> None:
    generator = Generator(Random(1))
    texts = [generator.subscription() for _ in range(400)]
    for column in THESIS:
        share = sum(column.name in text for text in texts) / len(texts)
        # 0.5 each; those without any attribute are drawn again.
        assert share == pytest.approx(0.5 / (1 - 0.5**4), abs=0.08)
    for _ in range(200):
        for column in THESIS:
            assert column.low <= generator.event()[column.name] <= column.high


def test_table_4_3_popular_sub_ranges_are_popular() -> None:
    generator = Generator(Random(2))
    counts: dict[int, int] = {}
    for _ in range(3000):
        subrange = int(generator.event()["Attr1"] // 100)
        counts[subrange] = counts.get(subrange, 0) + 1
    # Zipf's law with skew 0.6 over 100 sub-ranges: the first has a share of about 6.6 %.
    assert max(counts.values()) / 3000 == pytest.approx(0.066, abs=0.02)
