"""Rules of content routing that an experiment varies or watches (docs/spec/content.md).

A node of a network has the rules as they are here. An experiment builds its nodes with a subclass
(decision 0009).
"""

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.content.space import CUT_OFF, REACH


class ContentRules:
    """How filters are cut and events are searched; all nodes of a network share the numbers."""

    cut_off = CUT_OFF
    """Ranges wider than this are cut into pieces; 1: none is cut."""
    reach = REACH
    """Distance above the diagonal up to which subscriptions are searched."""
    multicast = True
    """Whether targets with one next hop travel together."""

    def taken(self, subscriber: PeerId, sid: int, piece: int) -> None:
        """A leaf of this node keeps a piece of a subscription."""

    def kept(self, subscriber: PeerId, sid: int) -> None:
        """This node, the subscriber, knows that every piece of a subscription is kept."""
