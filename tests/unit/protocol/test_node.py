"""What the node as a whole says of its peers."""

from __future__ import annotations

from tests.support.lab import Lab


def test_a_node_relies_on_its_parent_and_not_on_its_child() -> None:
    """Any stranger can become a child: it is served, and serves nobody."""
    lab = Lab(2)
    topic = lab.create(0)
    lab.subscribe([0, 1], topic)
    parent, child = lab.world.node(0), lab.world.node(1)
    assert lab.view(1, topic).parent == lab.peer(0)
    assert lab.peer(0) in child.relied_on()
    assert lab.peer(1) not in parent.relied_on()
    assert lab.peer(1) in parent.neighbours()
