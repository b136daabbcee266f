"""Events under way: what a topic's sequencers read, check and sign before it is published."""

from pulsarcast.model.certificates import is_place_signed, sign_place
from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor, Position
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.model.topics import check_event
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.sequencing.log import Entry
from pulsarcast.protocol.topic.topic import Topic

KNOWN_MAX = 2048
"""Events in the log that are kept as verified, so that none is verified twice: bounds memory."""


class EventsUnderWay:
    """The events of one topic that its sequencers order."""

    def __init__(self, context: Context, topic: Topic) -> None:
        self.identity = context.turn.identity
        self.decode = context.decode
        self.topic = topic
        self.versions = topic.versions
        self._known: dict[Cid, EventDescriptor] = {}

    def held(self) -> int:
        """The position up to which the node's history has every event."""
        return self.topic.synced_position()

    def arrived(self, event: EventDescriptor) -> None:
        """An event is in the node's history."""
        self._known.pop(event.cid, None)

    def event_of(self, block: bytes) -> EventDescriptor:
        """An event under way, verified once.

        An event in the log is not checked against versions again: it came before the version that
        may forbid it, and the topic's members judge it when it leaves.
        """
        cid = cid_of(block)
        event = self._known.get(cid)
        if event is None:
            event = self._known[cid] = self.decode(block)
            if len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]
        return event

    def request_of(self, block: bytes) -> bytes:
        """The id of the request that an event answers."""
        return self.event_of(block).request_id

    def check(self, block: bytes) -> None:
        """Refuse what is no event of this topic, or not allowed by the version that it names."""
        event = self.event_of(block)
        version = self.versions.by_cid.get(event.version)
        if version is not None:
            check_event(version, event)
        elif event.topic != self.topic.id:
            raise RemoteError("an event of another topic", code=Rejection.WRONG_TOPIC)

    def handed_over(self, entry: Entry) -> Cid | None:
        """The version whose sequencers an event hands the order over to, if it does."""
        return self.event_of(entry.body).hands_over_to

    def signers_of(self, entry: Entry) -> tuple[PeerId, ...]:
        """The sequencers by the version that an event names."""
        return self.versions.named_by(self.event_of(entry.body).version) or ()

    def sign(self, entry: Entry) -> bytes:
        """The node's signature under an event's place."""
        place = Position(entry.term, entry.position)
        return sign_place(self.identity, self.topic.id, place, entry.cid)

    def is_signed(self, peer: PeerId, entry: Entry, signature: bytes) -> bool:
        """Whether a peer signed an event's place."""
        place = Position(entry.term, entry.position)
        return is_place_signed(peer, self.topic.id, place, entry.cid, signature)
