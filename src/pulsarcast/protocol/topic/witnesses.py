"""Witnesses: decides by the word of several members whether a gap may be skipped.

Retention drops events for good, and a node that was away would wait for them for ever. It skips a
gap only if all of this holds (docs/spec/pulsarcast.md, Retention and flush):

1. the topic has retention;
2. a signed event from beyond the gap is here: no peer can make the node skip numbers that do not
   exist yet;
3. the parent, the lazy neighbours and the drawn members were asked for the events, in vain;
4. the publisher of these numbers, or the topic's author, says that they are retired; or at least
   two of the parent, the lazy neighbours and the drawn members do, and none of these says that it
   holds them. (A member that lacks them, or whose subscription began beyond the gap, does not
   count.)

So no single peer can make the node skip a gap: a stranger has no say, and a parent alone is not
enough. The publisher can, since it could as well not have published, and the author can, since it
could have flushed. In causal order an event may wait for numbers that are retired at every node,
with no event beyond them. Then the event that names them stands for 2. They are not skipped; the
event only waits for them no longer.

If there are too few witnesses, the node asks the publisher and the author, and draws some members
that it knows: they are asked for the events as well, and have a say until the next draw. Few
members may ever have had the events, such as those that were cut off together with a publisher
whose disk was then lost. If no witness can be had, as in a network of two, the gap stays. Later
events of an ordered topic wait until a member joins or the author flushes. (A flush is signed and
needs no witness.)
"""

from collections.abc import Mapping

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.dissemination.overlay import Acquaintances, Neighbourhood
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.frontier import Source
from pulsarcast.protocol.topic.sharing import Sharing
from pulsarcast.protocol.topic.state import TopicState

VOICES_MIN = 2
"""The fewest members of the node's own choice that can say that events are retired: no single
member may."""
DRAWN = 3
"""Members that are drawn as witnesses besides the neighbours: few, since `recovery` asks them all.
"""


class Witnesses:
    """The members that have a say in whether events of one topic are retired."""

    __slots__ = (
        "_acquaintances",
        "_consulted",
        "_drawn",
        "_drawn_s",
        "_neighbourhood",
        "_parameters",
        "_sharing",
        "_turn",
        "_versions",
    )

    def __init__(
        self,
        state: TopicState,
        neighbourhood: Neighbourhood,
        known: Acquaintances,
        sharing: Sharing,
    ) -> None:
        self._turn = state.context.turn
        self._parameters = state.context.parameters
        self._versions = state.versions
        self._neighbourhood = neighbourhood
        self._acquaintances = known
        self._sharing = sharing
        self._drawn: list[PeerId] = []
        """Members that have a say besides the neighbours, until the next draw."""
        self._drawn_s: float | None = None
        self._consulted: set[Source] = set()
        """The numberings that were asked about since that draw, each once."""

    @property
    def is_idle(self) -> bool:
        """Whether the next question draws members anew."""
        return (
            self._drawn_s is None
            or self._turn.now - self._drawn_s >= self._parameters.status_interval_s
        )

    def chosen(self) -> list[PeerId]:
        """Members of the node's own choice: the parent, the lazy neighbours, the drawn members."""
        parent = self._neighbourhood.upstream
        kept = (*(() if parent is None else (parent,)), *self._acquaintances.lazy)
        return list(dict.fromkeys((*kept, *self._drawn)))

    def _speakers(self, publisher: PeerId) -> tuple[PeerId, ...]:
        """The peers that can say alone that a numbering is retired."""
        return (*self._versions.publishers_of(publisher), self._versions.first.author)

    def has_a_say(self, peer: PeerId, publisher: PeerId) -> bool:
        """Whether it is worth remembering what a peer shows of a numbering."""
        return peer in self._speakers(publisher) or peer in self.chosen()

    def retired(self, publisher: PeerId, first: int, voices: Mapping[PeerId, MarkState]) -> int:
        """The number up to which the events from `first` on are retired; 0: unknown.

        `voices` are the marks of the witnesses. `recovery` has asked all chosen members, in vain.
        """
        chosen = self.chosen()
        for peer in self._speakers(publisher):
            voice = voices.get(peer)
            if voice is not None and voice.retired >= first:
                return voice.retired
        # A member that began beyond the gap, or has it too, cannot know whether it is retired.
        said = [
            mark.retired
            for peer, mark in voices.items()
            if peer in chosen and (mark.retired >= first or shows(mark, first))
        ]
        return min(said) if len(said) >= VOICES_MIN else 0

    def ask_around(self, source: Source) -> None:
        """Ask the publisher, the author and drawn members about a numbering, once per draw."""
        if self.is_idle:
            self._drawn_s = self._turn.now
            self._consulted.clear()
            self._draw()
        if source not in self._consulted:
            self._consulted.add(source)
            peers = dict.fromkeys((*self._speakers(source[0]), *self._drawn))
            self._sharing.consult(peers, *source)

    def _draw(self) -> None:
        """Draw members at random, like lazy neighbours: no other peer can choose them."""
        self._drawn = []
        neighbours = {self._turn.me, *self.chosen()}
        known = [peer for peer in self._acquaintances.members() if peer not in neighbours]
        self._drawn = self._turn.rng.sample(known, min(DRAWN, len(known)))


def shows(mark: MarkState | None, number: int) -> bool:
    """Whether a peer that shows this mark says that it holds this number."""
    return mark is not None and (
        mark.floor < number <= mark.high or (number > mark.high and number in mark.beyond)
    )
