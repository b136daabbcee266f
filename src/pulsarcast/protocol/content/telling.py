"""Telling: who should look at a tree again hears so, and of which node.

Who guessed is told by the home that it came to. A split is told to the homes above, one after the
other up to the root, so that they pass on straight to the leaves. All of these are hints: who hears
one asks (`asking`).
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.content.asking import Asking
from pulsarcast.protocol.content.messages import TreeHint
from pulsarcast.protocol.content.place import Place, PlaceId
from pulsarcast.protocol.content.routing import HOPS_MAX, Routing
from pulsarcast.protocol.content.space import ROOT, is_below, key_of_node, level
from pulsarcast.protocol.content.trees import Trees
from pulsarcast.protocol.context import Context

TOP = 1
"""Down to this level a child's home is believed that its parent has split. Whoever loses all copies
of the top nodes together has nobody above to ask; and there are few names to make up."""
SAY_MAX = 8
"""How many peers closest to a node's key may be its home, or may have been."""
TOLD_MAX = 1024
"""Peers of whom we remember what we told them of a tree."""
TELL_AGAIN_S = 60.0
"""After which a peer that still guesses is told again what it was told before."""


class TellingOwner(Protocol):
    """What hints ask of the places that they are about."""

    def begin(self, topic: Cid, attribute: str, at: int) -> Place | None:
        """Hold one more node, empty; None where there is no room."""

    def halve(self, place: Place) -> None:
        """A node has split."""


class Telling:
    """Hints about trees, to others and from others."""

    def __init__(
        self,
        context: Context,
        routing: Routing,
        trees: Trees,
        places: Mapping[PlaceId, Place],
        owner: TellingOwner,
    ) -> None:
        self._turn = context.turn
        self._routing = routing
        self._trees = trees
        self._places = places
        """Those that we hold."""
        self._owner = owner
        self.asking = Asking(context, routing, trees, places, self)
        self._told: dict[tuple[PeerId, Cid, str, int], tuple[int, float]] = {}
        """How large a shape we told whom of, below which node, and when."""

    def tell(self, peer: PeerId, place: Place) -> None:
        """Tell a peer that guessed that we know more of the tree.

        Where it is hardly more than last time, only after a while: it may have forgotten.
        """
        if peer == self._turn.me:
            self.hint(place.topic, place.attribute, place.at)
            return
        known = len(self._trees.shape(place.topic, place.attribute).to_bytes(place.at))
        who = (peer, place.topic, place.attribute, place.at)
        size, at_s = self._told.get(who, (0, 0.0))
        if known <= size * 1.25 and self._turn.now < at_s + TELL_AGAIN_S:
            return
        self._told.pop(who, None)
        self._told[who] = (known, self._turn.now)
        if len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._turn.send(peer, TreeHint(place.topic, place.attribute, place.at))

    def tell_up(self, place: Place) -> None:
        """Let the home above know of a split, some time soon (program 3.1, line 54)."""
        if place.at == ROOT or place.tells_up:
            return
        place.tells_up = True

        def now() -> None:
            place.tells_up = False
            place.told_up = self._trees.shape(place.topic, place.attribute).to_bytes(place.at)
            self.hear(TreeHint(place.topic, place.attribute, place.at, place.at >> 1))

        self._turn.after(self._turn.jitter(2.0), now)

    def hear(self, message: TreeHint) -> None:
        """Somebody says that there is more to know: ask, or pass it on to whom it is for."""
        topic, attribute, about, at = message.topic, message.attribute, message.about, message.at
        if at == 0:
            if self._trees.known(topic, attribute) is not None:
                self.hint(topic, attribute, about)
            return
        if message.hops > HOPS_MAX or not (about >> 1 == at or is_below(at >> 1, about)):
            return
        closer = self._routing.closer(key_of_node(topic, attribute, at))
        place = self._places.get((topic, attribute, at))
        if closer is not None and (place is None or not place.is_owner):
            self._turn.send(closer, msgspec.structs.replace(message, hops=message.hops + 1))
            return
        is_split = place is not None and place.is_split
        if about > at:
            # Its child says that it exists: who else would know is its parent.
            is_sure = is_split or level(at) <= TOP
            self.asking.ask(topic, attribute, about if is_sure else at >> 1, on_behalf=at)
        elif not is_split:
            self.asking.ask(topic, attribute, about, on_behalf=at)

    def hint(self, topic: Cid, attribute: str, about: int) -> None:
        """We guess where leaves are: ask the home of the deepest node on a way that we know of."""
        leaf = self._trees.shape(topic, attribute).leaf_towards(about, ROOT)
        self.asking.ask(topic, attribute, about if leaf is None else leaf)

    def learnt(self, where: PlaceId, asked: int) -> None:
        """A home has answered: a node that is ours has split, or more of what is below it has."""
        topic, attribute, at = where
        shape = self._trees.shape(topic, attribute)
        if not shape.is_split(at) and asked >> 1 != at:
            return
        place = self._places.get(where) or self._owner.begin(topic, attribute, at)
        if place is None:
            return
        place.used_s = self._turn.now
        if not place.is_split:
            # Its children exist: whatever it was taken for, it is no leaf.
            self._owner.halve(place)
        if place.told_up != shape.to_bytes(place.at):
            self.tell_up(place)

    def may_tell(self, peer: PeerId | None, topic: Cid, attribute: str, at: int) -> bool:
        """Whether a peer can be a node's home, or have been: whose word counts for its split."""
        around = self._routing.around(key_of_node(topic, attribute, at), SAY_MAX)
        return len(around) < SAY_MAX or peer in around or peer in (None, self._turn.me)
