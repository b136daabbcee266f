"""Spanning trees as tables: to whom a node forwards, by the cluster that a message came from.

One table serves all publishers of VCube-PS, since a node's children depend on its own clusters
alone. The baselines have one tree per topic: with subscribers and forwarders (SRPT-S), or of
brokers that serve subscribers (SRPT-B; section 4.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from pulsarcast.simulation.vcube.topology import dimension_of, first_in_cluster

Table: TypeAlias = list[list[tuple[int, ...]]]
"""table[node][h]: the children of a node in its clusters up to h, the largest cluster first."""


def vcube_table(nodes: int, view: Sequence[int] | None) -> Table:
    """CHILDREN(i, t, h) of every node that may get a message; nobody else has a row."""
    dimension = dimension_of(nodes)
    clusters = range(dimension, 0, -1)
    return [
        _row([(each, first_in_cluster(node, each, view)) for each in clusters], dimension)
        if view is None or view[node] & 1
        else []
        for node in range(nodes)
    ]


def single_root_table(nodes: int, root: int, view: Sequence[int] | None) -> Table:
    """SRPT-S: the hypercube's tree below a root, cut back to the ways to subscribers.

    A node on the way to a subscriber forwards whether it subscribes or not, as those on a DHT's
    path to the rendezvous point do.
    """
    dimension = dimension_of(nodes)
    # With the root as zero, the subtree of a node's cluster s is a range of 2^(s-1) labels.
    before = [0]
    for label in range(nodes):
        before.append(before[-1] + (1 if view is None else view[label ^ root] & 1))
    table: Table = []
    for node in range(nodes):
        label = node ^ root
        # Only clusters below the lowest bit that is set lead away from the root.
        height = dimension if label == 0 else (label & -label).bit_length() - 1
        pairs: list[tuple[int, int | None]] = []
        for cluster in range(height, 0, -1):
            first = label | (1 << (cluster - 1))
            if before[first + (1 << (cluster - 1))] > before[first]:
                pairs.append((cluster, first ^ root))
        table.append(_row(pairs, dimension))
    return table


def broker_table(nodes: int, brokers: int) -> Table:
    """SRPT-B: brokers, which are nodes 0 to B-1, form a full cube; all others hang on them evenly.

    A broker first forwards in the tree, then to its subscribers.
    """
    dimension = dimension_of(brokers)
    tree = vcube_table(brokers, None)
    table: Table = []
    for broker in range(brokers):
        own = tuple(range(brokers + broker, nodes, brokers))
        table.append([row + own for row in tree[broker]])
    leaf: list[tuple[int, ...]] = [()] * (dimension_of(nodes) + 1)
    assert len(tree[0]) == dimension + 1
    table.extend(leaf for _ in range(brokers, nodes))
    return table


def _row(pairs: Iterable[tuple[int, int | None]], dimension: int) -> list[tuple[int, ...]]:
    found = [(cluster, child) for cluster, child in pairs if child is not None]
    return [
        tuple(child for cluster, child in found if cluster <= height)
        for height in range(dimension + 1)
    ]
