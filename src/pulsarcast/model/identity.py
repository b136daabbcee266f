"""A peer's identity: an Ed25519 key pair, its signatures and their verification.

Signed bytes start with `pulsarcast/<kind>/1`, so that a signature of one kind can never be shown
as a signature of another (docs/spec/descriptors.md, Signatures). libsodium alone decides which
signature is valid: libraries differ at the edges, and an event must not be valid for half of the
peers.
"""

from __future__ import annotations

from functools import cache

from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import CryptoError

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import PeerId, peer_id_of, public_key_of

SEED_BYTES = 32
SIGNATURE_BYTES = 64


def signed_bytes(kind: str, body: bytes) -> bytes:
    """The bytes that a signature of this kind covers."""
    return _prefix(kind) + body


@cache
def _prefix(kind: str) -> bytes:
    return b"pulsarcast/%s/1" % kind.encode("ascii")


class Identity:
    """A key pair, and the peer id that other peers know it by."""

    __slots__ = ("_secret_key", "peer_id", "seed")

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise LocalError(f"an identity's seed has {SEED_BYTES} bytes, not {len(seed)}")
        public_key, self._secret_key = crypto_sign_seed_keypair(seed)
        self.seed: bytes = seed
        self.peer_id: PeerId = peer_id_of(public_key)

    @classmethod
    def from_seed(cls, seed: bytes) -> Identity:
        """The identity that this secret seed always gives."""
        return cls(seed)

    def sign(self, kind: str, body: bytes) -> bytes:
        """Sign a body as this kind of thing."""
        return self.sign_bytes(signed_bytes(kind, body))

    def sign_bytes(self, said: bytes) -> bytes:
        """Sign these very bytes: libp2p says what its own signatures cover."""
        return crypto_sign(said, self._secret_key)[:SIGNATURE_BYTES]

    def __repr__(self) -> str:
        """Name the peer and never the seed: this ends up in logs."""
        return f"Identity({self.peer_id.hex()})"


def verify_signature(peer: PeerId, kind: str, body: bytes, signature: bytes) -> bool:
    """Whether this peer signed this body as this kind of thing."""
    return has_signed(peer, signed_bytes(kind, body), signature)


def has_signed(peer: PeerId, said: bytes, signature: bytes) -> bool:
    """Whether this peer signed these very bytes."""
    if len(signature) != SIGNATURE_BYTES:
        return False
    try:
        crypto_sign_open(signature + said, public_key_of(peer))
    except CryptoError:
        return False
    return True
