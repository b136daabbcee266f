"""Certificates: signatures of a majority of a topic's sequencers for one event's position.

docs/spec/sequencing.md, Signatures.

A certificate travels beside its event: the event's content id does not cover it, and two
certificates of one event prove the same. It holds as many signatures as make a majority, in the
order of the topic's list of sequencers:
    1 byte   the signer's index in the list
    64 bytes its Ed25519 signature of kind `certificate`
A signature covers the topic (36 bytes), the term and the position (8 each, big-endian), and the
event's content id (36). The lengths are fixed, so the bytes have one reading.

A topic with one sequencer needs none: the event's own signature says the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor, Position
from pulsarcast.model.identity import SIGNATURE_BYTES, Identity, verify_signature
from pulsarcast.model.ids import Cid, PeerId

KIND: Final = "certificate"
PART_BYTES: Final = 1 + SIGNATURE_BYTES
_KNOWN_MAX: Final = 1 << 13


def quorum_of(sequencers: tuple[PeerId, ...]) -> int:
    """The number of sequencers that make a majority."""
    return len(sequencers) // 2 + 1


def _body(topic: Cid, position: Position, cid: Cid) -> bytes:
    return topic + position.term.to_bytes(8, "big") + position.number.to_bytes(8, "big") + cid


def sign_place(identity: Identity, topic: Cid, position: Position, cid: Cid) -> bytes:
    """Sign, as a sequencer, that an event has its position."""
    return identity.sign(KIND, _body(topic, position, cid))


def is_place_signed(
    peer: PeerId, topic: Cid, position: Position, cid: Cid, signature: bytes
) -> bool:
    """Whether a sequencer signed an event's position."""
    return verify_signature(peer, KIND, _body(topic, position, cid), signature)


def make_certificate(sequencers: tuple[PeerId, ...], signatures: Mapping[PeerId, bytes]) -> bytes:
    """A certificate made of these signatures, which must be a majority."""
    parts = [
        bytes([place]) + signatures[peer]
        for place, peer in enumerate(sequencers)
        if peer in signatures
    ]
    assert len(parts) >= quorum_of(sequencers), "most of the sequencers signed"
    return b"".join(parts[: quorum_of(sequencers)])


def check_certificate(
    sequencers: tuple[PeerId, ...], event: EventDescriptor, certificate: bytes
) -> None:
    """Refuse an event whose position no majority of its sequencers signed."""
    if event.position is None:
        raise RemoteError(
            "a certificate of an event that has no place", code=Rejection.BAD_CERTIFICATE
        )
    body = _body(event.topic, event.position, event.cid)
    if not _proves(sequencers, body, certificate):
        raise RemoteError("a certificate that proves nothing", code=Rejection.BAD_CERTIFICATE)


@lru_cache(maxsize=_KNOWN_MAX)
def _proves(sequencers: tuple[PeerId, ...], body: bytes, certificate: bytes) -> bool:
    """Whether a certificate is valid. Cached: many nodes of a simulation check the same one."""
    if len(certificate) != PART_BYTES * quorum_of(sequencers):
        return False
    last = -1
    for at in range(0, len(certificate), PART_BYTES):
        place = certificate[at]
        if not last < place < len(sequencers):
            return False
        signature = certificate[at + 1 : at + PART_BYTES]
        if not verify_signature(sequencers[place], KIND, body, signature):
            return False
        last = place
    return True
