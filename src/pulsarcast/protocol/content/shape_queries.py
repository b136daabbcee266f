"""Shape queries: asks the homes of tree nodes for a tree's shape, from the root downwards.

docs/spec/content.md, The tree.

A tree node exists because its parent has split, and only the parent's home can say so. A peer can
make up a tree node whose key lies next to its own: among some 10^12 names there is always one. So
a hint that comes unasked (`shape_hints`) causes a query, and nothing else. A query is routed to
the home of a tree node that is known to exist. It carries a token, so that only peers on its way
can answer it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

import msgspec

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.content.messages import COUNTED_MAX, AskShape, TreeShape
from pulsarcast.protocol.content.place import Place, PlaceId
from pulsarcast.protocol.content.routing import HOPS_MAX, Routing
from pulsarcast.protocol.content.rules import ContentRules
from pulsarcast.protocol.content.shape import SPLITS_MAX, Shape
from pulsarcast.protocol.content.space import ROOT, Line, Widths, key_of_node
from pulsarcast.protocol.content.trees import Trees
from pulsarcast.protocol.context import Context

ASK_AGAIN_S = 5.0
"""Interval between two queries to the home of the same tree node; a hint of meanwhile waits."""
ASKED_MAX = 256
"""Bounds the queries remembered for `ASK_AGAIN_S`: strangers can send hints without end."""
FOR_MAX = 16
"""Bounds the tree nodes on whose behalf one query is sent."""


class _Question:
    """A query to the home of one tree node."""

    __slots__ = ("again", "asked_s", "on_behalf", "token")

    def __init__(self, token: int, on_behalf: dict[int, None], asked_s: float) -> None:
        self.token = token
        """0: it is answered."""
        self.asked_s = asked_s
        self.again = False
        self.on_behalf = on_behalf
        """Tree nodes that this node is the home of, and that may have split."""


class ShapeQueriesOwner(Protocol):
    """Asked of the part that waits for answers."""

    def learnt(self, where: PlaceId, asked: int) -> None:
        """The home of `asked` has answered a query on behalf of a place that this node holds."""

    def heard_line(self, topic: Cid, attribute: str) -> None:
        """The root's home has told the cut-off line."""

    def sampled(self, topic: Cid, attribute: str, widths: Widths) -> None:
        """A leaf's home has told how wide its pieces are."""


class ShapeQueries:
    """The queries of one node about trees, and its answers to queries of others."""

    def __init__(
        self,
        context: Context,
        routing: Routing,
        trees: Trees,
        places: Mapping[PlaceId, Place],
        owner: ShapeQueriesOwner,
    ) -> None:
        self._turn = context.turn
        self._routing = routing
        self._trees = trees
        self._places = places
        """Places that this node holds."""
        self._owner = owner
        self._cut_offs = context.part(ContentRules)().cut_offs
        self._questions: dict[PlaceId, _Question] = {}

    def __len__(self) -> int:
        """How many queries are remembered."""
        return len(self._questions)

    def ask(self, topic: Cid, attribute: str, at: int, on_behalf: int = 0) -> None:
        """Ask a tree node's home for its shape; on behalf of a place held here, maybe again."""
        where = (topic, attribute, at)
        question = self._questions.get(where)
        if question is None:
            if len(self._questions) < ASKED_MAX:
                self._send(where, {on_behalf: None} if on_behalf else {})
        elif on_behalf and len(question.on_behalf) < FOR_MAX:
            question.on_behalf[on_behalf] = None
            question.again = True

    def _send(self, where: PlaceId, on_behalf: dict[int, None]) -> None:
        question = self._questions[where] = _Question(
            self._turn.new_secret(), on_behalf, self._turn.now
        )
        self._turn.after(self._turn.jitter(ASK_AGAIN_S), partial(self._forget, where))
        self.asked(AskShape(*where, question.token), None)

    def _forget(self, where: PlaceId) -> None:
        question = self._questions.pop(where)
        if question.again:
            self._send(where, question.on_behalf)

    def asked(self, message: AskShape, sender: PeerId | None) -> None:
        """A peer asks: answer from the places held here, or pass the query on towards the home."""
        if message.hops > HOPS_MAX:
            return
        where = (message.topic, message.attribute, message.at)
        asker = message.asker or sender or self._turn.me
        closer = self._routing.closer(key_of_node(*where))
        place = self._places.get(where)
        if closer is not None and (place is None or not place.is_owner):
            passed_on = msgspec.structs.replace(message, asker=asker, hops=message.hops + 1)
            self._turn.send(closer, passed_on)
        elif place is not None:
            # The place itself knows best whether it has split: shapes of trees are forgotten.
            known = self._trees.shape(*where[:2]) if place.is_split else Shape()
            if place.is_split:
                known.split(place.at)
            line = place.line if place.at == ROOT else Line()
            counts, parts = Widths() if place.is_split else place.widths(self._cut_offs)
            answer = TreeShape(
                *where, known.to_bytes(place.at), message.token, *line, bytes(counts), parts
            )
            if asker == self._turn.me:
                self.answered(answer)
            else:
                self._turn.send(asker, answer)

    def answered(self, message: TreeShape) -> None:
        """A home answers: its shape is believed if this node asked, and only once."""
        question = self._questions.get((message.topic, message.attribute, message.below))
        if question is None or not message.token or question.token != message.token:
            return
        question.token = 0
        shape = self._trees.shape(message.topic, message.attribute)
        if len(shape) > SPLITS_MAX // 2 and not shape.exists(message.below):
            return  # Nodes without a way from the root take no room from others.
        shape.merge(message.below, message.shape)
        if message.below == ROOT:
            shape.hear_line(Line(message.cut, message.reach), question.asked_s)
            self._owner.heard_line(message.topic, message.attribute)
        if message.widths:
            counts = tuple(min(COUNTED_MAX, each) for each in message.widths)
            widths = Widths(counts, message.parts)
            self._owner.sampled(message.topic, message.attribute, widths)
        for at in question.on_behalf:
            self._owner.learnt((message.topic, message.attribute, at), message.below)
