"""Probing: sends a publisher's event towards the leaves (2d-tree thesis, 3.4.1).

A publisher that knows the tree's shape names its leaves. Otherwise it guesses tree nodes that cover
the event's target area, as in the thesis; homes that know more send it hints.
"""

from collections.abc import Mapping

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid
from pulsarcast.protocol.content.homes import Homes
from pulsarcast.protocol.content.messages import ProbeEvent, Stage, Target
from pulsarcast.protocol.content.rules import ContentRules
from pulsarcast.protocol.content.shape import Shape
from pulsarcast.protocol.content.space import ROOT, probes
from pulsarcast.protocol.content.trees import Trees
from pulsarcast.protocol.context import Context

GUESS_LEVELS = (1, 4)
"""Levels between which a publisher guesses (the thesis: up to 10, for any tree)."""
GUESS_CHANCE = 0.5
LEAVES_MAX = 1024
"""Bounds the leaves of one tree that a publisher names; if there are more, the homes above them
pass the event on."""


SEARCHES_MIN = 8
"""Least number of events between two questions of a publisher about the line: an answer takes some
four messages, and a lower line saves one or two an event."""


class Probing:
    """Sends the node's events to the leaves of the trees of their attributes."""

    def __init__(self, context: Context, trees: Trees, homes: Homes) -> None:
        self._turn = context.turn
        self._trees = trees
        self._homes = homes
        self._rules = context.part(ContentRules)()

    def publish(self, event: EventDescriptor, places: Mapping[str, float]) -> None:
        """Send an event on its way; attributes that it lacks are not searched."""
        targets = [
            Target(attribute, at, at, Stage.GUESSED)
            for attribute, place in places.items()
            for at in self._nodes(event, attribute, place)
        ]
        if targets:
            self._homes.probe(ProbeEvent(event.topic, event.block, tuple(targets)), None)

    def _nodes(self, event: EventDescriptor, attribute: str, place: float) -> list[int]:
        shape = self._trees.shape(event.topic, attribute)
        reach = self._rules.known_reach(shape, self._turn.now)
        if shape.is_known:
            self._see_to_line(event.topic, attribute, shape)
            leaves = shape.leaves(place, reach=reach)
            if len(leaves) <= LEAVES_MAX:
                return leaves
        first, last = GUESS_LEVELS
        return probes(
            place,
            first=first,
            last=last,
            chance=GUESS_CHANCE,
            rng=self._turn.rng,
            reach=reach,
        )

    def _see_to_line(self, topic: Cid, attribute: str, shape: Shape) -> None:
        """Ask for the line before what is known of it is too old, if events repay the question."""
        if not shape.is_split(ROOT):
            return
        shape.searches += 1
        is_old = shape.line_age_s(self._turn.now) > self._rules.line_s / 2
        if is_old and shape.searches >= SEARCHES_MIN:
            shape.searches = 0
            self._homes.shape_hints.ask_line(topic, attribute)
