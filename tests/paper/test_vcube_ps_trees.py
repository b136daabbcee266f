"""VCube-PS: its clusters and its spanning trees, claim by claim (sections 2 and 3.3).

Where we deviate: ids are not dense, and N is no power of two (the properties in
tests/unit/protocol/dissemination/test_cluster.py); nodes may fail; and nobody waits for
acknowledgements, neither of events nor of subscriptions.
"""

import pytest

from pulsarcast.protocol.dissemination.cluster import Clusters


def c(i: int, s: int) -> list[int]:
    """The paper's own definition of a cluster, word by word."""
    first = i ^ (1 << (s - 1))
    return [first, *(node for k in range(1, s) for node in c(first, k))]


def around(i: int, members: set[int]) -> Clusters[int]:
    """What node i knows: everyone there is."""
    known: Clusters[int] = Clusters(i, lambda node: node, view_max=1 << 10, bucket_max=1)
    for member in members - {i}:
        assert known.add(member)
    return known


def ours(known: Clusters[int], s: int) -> list[int]:
    """Our bucket s-1, in its order."""
    return next((members for index, members in known.below(s) if index == s - 1), [])


FIGURE_1 = {
    1: ["1", "0", "3", "2", "5", "4", "7", "6"],
    2: ["2 3", "3 2", "0 1", "1 0", "6 7", "7 6", "4 5", "5 4"],
    3: ["4 5 6 7", "5 4 7 6", "6 7 4 5", "7 6 5 4", "0 1 2 3", "1 0 3 2", "2 3 0 1", "3 2 1 0"],
}


def test_the_table_of_figure_1() -> None:
    everyone = set(range(8))
    for s, row in FIGURE_1.items():
        for i, cell in enumerate(row):
            assert ours(around(i, everyone), s) == [int(node) for node in cell.split()]


@pytest.mark.parametrize("d", [3, 5])
def test_the_order_of_a_cluster_is_that_of_xor_distance(d: int) -> None:
    """Section 2: c(i,s) by recursion; ours by distance from i xor 2^(s-1)."""
    everyone = set(range(1 << d))
    for i in everyone:
        known = around(i, everyone)
        for s in range(1, d + 1):
            assert ours(known, s) == c(i, s)


def children(i: int, members: set[int], h: int) -> set[int]:
    return set(around(i, members).children(h))


def tree(source: int, members: set[int], d: int) -> dict[int, set[int]]:
    """Who sends to whom: each receiver answers for what is below the cluster it shares."""
    edges: dict[int, set[int]] = {}
    todo = [(source, d)]
    while todo:
        node, h = todo.pop()
        edges[node] = children(node, members, h)
        # CLUSTER(i, j) - 1, seen by the receiver: the bucket in which the sender is.
        todo += [(child, around(child, members).bucket(node)) for child in edges[node]]
    return edges


def test_the_examples_of_children() -> None:
    """Section 3.3: auxiliary functions."""
    everyone = set(range(8))
    assert children(0, everyone, 3) == {1, 2, 4}
    assert children(0, everyone, 2) == {1, 2}
    assert children(4, everyone, 2) == {5, 6}
    assert children(0, {0, 3, 4}, 3) == {3, 4}
    assert children(4, {0, 3, 4}, 2) == set()


def test_the_left_tree_of_figure_3() -> None:
    assert tree(0, set(range(8)), 3) == {
        0: {1, 2, 4},
        1: set(),
        2: {3},
        3: set(),
        4: {5, 6},
        5: set(),
        6: {7},
        7: set(),
    }


def test_the_right_tree_of_figure_3() -> None:
    """Only members take part: p6 is first of its cluster and no subscriber, p7 takes its place."""
    assert tree(2, {0, 2, 3, 5, 7}, 3) == {2: {3, 0, 7}, 3: set(), 0: set(), 7: {5}, 5: set()}
