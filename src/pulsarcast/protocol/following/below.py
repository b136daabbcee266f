"""Sub-topics that subscriptions take in (docs/spec/pulsarcast.md, Sub-topics; thesis, 3.1).

A subscription with `below` names a top topic. The node walks from there along the links of each
topic's newest version, breadth first, and follows the topics that it reaches as sub-topics. After
each change it walks again: a topic that no top leads to any more loses that reason, and is left
unless the node has another. So circles hold nothing, and two tops can share a topic.

The walk passes through members only: the meta topic of a member tells of its versions, and after a
restart the disk knows every topic on the way.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol

from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import META
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.life import FollowReason, Stage
from pulsarcast.protocol.topic.versions import Versions

DEPTH_MAX = 16
"""Links from the top to a sub-topic. Each level is found only after the one above was joined, so
this bounds how long a subscription takes to be complete. Hierarchies of people are less deep."""
BELOW_MAX = 4096
"""Sub-topics that one subscription takes in. Each costs a place in two trees, its own and that of
its meta topic, and the authors below decide how many there are."""
LINKS_MAX = 16 * BELOW_MAX
"""Links that one walk looks at: topics may share sub-topics, and a version holds thousands."""
LEFT_OUT_MAX = 64
"""Topics that a view names as left out; it counts the others."""
AT_ONCE = 32
"""Sub-topics that the node looks up or joins at the same time, so that a large tree does not hold
up what else the node does."""
JOIN_S = 10.0
"""A lookup or join that takes longer goes on, and makes room for the next one."""
WALK_S = 1.0
"""At most one walk in this time, whatever authors announce; an unsubscription walks at once."""
RETRY_S = 10.0
"""Interval at which the node tries again to take in topics that it could not; `AT_ONCE` of them."""
QUIET_S = 20.0
"""A subscription is complete when its tree has not changed for so long: new members have heard of
the newest versions. Topics that are added later begin at their first event."""

TOO_DEEP = "too deep"
TOO_MANY = "too many"
NOT_FOUND = "not found"
IS_META = "a meta topic"
IS_FILTERED = "read by filters"


class BelowView(NamedTuple):
    """What a subscription takes in."""

    followed: int
    """Sub-topics that the node is a member of."""
    joining: int
    """Sub-topics that it is about to join."""
    left_out: dict[Cid, str]
    """Topics that it does not follow, and why."""
    left_out_count: int
    """How many links lead to such topics; `left_out` names the first ones."""


class BelowOwner(Protocol):
    """What the walk asks of the part that follows topics."""

    is_stopping: bool

    def follow(
        self,
        versions: Versions,
        why: FollowReason,
        *,
        from_start: bool = False,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Become a member of a topic."""

    def drop_reason(self, cid: Cid, reason: FollowReason) -> None:
        """A reason to follow a topic is gone."""

    def add_mark(self, cid: Cid, mark: FollowReason) -> None:
        """Remember something of a subscription."""

    def when_forgotten(self, cid: Cid, then: Callable[[], None]) -> None:
        """Do something once the disk has forgotten a topic."""


class _Tree:
    """The topics below one top, as the last walk found them."""

    def __init__(self) -> None:
        self.depths: dict[Cid, int] = {}
        self.left_out: dict[Cid, str] = {}
        self.left_out_count = 0

    def leave_out(self, cid: Cid, why: str) -> None:
        """Note a topic that is not taken in."""
        self.left_out_count += 1
        if len(self.left_out) < LEFT_OUT_MAX:
            self.left_out.setdefault(cid, why)


