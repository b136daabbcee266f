"""Naming: finds the topic that a text stands for, for the library, the daemon and all its clients.

A text is, in this order: a content id; a name that this node gave to a topic of its own; an alias
of the daemon; another author's topic as `author/name`; a name that this node's key gave elsewhere,
as the DHT has it. `/meta` behind any of these is the meta topic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from pulsarcast.model.errors import LocalError, NotFound, TopicNotFound
from pulsarcast.model.ids import Cid, PeerId, cid_text, parse_cid, parse_peer, peer_text
from pulsarcast.model.pointers import Resolution
from pulsarcast.model.topic_types import META
from pulsarcast.network.driver import Driver
from pulsarcast.network.values import Topic, TopicRef

Resolving: TypeAlias = Callable[[PeerId, str], Awaitable[Resolution]]


@dataclass(frozen=True, slots=True)
class Found:
    """The topic that a text stands for."""

    topic: Cid
    version: Cid | None = None
    """Its newest version, where a name said so."""
    notes: tuple[str, ...] = ()
    """What a person should know of the name: that it moved, or that two topics claim it."""


class Naming:
    """One node's way from texts to topics."""

    def __init__(
        self,
        running: Callable[[], Driver],
        resolving: Resolving,
        meta_of: Callable[[Cid], Awaitable[Cid]],
    ) -> None:
        self._running = running
        self._resolving = resolving
        self._meta_of = meta_of
        self.alias: Callable[[str], str | None] = lambda alias: None
        """The content id of an alias; a daemon has some."""
        self.peer: Callable[[str], PeerId] = parse_peer
        """The peer that a text stands for; a daemon has local names of peers."""

    async def find(self, topic: TopicRef) -> Found:
        """The topic that a reference stands for; raises TopicNotFound."""
        if isinstance(topic, Topic):
            return Found(topic.cid)
        if isinstance(topic, bytes):
            return Found(topic)
        above, _, last = topic.rpartition("/")
        if above and last == META:
            # New versions are announced there: it can be followed alone (thesis, 4.1.3.1).
            return Found(await self._meta_of((await self.find(above)).topic))
        with suppress(LocalError):
            return Found(parse_cid(topic))
        own = self._known(topic)
        if own is not None:
            return own
        aliased = self.alias(topic)
        if aliased is not None:
            return Found(parse_cid(aliased))
        head, _, name = topic.partition("/")
        why = ""
        if name:
            try:
                author = self.peer(head)
            except LocalError as error:
                why = f": {error}"
            else:
                return _found(await self._resolving(author, name))
        own = await self.own(topic)
        if own is None:
            raise TopicNotFound(
                f"{topic!r} is not a content id, a name of this node, an alias or author/name{why} "
                "(`pulsarcast topic list` shows the topics here)"
            )
        return own

    async def own(self, name: str) -> Found | None:
        """The topic that a name of this node's own leads to, if there is one here or elsewhere."""
        known = self._known(name)
        if known is not None:
            return known
        try:
            return _found(await self._resolving(self._running().me, name))
        except NotFound:
            return None

    def _known(self, name: str) -> Found | None:
        named = self._running().core.names.own(name)
        return None if named is None else _found(Resolution(*named))

    def notes(self) -> list[str]:
        """What a person should know of the names that this node gave, and of those it reads by."""
        return [note for each in self._running().core.names.notable() for note in notes_of(each)]


def notes_of(found: Resolution) -> tuple[str, ...]:
    """That a name moved, and that two nodes used it without knowing of each other."""
    pointer, rival, reading = found
    text = f"{peer_text(pointer.author)}/{pointer.name}"
    notes: list[str] = []
    if reading is not None:
        notes.append(
            f"{text} leads to {cid_text(pointer.topic)} now; this node is subscribed to "
            f"{cid_text(reading.topic)} by that name and goes on: unsubscribe to change over"
        )
    if rival is not None and rival.topic != pointer.topic:
        notes.append(
            f"two nodes with one key gave the name {text} to two topics: it leads to "
            f"{cid_text(pointer.topic)} everywhere, not to {cid_text(rival.topic)}; "
            "its author settles it by moving the name"
        )
    elif rival is not None:
        notes.append(
            f"two nodes with one key made version {pointer.number} of {text}: "
            f"{cid_text(pointer.cid)} holds everywhere, and {cid_text(rival.cid)} does not; "
            "its author settles it with a new version"
        )
    return tuple(notes)


def _found(resolution: Resolution) -> Found:
    pointer = resolution.reading or resolution.pointer
    return Found(pointer.topic, pointer.cid, notes_of(resolution))
