"""libp2p's Noise handshake, without IO: who is at the other end, and the keys from there on.

Noise XX with X25519, ChaCha20-Poly1305 and SHA-256 (the Noise Protocol Framework, revision 34,
sections 5 and 7.5), three messages:

    dialler   -> e
    listener  <- e, ee, s, es    and who it is
    dialler   -> s, se           and who it is

`e` is a key pair of this handshake alone, `s` one of this process. Who one is comes sealed: the
public key of a peer id, and its signature of `s` (libp2p specification, noise). Whoever listens,
records or sits in between does not learn the secret that the keys come from, and cannot take
anyone's place.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.identity import Identity, has_signed
from pulsarcast.model.ids import PeerId, check_peer_id
from pulsarcast.network.noise import TAG_BYTES, NoiseFraming, nonce_bytes

PROTOCOL: Final = "/noise"
KEY_BYTES: Final = 32

_NAME: Final = b"Noise_XX_25519_ChaChaPoly_SHA256"
_SIGNED: Final = b"noise-libp2p-static-key:"
_KEY_HASH: Final = b"\x00\x24"
"""What a peer id has before the public key in its protobuf form."""
_PUBLIC_KEY_TAG: Final = b"\x0a"
_SIGNATURE_TAG: Final = b"\x12"


class StaticKey:
    """The key pair that a process shakes hands with, and its identity's word for it."""

    def __init__(self, identity: Identity, pair: X25519PrivateKey | None = None) -> None:
        self.pair = X25519PrivateKey.generate() if pair is None else pair
        self.public = self.pair.public_key().public_bytes_raw()
        signature = identity.sign_bytes(_SIGNED + self.public)
        key = identity.peer_id.removeprefix(_KEY_HASH)
        self.payload = _field(_PUBLIC_KEY_TAG, key) + _field(_SIGNATURE_TAG, signature)
        """Who we are, for the peer alone."""


class Dialler:
    """The side that begins."""

    def __init__(self, static: StaticKey, ephemeral: X25519PrivateKey | None = None) -> None:
        self._static = static
        self._ephemeral = X25519PrivateKey.generate() if ephemeral is None else ephemeral
        self._state = _Symmetric()

    def begin(self) -> bytes:
        """The first message."""
        public = self._ephemeral.public_key().public_bytes_raw()
        self._state.mix_hash(public)
        return public + self._state.seal(b"")

    def finish(self, second: bytes) -> tuple[bytes, PeerId, NoiseFraming]:
        """Of the listener's message: the third, who it is, and what seals from here on."""
        state = self._state
        theirs, sealed_static, payload = _cut(second, KEY_BYTES, KEY_BYTES + TAG_BYTES)
        state.mix_hash(theirs)
        state.mix_key(_agree(self._ephemeral, theirs))
        their_static = state.open(sealed_static)
        state.mix_key(_agree(self._ephemeral, their_static))
        peer = _who(state.open(payload), their_static)
        third = state.seal(self._static.public)
        state.mix_key(_agree(self._static.pair, theirs))
        third += state.seal(self._static.payload)
        seal_key, open_key = state.split()
        return third, peer, NoiseFraming(seal_key, open_key)


class Listener:
    """The side that is dialled."""

    def __init__(self, static: StaticKey, ephemeral: X25519PrivateKey | None = None) -> None:
        self._static = static
        self._ephemeral = X25519PrivateKey.generate() if ephemeral is None else ephemeral
        self._state = _Symmetric()

    def answer(self, first: bytes) -> bytes:
        """Of the dialler's message: the second."""
        state = self._state
        theirs, payload = _cut(first, KEY_BYTES)
        state.mix_hash(theirs)
        state.open(payload)
        public = self._ephemeral.public_key().public_bytes_raw()
        state.mix_hash(public)
        state.mix_key(_agree(self._ephemeral, theirs))
        second = public + state.seal(self._static.public)
        state.mix_key(_agree(self._static.pair, theirs))
        return second + state.seal(self._static.payload)

    def finish(self, third: bytes) -> tuple[PeerId, NoiseFraming]:
        """Of the dialler's last message: who it is, and what seals from here on."""
        state = self._state
        sealed_static, payload = _cut(third, KEY_BYTES + TAG_BYTES)
        their_static = state.open(sealed_static)
        state.mix_key(_agree(self._ephemeral, their_static))
        peer = _who(state.open(payload), their_static)
        open_key, seal_key = state.split()
        return peer, NoiseFraming(seal_key, open_key)


