"""The cut-off line of one attribute follows the ranges that its tree holds (2d-tree thesis, 5.2).

docs/spec/content.md, The cut-off line.

A lower line spares events the search for wide ranges, and cuts the wide ranges that there are into
more pieces. The home of the root samples leaves and moves the line. Publishers must never search
below a line that subscribers still cut by. So subscribers hear of a lower line first, and
publishers of a higher one; the others follow after twice the time that an answer is good for.
"""

from collections.abc import Mapping
from typing import Final

from pulsarcast.model.ids import Cid
from pulsarcast.protocol.content.place import Place, PlaceId
from pulsarcast.protocol.content.rules import ContentRules
from pulsarcast.protocol.content.shape_queries import ShapeQueries
from pulsarcast.protocol.content.space import ROOT, Line, Widths
from pulsarcast.protocol.content.trees import Trees
from pulsarcast.protocol.context import Context

SAMPLED_MAX: Final = 32
"""Bounds the leaves that the root's home asks in one period: some hundred pieces, in which a share
of a tenth is seen to within a few hundredths."""
PIECES_MIN: Final = 16
"""Least number of sampled pieces by which the line moves."""
GROWTH_MAX: Final = 1 / 8
"""The line falls as far as it makes at most this share more pieces than there are ranges. As pieces
have random lengths it may be half as much again."""
PARTS_MAX: Final = 1 / 2
"""The line rises a level if more than this share of the pieces are parts of a cut range. It is far
above what a fall makes, so that a fall never causes a rise."""


def wanted_level(widths: Widths, level: int) -> int:
    """The level that pieces ask for, where the line is at one."""
    total = sum(widths.counts)
    if total < PIECES_MIN:
        return level
    if widths.parts > PARTS_MAX * total:
        return max(0, level - 1)
    for lower in range(len(widths.counts) - 1, level, -1):
        made = sum(
            count << max(0, lower - each) for each, count in enumerate(widths.counts) if count
        )
        if made <= (1 + GROWTH_MAX) * (total - widths.parts):
            return lower
    return level


def moved(line: Line, level: int) -> Line:
    """The next step of a line towards a level, once all peers know the last step."""
    if line.cut != line.reach:
        # On its way: both ends are safe by now.
        end = line.reach if level < line.cut else line.cut
        return Line(end, end)
    return Line(max(level, line.cut), min(level, line.reach))


class Lines:
    """Moves the lines of the trees whose root this node is home of."""

    def __init__(
        self,
        context: Context,
        trees: Trees,
        places: Mapping[PlaceId, Place],
        queries: ShapeQueries,
    ) -> None:
        self._turn = context.turn
        self._trees = trees
        self._places = places
        self._queries = queries
        rules = context.part(ContentRules)()
        self._period_s = rules.line_s
        self._counts = context.counts

    def tend(self, place: Place) -> bool:
        """At the root's home, now and then: move the line, and sample leaves anew.

        Returns whether the line has moved.
        """
        now = self._turn.now
        if not place.is_split or now < place.sampled_s + self._period_s:
            return False
        before = place.line
        if now >= place.line_moved_s + 2 * self._period_s and any(place.sample.counts):
            place.line = moved(before, self.wanted(place))
        place.sampled_s = now
        place.sample = Widths()
        leaves = list(self._trees.shape(place.topic, place.attribute).all_leaves())
        for leaf in self._turn.rng.sample(leaves, min(len(leaves), SAMPLED_MAX)):
            self._queries.ask(place.topic, place.attribute, leaf)
        if place.line == before:
            return False
        place.line_moved_s = now
        self._counts["content_line_moved"] += 1
        return True

    def wanted(self, place: Place) -> int:
        """The level that the line of a root's tree is moved towards."""
        return wanted_level(place.sample, place.line.cut)

    def sampled(self, topic: Cid, attribute: str, widths: Widths) -> None:
        """A leaf's home tells how wide its pieces are."""
        place = self._places.get((topic, attribute, ROOT))
        if place is not None:
            place.sample = place.sample.with_those(widths)
