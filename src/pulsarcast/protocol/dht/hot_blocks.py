"""Hot blocks: those that many peers look for at once, such as the descriptor of a new topic.

All lookups of a block end at its few replicas. A peer on the way that is asked for it again and
again looks it up itself, and hands it out for a while. So however many look for it, each replica
is asked by few (docs/spec/pulsarcast.md, The DHT).
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from pulsarcast.model.ids import Cid
from pulsarcast.protocol.context import Context

HOT: Final = 3
"""A block that was asked for so often is looked up."""
ASKED_MAX: Final = 256
"""Bounds the blocks whose questions are counted; the one not asked for longest is forgotten."""
KEPT_S: Final = 60.0
"""How long a block is handed out; then it may be looked up again."""
KEPT_BYTES_MAX: Final = 1024 * 1024
"""Bounds all that is kept; the oldest goes first."""


class Finder(Protocol):
    """Asked of the DHT."""

    def find_block(self, cid: Cid, then: Callable[[bytes | None], None]) -> None:
        """Find a block that other peers hold."""


class _Hot(NamedTuple):
    block: bytes
    until_s: float


class HotBlocks:
    """Blocks that a node keeps in memory because many asked for them."""

    __slots__ = ("_asked", "_finder", "_is_looking", "_kept", "_turn")

    def __init__(self, context: Context, finder: Finder) -> None:
        self._turn = context.turn
        self._finder = finder
        self._asked: dict[Cid, int] = {}
        self._kept: dict[Cid, _Hot] = {}
        self._is_looking = False
        """One is looked for at a time: strangers decide what is hot."""

    def __len__(self) -> int:
        """How many blocks are counted or kept."""
        return len(self._asked) + len(self._kept)

    def find(self, cid: Cid) -> bytes | None:
        """A block that is not on the disk and that a peer asks for, if it is kept."""
        hot = self._kept.get(cid)
        if hot is not None and self._turn.now < hot.until_s:
            return hot.block
        count = self._asked.pop(cid, 0) + 1
        self._asked[cid] = count
        if len(self._asked) > ASKED_MAX:
            del self._asked[next(iter(self._asked))]
        if count >= HOT and not self._is_looking:
            self._is_looking = True
            self._finder.find_block(cid, lambda block: self._found(cid, block))
        return None

    def _found(self, cid: Cid, block: bytes | None) -> None:
        self._is_looking = False
        self._asked.pop(cid, None)
        if block is None:
            return
        self._kept.pop(cid, None)
        self._kept[cid] = _Hot(block, self._turn.now + KEPT_S)
        size = sum(len(hot.block) for hot in self._kept.values())
        while size > KEPT_BYTES_MAX:
            size -= len(self._kept.pop(next(iter(self._kept))).block)
