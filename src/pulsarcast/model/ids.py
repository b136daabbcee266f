"""Names of peers and of content: libp2p peer ids and IPFS content ids, as raw bytes (thesis, 3.2).

Both are bytes inside the program, because bytes travel, sort and hash fastest; their text forms
are for people, command lines and traces.

A peer id is libp2p's for an Ed25519 key, with the public key inside it:
    00 24           identity multihash, 36 bytes
    08 01 12 20     protobuf PublicKey: type Ed25519, 32 bytes of data
A content id is CIDv1 of a dag-cbor block:
    01 71           version 1, dag-cbor
    12 20           sha2-256, 32 bytes
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import NewType

import base58
import libipld

from pulsarcast.model.errors import LocalError, RemoteError
from pulsarcast.model.keys import Key, key_of

PeerId = NewType("PeerId", bytes)
Cid = NewType("Cid", bytes)

PUBLIC_KEY_BYTES = 32
PEER_ID_PREFIX = bytes.fromhex("002408011220")
PEER_ID_BYTES = len(PEER_ID_PREFIX) + PUBLIC_KEY_BYTES
CID_PREFIX = bytes.fromhex("01711220")
CID_BYTES = len(CID_PREFIX) + 32

# Names repeat a great deal: a trace writes the same few thousand peers a million times over, and
# an event's name while it travels. More would only be memory.
_PEERS_KNOWN = 1 << 14
_CIDS_KNOWN = 1 << 12
# Each is needed for every contact of every lookup, and a hash costs more than the rest of a look at
# one. A simulated network has as many peers; a quarter of a kilobyte each, where they are met.
_KEYS_KNOWN = 1 << 17


def cid_of(block: bytes) -> Cid:
    """The content id of a dag-cbor block."""
    return Cid(CID_PREFIX + sha256(block).digest())


def check_peer_id(raw: object) -> PeerId:
    """Check that a received value is a peer id."""
    if type(raw) is bytes and len(raw) == PEER_ID_BYTES and raw.startswith(PEER_ID_PREFIX):
        return _shared(PeerId(raw))
    raise RemoteError("not an Ed25519 peer id")


@lru_cache(maxsize=_PEERS_KNOWN)
def _shared(peer: PeerId) -> PeerId:
    """One object for each peer: those of one message may be kept in thousands of topics."""
    return peer


def check_cid(raw: object) -> Cid:
    """Check that a received value is a content id."""
    if type(raw) is bytes and len(raw) == CID_BYTES and raw.startswith(CID_PREFIX):
        return Cid(raw)
    raise RemoteError("not a content id (CIDv1, dag-cbor, sha2-256)")


def peer_id_of(public_key: bytes) -> PeerId:
    """The peer id that carries this Ed25519 public key."""
    if len(public_key) != PUBLIC_KEY_BYTES:
        raise LocalError(f"a public key has {PUBLIC_KEY_BYTES} bytes, not {len(public_key)}")
    return PeerId(PEER_ID_PREFIX + public_key)


def public_key_of(peer: PeerId) -> bytes:
    """The Ed25519 public key inside a peer id."""
    return peer[len(PEER_ID_PREFIX) :]


@lru_cache(maxsize=_PEERS_KNOWN)
def peer_text(peer: PeerId) -> str:
    """A peer id as people see it: base58btc, `12D3KooW...`."""
    return base58.b58encode(peer).decode("ascii")


@lru_cache(maxsize=_CIDS_KNOWN)
def cid_text(cid: Cid) -> str:
    """A content id as people see it: base32 multibase, `bafyrei...`."""
    return libipld.encode_multibase("b", cid)


def parse_peer(text: str) -> PeerId:
    """Read a peer id that a person typed or a file holds."""
    try:
        return check_peer_id(base58.b58decode(text))
    except (ValueError, RemoteError) as error:
        raise LocalError(f"not a peer id: {text!r}") from error


def parse_cid(text: str) -> Cid:
    """Read a content id that a person typed or a file holds; only its one usual form is taken."""
    try:
        cid = check_cid(libipld.decode_multibase(text)[1])
    except (ValueError, RemoteError) as error:
        raise LocalError(f"not a content id, such as bafyrei…: {text!r}") from error
    if cid_text(cid) != text:
        raise LocalError(f"not a content id in base32: {text!r}")
    return cid


@lru_cache(maxsize=_CIDS_KNOWN)
def shared_numbering(topic: Cid) -> PeerId:
    """The id of the numbering that a topic's sequencers share. No peer has a key for it."""
    return PeerId(PEER_ID_PREFIX + sha256(b"pulsarcast/order/1" + topic).digest())


@lru_cache(maxsize=_KEYS_KNOWN)
def peer_key(peer: PeerId) -> Key:
    """A peer's key."""
    return key_of(peer)


def is_closer(peer: PeerId, than: PeerId, key: Key) -> bool:
    """Whether a peer is closer to a key than another."""
    return peer_key(peer) ^ key < peer_key(than) ^ key


@lru_cache(maxsize=_CIDS_KNOWN)
def cid_key(cid: Cid) -> Key:
    """A block's key."""
    return key_of(cid)
