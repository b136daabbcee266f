"""The tree's shape: merged in any order, told in bits, and never taken on trust beyond bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.errors import RemoteError
from pulsarcast.protocol.content.shape import SHAPE_BITS_MAX, Shape
from pulsarcast.protocol.content.space import DEPTH_MAX, level

nodes = st.integers(1, 2**12 - 1)


def shape_of(splits: list[int]) -> Shape:
    shape = Shape()
    for node in splits:
        for up in range(level(node) + 1):
            shape.split(node >> up)
    return shape


@given(st.lists(nodes, max_size=20), nodes)
def test_what_is_told_below_a_node_is_all_that_is_known_there(
    splits: list[int], below: int
) -> None:
    known, heard = shape_of(splits), Shape()
    heard.merge(below, known.to_bytes(below))
    assert set(heard.all_leaves(below)) == set(known.all_leaves(below))


@given(st.lists(nodes, max_size=12), st.lists(nodes, max_size=12))
def test_shapes_merge_in_any_order(some: list[int], others: list[int]) -> None:
    one, two = shape_of(some), shape_of(others)
    one.merge(1, shape_of(others).to_bytes())
    two.merge(1, shape_of(some).to_bytes())
    assert one.to_bytes() == two.to_bytes()


def test_a_tree_that_was_told_of_is_known_though_nothing_has_split() -> None:
    assert not Shape().is_known
    shape = Shape()
    shape.merge(1, Shape().to_bytes())
    assert shape.is_known
    assert shape.leaves(0.5) == [1]


def test_a_node_that_split_says_nothing_of_those_above_it() -> None:
    shape = Shape()
    shape.split(0b1010)
    shape.split(0b1010)
    assert len(shape) == 1
    assert [shape.is_split(node) for node in (1, 0b10, 0b101, 0b1010)] == [
        False,
        False,
        False,
        True,
    ]
    assert not shape.is_known
    assert shape.leaves(0.5) == [1]
    assert not shape.exists(0b1010)
    for node in (1, 0b10, 0b101):
        shape.split(node)
    assert shape.exists(0b1010)
    assert shape.is_known


def test_the_leaf_towards_a_node_is_above_it_where_the_guess_is_too_deep() -> None:
    shape = shape_of([0b10])
    assert shape.leaf_towards(0b10011, 1) == 0b100
    assert shape.leaf_towards(0b10, 1) is None


@pytest.mark.parametrize("told", [b"", b"\x00", b"\x01", b"\x07", b"\x0f\xff", b"\x05"])
def test_a_shape_that_does_not_end_or_goes_on_is_refused(told: bytes) -> None:
    with pytest.raises(RemoteError):
        Shape().merge(1, told)


def test_a_shape_that_is_too_large_or_too_deep_is_refused() -> None:
    with pytest.raises(RemoteError, match="too large"):
        Shape().merge(1, b"\x01" * (SHAPE_BITS_MAX // 8 + 2))
    deepest = (2 << DEPTH_MAX) - 1
    with pytest.raises(RemoteError, match="too deep"):
        Shape().merge(deepest, Shape().to_bytes()[:-1] + b"\x0c")


def test_a_large_shape_is_told_as_far_as_it_fits() -> None:
    shape = shape_of(list(range(1 << 12, 1 << 13)))
    heard = Shape()
    heard.merge(1, shape.to_bytes())
    assert len(shape.to_bytes()) <= SHAPE_BITS_MAX // 8 + 1
    assert 0 < len(heard) <= len(shape)