class _Symmetric:
    """What both sides know after each step (Noise, 5.2), and so far nobody else."""

    def __init__(self) -> None:
        self._chain = self._hash = _NAME
        self._cipher: ChaCha20Poly1305 | None = None
        self._nonce = 0
        self.mix_hash(b"")  # nothing was said before

    def mix_hash(self, data: bytes) -> None:
        self._hash = sha256(self._hash + data).digest()

    def mix_key(self, secret: bytes) -> None:
        self._chain, key = self._derive(secret)
        self._cipher, self._nonce = ChaCha20Poly1305(key), 0

    def seal(self, plaintext: bytes) -> bytes:
        """What the next message has of it: as it is, as long as there is no key."""
        sealed = plaintext
        if self._cipher is not None:
            sealed = self._cipher.encrypt(nonce_bytes(self._nonce), plaintext, self._hash)
            self._nonce += 1
        self.mix_hash(sealed)
        return sealed

    def open(self, sealed: bytes) -> bytes:
        """The other way round; RemoteError where it was not sealed by who knows the same."""
        plaintext = sealed
        if self._cipher is not None:
            try:
                plaintext = self._cipher.decrypt(nonce_bytes(self._nonce), sealed, self._hash)
            except InvalidTag:
                raise RemoteError(
                    "a handshake that does not open", code=Rejection.BAD_HANDSHAKE
                ) from None
            self._nonce += 1
        self.mix_hash(sealed)
        return plaintext

    def split(self) -> tuple[bytes, bytes]:
        """The keys of the dialler's messages, and of the listener's."""
        return self._derive(b"")

    def _derive(self, secret: bytes) -> tuple[bytes, bytes]:
        """HKDF with two outputs (Noise, 4.3)."""
        drawn = hmac.digest(self._chain, secret, "sha256")
        first = hmac.digest(drawn, b"\x01", "sha256")
        return first, hmac.digest(drawn, first + b"\x02", "sha256")


def _agree(ours: X25519PrivateKey, theirs: bytes) -> bytes:
    """The secret of two keys."""
    try:
        return ours.exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError:
        # Of few points every secret is zero: whoever sends one would have us agree with anyone.
        raise RemoteError(
            "a handshake with a key that is none", code=Rejection.BAD_HANDSHAKE
        ) from None


def _cut(message: bytes, *sizes: int) -> list[bytes]:
    """The parts of a message; the last one is whatever is left."""
    parts: list[bytes] = []
    for size in sizes:
        parts.append(message[:size])
        message = message[size:]
        if len(parts[-1]) < size:
            raise RemoteError(
                "a handshake's message that is too short", code=Rejection.BAD_HANDSHAKE
            )
    return [*parts, message]


# Who one is: libp2p's NoiseHandshakePayload, in protobuf.


def _field(tag: bytes, value: bytes) -> bytes:
    assert len(value) < 0x80, "its length is one byte"
    return tag + bytes((len(value),)) + value


def _who(payload: bytes, static: bytes) -> PeerId:
    """The peer whose key signed the static one."""
    fields = _fields(payload)
    peer = check_peer_id(_KEY_HASH + fields.get(_PUBLIC_KEY_TAG, b""))
    if not has_signed(peer, _SIGNED + static, fields.get(_SIGNATURE_TAG, b"")):
        raise RemoteError("a handshake that its key did not sign", code=Rejection.BAD_HANDSHAKE)
    return peer


def _fields(payload: bytes) -> dict[bytes, bytes]:
    """The fields that hold bytes, by tag; others may be there, as extensions are."""
    fields: dict[bytes, bytes] = {}
    at = 0
    while at < len(payload):
        tag = payload[at : at + 1]
        size, start = _varint(payload, at + 1)
        if tag[0] & 7 != 2 or start + size > len(payload):
            raise RemoteError("a handshake that does not say who", code=Rejection.BAD_HANDSHAKE)
        fields[tag] = payload[start : start + size]
        at = start + size
    return fields


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    """A length of at most two bytes, and where what it is of begins."""
    octets = payload[at : at + 2]
    if octets and octets[0] < 0x80:
        return octets[0], at + 1
    if len(octets) == 2 and octets[1] < 0x80:
        return octets[0] & 0x7F | octets[1] << 7, at + 2
    raise RemoteError("a handshake that does not say who", code=Rejection.BAD_HANDSHAKE)
