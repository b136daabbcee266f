"""Sharing: shows the node's frontier to peers, and sends them the events that they lack.

A frontier is shown in pages. A peer that is shown one fetches the events that it lacks. If asked,
it shows its own in return, so that both sides learn (docs/spec/pulsarcast.md, Recover).
"""

from collections.abc import Iterable

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.messages import FetchRange, FrontierPage, Range
from pulsarcast.protocol.store import Events, LoadNumbers, MarkState
from pulsarcast.protocol.topic.frontier import BEYOND_MAX
from pulsarcast.protocol.topic.state import TopicState

COMPARE_INTERVAL_S = 1.0
"""The least time between two showings of the whole frontier to one peer."""
SHOWN_MAX = 64
"""Bounds the peers for which the time of the last showing is remembered."""


class Sharing:
    """Shows one topic's frontier to peers, and serves events from the disk."""

    def __init__(self, state: TopicState) -> None:
        self._topic = state.id
        self._turn = state.context.turn
        self._parameters = state.context.parameters
        self._frontier = state.frontier
        self._shown: dict[PeerId, float] = {}

    def show(self, peer: PeerId, *, answer: bool) -> None:
        """Send the whole frontier; `answer` asks for the peer's."""
        self._shown.pop(peer, None)
        self._shown[peer] = self._turn.now
        while len(self._shown) > SHOWN_MAX:
            del self._shown[next(iter(self._shown))]
        self._send_pages(peer, self._frontier.marks(), answer=answer)

    def show_now_and_then(self, peer: PeerId) -> None:
        """Send the whole frontier and ask for the peer's, unless that was done just before."""
        shown = self._shown.get(peer)
        if shown is None or self._turn.now - shown >= COMPARE_INTERVAL_S:
            self.show(peer, answer=True)

    def answer(self, peer: PeerId, message: FrontierPage, *, known: bool) -> None:
        """A peer showed its frontier, and asks for the node's.

        A visitor gets only the numberings that it asked about.
        """
        whole = known and not _asks_only(message.marks)
        ours = self._frontier.marks() if whole else self._marks_like(message.marks)
        self._send_pages(peer, ours, answer=False)

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

    def _send_pages(self, peer: PeerId, marks: list[MarkState], *, answer: bool) -> None:
        size = self._parameters.frontier_page
        pages = [marks[at : at + size] for at in range(0, len(marks), size)] or [[]]
        for page in pages:
            more = page is not pages[-1]
            shown = tuple(map(_cut, page))
            self._turn.send(peer, FrontierPage(self._topic, shown, answer and not more, more))

    def lost(self, peer: PeerId) -> None:
        """A connection ended: when the peer comes back, it is shown the whole frontier again."""
        self._shown.pop(peer, None)

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
