"""Telling: how the homes of a tree, and those who guess where its leaves are, learn its shape.

Who guessed is told by the home that it came to. A split is told to the homes above, one after the
other up to the root, so that they pass on straight to the leaves.
"""

from collections.abc import Callable, Mapping

import msgspec

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.content.messages import TreeShape
from pulsarcast.protocol.content.place import Place, PlaceId
from pulsarcast.protocol.content.routing import HOPS_MAX, Routing
from pulsarcast.protocol.content.space import ROOT, is_below, key_of_node
from pulsarcast.protocol.content.trees import Trees
from pulsarcast.protocol.turn import Turn

SAY_MAX = 8
"""Of how many peers closest to a node's key we take hints about the tree."""
TOLD_MAX = 1024
"""Peers of whom we remember what we told them of a tree."""
TELL_AGAIN_S = 60.0
"""After which a peer that still guesses is told again what it was told before."""


class Telling:
    """What we tell of trees, and hear of them."""

    def __init__(
        self,
        turn: Turn,
        routing: Routing,
        trees: Trees,
        places: Mapping[PlaceId, Place],
        *,
        begin: Callable[[Cid, str, int], Place | None],
        halve: Callable[[Place], None],
    ) -> None:
        self._turn = turn
        self._routing = routing
        self._trees = trees
        self._places = places
        """Those that we hold."""
        self._begin = begin
        """Makes us the home of one more, if there is room."""
        self._halve = halve
        self._told: dict[tuple[PeerId, Cid, str, int], tuple[int, float]] = {}
        """How large a shape we told whom of which node, and when."""

    def tell(self, peer: PeerId, place: Place) -> None:
        """Tell a peer that guessed what we know of the tree.

        Where it is hardly more than last time, only after a while: it may have forgotten.
        """
        shape = self._trees.shape(place.topic, place.attribute)
        shape.learn(place.at)
        if peer == self._turn.me:
            return
        told = shape.to_bytes(place.at)
        who = (peer, place.topic, place.attribute, place.at)
        size, at_s = self._told.get(who, (0, 0.0))
        if len(told) <= size * 1.25 and self._turn.now < at_s + TELL_AGAIN_S:
            return
        self._told.pop(who, None)
        self._told[who] = (len(told), self._turn.now)
        if len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._turn.send(peer, TreeShape(place.topic, place.attribute, place.at, told))

    def tell_up(self, place: Place) -> None:
        """Let the homes above know of a split, some time soon (program 3.1, line 54)."""
        if place.at == ROOT or place.tells_up:
            return
        place.tells_up = True

        def now() -> None:
            place.tells_up = False
            shape = self._trees.shape(place.topic, place.attribute)
            told = shape.to_bytes(place.at)
            above = TreeShape(place.topic, place.attribute, place.at, told, place.at >> 1)
            self.hear(above, None)

        self._turn.after(self._turn.jitter(2.0), now)

    def hear(self, message: TreeShape, sender: PeerId | None) -> None:
        """Somebody knows something of a tree: take it in, and pass it on to whom it is for."""
        if message.at == 0:
            known = self._trees.known(message.topic, message.attribute)
            if known is not None and self.may_tell(
                sender, message.topic, message.attribute, message.below
            ):
                known.merge(message.below, message.shape)
            return
        if message.hops > HOPS_MAX or not is_below(message.below, message.at):
            return
        key = key_of_node(message.topic, message.attribute, message.at)
        closer = self._routing.closer(key)
        place = self._places.get((message.topic, message.attribute, message.at))
        if closer is not None and (place is None or not place.is_owner):
            self._turn.send(closer, msgspec.structs.replace(message, hops=message.hops + 1))
            return
        shape = self._trees.shape(message.topic, message.attribute)
        new = shape.merge(message.below, message.shape)
        if place is None:
            place = self._begin(message.topic, message.attribute, message.at)
            if place is None:
                return
        place.used_s = self._turn.now
        if not place.is_split:
            # Its children exist: whatever it was taken for, it is no leaf.
            self._halve(place)
        if new:
            self.tell_up(place)

    def may_tell(self, peer: PeerId | None, topic: Cid, attribute: str, at: int) -> bool:
        """Whether a peer can be a node's home: nobody else has a say in how we see a tree."""
        around = self._routing.around(key_of_node(topic, attribute, at), SAY_MAX)
        return len(around) < SAY_MAX or peer in around or peer == self._turn.me
