"""The reason why a topic is halted, and its row on the disk."""

from typing import Final, NamedTuple, Self

from pulsarcast.model import cbor
from pulsarcast.model.errors import Halted, Refusal, Rejection
from pulsarcast.model.ids import Cid, cid_text

HALT_BYTES_MAX: Final = 256
"""Bounds a row on the disk: a code, a number and two content ids take less."""


class TwoCertificates(NamedTuple):
    """The sequencers certified two events for one position, so the order is broken."""

    position: int
    held: Cid
    other: Cid

    def to_bytes(self) -> bytes:
        """The row of the table `halted`: the code first, then the details."""
        code = Rejection.TWO_CERTIFICATES.value
        return cbor.encode([code, self.position, cbor.opaque(self.held), cbor.opaque(self.other)])

    @classmethod
    def from_bytes(cls, row: bytes) -> Self:
        """Read the row of the table `halted`."""
        fields = cbor.decode(row, size_max=HALT_BYTES_MAX)
        assert isinstance(fields, list), "the node wrote it"
        code, position, held, other = fields
        assert code == Rejection.TWO_CERTIFICATES, "no topic halts for another reason"
        return cls(position, Cid(cbor.plain(held)), Cid(cbor.plain(other)))

    @property
    def refusal(self) -> Refusal:
        """The refusal that callers get."""
        return Halted(
            f"halted: two events are certified for position {self.position}: "
            f"{cid_text(self.held)} and {cid_text(self.other)}"
        ).refusal