class Below:
    """The sub-topics of all subscriptions."""

    def __init__(
        self,
        context: Context,
        followed: FollowedTopics,
        descriptors: Descriptors,
        owner: BelowOwner,
    ) -> None:
        self.turn = context.turn
        self.followed = followed
        self.descriptors = descriptors
        self.owner = owner
        self._trees: dict[Cid, _Tree] = {}
        self._wanted: dict[Cid, None] = {}
        """All topics below all tops."""
        self._waiting: dict[Cid, None] = {}
        """Topics to take in, in the order of the walk."""
        self._asked: dict[Cid, None] = {}
        """Topics whose descriptor is looked up, or whose former log the disk has yet to forget."""
        self._busy: dict[Cid, int] = {}
        """Topics that hold one of the `AT_ONCE` places, and the timer that ends it."""
        self._missing: dict[Cid, str] = {}
        """Topics that could not be taken in, and why; tried again."""
        self._walk_timer: int | None = None
        self._retry_timer: int | None = None
        self._quiet_timer: int | None = None
        self._walked_s = float("-inf")
        self._is_taking = False

    def __len__(self) -> int:
        """How many sub-topics all subscriptions take in, or are about to."""
        return len(self._wanted)

    # What is below.

    def tops_of(self, cid: Cid) -> list[Cid]:
        """The tops whose subscriptions take a topic in."""
        return [top for top, tree in self._trees.items() if cid in tree.depths]

    def subtopics(self, top: Cid) -> Iterable[Cid]:
        """The topics that the subscription to a top takes in."""
        tree = self._trees.get(top)
        return () if tree is None else tree.depths

    def view(self, top: Cid) -> BelowView:
        """What the subscription to a top takes in."""
        tree = self._trees.get(top)
        if tree is None:
            return BelowView(0, 0, {}, 0)
        missing = {cid: self._missing[cid] for cid in tree.depths if cid in self._missing}
        followed = sum(self._is_member(cid) for cid in tree.depths)
        left_out = dict(list({**missing, **tree.left_out}.items())[:LEFT_OUT_MAX])
        joining = len(tree.depths) - followed - len(missing)
        return BelowView(followed, joining, left_out, len(missing) + tree.left_out_count)

    def _is_member(self, cid: Cid) -> bool:
        life = self.followed.lives.get(cid)
        return (
            life is not None
            and life.stage is Stage.MEMBER
            and FollowReason.SUBTOPIC in life.reasons
        )

    # The walk.

    def changed(self) -> None:
        """A top, a sub-topic or a version came or went: walk soon."""
        if self._walk_timer is None:
            delay_s = max(0.0, self._walked_s + WALK_S - self.turn.now)
            self._walk_timer = self.turn.after(delay_s, self.walk)

    def walk(self) -> None:
        """Find the topics below all tops; let go of the others, and take in the new ones."""
        self.turn.cancel(self._walk_timer)
        self._walk_timer = None
        if self.owner.is_stopping:
            return  # The node leaves overlays, and forgets no subscription.
        self._walked_s = self.turn.now
        lives = self.followed.lives
        tops = [cid for cid, life in lives.items() if FollowReason.BELOW in life.reasons]
        self._trees = {top: self._tree(top) for top in tops}
        before = self._wanted
        self._wanted = {cid: None for tree in self._trees.values() for cid in tree.depths}
        for cid in [cid for cid in before if cid not in self._wanted]:
            self._waiting.pop(cid, None)
            self._missing.pop(cid, None)
            self._free(cid)
        lost = [cid for cid, life in lives.items() if FollowReason.SUBTOPIC in life.reasons]
        for cid in lost:
            if cid not in self._wanted:
                self.owner.drop_reason(cid, FollowReason.SUBTOPIC)
        for cid in self._wanted:
            is_taken_in = FollowReason.SUBTOPIC in self.followed.reasons(cid)
            if not is_taken_in and cid not in self._asked and cid not in self._missing:
                self._waiting[cid] = None
        if self._wanted != before or any(
            FollowReason.FROM_START not in self.followed.reasons(top) for top in tops
        ):
            self._wait_for_quiet()
        self._take_some()

    def _tree(self, top: Cid) -> _Tree:
        """Walk down from one top."""
        tree = _Tree()
        depths = {top: 0}
        todo = deque([top])
        links = 0
        while todo:
            above = todo.popleft()
            topic = self.followed.members.get(above)
            life = self.followed.life(above) if topic is not None else None
            if topic is None or life is None or life.stage is not Stage.MEMBER:
                continue
            if not life.reasons & ~FollowReason.KEEPER:
                continue  # The disk does not know that the node follows it.
            for name, cid in topic.descriptor.subtopics.items():
                links += 1
                if links > LINKS_MAX:
                    tree.leave_out(cid, TOO_MANY)
                    break
                if name == META or cid in depths:
                    continue
                if depths[above] == DEPTH_MAX:
                    tree.leave_out(cid, TOO_DEEP)
                elif len(depths) > BELOW_MAX:
                    tree.leave_out(cid, TOO_MANY)
                else:
                    depths[cid] = depths[above] + 1
                    todo.append(cid)
        del depths[top]
        tree.depths = depths
        return tree

    def _wait_for_quiet(self) -> None:
        self.turn.cancel(self._quiet_timer)
        self._quiet_timer = self.turn.after(QUIET_S, self._quiet)

    def _quiet(self) -> None:
        """Nothing changed for a while: what is added from now on is new."""
        self._quiet_timer = None
        if self._waiting or self._busy:
            self._wait_for_quiet()
            return
        for top in self._trees:
            if FollowReason.FROM_START not in self.followed.reasons(top):
                self.owner.add_mark(top, FollowReason.FROM_START)

    # Taking topics in.

    def _take_some(self) -> None:
        """Look up and join some of the topics that wait, within the places that are free."""
        if self._is_taking:
            return  # A topic that was taken in at once: the loop below goes on.
        self._is_taking = True
        while self._waiting and len(self._busy) < AT_ONCE:
            cid = next(iter(self._waiting))
            del self._waiting[cid]
            self._asked[cid] = None
            life = self.followed.lives.get(cid)
            if life is not None and life.is_waiting:
                self.owner.when_forgotten(cid, partial(self._forgotten, cid))
                continue
            self._busy[cid] = self.turn.after(JOIN_S, partial(self._done, cid))
            self.descriptors.find(cid, partial(self._found, cid))
        self._is_taking = False

    def _forgotten(self, cid: Cid) -> None:
        """The former log of a topic is forgotten: the node can join the topic again."""
        self._asked.pop(cid, None)
        if cid in self._wanted:
            self._waiting[cid] = None
            self._take_some()

    def _found(self, cid: Cid, versions: Versions | None) -> None:
        self._asked.pop(cid, None)
        self._missing.pop(cid, None)
        if cid not in self._wanted:
            self._done(cid)
        elif versions is None:
            self._miss(cid, NOT_FOUND)
        elif versions.first.is_meta:
            self._miss(cid, IS_META)
        elif cid in self.followed.by_content:
            self._miss(cid, IS_FILTERED)
        else:
            tops = self.tops_of(cid)
            marks = [self.followed.reasons(top) for top in tops]
            self.owner.follow(
                versions,
                FollowReason.SUBTOPIC,
                from_start=any(FollowReason.FROM_START in each for each in marks),
                then=partial(self._done, cid),
            )

    def _miss(self, cid: Cid, why: str) -> None:
        self._missing[cid] = why
        if self._retry_timer is None:
            self._retry_timer = self.turn.after(self.turn.jitter(RETRY_S), self._retry)
        self._done(cid)

    def _retry(self) -> None:
        """Try some of the missing topics again: those that were tried longest ago."""
        self._retry_timer = None
        if not self._missing:
            return
        for cid in list(self._missing)[:AT_ONCE]:
            if cid not in self._asked:
                self._waiting[cid] = None
        self._retry_timer = self.turn.after(self.turn.jitter(RETRY_S), self._retry)
        self._take_some()

    def _done(self, cid: Cid) -> None:
        """A topic is joined, or was waited for long enough: the next one has its place."""
        self._free(cid)
        self._take_some()

    def _free(self, cid: Cid) -> None:
        self.turn.cancel(self._busy.pop(cid, None))
