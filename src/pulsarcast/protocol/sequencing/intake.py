"""Requests to publish from other peers: each goes to the queue of its topic."""

from functools import partial

from pulsarcast.model.events import decode_request
from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.messages import RequestToPublish
from pulsarcast.protocol.publishing.fencing import EpochFencing
from pulsarcast.protocol.publishing.request_queue import RequestQueue
from pulsarcast.protocol.sequencing.registry import SequencerRegistry
from pulsarcast.protocol.topic.followed import FollowedTopics

FENCED_BYTES_MAX = 8 << 20
"""Bytes of requests that wait while the node asks how far its own numbering goes."""


class RequestIntake:
    """Takes in what other peers ask this node to publish."""

    def __init__(
        self,
        context: Context,
        followed: FollowedTopics,
        fencing: EpochFencing,
        queue: RequestQueue,
        registry: SequencerRegistry,
    ) -> None:
        self.parameters = context.parameters
        self.followed = followed
        self.fencing = fencing
        self.queue = queue
        self.sequencer_registry = registry
        self._fenced_bytes = 0

    def receive(self, sender: PeerId, message: RequestToPublish) -> None:
        """Take a peer's request in a topic that the node follows, or is a sequencer of."""
        cid = decode_request(message.block).request.topic
        topic = self.followed.members.get(cid)
        if topic is None or topic.is_sequenced:
            self.sequencer_registry.receive_request(sender, cid, message)
            return
        refuses = self.fencing.numberings.refusal is not None
        if not topic.started or topic.is_behind_its_log or refuses:
            # Left without an answer the author asks others, or again.
            return
        if not self.fencing.is_fenced(topic.id):
            self.queue.receive(sender, message, topic)
        elif (
            self.fencing.waiting_count(topic.id) < self.parameters.requests_held_max
            and self._fenced_bytes + len(message.block) <= FENCED_BYTES_MAX
        ):
            self._fenced_bytes += len(message.block)
            again = partial(self._receive_again, sender, message)
            self.fencing.confirm(topic.descriptor, topic, again)

    def _receive_again(self, sender: PeerId, message: RequestToPublish) -> None:
        self._fenced_bytes -= len(message.block)
        self.receive(sender, message)
