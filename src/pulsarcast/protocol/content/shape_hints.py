"""Shape hints: tells peers that a tree has grown, so that they query its shape again.

docs/spec/content.md, The tree.

A home sends a hint to a peer that guessed a tree node wrongly. It reports a split to the home
above, and so on up to the root, so that the homes above can route straight to the leaves. A hint
proves nothing: its receiver sends a query (`shape_queries`).
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.content.line import Lines
from pulsarcast.protocol.content.messages import TreeHint
from pulsarcast.protocol.content.place import Place, PlaceId
from pulsarcast.protocol.content.routing import HOPS_MAX, Routing
from pulsarcast.protocol.content.shape_queries import ShapeQueries
from pulsarcast.protocol.content.space import ROOT, Widths, is_below, key_of_node, level
from pulsarcast.protocol.content.trees import Trees
from pulsarcast.protocol.context import Context

TOP = 1
"""Deepest level at which a child's home is believed that its parent has split. When all copies of
the top tree nodes are lost together, no home above is left to ask; and so near to the root there
are few names to make up."""
SAY_MAX = 8
"""Bounds the peers, closest to a tree node's key, that may be its home or may have been."""
TOLD_MAX = 1024
"""Bounds the hints to peers that are remembered; the oldest is forgotten first."""
TELL_AGAIN_S = 60.0
"""Interval after which a peer that still guesses gets the same hint again."""


class ShapeHintsOwner(Protocol):
    """Asked of the part that holds the places that hints are about."""

    def begin(self, topic: Cid, attribute: str, at: int) -> Place | None:
        """Hold one more tree node, empty; None if there is no room."""

    def halve(self, place: Place) -> None:
        """A tree node has split."""

    def heard_line(self, topic: Cid, attribute: str) -> None:
        """The root's home has told the cut-off line."""


class ShapeHints:
    """Sends hints about trees to other peers, and takes theirs."""

    def __init__(
        self,
        context: Context,
        routing: Routing,
        trees: Trees,
        places: Mapping[PlaceId, Place],
        owner: ShapeHintsOwner,
    ) -> None:
        self._turn = context.turn
        self._routing = routing
        self._trees = trees
        self._places = places
        """Places that this node holds."""
        self._owner = owner
        self.queries = ShapeQueries(context, routing, trees, places, self)
        self.lines = context.part(Lines)(context, trees, places, self.queries)
        self._told: dict[tuple[PeerId, Cid, str, int], tuple[int, float]] = {}
        """By peer and tree node: the size of the shape that the last hint told of, and its time."""

    def tell(self, peer: PeerId, place: Place) -> None:
        """Give a hint to a peer that guessed: this node knows more of the tree.

        If it is hardly more than at the last hint, only after `TELL_AGAIN_S`: the peer may have
        forgotten.
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
        """Report a split to the home above, after a delay (thesis, program 3.1, line 54)."""
        if place.at == ROOT or place.tells_up:
            return
        place.tells_up = True

        def now() -> None:
            place.tells_up = False
            place.told_up = self._trees.shape(place.topic, place.attribute).to_bytes(place.at)
            self.hear(TreeHint(place.topic, place.attribute, place.at, place.at >> 1))

        self._turn.after(self._turn.jitter(2.0), now)

    def hear(self, message: TreeHint) -> None:
        """A peer gives a hint: query the shape, or pass the hint on to the home that it is for."""
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
            # A child of this place says that it exists. Only the place's parent could know as well.
            is_sure = is_split or level(at) <= TOP
            self.queries.ask(topic, attribute, about if is_sure else at >> 1, on_behalf=at)
        elif not is_split:
            self.queries.ask(topic, attribute, about, on_behalf=at)

    def hint(self, topic: Cid, attribute: str, about: int) -> None:
        """The node guesses where leaves are: query the deepest known tree node on the way there."""
        leaf = self._trees.shape(topic, attribute).leaf_towards(about, ROOT)
        self.queries.ask(topic, attribute, about if leaf is None else leaf)

    def ask_line(self, topic: Cid, attribute: str) -> None:
        """Ask the root's home for the tree's shape and its cut-off line."""
        self.queries.ask(topic, attribute, ROOT)

    def heard_line(self, topic: Cid, attribute: str) -> None:
        """The root's home has told the cut-off line."""
        self._owner.heard_line(topic, attribute)

    def sampled(self, topic: Cid, attribute: str, widths: Widths) -> None:
        """A leaf's home has told how wide its pieces are."""
        self.lines.sampled(topic, attribute, widths)

    def learnt(self, where: PlaceId, asked: int) -> None:
        """A home has answered: a place held here has split, or a tree node below it has."""
        topic, attribute, at = where
        shape = self._trees.shape(topic, attribute)
        if not shape.is_split(at) and asked >> 1 != at:
            return
        place = self._places.get(where) or self._owner.begin(topic, attribute, at)
        if place is None:
            return
        place.used_s = self._turn.now
        if not place.is_split:
            # Its children exist, so it is no leaf.
            self._owner.halve(place)
        if place.told_up != shape.to_bytes(place.at):
            self.tell_up(place)

    def may_tell(self, peer: PeerId | None, topic: Cid, attribute: str, at: int) -> bool:
        """Whether a peer can be a tree node's home, or have been: then it may report its split."""
        around = self._routing.around(key_of_node(topic, attribute, at), SAY_MAX)
        return len(around) < SAY_MAX or peer in around or peer in (None, self._turn.me)
