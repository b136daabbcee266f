"""Requests that the leader of a topic's sequencers puts into its log (docs/spec/pulsarcast.md).

The log takes each number of an author once, whichever leader proposed it. An event is published
once it is certified; a sequencer that does not lead refers askers to the leader.
"""

from collections.abc import Iterable
from functools import partial

from pulsarcast.model.errors import Conflict
from pulsarcast.model.events import (
    EventDescriptor,
    Position,
    Sequence,
    SignedRequest,
    publish_request,
)
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import EventLinking, TopicDescriptor
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.messages import RequestReferred
from pulsarcast.protocol.publishing.publisher import Done
from pulsarcast.protocol.publishing.request_queue import USED_BEFORE
from pulsarcast.protocol.publishing.waiting_requests import Waiting
from pulsarcast.protocol.sequencing.log import Place
from pulsarcast.protocol.sequencing.sequencer import Sequencer
from pulsarcast.protocol.topic.topic import Topic


class Proposals:
    """Requests to the sequencers of one topic."""

    def __init__(self, context: Context, sequencer: Sequencer) -> None:
        self.turn = context.turn
        self.sequencer = sequencer
        self.state = sequencer.state
        self._taken: dict[tuple[PeerId, int], dict[int, None]] = {}
        """Per author and epoch: the numbers that are in the log, and not in the history yet."""

    def __len__(self) -> int:
        return len(self._taken)

    def begin(self, events: Iterable[EventDescriptor]) -> None:
        """Begin a leader's term: its log has these events, which its history lacks."""
        self._taken.clear()
        for event in events:
            self._take(event.author, *event.request.sequence)

    def arrived(self, event: EventDescriptor) -> None:
        """Forget the number of an event that is in the history: authors are not bounded."""
        author, (epoch, number) = event.author, event.request.sequence
        taken = self._taken.get((author, epoch), {})
        taken.pop(number, None)
        if not taken:
            self._taken.pop((author, epoch), None)

    # How a request becomes an event.

    def version(self, topic: Topic) -> TopicDescriptor | None:
        """The newest version with the acting sequencers, while the leader can propose."""
        if not self.sequencer.may_propose:
            return None
        return topic.versions.newest_with(self.sequencer.changes.certifying())

    def is_under_way(self, request_id: bytes) -> bool:
        """Whether a request is in the leader's log."""
        return self.state.leads and self.state.position_of(request_id) is not None

    def last_number(self, topic: Topic, author: PeerId, epoch: int) -> int | None:
        """The highest number in the history or in the log; None where another one leads."""
        if not self.state.leads:
            return None
        taken = self._taken.get((author, epoch), ())
        return max(topic.requests.highest(author, epoch), max(taken, default=0))

    def publish(self, waiting: Waiting, topic: Topic, done: Done) -> None:
        """Put a request's event into the log; the member says when it is published, not `done`."""
        author, (epoch, number) = waiting.signed.request.author, waiting.signed.request.sequence
        if number in self._taken.get((author, epoch), ()):
            # By another request: members deliver only one of them.
            raise Conflict(USED_BEFORE)
        version = self.version(topic)
        assert version is not None, "the queue has asked before"
        self.sequencer.propose(partial(self._make, waiting.signed, version))
        self._take(author, epoch, number)

    def _make(self, signed: SignedRequest, version: TopicDescriptor, place: Place) -> bytes:
        is_custom = version.event_linking is EventLinking.CUSTOM
        last = () if place.parent is None else (place.parent,)
        event = publish_request(
            self.turn.identity,
            signed,
            version=version.cid,
            sequence=Sequence(0, place.position),
            parents=signed.request.after if is_custom else last,
            position=Position(place.term, place.position),
        )
        return event.block

    def _take(self, author: PeerId, epoch: int, number: int) -> None:
        self._taken.setdefault((author, epoch), {})[number] = None

    def referral(self, topic: Cid, request_id: bytes) -> RequestReferred:
        """The leader, where it is another one; None in its place: it is not known, or busy."""
        leader = None if self.state.leads else self.state.leader
        return RequestReferred(topic, request_id, leader)
