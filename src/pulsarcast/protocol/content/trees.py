"""The shapes of the trees that a node subscribes to, publishes to or holds parts of."""

from pulsarcast.model.ids import Cid
from pulsarcast.protocol.content.shape import Shape

TREES_MAX = 256
"""Bounds the trees, one for each attribute; the one used longest ago is forgotten."""
SPLITS_MAX = 65_536
"""Bounds the splits in all of them."""


class Trees:
    """Shapes by topic and attribute."""

    __slots__ = ("_shapes",)

    def __init__(self) -> None:
        self._shapes: dict[tuple[Cid, str], Shape] = {}

    def __len__(self) -> int:
        """How many trees have a shape here."""
        return len(self._shapes)

    def known(self, topic: Cid, attribute: str) -> Shape | None:
        """The shape of a tree that the node uses; None for any other."""
        return self._shapes.get((topic, attribute))

    def shape(self, topic: Cid, attribute: str) -> Shape:
        """The shape of a tree, empty if nothing is known of it."""
        shape = self._shapes.pop((topic, attribute), None)
        if shape is None:
            shape = Shape()
            total = sum(map(len, self._shapes.values()))
            while self._shapes and (len(self._shapes) >= TREES_MAX or total > SPLITS_MAX):
                total -= len(self._shapes.pop(next(iter(self._shapes))))
        self._shapes[(topic, attribute)] = shape
        return shape
