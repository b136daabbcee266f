"""Witnesses: whose word it takes to skip a gap (docs/spec/pulsarcast.md, Retention and flush).

Retention drops events for good, and whoever was away would wait for them for ever. We skip a gap
only if all of this holds:

1. the topic has retention;
2. a signed event from behind the gap is here: nobody can make us skip what does not exist yet;
3. our parent, our lazy neighbours and whom we drew were asked for it, and nobody gave it to us;
4. the publisher of these numbers, or the topic's author, says that they are retired; or at least
   two of our parent, our lazy neighbours and the members that we drew do, and none of these says
   that it holds them. (One that lacks them itself, or whose own subscription began behind the gap,
   says nothing about it.)

So no single peer can make us skip anything: not a stranger, who has no say at all, and not a
parent. The publisher may, since it could as well have said nothing, and the author, since it could
have flushed. In causal order an event may wait for numbers that are retired everywhere, with no
event behind them: then 2 is that this event names them, and they are not skipped, it only waits for
them no longer.

Where the others are too few, we ask these two, and draw some members that we know of: they are
asked for the events as well, and have a say until the next draw. Only few members may ever have had
the events, such as those that were cut off together with a publisher whose disk was then lost.
Where none of these can be had, as in a network of two, the gap stays, and later events of an
ordered topic wait, until somebody comes or the author flushes. (A flush is signed and needs none of
this.)
"""

from collections.abc import Mapping

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.dissemination.overlay import Conversation, Overlay
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.frontier import Source
from pulsarcast.protocol.topic.sharing import Sharing
from pulsarcast.protocol.topic.state import TopicState

VOICES_MIN = 2
"""Members of our own choice that must say that events are retired, if no one else can."""
DRAWN = 3
"""Members that we draw for this, besides our neighbours: `recovery` asks all of them in time."""


class Witnesses:
    """Those who have a say in whether events of one topic are gone for good."""

    def __init__(
        self, state: TopicState, overlay: Overlay, heartbeat: Conversation, sharing: Sharing
    ) -> None:
        self._turn = state.context.turn
        self._parameters = state.context.parameters
        self._versions = state.versions
        self._overlay = overlay
        self._heartbeat = heartbeat
        self._sharing = sharing
        self._drawn: list[PeerId] = []
        """Members that have a say beside our neighbours, until the next draw."""
        self._drawn_s: float | None = None
        self._consulted: set[Source] = set()
        """The numberings that were asked about since that draw: each is once."""

    def chosen(self) -> list[PeerId]:
        """Those that we chose ourselves: our parent, our lazy neighbours, and whom we drew."""
        parent = self._overlay.main_neighbour
        kept = (*(() if parent is None else (parent,)), *self._heartbeat.lazy)
        return list(dict.fromkeys((*kept, *self._drawn)))

    def _speakers(self, publisher: PeerId) -> tuple[PeerId, ...]:
        """Those who can say alone that a numbering is retired."""
        return (*self._versions.publishers_of(publisher), self._versions.first.author)

    def has_a_say(self, peer: PeerId, publisher: PeerId) -> bool:
        """Whether it is worth remembering what a peer shows of a numbering."""
        return peer in self._speakers(publisher) or peer in self.chosen()

    def retired(self, publisher: PeerId, first: int, voices: Mapping[PeerId, MarkState]) -> int:
        """Up to which number the events from `first` on are gone for good; 0: nobody can say.

        `voices` is what those with a say show. `recovery` has asked all that we chose, in vain.
        """
        chosen = self.chosen()
        for peer in self._speakers(publisher):
            voice = voices.get(peer)
            if voice is not None and voice.retired >= first:
                return voice.retired
        # Who began behind the gap, or lacks it like us, cannot know what became of it.
        said = [
            mark.retired
            for peer, mark in voices.items()
            if peer in chosen and (mark.retired >= first or shows(mark, first))
        ]
        return min(said) if len(said) >= VOICES_MIN else 0

    def ask_around(self, source: Source) -> None:
        """Ask those who know more than our neighbours, as often as we draw at most."""
        now = self._turn.now
        if self._drawn_s is None or now - self._drawn_s >= self._parameters.status_interval_s:
            self._drawn_s = now
            self._consulted.clear()
            self._draw()
        if source not in self._consulted:
            self._consulted.add(source)
            peers = dict.fromkeys((*self._speakers(source[0]), *self._drawn))
            self._sharing.consult(peers, *source)

    def _draw(self) -> None:
        """Draw members, as we choose lazy neighbours: nobody else can say who they are."""
        self._drawn = []
        neighbours = {self._turn.me, *self.chosen()}
        known = [peer for peer in self._heartbeat.members() if peer not in neighbours]
        self._drawn = self._turn.rng.sample(known, min(DRAWN, len(known)))


def shows(mark: MarkState | None, number: int) -> bool:
    """Whether a peer that shows this mark says that it holds this number."""
    return mark is not None and (
        mark.floor < number <= mark.high or (number > mark.high and number in mark.beyond)
    )
