"""What sequencers say to each other, to and from Protocol Buffers.

One `pack_` and one `read_` for each kind, in the order of protocol/sequencing/messages.py.
"""

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.ids import check_cid, check_peer_id
from pulsarcast.protocol.sequencing.configs import Config, Member
from pulsarcast.protocol.sequencing.log import Base, Entry, EntryKind
from pulsarcast.protocol.sequencing.messages import (
    Append,
    Appended,
    AskVote,
    Summon,
    Vote,
)
from pulsarcast.wire import pulsarcast_pb2 as pb
from pulsarcast.wire.fields import Packed, check_count, read_integer, read_store
from pulsarcast.wire.limits import (
    ENTRIES_MAX,
    MEMBERS_MAX,
    SIGNATURE_BYTES,
    SIGNATURES_MAX,
)


def pack_ask_vote(message: AskVote) -> pb.Frame:
    return pb.Frame(
        ask_vote={
            "topic": message.topic,
            "term": message.term,
            "store": message.store,
            "last_index": message.last_index,
            "last_term": message.last_term,
            "trial": message.trial,
        }
    )


def read_ask_vote(given: pb.AskVote) -> AskVote:
    return AskVote(
        check_cid(given.topic),
        read_integer(given.term, "a term"),
        read_store(given.store),
        read_integer(given.last_index, "an index"),
        read_integer(given.last_term, "a term"),
        given.trial,
    )


def pack_vote(message: Vote) -> pb.Frame:
    return pb.Frame(
        vote={
            "topic": message.topic,
            "term": message.term,
            "store": message.store,
            "granted": message.granted,
            "trial": message.trial,
        }
    )


def read_vote(given: pb.Vote) -> Vote:
    return Vote(
        check_cid(given.topic),
        read_integer(given.term, "a term"),
        read_store(given.store),
        given.granted,
        given.trial,
    )


def pack_append(message: Append) -> pb.Frame:
    packed: Packed = {
        "topic": message.topic,
        "term": message.term,
        "store": message.store,
        "before_index": message.before_index,
        "before_term": message.before_term,
        "entries": [_pack_entry(entry) for entry in message.entries],
        "committed": message.committed,
        "certify": message.certify,
        "settled": message.settled,
    }
    if message.base is not None:
        packed["base"] = _pack_base(message.base)
    return pb.Frame(append=packed)


def read_append(given: pb.Append) -> Append:
    check_count(given.entries, ENTRIES_MAX, "entries")
    return Append(
        check_cid(given.topic),
        read_integer(given.term, "a term"),
        read_store(given.store),
        read_integer(given.before_index, "an index"),
        read_integer(given.before_term, "a term"),
        tuple(map(_read_entry, given.entries)),
        read_integer(given.committed, "an index"),
        read_integer(given.certify, "a position"),
        read_integer(given.settled, "a position"),
        _read_base(given.base) if given.HasField("base") else None,
    )


def _pack_entry(entry: Entry) -> Packed:
    return {
        "term": entry.term,
        "position": entry.position,
        "kind": int(entry.kind),
        "body": entry.body,
    }


def _read_entry(given: pb.Entry) -> Entry:
    try:
        kind = EntryKind(given.kind)
    except ValueError:
        raise RemoteError("an entry of an unknown kind", code=Rejection.UNKNOWN_KIND) from None
    return Entry(
        read_integer(given.term, "a term"),
        read_integer(given.position, "a position"),
        kind,
        given.body,
    )


def _pack_base(base: Base) -> Packed:
    return {
        "index": base.index,
        "term": base.term,
        "position": base.position,
        "cid": base.cid,
        "members": [{"peer": member.peer, "store": member.store} for member in base.config.members],
        "version": base.config.version,
    }


def _read_base(given: pb.Base) -> Base:
    check_count(given.members, MEMBERS_MAX, "members")
    return Base(
        read_integer(given.index, "an index"),
        read_integer(given.term, "a term"),
        read_integer(given.position, "a position"),
        check_cid(given.cid) if given.HasField("cid") else None,
        Config(
            tuple(
                Member(check_peer_id(member.peer), read_store(member.store))
                for member in given.members
            ),
            version=check_cid(given.version) if given.HasField("version") else None,
        ),
    )


def pack_appended(message: Appended) -> pb.Frame:
    return pb.Frame(
        appended={
            "topic": message.topic,
            "term": message.term,
            "store": message.store,
            "agreed": message.agreed,
            "matched": message.matched,
            "held": message.held,
            "signatures": [
                {"position": position, "signature": signature}
                for position, signature in message.signatures
            ],
        }
    )


def read_appended(given: pb.Appended) -> Appended:
    check_count(given.signatures, SIGNATURES_MAX, "signatures")
    return Appended(
        check_cid(given.topic),
        read_integer(given.term, "a term"),
        read_store(given.store),
        given.agreed,
        read_integer(given.matched, "an index"),
        read_integer(given.held, "a position"),
        tuple(map(_read_signature, given.signatures)),
    )


def _read_signature(given: pb.Signature) -> tuple[int, bytes]:
    if len(given.signature) != SIGNATURE_BYTES:
        raise RemoteError(f"a signature has {len(given.signature)} bytes, not {SIGNATURE_BYTES}")
    return read_integer(given.position, "a position"), given.signature


def pack_summon(message: Summon) -> pb.Frame:
    return pb.Frame(summon={"topic": message.topic, "version": message.version})


def read_summon(given: pb.Summon) -> Summon:
    version = check_cid(given.version) if given.HasField("version") else None
    return Summon(check_cid(given.topic), version)
