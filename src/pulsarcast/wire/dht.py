"""Messages of the DHT, to and from Protocol Buffers.

One `pack_` and one `read_` for each kind, in the order of protocol/messages.py.
"""

from pulsarcast.model.ids import check_cid
from pulsarcast.model.keys import Key
from pulsarcast.protocol.messages import (
    BlockFound,
    CompareKeys,
    FindBlock,
    FindPeers,
    FindPointer,
    KeysDiffer,
    Peers,
    PointerFound,
    StoreBlocks,
    Stored,
    StorePointer,
    WantBlocks,
)
from pulsarcast.wire import pulsarcast_pb2 as pb
from pulsarcast.wire.fields import (
    Packed,
    check_count,
    pack_contacts,
    pack_key,
    read_block,
    read_blocks,
    read_cids,
    read_contacts,
    read_integer,
    read_key,
)
from pulsarcast.wire.limits import COUNT_MAX, RANGES_MAX


def pack_find_peers(message: FindPeers) -> pb.Frame:
    return pb.Frame(
        find_peers={
            "request": message.request,
            "key": pack_key(message.key),
            "count": message.count,
        }
    )


def read_find_peers(given: pb.FindPeers) -> FindPeers:
    count = read_integer(given.count, "a count", high=COUNT_MAX)
    return FindPeers(_read_request(given.request), read_key(given.key), count)


def pack_peers(message: Peers) -> pb.Frame:
    return pb.Frame(peers={"request": message.request, "contacts": pack_contacts(message.contacts)})


def read_peers(given: pb.Peers) -> Peers:
    return Peers(_read_request(given.request), read_contacts(given.contacts))


def pack_find_block(message: FindBlock) -> pb.Frame:
    return pb.Frame(find_block={"request": message.request, "cid": message.cid})


def read_find_block(given: pb.FindBlock) -> FindBlock:
    return FindBlock(_read_request(given.request), check_cid(given.cid))


def pack_block_found(message: BlockFound) -> pb.Frame:
    return pb.Frame(
        block_found={
            "request": message.request,
            "block": message.block,
            "contacts": pack_contacts(message.contacts),
        }
    )


def read_block_found(given: pb.BlockFound) -> BlockFound:
    return BlockFound(
        _read_request(given.request),
        read_block(given.block) if given.HasField("block") else None,
        read_contacts(given.contacts),
    )


def pack_store_blocks(message: StoreBlocks) -> pb.Frame:
    return pb.Frame(
        store_blocks={
            "request": message.request,
            "blocks": message.blocks,
            "if_closest": message.if_closest,
        }
    )


def read_store_blocks(given: pb.StoreBlocks) -> StoreBlocks:
    blocks = read_blocks(given.blocks)
    return StoreBlocks(_read_request(given.request), blocks, given.if_closest)


def pack_stored(message: Stored) -> pb.Frame:
    return pb.Frame(stored={"request": message.request, "cids": message.cids})


def read_stored(given: pb.Stored) -> Stored:
    return Stored(_read_request(given.request), read_cids(given.cids))


def pack_find_pointer(message: FindPointer) -> pb.Frame:
    return pb.Frame(find_pointer={"request": message.request, "key": pack_key(message.key)})


def read_find_pointer(given: pb.FindPointer) -> FindPointer:
    return FindPointer(_read_request(given.request), read_key(given.key))


def pack_pointer_found(message: PointerFound) -> pb.Frame:
    return pb.Frame(
        pointer_found={
            "request": message.request,
            "pointer": message.pointer,
            "contacts": pack_contacts(message.contacts),
        }
    )


def read_pointer_found(given: pb.PointerFound) -> PointerFound:
    return PointerFound(
        _read_request(given.request),
        read_block(given.pointer) if given.HasField("pointer") else None,
        read_contacts(given.contacts),
    )


def pack_store_pointer(message: StorePointer) -> pb.Frame:
    return pb.Frame(store_pointer={"request": message.request, "pointer": message.pointer})


def read_store_pointer(given: pb.StorePointer) -> StorePointer:
    return StorePointer(_read_request(given.request), read_block(given.pointer))


def pack_compare_keys(message: CompareKeys) -> pb.Frame:
    part = _pack_key_range(message.first, message.last, message.count, message.digest)
    return pb.Frame(compare_keys={"request": message.request, "range": part})


def read_compare_keys(given: pb.CompareKeys) -> CompareKeys:
    return CompareKeys(_read_request(given.request), *_read_key_range(given.range))


def pack_keys_differ(message: KeysDiffer) -> pb.Frame:
    return pb.Frame(
        keys_differ={
            "request": message.request,
            "first": pack_key(message.first),
            "last": pack_key(message.last),
            "cids": message.cids,
            "ranges": [_pack_key_range(*part) for part in message.ranges],
        }
    )


def read_keys_differ(given: pb.KeysDiffer) -> KeysDiffer:
    check_count(given.ranges, RANGES_MAX, "key ranges")
    return KeysDiffer(
        _read_request(given.request),
        read_key(given.first),
        read_key(given.last),
        read_cids(given.cids),
        tuple(map(_read_key_range, given.ranges)),
    )


def pack_want_blocks(message: WantBlocks) -> pb.Frame:
    return pb.Frame(want_blocks={"request": message.request, "cids": message.cids})


def read_want_blocks(given: pb.WantBlocks) -> WantBlocks:
    return WantBlocks(_read_request(given.request), read_cids(given.cids))


def _read_request(given: int) -> int:
    """The number by which an answer finds its question."""
    return read_integer(given, "a request")


def _pack_key_range(first: Key, last: Key, count: int, digest: int) -> Packed:
    """What a replica keeps in a part of the keyspace."""
    return {
        "first": pack_key(first),
        "last": pack_key(last),
        "count": count,
        "digest": pack_key(digest),
    }


def _read_key_range(given: pb.KeyRange) -> tuple[Key, Key, int, int]:
    """What a replica keeps in a part of the keyspace."""
    return (
        read_key(given.first),
        read_key(given.last),
        read_integer(given.count, "a count of blocks", high=COUNT_MAX),
        read_key(given.digest),
    )
