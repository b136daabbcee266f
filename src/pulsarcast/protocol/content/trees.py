"""Trees whose shapes we know something of: we subscribe or publish to them, or hold parts."""

from pulsarcast.model.ids import Cid
from pulsarcast.protocol.content.shape import Shape

TREES_MAX = 256
"""Attributes of topics; the one used longest ago is forgotten."""


class Trees:
    """Shapes by topic and attribute."""

    __slots__ = ("_shapes",)

    def __init__(self) -> None:
        self._shapes: dict[tuple[Cid, str], Shape] = {}

    def __len__(self) -> int:
        """How many splits we know of, in all trees."""
        return sum(map(len, self._shapes.values()))

    def known(self, topic: Cid, attribute: str) -> Shape | None:
        """What we know of a tree that we have to do with; None of any other."""
        return self._shapes.get((topic, attribute))

    def shape(self, topic: Cid, attribute: str) -> Shape:
        """What we know of one tree."""
        shape = self._shapes.pop((topic, attribute), None)
        if shape is None:
            shape = Shape()
            if len(self._shapes) >= TREES_MAX:
                del self._shapes[next(iter(self._shapes))]
        self._shapes[(topic, attribute)] = shape
        return shape
