"""The state machine of a followed topic: its stages, its steps, and the table of transitions.

`LIFE` is the table. A cell that is missing cannot happen: `Life.step` asserts that. A command for a
topic that the node is leaving waits until the disk has forgotten the topic, and is then handled as
if it came anew.

| stage | FOLLOW | BEGIN_ANEW | STARTED | UNFOLLOW | OUT | PAUSED | FORGOTTEN |
| --- | --- | --- | --- | --- | --- | --- | --- |
| AWAY | JOINING | – | – | – | – | – | – |
| JOINING | JOINING | LEAVING | MEMBER | LEAVING | – | AWAY | – |
| MEMBER | MEMBER | LEAVING | – | LEAVING | – | AWAY | – |
| LEAVING | waits | – | LEAVING | waits | FORGETTING | AWAY | – |
| FORGETTING | waits | – | – | waits | – | – | AWAY |

A topic that the node follows by content begins and ends elsewhere (`content`); from UNFOLLOW on its
life is this one: AWAY, then FORGETTING by way of `forget`.
"""

import enum
from collections.abc import Callable
from types import MappingProxyType
from typing import TypeAlias

Then: TypeAlias = Callable[[], None]


class FollowReason(enum.IntFlag):
    """Why a node follows a topic; kept on disk as one byte."""

    SUBSCRIBED = 1
    BELOW = 2
    """The subscription takes in all sub-topics (`following.below`)."""
    META = 4
    """It tells of new versions of a topic that the node follows."""
    AUTHOR = 8
    """It is the node's own topic: its tree is rooted here, also without a subscription."""
    KEEPER = 16
    """The node is the closest live peer to the root's key. Not remembered over a restart."""
    SEQUENCER = 32
    """The node is one of its sequencers, and so holds all of it."""
    SUBTOPIC = 64
    """The subscription to a topic above takes it in."""
    FROM_START = 128
    """No reason by itself: sub-topics that BELOW takes in from now on begin at their first event.
    """


NO_REASON = FollowReason(0)
OWN = FollowReason.SUBSCRIBED | FollowReason.BELOW | FollowReason.FROM_START
"""What an application asked for, and ends with its word."""
READ = FollowReason.SUBSCRIBED | FollowReason.SUBTOPIC
"""Reasons for which an application is given the topic's events."""


class Stage(enum.Enum):
    """How far a node is with a topic."""

    AWAY = "away"
    """The node does not follow it."""
    JOINING = "joining"
    """The node looks for its place and its start frontier."""
    MEMBER = "member"
    """The start frontier is known: every later event is due."""
    LEAVING = "leaving"
    """The node is on its way out of the overlay."""
    FORGETTING = "forgetting"
    """The node is out; the disk has yet to forget."""


class Step(enum.Enum):
    """An input to the state machine."""

    FOLLOW = "follow"
    BEGIN_ANEW = "begin anew"
    """A subscription cannot build on the events that the node holds: it leaves, and rejoins."""
    STARTED = "started"
    UNFOLLOW = "unfollow"
    OUT = "out"
    """The overlay has let the node go."""
    PAUSED = "paused"
    """The overlay has let the node go, which stops and means to come back with its disk."""
    FORGOTTEN = "forgotten"


LIFE = MappingProxyType(
    {
        (Stage.AWAY, Step.FOLLOW): Stage.JOINING,
        (Stage.JOINING, Step.FOLLOW): Stage.JOINING,
        (Stage.JOINING, Step.BEGIN_ANEW): Stage.LEAVING,
        (Stage.JOINING, Step.STARTED): Stage.MEMBER,
        (Stage.JOINING, Step.UNFOLLOW): Stage.LEAVING,
        (Stage.JOINING, Step.PAUSED): Stage.AWAY,
        (Stage.MEMBER, Step.FOLLOW): Stage.MEMBER,
        (Stage.MEMBER, Step.BEGIN_ANEW): Stage.LEAVING,
        (Stage.MEMBER, Step.UNFOLLOW): Stage.LEAVING,
        (Stage.MEMBER, Step.PAUSED): Stage.AWAY,
        # The last answer of a parent may still be on its way.
        (Stage.LEAVING, Step.STARTED): Stage.LEAVING,
        (Stage.LEAVING, Step.OUT): Stage.FORGETTING,
        (Stage.LEAVING, Step.PAUSED): Stage.AWAY,
        (Stage.FORGETTING, Step.FORGOTTEN): Stage.AWAY,
    }
)
WAITING = (Stage.LEAVING, Stage.FORGETTING)
"""Stages in which a caller that follows or leaves the topic waits until it is forgotten."""


class Life:
    """One topic's stage on this node, and the callers that wait for the next one."""

    __slots__ = ("on_forgotten", "on_ready", "on_start", "reasons", "stage", "subscribing")

    def __init__(self, stage: Stage = Stage.AWAY, reasons: FollowReason = NO_REASON) -> None:
        self.stage = stage
        self.reasons = reasons
        self.subscribing: int | None = None
        """The id of a subscription on its way to the disk, if the topic was followed before it."""
        self.on_start: tuple[Then, ...] = ()
        """Callers that wait until a subscription's start is on the disk."""
        self.on_ready: tuple[Then, ...] = ()
        """Callers that wait until the node may publish."""
        self.on_forgotten: tuple[Then, ...] = ()
        """Callers that wait until the topic is forgotten, to have left it or to follow it again."""

    @property
    def is_followed(self) -> bool:
        """Whether the node follows the topic, and is not about to leave it."""
        return self.stage in (Stage.JOINING, Stage.MEMBER)

    @property
    def is_waiting(self) -> bool:
        """Whether a caller that follows or leaves the topic has to wait."""
        return self.stage in WAITING

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to remember."""
        waits = self.on_start or self.on_ready or self.on_forgotten
        return self.stage is Stage.AWAY and not waits

    def step(self, step: Step) -> None:
        """Go on to the next stage."""
        following = LIFE.get((self.stage, step))
        assert following is not None, f"{step} of a topic that is {self.stage}"
        self.stage = following

    def forget(self) -> None:
        """The node is out of a topic that it followed by content, or left in an earlier life."""
        assert self.stage is Stage.AWAY, f"it is {self.stage}"
        self.stage = Stage.FORGETTING

    def take_on_start(self) -> tuple[Then, ...]:
        """The callers that wait for the start; they wait no longer."""
        waiting, self.on_start = self.on_start, ()
        return waiting

    def take_on_ready(self) -> tuple[Then, ...]:
        """The callers that wait to publish; they wait no longer."""
        waiting, self.on_ready = self.on_ready, ()
        return waiting

    def take_on_forgotten(self) -> tuple[Then, ...]:
        """The callers that wait until the topic is forgotten; they wait no longer."""
        waiting, self.on_forgotten = self.on_forgotten, ()
        return waiting
