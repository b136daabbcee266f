"""Versions: a topic's descriptors from the first to the newest, by which events are judged.

A topic is its first version's CID. An event names the version it was published under and is judged
by that one. Each version names the frontier up to which the one before it is valid. An event under
an old version beyond that frontier is ignored, if the newer version no longer allows its publisher
(docs/spec/pulsarcast.md, Versions; docs/decisions/0003 says why it is not if the publisher still
may).
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, Protocol

from pulsarcast.model.errors import Rejection, RemoteError, Verdict
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId, shared_numbering
from pulsarcast.model.topics import (
    BEGAN_WITH_ONE,
    Mark,
    TopicDescriptor,
    TopicSettings,
    check_event,
    check_succession,
)

VERSIONS_MAX = 1024
"""Bounds the versions kept per topic; an author that needs more starts a new topic."""
NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
"""What most topics have of something: one object for all of them."""
POSITION_MAX = 1 << 63
"""Above every position."""


class KnownMarks(Protocol):
    """Asked of the part that reads the frontiers which versions name by an index."""

    def number(self, index: Cid, numbering: tuple[PeerId, int]) -> int | None:
        """The mark that a frontier has of a numbering, 0 without one; None: it has to be found."""


def valid_until(
    held: Iterable[Mark], previous: TopicDescriptor, settings: TopicSettings
) -> list[Mark]:
    """The marks up to which events of publishers that a new version forbids stay valid.

    Publishers that it allows need no marks, and those that were forbidden before have them there.
    """
    if settings.open:
        return []
    allowed = frozenset(settings.publishers)
    return [
        mark
        for mark in held
        if mark.publisher not in allowed and previous.may_publish(mark.publisher)
    ]


class Versions:
    """The chain of one topic's versions."""

    __slots__ = ("_chain", "_valid_until", "by_cid", "current", "first", "handovers")

    def __init__(self, first: TopicDescriptor) -> None:
        assert first.first is None, "the chain starts with version 0"
        self.first = first
        self.current = first
        self.by_cid: dict[Cid, TopicDescriptor] = {first.cid: first}
        self._chain: tuple[TopicDescriptor, ...] = (first,)
        self.handovers: Mapping[int, Cid] = NOTHING
        """By position: the version whose sequencers are in force after it."""
        self._valid_until: Mapping[Cid, Mapping[tuple[PeerId, int], int]] = NOTHING

    def copy(self) -> "Versions":
        """The same versions, to which others can be added."""
        same = Versions(self.first)
        same.by_cid = dict(self.by_cid)
        same._chain = self._chain
        same.current = self.current
        same.handovers = self.handovers
        same._valid_until = self._valid_until
        return same

    def knows_parent_of(self, version: TopicDescriptor) -> bool:
        """Whether a version can be judged: the one it follows is here."""
        return version.parent in self.by_cid

    def add(self, version: TopicDescriptor) -> bool:
        """Add a version; True if it is new. A version that may not follow raises RemoteError."""
        if version.cid in self.by_cid:
            return False
        if len(self.by_cid) >= VERSIONS_MAX:
            raise RemoteError(
                "too many versions of a topic", Verdict.IGNORE, code=Rejection.TOO_MANY
            )
        previous = self.by_cid.get(version.parent) if version.parent is not None else None
        if previous is None:
            raise RemoteError(
                "a version whose parent is unknown",
                Verdict.IGNORE,
                code=Rejection.UNKNOWN_TOPIC_VERSION,
            )
        check_succession(previous, version)
        self.check_sequencers(version)
        self.by_cid[version.cid] = version
        if isinstance(version.valid_until, tuple):
            until = {(mark.publisher, mark.epoch): mark.number for mark in version.valid_until}
            self._valid_until = {**self._valid_until, version.cid: until}
        self._rebuild()
        return True

    def _rebuild(self) -> None:
        """Follow the chain of the version with the highest number, of two the one with the lower
        CID: a pointer to it ranks highest, too. The versions that lost are kept."""
        self.current = min(self.by_cid.values(), key=lambda each: (-each.number, each.cid))
        chain = [self.current]
        while (parent := chain[-1].parent) is not None:
            chain.append(self.by_cid[parent])
        self._chain = tuple(reversed(chain))

    def judge(self, event: EventDescriptor, marks: KnownMarks) -> list[Cid]:
        """Raise RemoteError unless the event was published by right.

        Returns the indexes of the frontiers in which a mark of its numbering has to be found first.
        """
        version = self.by_cid[event.version]
        check_event(version, event)
        if event.position is not None and event.is_ordered != self.first.is_sequenced:
            raise RemoteError(
                "several sequencers count together, and one by itself", code=Rejection.INVALID_EVENT
            )
        if version is self.current or event.is_ordered:
            # The order itself says which sequencers are in force, and until when: see `handovers`.
            return []
        if version not in self._chain:
            raise RemoteError(
                "published under a version that lost", Verdict.IGNORE, code=Rejection.SUPERSEDED
            )
        publisher, (epoch, number) = event.publisher, event.sequence
        unread: list[Cid] = []
        for before, newer in pairwise(self._chain[version.number :]):
            if newer.may_publish(publisher) or not before.may_publish(publisher):
                continue
            valid_until = self._mark(newer, (publisher, epoch), marks)
            if isinstance(valid_until, bytes):
                unread.append(valid_until)
            elif number > valid_until:
                raise RemoteError(
                    "the right to publish was revoked", Verdict.IGNORE, code=Rejection.SUPERSEDED
                )
        return unread

    def _mark(
        self, version: TopicDescriptor, numbering: tuple[PeerId, int], marks: KnownMarks
    ) -> int | Cid:
        """Up to which number a version says that a numbering is valid; or where that is found."""
        if isinstance(version.valid_until, tuple):
            return self._valid_until[version.cid].get(numbering, 0)
        number = marks.number(version.valid_until, numbering)
        return version.valid_until if number is None else number

    def sequencers_of(self, event: EventDescriptor) -> tuple[PeerId, ...]:
        """The sequencers of the version that an event names."""
        version = self.by_cid.get(event.version)
        if version is None:
            raise RemoteError(
                "a version that we do not know",
                Verdict.IGNORE,
                code=Rejection.UNKNOWN_TOPIC_VERSION,
            )
        return version.sequencers

    def publishers_of(self, numbered_by: PeerId) -> tuple[PeerId, ...]:
        """The peers that can speak for a numbering: its publisher, or the topic's sequencers."""
        is_shared = self.first.is_sequenced and numbered_by == shared_numbering(self.first.cid)
        return self.sequencers() if is_shared else (numbered_by,)

    # Sequencers, of a topic that began with several.

    def check_sequencers(self, version: TopicDescriptor) -> None:
        """Refuse a version with several sequencers, if the topic began with one."""
        if version.is_sequenced and not self.first.is_sequenced:
            raise RemoteError(BEGAN_WITH_ONE, code=Rejection.INVALID_SUCCESSION)

    def hand_over(self, position: int, version: Cid) -> None:
        """The sequencers of a version are in force after a position."""
        self.handovers = dict(sorted({**self.handovers, position: version}.items()))

    def in_force_at(self, position: int) -> Cid:
        """The version whose sequencers are in force at a position, as far as the node knows."""
        found = self.first.cid
        for handover, version in self.handovers.items():
            if handover >= position:
                break
            found = version
        return found

    def sequencers(self) -> tuple[PeerId, ...]:
        """All peers that may be in force now: those of the newest version first, then of all
        versions since the last known handover."""
        in_force = self.by_cid.get(self.in_force_at(POSITION_MAX), self.first)
        chain = reversed(self._chain[in_force.number :] or (in_force,))
        lists = (version.sequencers for version in (*chain, in_force))
        return tuple(dict.fromkeys(peer for each in lists for peer in each))

    def names(self, peer: PeerId) -> bool:
        """Whether a peer is, or is to be, one of several sequencers that agree."""
        return self.first.is_sequenced and peer in self.sequencers()

    def newest(self) -> Cid:
        """The newest version."""
        return self.current.cid

    def named_by(self, version: Cid | None) -> tuple[PeerId, ...] | None:
        """The sequencers that a version names, None meaning the first; None if it is unknown."""
        known = self._find(version)
        return None if known is None else known.sequencers

    def is_later(self, version: Cid, than: Cid | None) -> bool:
        """Whether one version comes after another, as far as both are known; None is the first."""
        one, other = self._find(version), self._find(than)
        return one is not None and other is not None and one.number > other.number

    def _find(self, version: Cid | None) -> TopicDescriptor | None:
        return self.first if version is None else self.by_cid.get(version)

    def named_since(self, version: Cid | None) -> tuple[PeerId, ...]:
        """All peers that versions name as sequencers, from a version on or, with None, from the
        first. From an unknown version: none."""
        since = self._find(version)
        if since is None:
            return ()
        lists = (each.sequencers for each in self.by_cid.values() if each.number >= since.number)
        return tuple(dict.fromkeys(peer for each in lists for peer in each))

    def newest_with(self, sequencers: tuple[PeerId, ...]) -> TopicDescriptor | None:
        """The newest version that names exactly these sequencers.

        It may be a version that lost: it may have come into force before the other was known."""
        for version in reversed(self._chain):
            if version.sequencers == sequencers:
                return version
        for version in reversed(self.all()):
            if version.sequencers == sequencers:
                return version
        return None

    def all(self) -> list[TopicDescriptor]:
        """Every known version, oldest first."""
        return sorted(self.by_cid.values(), key=lambda version: (version.number, version.cid))
