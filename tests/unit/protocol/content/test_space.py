"""Where a value lies in its domain: in order, in [0, 1], and of use however wide the domain is."""

import sys
from itertools import pairwise

import pytest

from pulsarcast.model.filters.domains import Domain
from pulsarcast.protocol.content.space import ROOT, WIDE, child_towards, unit

LARGEST = sys.float_info.max


def domain(low: float, high: float) -> Domain:
    return Domain("price", "float", low, high)


def test_a_domain_of_one_value_has_one_place() -> None:
    assert unit(domain(7, 7), 7) == 0.0


@pytest.mark.parametrize("high", [100.0, 2 * WIDE, LARGEST])
def test_places_go_from_0_to_1_in_the_order_of_the_values(high: float) -> None:
    wide = domain(-high, high)
    values = [-high, -high / 2, -1.0, 0.0, 1e-9, 1.0, high / 2, high]
    places = [unit(wide, value) for value in values]
    assert places == sorted(places)
    assert (places[0], places[3], places[-1]) == (0.0, 0.5, 1.0)
    assert unit(wide, -LARGEST) == 0.0
    assert unit(wide, LARGEST) == 1.0


def test_everyday_values_can_be_told_apart_in_the_widest_domain() -> None:
    """By their share of the width all of them would lie in one point, in one leaf of the tree."""
    places = [unit(domain(-LARGEST, LARGEST), value) for value in (1.0, 10.0, 100.0, 1000.0)]
    assert all(later - earlier > 1e-3 for earlier, later in pairwise(places))


@pytest.mark.parametrize(
    ("node", "middle"), [(ROOT, (0.5, 0.0)), (2, (0.0, 0.5))], ids=["by x", "by y"]
)
def test_what_lies_between_two_halves_is_in_the_upper_one(
    node: int, middle: tuple[float, float]
) -> None:
    assert child_towards(node, *middle) == 2 * node + 1
    assert child_towards(node, 0.0, 0.0) == 2 * node
