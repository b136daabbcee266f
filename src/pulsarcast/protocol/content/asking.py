"""Asking: how a tree's shape is learnt, from the root downwards, of homes that we asked ourselves.

A node of a tree exists because its parent has split, and only the parent's home can say so. Whoever
comes unasked could have made up a node whose key lies next to its own: of some 10^12 names there is
always one. So what comes unasked (`telling`) makes us ask, and no more. A question is routed to the
home of a node that we know to exist, and names a token that nobody off its way can answer with.
"""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

import msgspec

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.content.messages import AskShape, TreeShape
from pulsarcast.protocol.content.place import Place, PlaceId
from pulsarcast.protocol.content.routing import HOPS_MAX, Routing
from pulsarcast.protocol.content.shape import SPLITS_MAX, Shape
from pulsarcast.protocol.content.space import key_of_node
from pulsarcast.protocol.content.trees import Trees
from pulsarcast.protocol.context import Context

ASK_AGAIN_S = 5.0
"""How soon the same is asked again, where there was a new reason meanwhile."""
ASKED_MAX = 256
"""Questions of these last seconds: strangers can give us reasons to ask."""
FOR_MAX = 16
"""Nodes of ours for which one question is asked."""


class _Question:
    """One node's home is asked what it knows."""

    __slots__ = ("again", "on_behalf", "token")

    def __init__(self, token: int, on_behalf: dict[int, None]) -> None:
        self.token = token
        """0: it is answered."""
        self.again = False
        self.on_behalf = on_behalf
        """Nodes that we are home of, and that may have split."""


class AskingOwner(Protocol):
    """What questions about trees ask of those who want to know."""

    def learnt(self, where: PlaceId, asked: int) -> None:
        """The home of node `asked` has answered a question on behalf of a node of ours."""


class Asking:
    """Our questions about trees, and our answers to others'."""

    def __init__(
        self,
        context: Context,
        routing: Routing,
        trees: Trees,
        places: Mapping[PlaceId, Place],
        owner: AskingOwner,
    ) -> None:
        self._turn = context.turn
        self._routing = routing
        self._trees = trees
        self._places = places
        """Those that we hold."""
        self._owner = owner
        self._questions: dict[PlaceId, _Question] = {}

    def __len__(self) -> int:
        """How many questions we remember."""
        return len(self._questions)

    def ask(self, topic: Cid, attribute: str, at: int, on_behalf: int = 0) -> None:
        """Ask a node's home what it knows; on behalf of a node of ours: again, if need be."""
        where = (topic, attribute, at)
        question = self._questions.get(where)
        if question is None:
            if len(self._questions) < ASKED_MAX:
                self._send(where, {on_behalf: None} if on_behalf else {})
        elif on_behalf and len(question.on_behalf) < FOR_MAX:
            question.on_behalf[on_behalf] = None
            question.again = True

    def _send(self, where: PlaceId, on_behalf: dict[int, None]) -> None:
        question = self._questions[where] = _Question(self._turn.new_secret(), on_behalf)
        self._turn.after(self._turn.jitter(ASK_AGAIN_S), partial(self._forget, where))
        self.asked(AskShape(*where, question.token), None)

    def _forget(self, where: PlaceId) -> None:
        question = self._questions.pop(where)
        if question.again:
            self._send(where, question.on_behalf)

    def asked(self, message: AskShape, sender: PeerId | None) -> None:
        """Somebody asks: answer of what we hold, or pass the question on to who may."""
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
            # Of whether it has split itself the place knows best: shapes of trees are forgotten.
            known = self._trees.shape(*where[:2]) if place.is_split else Shape()
            if place.is_split:
                known.split(place.at)
            answer = TreeShape(*where, known.to_bytes(place.at), message.token)
            if asker == self._turn.me:
                self.answered(answer)
            else:
                self._turn.send(asker, answer)

    def answered(self, message: TreeShape) -> None:
        """A home tells us what it knows: believed where we asked, and only once."""
        question = self._questions.get((message.topic, message.attribute, message.below))
        if question is None or not message.token or question.token != message.token:
            return
        question.token = 0
        shape = self._trees.shape(message.topic, message.attribute)
        if len(shape) > SPLITS_MAX // 2 and not shape.exists(message.below):
            return  # Nodes without a way from the root take no room from others.
        shape.merge(message.below, message.shape)
        for at in question.on_behalf:
            self._owner.learnt((message.topic, message.attribute, at), message.below)
