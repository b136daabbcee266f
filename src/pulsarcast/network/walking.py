"""Walking: puts the pages of a walk together, and finds an event's place in the node's log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pulsarcast.model.api import WALK_MAX, GapView
from pulsarcast.model.errors import LocalError, NotFollowed, RemoteError
from pulsarcast.model.events import EventDescriptor, read_own_event
from pulsarcast.model.ids import Cid
from pulsarcast.model.lineage import oldest_first
from pulsarcast.network.subscriptions import Event
from pulsarcast.network.values import Walked
from pulsarcast.protocol.history.walk import links_of
from pulsarcast.protocol.store import Block, Events, LoadBlock, LoadNumbers
from pulsarcast.storage.sqlite import SqliteStore

NOT_IN_LOG = NotFollowed("the node's log has no such event, and a walk forward needs the log")


async def put_together(page_of: Callable[[int, str], Awaitable[Walked]], limit: int) -> Walked:
    """All pages of a walk, up to `limit` events, oldest first."""
    found: list[Event] = []
    gaps: list[GapView] = []
    cursor = ""
    while len(found) < limit:
        page = await page_of(min(WALK_MAX, limit - len(found)), cursor)
        found += page.events
        gaps += page.gaps
        cursor = page.cursor
        if not cursor:
            break
    ordered = oldest_first(found, lambda each: links_of(each.descriptor))
    return Walked(tuple(ordered), tuple(gaps), cursor)


def start_forward(store: SqliteStore, event: Cid, cursor: str) -> tuple[Cid, int]:
    """The topic and the index from which a walk forward goes on; raises NotFollowed."""
    descriptor = kept_event(store, event)
    index = None if descriptor is None else index_of(store, descriptor)
    if descriptor is None or index is None:
        raise NOT_IN_LOG
    try:
        return descriptor.topic, max(index, int(cursor or index))
    except ValueError as error:
        raise LocalError("the cursor is not one that a walk gave") from error


def kept_event(store: SqliteStore, event: Cid) -> EventDescriptor | None:
    """An event from the node's disk."""
    found = store.answer(LoadBlock(event))
    if not isinstance(found, Block) or found.block is None:
        return None
    try:
        return read_own_event(found.block)
    except RemoteError:
        return None  # It is a block of another kind.


def index_of(store: SqliteStore, event: EventDescriptor) -> int | None:
    """The index of an event in the node's log of its topic, if the log has it."""
    source, (epoch, number) = event.numbered_by, event.sequence
    held = store.answer(LoadNumbers(event.topic, source, epoch, number, number, 1))
    assert isinstance(held, Events)
    return next((index for index, each in held.events if index and each.cid == event.cid), None)
