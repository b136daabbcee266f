"""Pages of marks: reads the frontiers that versions name by an index, and places the node's own.

docs/spec/pulsarcast.md, Versions.

A page is read when an event or a flush needs it. Its CID says that it is what the author made, and
the index in which range its marks lie. The last pages stay in memory. What no peer has, or what is
not as the index says, counts as not found.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.model.mark_blocks import MarkBlock, MarkIndex, MarkPage, decode_marks, mark_place
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.blocks import Blocks
from pulsarcast.protocol.dht.expiry import topic_lifetime
from pulsarcast.protocol.dht.placing import Placing
from pulsarcast.protocol.store import Block, LoadBlock

KEPT_MAX = 64
"""Bounds the pages and indexes in memory: 16 MiB if all are of full size."""
NUMBERS_MAX = 4096
"""Bounds the marks that were looked up lately: more than the versions of a topic, so that an event
can be judged by all of them."""
WAITING_MAX = 256
"""Bounds the callers that wait for a mark: events of strangers can ask for pages."""
PLACED_AT_ONCE = 8
"""Blocks of the node's own that are placed at a time: so few that publishers need not wait."""

FindBlock = Callable[[Cid, Callable[[bytes | None], None]], None]
Numbering = tuple[PeerId, int]


class MarkPages:
    """Blocks of marks that the node has read lately."""

    __slots__ = (
        "_blocks",
        "_find_block",
        "_kept",
        "_numbers",
        "_parameters",
        "_placing",
        "_reading",
        "_turn",
        "_waiting",
    )

    def __init__(
        self, context: Context, blocks: Blocks, placing: Placing, find_block: FindBlock
    ) -> None:
        self._turn = context.turn
        self._parameters = context.parameters
        self._blocks = blocks
        self._placing = placing
        self._find_block = find_block
        self._kept: dict[Cid, MarkBlock] = {}
        """The one that was used last is the last."""
        self._numbers: dict[tuple[Cid, Numbering], int] = {}
        self._reading: dict[Cid, list[Callable[[MarkBlock | None], None]]] = {}
        self._waiting = 0

    def footprint(self) -> dict[str, int]:
        """How many entries are in memory."""
        return {"mark_blocks": len(self._kept), "mark_callers": self._waiting}

    # Marks.

    def number(self, index: Cid, numbering: Numbering) -> int | None:
        """The mark that a frontier has of a numbering, 0 without one; None: it has to be found."""
        known = self._numbers.get((index, numbering))
        pages = None if known is not None else self._get(index)
        if not isinstance(pages, MarkIndex):
            return known
        at = pages.page_at(mark_place(*numbering))
        page = None if at < 0 else self._get(pages.page(at))
        if isinstance(page, MarkPage) and pages.names(at, page):
            return page.number(*numbering)
        return 0 if at < 0 else None

    def find(
        self, indexes: Sequence[Cid], numbering: Numbering, then: Callable[[bool], None]
    ) -> None:
        """Look up the marks of a numbering in several frontiers, for `number`.

        `then` gets whether they are all there. It is called at once if too many callers wait.
        """
        if self._waiting >= WAITING_MAX:
            then(False)
            return
        self._waiting += 1
        found: dict[Cid, int] = {}
        left = list(indexes)

        def end() -> None:
            self._waiting -= 1
            for index, number in found.items():
                self._remember(index, numbering, number)
            then(not left)

        def find_next() -> None:
            while left and (known := self.number(left[-1], numbering)) is not None:
                found[left.pop()] = known
            if left:
                self.index(left[-1], indexed)
            else:
                end()

        def indexed(index: MarkIndex | None) -> None:
            at = -1 if index is None else index.page_at(mark_place(*numbering))
            if index is None:
                end()
            elif at < 0:
                took(0)
            else:
                self.page(index, at, read)

        def read(page: MarkPage | None) -> None:
            if page is None:
                end()
            else:
                took(page.number(*numbering))

        def took(number: int) -> None:
            self._remember(left[-1], numbering, number)
            find_next()

        find_next()

    def _remember(self, index: Cid, numbering: Numbering, number: int) -> None:
        self._numbers.pop((index, numbering), None)
        self._numbers[index, numbering] = number
        if len(self._numbers) > NUMBERS_MAX:
            del self._numbers[next(iter(self._numbers))]

    # Blocks.

    def index(self, cid: Cid, then: Callable[[MarkIndex | None], None]) -> None:
        """Read an index; `then` gets None if no peer has it."""
        self._read(cid, lambda block: then(block if isinstance(block, MarkIndex) else None))

    def page(self, index: MarkIndex, at: int, then: Callable[[MarkPage | None], None]) -> None:
        """Read a page; `then` gets None if no peer has it, or if the index says something else."""

        def read(page: MarkBlock | None) -> None:
            then(page if isinstance(page, MarkPage) and index.names(at, page) else None)

        self._read(index.page(at), read)

    def _read(self, cid: Cid, then: Callable[[MarkBlock | None], None]) -> None:
        """Read a block, from the node's disk if it is there; one that is in memory at once."""
        known = self._get(cid)
        if known is not None:
            then(known)
            return
        waiting = self._reading.setdefault(cid, [])
        waiting.append(then)
        if len(waiting) == 1:
            self._turn.load(LoadBlock(cid), Block, partial(self._loaded, cid))

    def _get(self, cid: Cid) -> MarkBlock | None:
        known = self._kept.pop(cid, None)
        if known is not None:
            self._kept[cid] = known
        return known

    def _loaded(self, cid: Cid, answer: Block) -> None:
        if answer.block is None:
            self._find_block(cid, partial(self._found, cid))
        else:
            self._found(cid, answer.block)

    def _found(self, cid: Cid, block: bytes | None) -> None:
        found: MarkBlock | None = None
        with suppress(RemoteError):  # As if the replica had given nothing.
            found = None if block is None else decode_marks(block)
        if found is not None:
            self._kept[cid] = found
            if len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
        for then in self._reading.pop(cid):
            then(found)

    # The node's own.

    def keep(self, blocks: Sequence[bytes]) -> None:
        """Keep blocks of one time on the node's disk, however far their keys are."""
        if not blocks:
            return
        lifetime = topic_lifetime(decode_marks(blocks[0]), self._parameters)
        lifetime = lifetime.asked_for(self._turn.wall_us)
        found = (self._blocks.own_replica(cid_of(each), each, lifetime) for each in blocks)
        self._turn.persist(*(each for each in found if each is not None))

    def place(self, blocks: Sequence[bytes], then: Callable[[], None]) -> None:
        """Place blocks on their replicas, a few at a time."""
        left = list(reversed(blocks))

        def place_next() -> None:
            batch = [left.pop() for _ in range(min(PLACED_AT_ONCE, len(left)))]
            if batch:
                self._placing.store(batch, placed, keep_local=True)
            else:
                then()

        def placed(_: list[int]) -> None:
            self._turn.after(0.0, place_next)

        place_next()
