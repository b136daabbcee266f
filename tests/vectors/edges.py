"""Ed25519 at its edges: keys and signatures that some libraries take, and others do not.

Chalkias, Garillot and Nikolaenko, Taming the many EdDSAs (2020), has the families. OpenSSL takes
the first two of them; a check that multiplies by the cofactor takes the last two.
"""

from __future__ import annotations

from hashlib import sha512

from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_scalar_add,
    crypto_core_ed25519_scalar_mul,
    crypto_core_ed25519_scalar_reduce,
    crypto_scalarmult_ed25519_base_noclamp,
)

from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import public_key_of

ORDER = (1 << 252) + 27_742_317_777_372_353_535_851_937_790_883_648_493
PRIME = (1 << 255) - 19
SIGN = 1 << 255
"""The bit of an encoding that says which of two points with one y it is."""
NEUTRAL = (1).to_bytes(32, "little")
OF_ORDER_8 = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
_Y_8 = int.from_bytes(OF_ORDER_8, "little")


def _encoding(number: int) -> bytes:
    return number.to_bytes(32, "little")


KEYS = {
    "the neutral key": NEUTRAL,
    "a key of order 2": _encoding(PRIME - 1),
    "a key of order 4": _encoding(0),
    "the other key of order 4": _encoding(SIGN),
    "a key of order 8": OF_ORDER_8,
    "a second key of order 8": _encoding(_Y_8 + SIGN),
    "a third key of order 8": _encoding(PRIME - _Y_8),
    "a fourth key of order 8": _encoding(PRIME - _Y_8 + SIGN),
    "the neutral key in another encoding": _encoding(PRIME + 1),
    "the neutral key with a sign": _encoding(1 + SIGN),
    "a key of order 4 in another encoding": _encoding(PRIME),
}
"""Public keys under which anybody can sign: no point of these has a larger order than 8."""
EMPTY = NEUTRAL + bytes(32)
"""Fits every message under such a key whose hash is a multiple of 8: one in eight, for all keys."""


def fits(key: bytes, said: bytes) -> bool:
    """Whether `EMPTY` is a signature of these bytes, for a library that takes such keys."""
    return _hash(NEUTRAL, key, said) % 8 == 0


def with_neutral_point(signer: Identity, said: bytes) -> bytes:
    """A signature by its key whose first half, the point, is neutral."""
    challenge = _encoding(_hash(NEUTRAL, public_key_of(signer.peer_id), said))
    return NEUTRAL + crypto_core_ed25519_scalar_mul(challenge, _secret(signer))


def with_mixed_point(signer: Identity, said: bytes) -> bytes:
    """A signature by its key whose point has a part of order 8: right, but for the cofactor."""
    nonce = _encoding(12_345)
    point = crypto_core_ed25519_add(crypto_scalarmult_ed25519_base_noclamp(nonce), OF_ORDER_8)
    challenge = _encoding(_hash(point, public_key_of(signer.peer_id), said))
    answer = crypto_core_ed25519_scalar_mul(challenge, _secret(signer))
    return point + crypto_core_ed25519_scalar_add(nonce, answer)


def of_mixed_key(signer: Identity, said: bytes) -> tuple[bytes, bytes]:
    """A public key with a part of order 8, and a signature that is right but for the cofactor."""
    key = crypto_core_ed25519_add(public_key_of(signer.peer_id), OF_ORDER_8)
    nonce = 12_345
    while True:
        point = crypto_scalarmult_ed25519_base_noclamp(_encoding(nonce))
        challenge = _hash(point, key, said)
        if challenge % 8:
            break
        nonce += 1
    answer = crypto_core_ed25519_scalar_mul(_encoding(challenge), _secret(signer))
    return key, point + crypto_core_ed25519_scalar_add(_encoding(nonce), answer)


def with_order_added(signature: bytes) -> bytes:
    """A second signature of the same, whose scalar is beyond the group's order."""
    return signature[:32] + _encoding(int.from_bytes(signature[32:], "little") + ORDER)


def _hash(point: bytes, key: bytes, said: bytes) -> int:
    return int.from_bytes(sha512(point + key + said).digest(), "little") % ORDER


def _secret(signer: Identity) -> bytes:
    """The scalar of a key (RFC 8032, 5.1.5)."""
    octets = bytearray(sha512(signer.seed).digest()[:32])
    octets[0] &= 0b1111_1000
    octets[31] = octets[31] & 0b0111_1111 | 0b0100_0000
    return crypto_core_ed25519_scalar_reduce(bytes(octets) + bytes(32))
