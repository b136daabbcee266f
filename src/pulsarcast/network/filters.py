"""Our filters in other peers' keeping: each ends once nobody here reads what it brings.

A reader without a name is forgotten with its connection, and may be back in a moment, to go on
behind the last event that it saw. So a filter outlives its reader for a while. The last one of a
topic stays for as long as no other takes its place: with it would go the topic's log, in which
those who come back know their place by an index. Others are left by `unsubscribe` only, too.

Which filters nobody reads is seen by the places of readers alone, so a crash changes nothing.
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import Final

import trio

from pulsarcast.model.errors import LocalError
from pulsarcast.model.filters import Filter
from pulsarcast.model.ids import Cid
from pulsarcast.network.driver import Driver
from pulsarcast.network.offsets import Offsets
from pulsarcast.protocol.content.content import FILTERS_MAX
from pulsarcast.protocol.content.following import ContentTopic
from pulsarcast.protocol.content.spaces import routes_of
from pulsarcast.protocol.inputs import UnsubscribeContent

UNREAD_S: Final = 60.0
"""How long a filter outlives its reader, at least; twice as long at most."""


def sid_of(name: str) -> int:
    """The number under which a name's filter is known to other peers."""
    return int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "big")


def end_of(topic: Cid, sid: int, call: int) -> UnsubscribeContent:
    """The command that ends a filter."""
    return UnsubscribeContent(call, topic, sid)


class Filters:
    """The filters of all topics that we follow by content."""

    def __init__(self, offsets: Offsets) -> None:
        self._offsets = offsets

    async def keep(self, driver: Driver) -> None:
        """End now and then what nobody has read for a while."""
        before: dict[tuple[Cid, int], None] = {}
        while True:
            await trio.sleep(UNREAD_S)
            unread = {
                (topic.id, sid): None
                for topic in driver.core.content.topics.values()
                for sid in self._spare(topic)
            }
            for cid, sid in unread:
                if (cid, sid) in before:
                    driver.tell(partial(end_of, cid, sid))
            before = unread

    def make_way(self, driver: Driver, cid: Cid, wanted: Filter | None) -> None:
        """End what nobody reads where it is in the way of somebody new.

        Whoever wants all events, or has a filter that cannot be routed, becomes a member, which we
        can be only where we have no filters; and there may be so many of these and no more.
        """
        content = driver.core.content
        topic = content.topics.get(cid)
        if topic is None:
            return
        if wanted is not None and _is_routed(driver, topic, wanted):
            ended = self._spare(topic) if len(topic.wanted) >= FILTERS_MAX else []
        else:
            unread = self._unread(topic)
            ended = unread if len(unread) == len(topic.wanted) else []
        self._end(driver, topic, ended)

    def give_up(self, driver: Driver, cid: Cid, name: str) -> None:
        """End the filter of a new reader that waits no more."""
        topic = driver.core.content.topics.get(cid)
        sid = sid_of(name)
        if topic is None or sid not in topic.wanted:
            return
        if not topic.started or len(topic.wanted) > 1:
            self._end(driver, topic, [sid])

    def _end(self, driver: Driver, topic: ContentTopic, sids: list[int]) -> None:
        if sids and len(sids) == len(topic.wanted):
            # The topic goes, and its log. Its next one counts anew: no place must outlive this.
            self._offsets.drop_topic(driver, topic.id)
        for sid in sids:
            driver.tell(partial(end_of, topic.id, sid))

    def _unread(self, topic: ContentTopic) -> list[int]:
        """What nobody reads, oldest first."""
        feed = self._offsets.by_topic.get(topic.id)
        read = {} if feed is None else {sid_of(name): None for name in feed.readers}
        return [sid for sid in topic.wanted if sid not in read]

    def _spare(self, topic: ContentTopic) -> list[int]:
        """What nobody reads and the topic can do without."""
        unread = self._unread(topic)
        return unread[:-1] if len(unread) == len(topic.wanted) else unread


def _is_routed(driver: Driver, topic: ContentTopic, wanted: Filter) -> bool:
    try:
        routes_of(wanted, driver.core.content.spaces.domains(topic.versions))
    except LocalError:
        return False
    return True
