"""Local names: words of the user's own for peers and topics, kept in the home.

No message of another peer sets or changes one: a name stands for what its user meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final, TypeVar

import msgspec

from pulsarcast.model.api import (
    EventView,
    FollowedView,
    GapView,
    ListingView,
    StatusView,
    TopicView,
)
from pulsarcast.model.errors import Conflict, LocalError, NotFound
from pulsarcast.model.ids import PeerId, parse_peer, peer_text
from pulsarcast.storage.home import write_whole

NAMES_MAX: Final = 10_000
"""Bounds the names of one kind: every change writes all of them."""
_PEER_NAME: Final = re.compile(r"[a-z][a-z0-9._-]{0,31}")
"""Shorter than every form of a peer id, and without letters that look like others."""

N = TypeVar("N", EventView, FollowedView, GapView, ListingView, StatusView, TopicView)
"""An answer with a field `peer_names`."""


class NameBook:
    """All local names of one kind; read once, written whole."""

    file: ClassVar[str]
    kinds: ClassVar[str]

    def __init__(self, home: Path) -> None:
        self._path = home / self.file
        self._ids: dict[str, str] = {}
        try:
            self._ids = msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            raise LocalError(f"{self._path} cannot be read: {error}") from error

    def _check_room(self, name: str) -> None:
        """Refuse a new name where there are too many."""
        if name not in self._ids and len(self._ids) >= NAMES_MAX:
            raise LocalError(f"there are {NAMES_MAX} {self.kinds} already: drop some")

    def _write(self, ids: dict[str, str]) -> None:
        write_whole(self._path, msgspec.json.encode(ids) + b"\n")
        self._ids = ids


class PeerBook(NameBook):
    """Names of peers: a name stands for one peer, and a peer has at most one."""

    file = "peer_names.json"
    kinds = "peer names"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._names = {peer: name for name, peer in self._ids.items()}

    @property
    def names(self) -> dict[str, str]:
        """The name of every peer that has one, by its id."""
        return self._names

    def resolve(self, text: str) -> PeerId:
        """The peer that a text means: by its id, or by its name here."""
        try:
            return parse_peer(self._ids.get(text, text))
        except LocalError:
            raise LocalError(
                f"{text!r} is neither a peer id nor the name of a peer here: "
                "`pulsarcast name` lists the names"
            ) from None

    def set(self, peer: PeerId, name: str) -> None:
        """Name a peer, in the place of its former name; the name of another peer is refused."""
        if not _PEER_NAME.fullmatch(name):
            raise LocalError(
                f"{name!r} cannot be a peer name: it begins with a lower-case letter, and has up "
                "to 32 lower-case letters, digits, dots, dashes and underscores"
            )
        named = peer_text(peer)
        holder = self._ids.get(name, named)
        if holder != named:
            raise Conflict(f"{name!r} is the name of {holder}: drop it first, or give another")
        others = {each: other for each, other in self._ids.items() if other != named}
        if named not in self._names:
            self._check_room(name)
        self._write({**others, name: named})

    def drop(self, peer: PeerId) -> None:
        """Take a peer's name away."""
        named = peer_text(peer)
        if named not in self._names:
            raise NotFound(f"{named} has no name here")
        self._write({name: other for name, other in self._ids.items() if other != named})

    def fill(self, view: N) -> N:
        """Add the names of the peers that an answer names."""
        if self._names:
            view.peer_names = {
                peer: self._names[peer] for peer in _peers_in(view) if peer in self._names
            }
        return view

    def _write(self, ids: dict[str, str]) -> None:
        super()._write(ids)
        self._names = {peer: name for name, peer in ids.items()}


def _peers_in(
    view: EventView | FollowedView | GapView | ListingView | StatusView | TopicView,
) -> Iterator[str]:
    match view:
        case EventView():
            yield from (view.author, view.publisher)
        case GapView():
            yield view.publisher
        case ListingView():
            yield view.author
        case StatusView(reach=reach):
            yield from (view.peer, *(report.peer for report in reach.reports), *reach.relays)
        case TopicView(settings=settings):
            yield view.author
            yield from settings.publishers or ()
            yield from settings.requesters or ()
            yield from settings.sequencers or ()
            yield from settings.recovery_keys or ()
        case FollowedView(sequencing=sequencing):
            yield from (view.author, view.parent or "", *view.children, *view.lazy)
            yield "" if sequencing is None else sequencing.leader or ""
