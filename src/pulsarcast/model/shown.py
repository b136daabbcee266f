"""Values as people see them in a session or a log: short, with the ends of ids."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pulsarcast.model.ids import PEER_ID_BYTES, PEER_ID_PREFIX, PeerId, peer_text

ID_END: Final = 8
"""Characters of an id that are shown: its end, which differs."""
PREVIEW_BYTES_MAX: Final = 60
"""Bounds the part of a payload that a `repr` shows."""
_CHARACTER_BYTES_MAX: Final = 4
_IDS: Final = re.compile(r"\b(?:12D3KooW|bafyrei)\w{40,}\b")


def short(text: str, peer_names: Mapping[str, str] = {}) -> str:
    """An id as a line has room for it: its end, behind the name of a peer that has one here."""
    return f"{peer_names.get(text, '')} …{text[-ID_END:]}".lstrip()


def whole(peer: str, peer_names: Mapping[str, str]) -> str:
    """A peer id to copy, and the peer's name."""
    name = peer_names.get(peer)
    return f"{peer} ({name})" if name else peer


def label(peer: str, peer_names: Mapping[str, str]) -> str:
    """A peer in as few characters as will do: its name, or else the end of its id."""
    return peer_names.get(peer) or short(peer)


_REACH: Final = {
    "unknown": "not known yet",
    "public": "public: peers can dial the node",
    "relayed": "relayed: peers dial the node through a relay",
    "private": "private: no peer can dial the node",
}


def reach_shown(reach: Any, peer_names: Mapping[str, str], now_us: int) -> str:
    """Whether and how others can dial a node, since when, and who says so."""
    text = _REACH[reach.kind]
    if reach.address:
        text += f" at {reach.address}"
    if reach.since_us is not None:
        text += f", for {max(0, now_us - reach.since_us) // 1_000_000} s"
    if reach.relays:
        text += f", by way of {', '.join(label(each, peer_names) for each in reach.relays)}"
    if reach.punched or reach.not_punched:
        text += f", {reach.punched} of {reach.punched + reach.not_punched} holes punched"
    reached = reach.kind == "public"
    said = [each for each in reach.reports if each.reached is reached]
    if said:
        where = " (of this network)" if all(each.near for each in said) else ""
        text += f", as {', '.join(label(each.peer, peer_names) for each in said)} found{where}"
    return text


def preview(payload: bytes) -> str:
    """The beginning of a payload, as text where it is text."""
    some = payload[:PREVIEW_BYTES_MAX]
    is_cut = len(some) < len(payload)
    try:
        shown = repr(some.decode())
    except UnicodeDecodeError as error:
        # The cut may divide a character.
        is_text = is_cut and error.start > len(some) - _CHARACTER_BYTES_MAX
        shown = repr(some[: error.start].decode() if is_text else some)
    return f"{shown}… ({len(payload)} bytes)" if is_cut else shown


def topic_shown(topic: Any) -> str:
    """A topic, of the library or of the client."""
    kind = type(topic).__name__
    of = f"{short(topic.id)} of {_author_shown(topic)}"
    return f"<{kind} {topic.name!r} {of}, version {topic.version}>"


def event_shown(event: Any, *, merge: bool) -> str:
    """An event, of the library or of the client."""
    place = f"{event.index} " if event.index else ""
    said = "a merge" if merge else preview(event.payload)
    kind = type(event).__name__
    return f"<{kind} {place}{short(event.id)} of {_author_shown(event)}: {said}>"


def _author_shown(thing: Any) -> str:
    """Its name is known to a daemon, and so to clients."""
    return short(thing.author, getattr(thing, "peer_names", {}))


def published_shown(published: Any) -> str:
    """A receipt, of the library or of the client."""
    return f"<{type(published).__name__} {short(published.id)}, replicas: {published.replicas}>"


def walk_shown(walk: Any) -> str:
    """A page of a walk, of the library or of the client."""
    more = ", more to come" if walk.cursor else ""
    kind = type(walk).__name__
    return f"<{kind} events: {len(walk.events)}, gaps: {len(walk.gaps)}{more}>"


def brief(value: msgspec.Struct) -> str:
    """A structure by the fields that differ from their defaults, with the ends of ids."""
    parts = []
    for each in msgspec.structs.fields(value):
        found = getattr(value, each.name)
        is_default = each.default is not msgspec.NODEFAULT and found == each.default
        is_made = each.default_factory is not msgspec.NODEFAULT and found == each.default_factory()
        if not is_default and not is_made:
            parts.append(f"{each.name}={_told(found)}")
    return f"{type(value).__name__}({', '.join(parts)})"


def _told(value: object) -> str:
    match value:
        case bytes() if len(value) == PEER_ID_BYTES and value.startswith(PEER_ID_PREFIX):
            return short(peer_text(PeerId(value)))
        case tuple():
            return f"({', '.join(map(_told, value))})"
        case enum.Enum():
            return f"{type(value).__name__}.{value.name}"
        case _:
            return _IDS.sub(lambda met: short(met[0]), repr(value))
