"""Rules of content routing that an experiment varies or watches (docs/spec/content.md).

A node of a network has the rules as they are here. An experiment builds its nodes with a subclass
(decision 0009).
"""

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.content.shape import Shape
from pulsarcast.protocol.content.space import CUT_OFFS, reach_of

LINE_S = 1800.0
"""Time for which a publisher relies on what the root's home said about the line. Subscribers ask
twice as often; the line moves at most once in twice this time. What a topic's subscribers ask for
changes slowly, and four messages in a quarter of an hour cost a node next to nothing."""


class ContentRules:
    """How filters are cut and events are searched; all nodes of a network share the numbers."""

    cut_offs: tuple[float, ...] = CUT_OFFS
    """Levels of the line: ranges wider than it are cut into pieces. A single level is a line that
    does not move; if that is 1, no range is cut."""
    line_s = LINE_S
    """Time for which an answer about the line is good."""
    multicast = True
    """Whether targets with one next hop travel together."""

    def cut_off(self, level: int) -> float:
        """The width up to which a level of the line leaves ranges whole."""
        return self.cut_offs[min(level, len(self.cut_offs) - 1)]

    def reach(self, level: int) -> float:
        """Distance above the diagonal up to which subscriptions are searched."""
        return reach_of(self.cut_off(level))

    def known_reach(self, shape: Shape, now: float) -> float:
        """The same by what is known of a tree's line: up to the highest if that is too old."""
        return self.reach(shape.line.reach if shape.line_age_s(now) < self.line_s else 0)

    def taken(self, subscriber: PeerId, sid: int, piece: int) -> None:
        """A leaf of this node keeps a piece of a subscription."""

    def kept(self, subscriber: PeerId, sid: int) -> None:
        """This node, the subscriber, knows that every piece of a subscription is kept."""
