"""A node that leads, or follows, a scripted sequencer."""

from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import DeliveryOrder, TopicDescriptor, TopicSettings
from pulsarcast.protocol.messages import Message
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.sequencing.messages import Append, Appended, RequestVote, Summon, Vote
from pulsarcast.protocol.sequencing.sequencer import Sequencer
from tests.support.people import MALLORY, meta_of, peer, topic_of
from tests.support.solo import Parent, Solo

STORE = b"mallory!"


class Pair:
    """A node, `solo`, and Mallory, who votes for it: the two sequencers of a topic."""

    def __init__(self, parameters: Parameters | None = None, *, keep_effects: bool = True) -> None:
        self.votes = True
        """Whether Mallory votes for it."""
        self.keeps = True
        """Whether Mallory says that she has the entries that she is sent."""
        sequencers = (peer("victim"), MALLORY.peer_id)
        settings = TopicSettings(order=DeliveryOrder.TOTAL, sequencers=sequencers)
        self.descriptor: TopicDescriptor = topic_of(MALLORY, settings)
        self.topic: Cid = self.descriptor.cid
        self._parent = Parent("mallory", [self.descriptor.block, meta_of(MALLORY).block])
        contacts = (MALLORY.peer_id,)
        self.solo = Solo(contacts=contacts, parameters=parameters, keep_effects=keep_effects)
        self.solo.peers[MALLORY.peer_id] = self._answer
        self.solo.start()
        self.solo.hear(MALLORY.peer_id, Summon(self.topic))

    def _answer(self, message: Message) -> list[Message]:
        match message:
            case RequestVote(topic, term) if self.votes:
                was = term - 1 if message.pre_vote else term
                return [Vote(topic, was, STORE, True, message.pre_vote)]
            case Append(topic, term) if self.keeps:
                matched = message.before_index + len(message.entries)
                return [Appended(topic, term, STORE, True, matched, 0)]
            case _:
                return list(self._parent(message))

    def lead(self) -> "Pair":
        """Let the node be elected."""
        self.solo.advance(10.0)
        assert self.sequencer.state.leads
        return self

    @property
    def sequencer(self) -> Sequencer:
        """The node's own."""
        return self.solo.node.sequencer_registry.by_topic[self.topic].sequencer
