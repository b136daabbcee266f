"""Starvation: a member without a neighbour, while other members are up (docs/spec/reach.md).

Checked once the network has settled. A starved node must at least say so in its status.
"""

from collections.abc import Iterable, Mapping

from pulsarcast.model.ids import Cid
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.node import Node
from pulsarcast.simulation.findings import Findings


def check_starved(nodes: Mapping[int, Node], topics: Iterable[Cid], findings: Findings) -> None:
    """Object to every subscriber that is starved beside others, and to one that hides it."""
    for topic in topics:
        subscribers = {
            index: node
            for index, node in nodes.items()
            if topic in node.topics and node.topics[topic].subscribed
        }
        for index, node in subscribers.items() if len(subscribers) > 1 else ():
            followed = node.topics[topic]
            view = followed.view()
            says_so = node.is_starved(followed)
            if says_so:
                findings.add("starved", f"node {index} beside {len(subscribers) - 1} subscribers")
            elif view.parent is None and not view.children and node.reach is not Reach.PUBLIC:
                findings.add("starved_silently", f"node {index}, which is {node.reach.name}")


def reach_counts(nodes: Mapping[int, Node], topics: Iterable[Cid]) -> dict[str, int]:
    """How many authors cannot be dialled and are below another root, and who keeps their trees."""
    counts = {"private_author": 0, "kept_for_private": 0}
    authors = {node.turn.me: node for node in nodes.values()}
    for topic in topics:
        for node in nodes.values():
            followed = node.topics.get(topic)
            author = None if followed is None else authors.get(followed.versions.first.root_peer)
            if followed is None or author is None or author.reach is Reach.PUBLIC:
                continue
            view = followed.view()
            counts["private_author"] += node is author and view.parent is not None
            is_keeper = node is not author and view.root and node.reach is Reach.PUBLIC
            counts["kept_for_private"] += is_keeper
    return counts
