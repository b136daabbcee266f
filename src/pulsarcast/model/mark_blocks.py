"""Blocks of marks: frontiers that are too long to stand in a topic's version.

docs/spec/descriptors.md, Blocks of marks.

A version names an index of marks, which names pages of marks in its turn. The marks are in the
order of their places, and each page has one range of places. So the mark of one numbering is found
in the index and one page, and marks that are close in the hash tree of a frontier share a page.

On the wire: v (protocol version, 1), signer, created, `marks` (a page) or `pages` (an index), s.
Both are one string of rows of 48 bytes, numbers big-endian:
    marks     the key of the publisher (32), epoch (8), number (8)
    pages     the place of the first mark (16), the SHA-256 of the page (32)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import pairwise
from struct import Struct
from typing import Final, TypeAlias

import msgspec

from pulsarcast.model.cbor import INT_MAX, decode, encode, encode_part, opaque, plain
from pulsarcast.model.errors import LocalError, Rejection, RemoteError
from pulsarcast.model.fields import (
    PROTOCOL_VERSION,
    Fields,
    check_version,
    read_map,
    read_signature,
    read_time,
)
from pulsarcast.model.identity import Identity, verify_signature
from pulsarcast.model.ids import (
    CID_PREFIX,
    PEER_ID_PREFIX,
    Cid,
    PeerId,
    check_peer_id,
    cid_of,
    public_key_of,
)
from pulsarcast.model.marks import Mark

MARKS_BYTES_MAX: Final = 256 << 10
"""Bounds a page and an index: as much as one batch of blocks for a replica."""
ROW_BYTES: Final = 48
ROWS_MAX: Final = 5400
"""Bounds the marks of a page, and the pages of an index; what stands beside them is short."""
PLACE_BYTES: Final = 16

_NUMBERING_BYTES: Final = 40
_ROW = Struct(">32sQQ")
_KEYS = frozenset(("v", "signer", "created", "marks", "pages", "s"))


class MarkPage(msgspec.Struct, frozen=True):
    """Some of the marks of a frontier."""

    rows: bytes
    created: int
    cid: Cid

    def __len__(self) -> int:
        return len(self.rows) // ROW_BYTES

    def _row(self, at: int) -> bytes:
        return self.rows[at * ROW_BYTES : (at + 1) * ROW_BYTES]

    def place(self, at: int) -> bytes:
        """The place of one of the marks."""
        return _place(PEER_ID_PREFIX + self._row(at)[:_NUMBERING_BYTES])

    def number(self, publisher: PeerId, epoch: int) -> int:
        """The number that a numbering is marked with; 0: it has no mark here."""
        at = bisect_left(range(len(self)), mark_place(publisher, epoch), key=self.place)
        if at == len(self):
            return 0
        key, its_epoch, number = _ROW.unpack(self._row(at))
        return number if (key, its_epoch) == (public_key_of(publisher), epoch) else 0

    def marks(self) -> Iterator[Mark]:
        """All marks."""
        for key, epoch, number in _ROW.iter_unpack(self.rows):
            yield Mark(PeerId(PEER_ID_PREFIX + key), epoch, number)


class MarkIndex(msgspec.Struct, frozen=True):
    """The pages of a frontier."""

    rows: bytes
    created: int
    cid: Cid

    def __len__(self) -> int:
        return len(self.rows) // ROW_BYTES

    def place(self, at: int) -> bytes:
        """The place of the first mark of a page."""
        return self.rows[at * ROW_BYTES : at * ROW_BYTES + PLACE_BYTES]

    def page(self, at: int) -> Cid:
        """A page's CID."""
        return Cid(CID_PREFIX + self.rows[at * ROW_BYTES + PLACE_BYTES : (at + 1) * ROW_BYTES])

    def page_at(self, place: bytes) -> int:
        """The page with the marks of a place; -1: there are none."""
        return bisect_right(range(len(self)), place, key=self.place) - 1

    def names(self, at: int, page: MarkPage) -> bool:
        """Whether a page is this one: it has the CID, and the range of places."""
        is_within = at + 1 == len(self) or page.place(len(page) - 1) < self.place(at + 1)
        return page.cid == self.page(at) and page.place(0) == self.place(at) and is_within


MarkBlock: TypeAlias = MarkPage | MarkIndex


def mark_place(publisher: PeerId, epoch: int) -> bytes:
    """The place of a numbering among all."""
    return _place(publisher + epoch.to_bytes(8, "big"))


def _place(numbering: bytes) -> bytes:
    return blake2b(numbering, digest_size=PLACE_BYTES, person=b"place").digest()


# Making


def make_mark_blocks(
    identity: Identity, marks: Iterable[Mark], *, created: int, page_marks: int
) -> list[bytes]:
    """The blocks that hold a frontier: its index, and then its pages."""
    by_place = {
        mark_place(publisher, epoch): _ROW.pack(public_key_of(publisher), epoch, number)
        for publisher, epoch, number in marks
    }
    places = sorted(by_place)
    pages: list[bytes] = []
    rows: list[bytes] = []
    for start in range(0, len(places), page_marks):
        within = places[start : start + page_marks]
        pages.append(_sign(identity, created, "marks", b"".join(map(by_place.__getitem__, within))))
        rows.append(within[0] + cid_of(pages[-1])[len(CID_PREFIX) :])
    if len(rows) > ROWS_MAX:
        raise LocalError(
            f"a version can name {ROWS_MAX * page_marks} numberings, not {len(places)}"
        )
    return [_sign(identity, created, "pages", b"".join(rows)), *pages]


def _sign(identity: Identity, created: int, key: str, rows: bytes) -> bytes:
    fields: Fields = {
        "v": PROTOCOL_VERSION,
        "signer": identity.peer_id,
        "created": created,
        key: opaque(rows),
    }
    fields["s"] = opaque(identity.sign("marks", encode(fields)))
    return encode(fields)


# Reading


def decode_marks(block: bytes) -> MarkBlock:
    """Read and verify a page or an index; whether a page is what an index says is for that."""
    value = decode(block, size_max=MARKS_BYTES_MAX)
    check_version(value, "a block of marks")
    fields = read_map(value, _KEYS, "a block of marks")
    signer = check_peer_id(fields.get("signer"))
    created = read_time(fields.get("created"), "created")
    if ("marks" in fields) == ("pages" in fields):
        raise RemoteError("a block of marks has either marks or pages")
    kind = MarkPage if "marks" in fields else MarkIndex
    rows = plain(fields["marks"] if "marks" in fields else fields["pages"])
    if not rows or len(rows) % ROW_BYTES:
        raise RemoteError("a block of marks is not rows of 48 bytes")
    signature = read_signature(fields.pop("s", None))
    if not verify_signature(signer, "marks", encode_part(fields), signature):
        raise RemoteError(
            "the signature of a block of marks is wrong", code=Rejection.BAD_SIGNATURE
        )
    found = kind(rows, created, cid_of(block))
    if isinstance(found, MarkPage):
        for _, epoch, number in _ROW.iter_unpack(rows):
            if epoch > INT_MAX or not 0 < number <= INT_MAX:
                raise RemoteError("an epoch or a number of a mark is out of bounds")
    places = map(found.place, range(len(found)))
    if any(before >= after for before, after in pairwise(places)):
        raise RemoteError(
            "a block of marks is not in ascending order", code=Rejection.NOT_CANONICAL
        )
    return found
