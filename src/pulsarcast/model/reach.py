"""Reach: whether and how other peers can dial a peer (docs/spec/reach.md)."""

import enum


class Reach(enum.IntEnum):
    """What a peer knows of itself, and tells in Hello."""

    UNKNOWN = 0
    """No peer has tried yet."""
    PUBLIC = 1
    """Peers at other addresses can dial it."""
    RELAYED = 2
    """Peers can dial it through a relay only."""
    PRIVATE = 3
    """No peer can dial it: it speaks over the connections that it dialled itself."""
