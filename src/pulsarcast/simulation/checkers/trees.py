"""Trees: one per topic, without a cycle, of bounded fan-out (docs/spec/pulsarcast.md, Join).

Checked once the network has settled: while peers come and go there may be two for a while, and
merging them is what the protocol is for.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.simulation.findings import Findings


class View(Protocol):
    """One node's place in one tree: `protocol`'s TreeView."""

    @property
    def parent(self) -> PeerId | None:
        """Whom it is attached to."""

    @property
    def children(self) -> Sequence[PeerId]:
        """Who is attached to it."""

    @property
    def root(self) -> bool:
        """Whether it acts as root."""

    @property
    def subscribed(self) -> bool:
        """Whether its application wants the events."""


def check_trees(
    trees: Mapping[PeerId, Mapping[Cid, View]],
    findings: Findings,
    *,
    fanout_max: int,
    names: Mapping[Cid, str] | None = None,
) -> int:
    """Check every topic's tree over all live nodes; returns the widest fan-out met."""
    topics: dict[Cid, dict[PeerId, View]] = {}
    for peer, views in trees.items():
        for topic, view in views.items():
            topics.setdefault(topic, {})[peer] = view
    widest = 0
    for topic, tree in topics.items():
        name = (names or {}).get(topic) or topic.hex()[8:20]
        _check_links(tree, findings, name)
        _check_ways_up(tree, findings, name)
        for peer, view in tree.items():
            widest = max(widest, len(view.children))
            if len(view.children) > fanout_max:
                findings.add(
                    "tree_fanout", f"topic {name}: {_short(peer)} has {len(view.children)} children"
                )
    return widest


def _check_links(tree: Mapping[PeerId, View], findings: Findings, name: str) -> None:
    """Parent and child must agree that they are."""
    for peer, view in tree.items():
        if view.parent is not None:
            above = tree.get(view.parent)
            if above is None or peer not in above.children:
                findings.add(
                    "tree_link",
                    f"topic {name}: {_short(peer)} counts on {_short(view.parent)} in vain",
                )
        for child in view.children:
            below = tree.get(child)
            if below is None or below.parent != peer:
                findings.add(
                    "tree_link", f"topic {name}: {_short(peer)} keeps a lost child {_short(child)}"
                )


def _check_ways_up(tree: Mapping[PeerId, View], findings: Findings, name: str) -> None:
    """Everyone who wants events must reach one and the same root."""
    roots: dict[PeerId, int] = {}
    for peer, view in tree.items():
        if not (view.subscribed or view.children):
            continue
        at, seen = peer, {peer}
        while (parent := tree[at].parent) is not None:
            if parent in seen:
                findings.add("tree_cycle", f"topic {name}: above {_short(peer)}")
                break
            if parent not in tree:
                findings.add("tree_orphan", f"topic {name}: {_short(peer)} hangs on nothing")
                break
            seen.add(parent)
            at = parent
        else:
            if tree[at].root:
                roots[at] = roots.get(at, 0) + 1
            else:
                findings.add("tree_orphan", f"topic {name}: {_short(at)} has no parent, is no root")
    if len(roots) > 1:
        sizes = ", ".join(f"{_short(root)} with {count}" for root, count in roots.items())
        findings.add("tree_split", f"topic {name}: roots {sizes}")


def _short(peer: PeerId) -> str:
    return peer.hex()[12:20]
