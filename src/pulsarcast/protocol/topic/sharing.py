"""Sharing: shows the node's frontier to peers, and sends them the events that they lack.

Two members that differ compare the hashes of parts, down to those of few marks, and show only
these. A frontier is shown in pages. A peer that is shown one fetches the events that it lacks. If
asked, it shows its own in return, so that both sides learn (docs/spec/pulsarcast.md, Recover).
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

    def __init__(self, state: TopicState) -> None:
        self._topic = state.id
        self._turn = state.context.turn
        self._parameters = state.context.parameters
        self._frontier = state.frontier
        self._compared: dict[PeerId, float] = {}

    def show(self, peer: PeerId, *, answer: bool) -> None:
        """Send the whole frontier; `answer` asks for the peer's."""
        self._send_pages(peer, self._frontier.marks(), answer=answer)

    def compare(self, peer: PeerId) -> None:
        """Find out with a peer where the two frontiers differ."""
        self._compared.pop(peer, None)
        self._compared[peer] = self._turn.now
        while len(self._compared) > COMPARED_MAX:
            del self._compared[next(iter(self._compared))]
        if self._frontier.is_small(b"", self._parameters.frontier_part):
            self.show(peer, answer=True)
        else:
            whole = FrontierPart(b"", self._frontier.digests(b""))
            self._turn.send(peer, CompareFrontiers(self._topic, (whole,)))

    def compare_now_and_then(self, peer: PeerId) -> None:
        """Compare with a peer, unless that was begun just before."""
        compared = self._compared.get(peer)
        if compared is None or self._turn.now - compared >= COMPARE_INTERVAL_S:
            self.compare(peer)

    def compare_parts(self, peer: PeerId, parts: Iterable[FrontierPart]) -> None:
        """A peer compares: show small parts that differ, and compare the parts of others."""
        small: list[bytes] = []
        large: list[FrontierPart] = []
        for part in parts:
            for steps in self._frontier.differing(part.steps, part.digests):
                if self._frontier.is_small(steps, self._parameters.frontier_part):
                    small.append(steps)
                else:
                    large.append(FrontierPart(steps, self._frontier.digests(steps)))
        if small:
            self._send_pages(peer, self._marks_in(small), answer=True, parts=tuple(small))
        for at in range(0, len(large), PARTS_MAX):
            some = tuple(large[at : at + PARTS_MAX])
            self._turn.send(peer, CompareFrontiers(self._topic, some))

    def answer(self, peer: PeerId, message: FrontierPage, *, known: bool) -> None:
        """A peer showed its frontier, and asks for the node's.

        A visitor gets only the numberings that it asked about.
        """
        if known and message.parts:
            ours = self._marks_in(message.parts)
        elif known and not _asks_only(message.marks):
            ours = self._frontier.marks()
        else:
            ours = self._marks_like(message.marks)
        self._send_pages(peer, ours, answer=False, parts=message.parts)

    def _marks_in(self, parts: Iterable[bytes]) -> list[MarkState]:
        """The marks of some parts, once each: a peer may name a part often, or one in another."""
        named = dict.fromkeys(parts)
        marks = (mark for part in named for mark in self._frontier.marks_in(part))
        return list({(mark.publisher, mark.epoch): mark for mark in marks}.values())

    def _marks_like(self, marks: Iterable[MarkState]) -> list[MarkState]:
        ours = (self._frontier.mark(mark.publisher, mark.epoch) for mark in marks)
        return [mark for mark in ours if mark is not None]

    def consult(self, peers: Iterable[PeerId], publisher: PeerId, epoch: int) -> None:
        """Ask some peers for their mark of a numbering, showing the node's."""
        mark = self._frontier.mark(publisher, epoch) or MarkState(publisher, epoch, 0, 0, None)
        for peer in peers:
            if peer != self._turn.me:
                self._send_pages(peer, [mark], answer=True)

    def ask_about(self, peer: PeerId, publisher: PeerId, epoch: int) -> None:
        """Ask a peer for its mark of a numbering, showing nothing."""
        self._send_pages(peer, [MarkState(publisher, epoch, 0, 0, None)], answer=True)

    def _send_pages(
        self,
        peer: PeerId,
        marks: list[MarkState],
        *,
        answer: bool,
        parts: tuple[bytes, ...] = (),
    ) -> None:
        size = self._parameters.frontier_page
        pages = [marks[at : at + size] for at in range(0, len(marks), size)] or [[]]
        for page in pages:
            more = page is not pages[-1]
            shown = tuple(map(_cut, page))
            last = (answer, False, parts) if not more else (False, True, ())
            self._turn.send(peer, FrontierPage(self._topic, shown, *last))

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
