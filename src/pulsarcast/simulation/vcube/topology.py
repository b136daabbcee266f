"""The virtual hypercube: clusters, and who forwards to whom (section 2, and 3.3's functions).

c(i, s) is node i's XOR bucket s, in the order of XOR distance from i xor 2^(s-1): so the recursive
definition has a closed form, which `tests/paper` holds against the paper's table.
"""

from __future__ import annotations

from collections.abc import Sequence


def cluster_of(node: int, other: int) -> int:
    """CLUSTER(i, j): the index of the cluster of a node that holds the other one."""
    return (node ^ other).bit_length()


def first_in_cluster(node: int, cluster: int, view: Sequence[int] | None) -> int | None:
    """The first of c(i, s) whom the view holds; with no view, everybody is in it.

    A view has one entry per node, odd where the node is a member: see `views`.
    """
    nearest: int = node ^ (1 << (cluster - 1))
    if view is None:
        return nearest
    for distance in range(1 << (cluster - 1)):
        if view[nearest ^ distance] & 1:
            return nearest ^ distance
    return None


def children(node: int, view: Sequence[int] | None, height: int) -> list[int]:
    """CHILDREN(i, t, h): the first member of each cluster up to h, the largest cluster first.

    The paper gives no order; this one, where the longest way begins first, gives its figures.
    """
    found = []
    for cluster in range(height, 0, -1):
        first = first_in_cluster(node, cluster, view)
        if first is not None:
            found.append(first)
    return found


def dimension_of(nodes: int) -> int:
    """D, for N = 2^d nodes."""
    assert nodes > 1, "a cube has at least two nodes"
    assert nodes & (nodes - 1) == 0, f"{nodes} is no power of two"
    return nodes.bit_length() - 1
