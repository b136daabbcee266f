"""The registry of topics that a node follows: as a member of the overlay, or by content.

Topics of both kinds hold a frontier, heads and a log, and behave differently. Parts that need one
of these ask here, for topics of either kind.
"""

from collections.abc import Mapping
from typing import Protocol

from pulsarcast.model.ids import Cid
from pulsarcast.protocol.dissemination.quiet_topics import QuietTopics
from pulsarcast.protocol.topic.barrier import CausalBarrier
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.life import NO_REASON, FollowReason, Life, Stage
from pulsarcast.protocol.topic.log import TopicLog
from pulsarcast.protocol.topic.published_requests import PublishedRequests
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.protocol.topic.versions import Versions
from pulsarcast.protocol.topic.work import AtWork


class Held(Protocol):
    """The state that topics of both kinds hold."""

    @property
    def id(self) -> Cid: ...
    @property
    def versions(self) -> Versions: ...
    @property
    def frontier(self) -> Frontier: ...
    @property
    def log(self) -> TopicLog: ...
    @property
    def requests(self) -> PublishedRequests: ...
    @property
    def barrier(self) -> CausalBarrier | None: ...


class FollowedTopics:
    """The topics that one node follows, and how far it is with each."""

    def __init__(self, by_content: Mapping[Cid, Held], quiet: QuietTopics, at_work: AtWork) -> None:
        self.members: dict[Cid, Topic] = {}
        """Topics whose overlay the node belongs to."""
        self.by_content = by_content
        """Topics of which the node receives matching events only."""
        self.lives: dict[Cid, Life] = {}
        self.quiet = quiet
        """Those in which nothing happens."""
        self.at_work = at_work
        """Those of which parts may have something to do."""

    def get(self, cid: Cid) -> Held | None:
        """A topic's state, if the node follows it."""
        return self.members.get(cid) or self.by_content.get(cid)

    def is_current(self, topic: Topic) -> bool:
        """Whether the node still follows a topic, and has not left and come back meanwhile."""
        return self.members.get(topic.id) is topic

    def barrier_outside(self, cid: Cid) -> CausalBarrier | None:
        """The causal barrier of a topic that the node follows by content, if it has one."""
        topic = self.by_content.get(cid)
        return None if topic is None else topic.barrier

    # How far the node is with each.

    def life(self, cid: Cid) -> Life:
        """A topic's life, which may begin here."""
        life = self.lives.get(cid)
        if life is None:
            life = self.lives[cid] = Life()
        return life

    def reasons(self, cid: Cid) -> FollowReason:
        """Why the node follows a topic."""
        life = self.lives.get(cid)
        return NO_REASON if life is None else life.reasons

    def is_followed(self, cid: Cid) -> bool:
        """Whether the node is a member of a topic, and not about to leave it."""
        life = self.lives.get(cid)
        return life is not None and life.is_followed

    def is_forgetting(self, cid: Cid) -> bool:
        """Whether the node has left a topic, but its disk has not forgotten it yet."""
        life = self.lives.get(cid)
        return life is not None and life.stage is Stage.FORGETTING
