"""Versions: a topic's descriptors from the first to the newest, and who might publish when.

A topic is its first version's CID. An event names the version it was published under and is judged
by that one. Each version names the frontier up to which the one before it is valid: an event under
an old version that lies beyond it is ignored where the newer version no longer allows its publisher
(design 5; decision 0003 says why it is not ignored where the publisher still may).
"""

from pulsarcast.model.errors import RemoteError, Verdict
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId, order_of
from pulsarcast.model.topics import TopicDescriptor, check_event, check_succession

VERSIONS_MAX = 1024
"""Versions kept per topic; an author that needs more starts a new topic."""


class Versions:
    """The chain of one topic's versions."""

    def __init__(self, first: TopicDescriptor) -> None:
        assert first.first is None, "the chain starts with version 0"
        self.first = first
        self.current = first
        self.by_cid: dict[Cid, TopicDescriptor] = {first.cid: first}
        self._chain: list[TopicDescriptor] = [first]
        self._valid_until: dict[Cid, dict[tuple[PeerId, int], int]] = {}

    def knows_parent_of(self, version: TopicDescriptor) -> bool:
        """Whether a version can be judged: the one it follows is here."""
        return version.parent in self.by_cid

    def add(self, version: TopicDescriptor) -> bool:
        """Take a version in; True where it is new. One that may not follow raises RemoteError."""
        if version.cid in self.by_cid:
            return False
        if len(self.by_cid) >= VERSIONS_MAX:
            raise RemoteError("too many versions of a topic", Verdict.IGNORE)
        previous = self.by_cid.get(version.parent) if version.parent is not None else None
        if previous is None:
            raise RemoteError("a version whose parent is unknown", Verdict.IGNORE)
        check_succession(previous, version)
        self.by_cid[version.cid] = version
        self._valid_until[version.cid] = {
            (mark.publisher, mark.epoch): mark.number for mark in version.valid_until
        }
        self._rebuild()
        return True

    def _rebuild(self) -> None:
        """Follow the chain: of two versions with one number the lower CID wins, both are kept."""
        followers: dict[Cid, list[TopicDescriptor]] = {}
        for version in self.by_cid.values():
            if version.parent is not None:
                followers.setdefault(version.parent, []).append(version)
        self._chain = [self.first]
        while next_ones := followers.get(self._chain[-1].cid):
            self._chain.append(min(next_ones, key=lambda version: version.cid))
        self.current = self._chain[-1]

    def judge(self, event: EventDescriptor) -> None:
        """Raise RemoteError unless the event was published by right."""
        version = self.by_cid[event.version]
        check_event(version, event)
        if version is self.current:
            return
        if version not in self._chain:
            raise RemoteError("published under a version that lost", Verdict.IGNORE)
        publisher, (epoch, number) = event.publisher, event.sequence
        for newer in self._chain[version.number + 1 :]:
            valid_until = self._valid_until[newer.cid].get((publisher, epoch), 0)
            if number > valid_until and not newer.may_publish(publisher):
                raise RemoteError("the right to publish was revoked", Verdict.IGNORE)

    def sequencers_of(self, event: EventDescriptor) -> tuple[PeerId, ...]:
        """Who counted the event, by the version that it names."""
        version = self.by_cid.get(event.version)
        if version is None:
            raise RemoteError("a version that we do not know", Verdict.IGNORE)
        return version.sequencers

    def publishers_of(self, numbered_by: PeerId) -> tuple[PeerId, ...]:
        """Who can speak for a numbering: its publisher, or all who count in it together."""
        is_shared = self.first.is_sequenced and numbered_by == order_of(self.first.cid)
        return self.first.sequencers if is_shared else (numbered_by,)

    def all(self) -> list[TopicDescriptor]:
        """Every version we know, oldest first."""
        return sorted(self.by_cid.values(), key=lambda version: (version.number, version.cid))
