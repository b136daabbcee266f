"""Who can be dialled, for a part that asks: a real `Reachability` that a test tells who can be."""

from pulsarcast.model.reach import Reach
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.reachability import Reachability
from pulsarcast.protocol.messages import Contact


class Unmoved:
    """An owner to whom no reach matters."""

    def own_reach_changed(self) -> None:
        """Nothing depends on it."""

    def reach_changed(self, contact: Contact) -> None:
        """Nothing depends on it."""


def reachability_of(context: Context, reach: Reach = Reach.PUBLIC) -> Reachability:
    """What a node with this reach knows: no peer is connected to it yet."""
    reachability = Reachability(context, Unmoved())
    reachability.start(reach)
    return reachability
