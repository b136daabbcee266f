"""Sharing: shows the node's frontier to peers, and sends them the events that they lack.

Two members that differ compare the hashes of parts, down to those of few marks, and show only
these. A peer that is shown some fetches the events that it lacks. If asked, it shows its own in
return, so that both sides learn (docs/spec/pulsarcast.md, Recover).
"""

from collections.abc import Iterable

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.limits import PARTS_MAX
from pulsarcast.protocol.messages import (
    CompareFrontiers,
    FetchRange,
    FrontierPage,
    FrontierPart,
    Range,
)
from pulsarcast.protocol.store import Events, LoadNumbers, MarkState
from pulsarcast.protocol.topic.frontier import BEYOND_MAX
from pulsarcast.protocol.topic.state import TopicState

COMPARE_INTERVAL_S = 1.0
"""The least time between two comparisons with one peer that the node begins."""
COMPARED_MAX = 64
"""Bounds the peers for which the time of the last comparison is remembered."""


class Sharing:
    """Shows one topic's frontier to peers, and serves events from the disk."""

    __slots__ = ("_compared", "_frontier", "_parameters", "_topic", "_turn")

    def __init__(self, state: TopicState) -> None:
        self._topic = state.id
        self._turn = state.context.turn
        self._parameters = state.context.parameters
        self._frontier = state.frontier
        self._compared: dict[PeerId, float] = {}

    @property
    def is_idle(self) -> bool:
        """Whether the node may compare with any peer."""
        return all(
            self._turn.now - compared >= COMPARE_INTERVAL_S for compared in self._compared.values()
        )

    def compare(self, peer: PeerId) -> None:
        """Find out with a peer where the two frontiers differ."""
        self._compared.pop(peer, None)
        self._compared[peer] = self._turn.now
        while len(self._compared) > COMPARED_MAX:
            del self._compared[next(iter(self._compared))]
        if self._frontier.is_small(b""):
            self._show(peer, self._frontier.marks(), answer=True)
        elif self._frontier.is_known(b""):
            whole = FrontierPart(b"", self._frontier.digests(b""))
            self._turn.send(peer, CompareFrontiers(self._topic, (whole,)))

    def compare_now_and_then(self, peer: PeerId) -> None:
        """Compare with a peer, unless that was begun just before."""
        compared = self._compared.get(peer)
        if compared is None or self._turn.now - compared >= COMPARE_INTERVAL_S:
            self.compare(peer)

    def compare_parts(self, peer: PeerId, parts: Iterable[FrontierPart]) -> None:
        """A peer compares: show small parts that differ, and compare the parts of others."""
        differing = [
            steps
            for part in parts
            if self._frontier.is_known(part.steps)
            for steps in self._frontier.differing(part.steps, part.digests)
        ]
        self._show_parts(peer, differing, answer=True)

    def answer(self, peer: PeerId, message: FrontierPage, *, known: bool) -> None:
        """A peer showed marks, and asks for the node's.

        A visitor gets only the numberings that it asked about.
        """
        if known and message.parts:
            self._show_parts(peer, message.parts, answer=False)
        elif not known or _asks_only(message.marks):
            self._show(peer, self._marks_like(message.marks), answer=False)
        elif self._frontier.is_small(b""):
            self._show(peer, self._frontier.marks(), answer=False)
        else:
            self.compare(peer)

    def _show_parts(self, peer: PeerId, parts: Iterable[bytes], *, answer: bool) -> None:
        """Show the marks of small parts, each once, and compare the parts of others."""
        frontier, room = self._frontier, self._parameters.frontier_page
        marks: dict[tuple[PeerId, int], MarkState] = {}
        shown: list[bytes] = []
        large: list[FrontierPart] = []
        for part in dict.fromkeys(parts):
            if not frontier.is_small(part):
                if frontier.is_known(part):
                    large.append(FrontierPart(part, frontier.digests(part)))
                continue
            these = {(mark.publisher, mark.epoch): mark for mark in frontier.marks_in(part)}
            if shown and len(marks | these) > room:
                self._show(peer, list(marks.values()), answer=answer, parts=tuple(shown))
                marks, shown = {}, []
            marks |= these
            shown.append(part)
        if shown:
            self._show(peer, list(marks.values()), answer=answer, parts=tuple(shown))
        for at in range(0, len(large), PARTS_MAX):
            some = tuple(large[at : at + PARTS_MAX])
            self._turn.send(peer, CompareFrontiers(self._topic, some))

    def _marks_like(self, marks: Iterable[MarkState]) -> list[MarkState]:
        ours = (self._frontier.mark(mark.publisher, mark.epoch) for mark in marks)
        return [mark for mark in ours if mark is not None]

    def consult(self, peers: Iterable[PeerId], publisher: PeerId, epoch: int) -> None:
        """Ask some peers for their mark of a numbering, showing the node's."""
        mark = self._frontier.mark(publisher, epoch) or MarkState(publisher, epoch, 0, 0, None)
        for peer in peers:
            if peer != self._turn.me:
                self._show(peer, [mark], answer=True)

    def ask_about(self, peer: PeerId, publisher: PeerId, epoch: int) -> None:
        """Ask a peer for its mark of a numbering, showing nothing."""
        self._show(peer, [MarkState(publisher, epoch, 0, 0, None)], answer=True)

    def _show(
        self,
        peer: PeerId,
        marks: list[MarkState],
        *,
        answer: bool,
        parts: tuple[bytes, ...] = (),
    ) -> None:
        self._turn.send(peer, FrontierPage(self._topic, tuple(map(_cut, marks)), answer, parts))

    def lost(self, peer: PeerId) -> None:
        """A connection ended: when the peer comes back, the node compares with it at once."""
        self._compared.pop(peer, None)

    def serve(self, sender: PeerId, message: FetchRange) -> None:
        """A peer asks for events: read them from the disk."""
        limit = self._parameters.range_bytes_max
        query = LoadNumbers(
            self._topic, message.publisher, message.epoch, message.first, message.last, limit
        )

        def found(answer: Events) -> None:
            self._turn.when_room(sender, lambda: send(answer))

        def send(answer: Events) -> None:
            blocks = tuple(event.block for _, event in answer.events)
            last = answer.events[-1][1].sequence.number if answer.events else message.last
            held = self._frontier.high(message.publisher, message.epoch)
            more = last < min(message.last, held)
            answered = Range(message.request, self._topic, blocks, more, answer.certificates)
            self._turn.send(sender, answered)

        self._turn.load(query, Events, found)


def _asks_only(marks: tuple[MarkState, ...]) -> bool:
    """Whether a peer shows no events, and only asks about the numberings that it names."""
    return bool(marks) and not any(mark.high or mark.beyond for mark in marks)


def _cut(mark: MarkState) -> MarkState:
    """A mark with at most `BEYOND_MAX` numbers beyond its gap, as a message has room for.

    The others are shown once the gap is closed.
    """
    if len(mark.beyond) <= BEYOND_MAX:
        return mark
    return mark._replace(beyond=mark.beyond[:BEYOND_MAX])
