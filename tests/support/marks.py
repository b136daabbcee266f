"""Blocks of marks for tests: right ones, and ones that an honest author would not sign."""

from collections.abc import Iterable, Sequence

from pulsarcast.model.cbor import encode, opaque
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import CID_PREFIX, PEER_ID_PREFIX, PeerId, cid_of, public_key_of
from pulsarcast.model.mark_blocks import make_mark_blocks, mark_place
from pulsarcast.model.topics import Mark
from tests.support.people import ALICE, CREATED_US, EPOCH


def invented(count: int) -> list[Mark]:
    """Marks of so many publishers."""
    return [Mark(PeerId(PEER_ID_PREFIX + n.to_bytes(32, "big")), EPOCH, 7) for n in range(count)]


def blocks_of(marks: Iterable[Mark], page_marks: int = 4) -> list[bytes]:
    """An index and its pages."""
    return make_mark_blocks(ALICE, marks, created=CREATED_US, page_marks=page_marks)


def by_place(marks: Iterable[Mark]) -> list[Mark]:
    """Marks in the order in which they stand in pages."""
    return sorted(marks, key=lambda mark: mark_place(mark.publisher, mark.epoch))


def row_of(mark: Mark) -> bytes:
    """A mark as a page has it."""
    publisher, epoch, number = mark
    return public_key_of(publisher) + epoch.to_bytes(8, "big") + number.to_bytes(8, "big")


def page_of(marks: Iterable[Mark], signer: Identity = ALICE) -> bytes:
    """A page of these marks, in this order."""
    return signed(signer, "marks", b"".join(map(row_of, marks)))


def index_of(pages: Sequence[tuple[bytes, bytes]]) -> bytes:
    """An index that says the first place of each page."""
    rows = (place + cid_of(page)[len(CID_PREFIX) :] for place, page in pages)
    return signed(ALICE, "pages", b"".join(rows))


def signed(signer: Identity, key: str, rows: bytes) -> bytes:
    """A block of marks with a right signature, whatever its rows."""
    fields: dict[str, object] = {
        "v": 1,
        "signer": signer.peer_id,
        "created": CREATED_US,
        key: opaque(rows),
    }
    return encode({**fields, "s": opaque(signer.sign("marks", encode(fields)))})
