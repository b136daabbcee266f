"""Noise messages without IO, once the handshake is done (libp2p specification, noise).

A message is two bytes of length, big-endian, and that much ciphertext. All that a socket read
brought is opened in one call, with the keys that the handshake left.

OpenSSL's ChaCha20-Poly1305 takes 2.5 µs for 500 bytes and 7 µs for 16 KiB, libsodium's, through
PyNaCl, 8 and 18 (measured on two cores).
"""

from __future__ import annotations

import struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from pulsarcast.model.errors import Rejection, RemoteError

MESSAGE_BYTES_MAX: Final = 65_535
TAG_BYTES: Final = 16
PLAINTEXT_BYTES_MAX: Final = MESSAGE_BYTES_MAX - TAG_BYTES
LENGTH_BYTES: Final = 2

length_bytes = struct.Struct(">H").pack
nonce_bytes = struct.Struct("<4xQ").pack


class NoiseFraming:
    """Seals what we send and opens what arrives on one connection."""

    def __init__(self, seal_key: bytes, open_key: bytes) -> None:
        self._encrypt = ChaCha20Poly1305(seal_key).encrypt
        self._decrypt = ChaCha20Poly1305(open_key).decrypt
        self._seal_nonce = self._open_nonce = 0
        self._held = bytearray()
        self._needed = 0
        """How many bytes to hold before looking at them again."""

    def seal(self, plaintext: bytes) -> bytes:
        """The messages that carry this plaintext; none for none."""
        if 0 < len(plaintext) <= PLAINTEXT_BYTES_MAX:
            nonce = self._seal_nonce
            self._seal_nonce = nonce + 1
            return length_bytes(len(plaintext) + TAG_BYTES) + self._encrypt(
                nonce_bytes(nonce), plaintext, None
            )
        view = memoryview(plaintext)
        pieces: list[bytes] = []
        for start in range(0, len(plaintext), PLAINTEXT_BYTES_MAX):
            part = view[start : start + PLAINTEXT_BYTES_MAX]
            pieces.append(length_bytes(len(part) + TAG_BYTES))
            pieces.append(self._encrypt(nonce_bytes(self._seal_nonce), part, None))
            self._seal_nonce += 1
        return b"".join(pieces)

    def feed(self, data: bytes) -> list[bytes]:
        """Take what arrived, return the plaintext of each message that is whole now.

        Raises RemoteError where a message was not sealed by the peer; what came before it in the
        same piece is lost, and the connection is to be closed.
        """
        held = self._held
        if held:
            held += data
            if len(held) < self._needed:
                return []
            data = bytes(held)
            held.clear()
        view = memoryview(data)
        plaintexts: list[bytes] = []
        nonce = self._open_nonce
        at, end = 0, len(data)
        try:
            while at < end:
                body = at + LENGTH_BYTES
                if body > end:
                    held += view[at:]
                    self._needed = LENGTH_BYTES
                    break
                after = body + (data[at] << 8 | data[at + 1])
                if after > end:
                    held += view[at:]
                    self._needed = after - at
                    break
                plaintexts.append(self._decrypt(nonce_bytes(nonce), view[body:after], None))
                nonce += 1
                at = after
        except InvalidTag:
            raise RemoteError(
                "a message that does not open with the connection's key", code=Rejection.BAD_STREAM
            ) from None
        self._open_nonce = nonce
        return plaintexts
