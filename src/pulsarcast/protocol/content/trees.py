"""Trees whose shapes we know something of: we subscribe or publish to them, or hold parts."""

from pulsarcast.model.ids import Cid
from pulsarcast.protocol.content.shape import Shape

TREES_MAX = 256
"""Attributes of topics; the one used longest ago is forgotten."""
SPLITS_MAX = 65_536
"""And splits in all of them."""


class Trees:
    """Shapes by topic and attribute."""

    __slots__ = ("_shapes",)

    def __init__(self) -> None:
        self._shapes: dict[tuple[Cid, str], Shape] = {}

    def __len__(self) -> int:
        """How many trees we know something of."""
        return len(self._shapes)

    def known(self, topic: Cid, attribute: str) -> Shape | None:
        """What we know of a tree that we have to do with; None of any other."""
        return self._shapes.get((topic, attribute))

    def shape(self, topic: Cid, attribute: str) -> Shape:
        """What we know of one tree."""
        shape = self._shapes.pop((topic, attribute), None)
        if shape is None:
            shape = Shape()
            total = sum(map(len, self._shapes.values()))
            while self._shapes and (len(self._shapes) >= TREES_MAX or total > SPLITS_MAX):
                total -= len(self._shapes.pop(next(iter(self._shapes))))
        self._shapes[(topic, attribute)] = shape
        return shape
