"""How many bytes a message takes, without making them.

The simulator asks this of millions of messages. The kinds it sees most are added up here; a
property test holds each sum equal to what `encode` makes. CIDs, peer ids and keys are taken to
have the lengths they have everywhere.
"""

from collections.abc import Callable
from typing import Any, Final

from pulsarcast.model.ids import CID_BYTES, PEER_ID_BYTES
from pulsarcast.protocol.content.messages import MatchedEvent, ProbeEvent
from pulsarcast.protocol.messages import (
    BlockFound,
    CompareKeys,
    Contact,
    Credit,
    EventMessage,
    FindBlock,
    FindPeers,
    Message,
    Peers,
    Range,
    Status,
    StoreBlocks,
    Stored,
)
from pulsarcast.wire.codec import encode
from pulsarcast.wire.limits import KEY_BYTES

# A field is a tag, of one byte for all of these kinds, and a value; bytes have their length in
# front, of one byte below 128.
_CID: Final = 2 + CID_BYTES
_PEER: Final = 2 + PEER_ID_BYTES
_KEY: Final = 2 + KEY_BYTES
_BARE_CONTACT: Final = 2 + _PEER
_TRUE: Final = 2


def size_of(message: Message) -> int:
    """Exactly `len(encode(message))`."""
    measure = _MEASURE.get(type(message))
    if measure is None:
        return len(encode(message))
    inner: int = measure(message)
    return 1 + (type(message) in _FAR) + _varint(inner) + inner


def _varint(value: int) -> int:
    """The bytes of a varint: seven bits each, and one for zero (exact for up to 64 bits)."""
    return (value.bit_length() * 9 + 64) >> 6


def _integer(value: int) -> int:
    """The bytes of a number's field, which is left out where it is zero."""
    return 1 + _varint(value) if value else 0


def _bytes(length: int) -> int:
    """The bytes of a field of bytes that is present."""
    return 1 + _varint(length) + length


def _blocks(blocks: tuple[bytes, ...]) -> int:
    size = 0
    for length in map(len, blocks):
        size += _bytes(length)
    return size


def _contacts(contacts: tuple[Contact, ...]) -> int:
    size = len(contacts) * _BARE_CONTACT
    for _, addresses in contacts:
        if addresses:
            size -= _BARE_CONTACT
            size += _bytes(_PEER + sum(_bytes(len(text.encode())) for text in addresses))
    return size


def _event(message: EventMessage) -> int:
    size = _bytes(len(message.block)) + _integer(message.hops)
    return size + _bytes(len(message.certificate)) if message.certificate else size


def _credit(message: Credit) -> int:
    return _CID + _integer(message.count)


def _status(message: Status) -> int:
    size = _CID + _bytes(len(message.digest)) + len(message.path) * _PEER
    if message.members:
        size += _contacts(message.members)
    return size + _TRUE if message.answer else size


def _range(message: Range) -> int:
    size = _integer(message.request) + _CID + _blocks(message.blocks)
    size += _blocks(message.certificates)
    return size + _TRUE if message.more else size


def _find_peers(message: FindPeers) -> int:
    return _integer(message.request) + _KEY + _integer(message.count)


def _peers(message: Peers) -> int:
    return _integer(message.request) + _contacts(message.contacts)


def _find_block(message: FindBlock) -> int:
    return _integer(message.request) + _CID


def _block_found(message: BlockFound) -> int:
    size = _integer(message.request) + _contacts(message.contacts)
    return size if message.block is None else size + _bytes(len(message.block))


def _store_blocks(message: StoreBlocks) -> int:
    size = _integer(message.request) + _blocks(message.blocks)
    return size + _TRUE if message.if_closest else size


def _stored(message: Stored) -> int:
    return _integer(message.request) + len(message.cids) * _CID


def _compare_keys(message: CompareKeys) -> int:
    part = 3 * _KEY + _integer(message.count)
    return _integer(message.request) + 2 + part


def _matched_event(message: MatchedEvent) -> int:
    return _bytes(len(message.block)) + _integer(message.hops)


def _probe_event(message: ProbeEvent) -> int:
    names: dict[str, int] = {}
    size = _bytes(len(message.block)) + _integer(message.hops)
    for attribute, at, wanted, stage in message.targets:
        which = names.get(attribute)
        if which is None:
            which = names[attribute] = len(names)
            size += _bytes(len(attribute.encode()))
        inner = _integer(which) + _integer(at) + _integer(stage)
        size += 2 + (inner if wanted == at else inner + _integer(wanted))
    return size


_MEASURE: Final[dict[type, Callable[[Any], int]]] = {
    EventMessage: _event,
    Credit: _credit,
    Status: _status,
    Range: _range,
    FindPeers: _find_peers,
    Peers: _peers,
    FindBlock: _find_block,
    BlockFound: _block_found,
    StoreBlocks: _store_blocks,
    Stored: _stored,
    CompareKeys: _compare_keys,
    ProbeEvent: _probe_event,
    MatchedEvent: _matched_event,
}

# Kinds whose tag in the frame takes two bytes.
_FAR: Final = frozenset((ProbeEvent, MatchedEvent))
