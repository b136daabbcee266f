"""Who is connected to whom, where a contestant does not find that out by itself.

Every node computes the same answer from the same seed.
"""

from __future__ import annotations

from random import Random


def random_graph(*, size: int, dials: int, seed: int) -> list[list[int]]:
    """For each node the others that it dials: a connected graph without double edges.

    A ring in random order connects everyone; the rest is chance. Where two nodes choose each other,
    one dials.
    """
    rng = Random(f"graph/{seed}")
    ring = list(range(size))
    rng.shuffle(ring)
    edges: dict[tuple[int, int], None] = {}
    dialled: list[list[int]] = [[] for _ in range(size)]

    def dial(one: int, other: int) -> None:
        edge = (min(one, other), max(one, other))
        if one != other and edge not in edges:
            edges[edge] = None
            dialled[one].append(other)

    for place, node in enumerate(ring):
        dial(node, ring[(place + 1) % size])
    for node in range(size):
        others = [other for other in range(size) if other != node]
        for other in rng.sample(others, max(0, min(dials, size - 1) - 1)):
            dial(node, other)
    return dialled


def tree_neighbours(
    index: int, *, size: int, fanout: int, seed: int, topic: bytes
) -> tuple[int | None, list[int]]:
    """A node's parent and children in a topic's tree, which is full and in random order."""
    order = list(range(size))
    Random(f"tree/{seed}/{topic.hex()}").shuffle(order)
    place = order.index(index)
    parent = None if not place else order[(place - 1) // fanout]
    first = place * fanout + 1
    return parent, order[first : first + fanout]
