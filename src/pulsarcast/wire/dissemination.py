"""Messages about a topic: events, trees and recovery, to and from Protocol Buffers.

One `pack_` and one `read_` for each kind, in the order of protocol/messages.py.
"""

from collections.abc import Collection, Iterator
from itertools import accumulate

from pulsarcast.model.errors import Rejection, RemoteError, Verdict
from pulsarcast.model.ids import check_cid, check_peer_id
from pulsarcast.protocol.messages import (
    Credit,
    EventMessage,
    FetchRange,
    FrontierPage,
    HandOver,
    Join,
    JoinAccepted,
    JoinReferred,
    JoinRefused,
    Leave,
    Meet,
    Members,
    Range,
    RequestAnswered,
    RequestReferred,
    RequestToPublish,
    Role,
    Status,
)
from pulsarcast.protocol.store import MarkState
from pulsarcast.wire import pulsarcast_pb2 as pb
from pulsarcast.wire.fields import (
    Packed,
    check_count,
    pack_contact,
    pack_contacts,
    pack_key,
    read_block,
    read_blocks,
    read_certificate,
    read_code,
    read_contact,
    read_contacts,
    read_digest,
    read_integer,
    read_key,
    read_path,
    read_reason,
)
from pulsarcast.wire.limits import BEYOND_MAX, COUNT_MAX, HOPS_MAX, MARKS_MAX, REQUEST_ID_BYTES

# Dissemination.


def pack_event(message: EventMessage) -> pb.Frame:
    certificate = message.certificate
    if certificate:
        return pb.Frame(
            event={"block": message.block, "hops": message.hops, "certificate": certificate}
        )
    return pb.Frame(event={"block": message.block, "hops": message.hops})


def read_event(given: pb.Event) -> EventMessage:
    return EventMessage(
        read_block(given.block),
        read_integer(given.hops, "a count of hops", high=HOPS_MAX),
        read_certificate(given.certificate),
    )


def pack_credit(message: Credit) -> pb.Frame:
    return pb.Frame(credit={"topic": message.topic, "count": message.count})


def read_credit(given: pb.Credit) -> Credit:
    return Credit(check_cid(given.topic), read_integer(given.count, "a credit", high=COUNT_MAX))


def pack_request_to_publish(message: RequestToPublish) -> pb.Frame:
    return pb.Frame(
        request_to_publish={
            "block": message.block,
            "replicated": message.replicated,
            "settled": message.settled,
        }
    )


def read_request_to_publish(given: pb.RequestToPublish) -> RequestToPublish:
    return RequestToPublish(
        read_block(given.block),
        given.replicated,
        read_integer(given.settled, "a number"),
    )


def pack_request_answered(message: RequestAnswered) -> pb.Frame:
    return pb.Frame(
        request_answered={
            "topic": message.topic,
            "request_id": message.request_id,
            "event": message.event,
            "replicas": message.replicas,
            "code": message.code,
            "message": message.message,
        }
    )


def read_request_answered(given: pb.RequestAnswered) -> RequestAnswered:
    return RequestAnswered(
        check_cid(given.topic),
        _read_request_id(given.request_id),
        check_cid(given.event) if given.HasField("event") else None,
        read_integer(given.replicas, "a count of replicas", high=COUNT_MAX),
        read_code(given.code),
        read_reason(given.message),
    )


def pack_request_referred(message: RequestReferred) -> pb.Frame:
    return pb.Frame(
        request_referred={
            "topic": message.topic,
            "request_id": message.request_id,
            "leader": message.leader,
        }
    )


def read_request_referred(given: pb.RequestReferred) -> RequestReferred:
    return RequestReferred(
        check_cid(given.topic),
        _read_request_id(given.request_id),
        check_peer_id(given.leader) if given.HasField("leader") else None,
    )


def _read_request_id(given: bytes) -> bytes:
    if len(given) != REQUEST_ID_BYTES:
        raise RemoteError(f"a request id has {len(given)} bytes, not {REQUEST_ID_BYTES}")
    return given


# Tree keeping.


def pack_join(message: Join) -> pb.Frame:
    return pb.Frame(
        join={
            "topic": message.topic,
            "attempt": message.attempt,
            "role": int(message.role),
            "root": message.root,
            "handed_down": message.handed_down,
            "fresh": message.fresh,
        }
    )


def read_join(given: pb.Join) -> Join:
    return Join(
        check_cid(given.topic),
        read_integer(given.attempt, "an attempt"),
        _read_role(given.role),
        check_peer_id(given.root),
        given.handed_down,
        given.fresh,
    )


def _read_role(given: int) -> Role:
    """Why a peer knocks; a reason that we do not know is a newer version's."""
    try:
        return Role(given)
    except ValueError:
        raise RemoteError(
            f"an unknown role {given}", Verdict.IGNORE, code=Rejection.UNKNOWN_KIND
        ) from None


def pack_join_accepted(message: JoinAccepted) -> pb.Frame:
    return pb.Frame(
        join_accepted={
            "topic": message.topic,
            "attempt": message.attempt,
            "path": message.path,
            "members": pack_contacts(message.members),
            "digest": message.digest,
        }
    )


def read_join_accepted(given: pb.JoinAccepted) -> JoinAccepted:
    return JoinAccepted(
        check_cid(given.topic),
        read_integer(given.attempt, "an attempt"),
        read_path(given.path),
        read_contacts(given.members),
        read_digest(given.digest),
    )


def pack_join_referred(message: JoinReferred) -> pb.Frame:
    return pb.Frame(
        join_referred={
            "topic": message.topic,
            "attempt": message.attempt,
            "contact": pack_contact(message.contact),
            "handed_down": message.handed_down,
        }
    )


def read_join_referred(given: pb.JoinReferred) -> JoinReferred:
    return JoinReferred(
        check_cid(given.topic),
        read_integer(given.attempt, "an attempt"),
        read_contact(given.contact),
        given.handed_down,
    )


def pack_join_refused(message: JoinRefused) -> pb.Frame:
    return pb.Frame(
        join_refused={
            "topic": message.topic,
            "attempt": message.attempt,
            "code": message.code,
        }
    )


def read_join_refused(given: pb.JoinRefused) -> JoinRefused:
    return JoinRefused(
        check_cid(given.topic),
        read_integer(given.attempt, "an attempt"),
        read_code(given.code),
    )


def pack_leave(message: Leave) -> pb.Frame:
    return pb.Frame(leave={"topic": message.topic})


def read_leave(given: pb.Leave) -> Leave:
    return Leave(check_cid(given.topic))


def pack_hand_over(message: HandOver) -> pb.Frame:
    contact = message.contact
    return pb.Frame(
        hand_over={
            "topic": message.topic,
            "contact": None if contact is None else pack_contact(contact),
        }
    )


def read_hand_over(given: pb.HandOver) -> HandOver:
    return HandOver(
        check_cid(given.topic),
        read_contact(given.contact) if given.HasField("contact") else None,
    )


# Cube keeping.


def pack_meet(message: Meet) -> pb.Frame:
    return pb.Frame(
        meet={"topic": message.topic, "key": pack_key(message.key), "count": message.count}
    )


def read_meet(given: pb.Meet) -> Meet:
    return Meet(
        check_cid(given.topic),
        read_key(given.key),
        read_integer(given.count, "a count of members", high=COUNT_MAX),
    )


def pack_members(message: Members) -> pb.Frame:
    return pb.Frame(members={"topic": message.topic, "members": pack_contacts(message.members)})


def read_members(given: pb.Members) -> Members:
    return Members(check_cid(given.topic), read_contacts(given.members))


# Recovery.


def pack_status(message: Status) -> pb.Frame:
    return pb.Frame(
        status={
            "topic": message.topic,
            "digest": message.digest,
            "path": message.path,
            "members": pack_contacts(message.members),
            "answer": message.answer,
        }
    )


def read_status(given: pb.Status) -> Status:
    return Status(
        check_cid(given.topic),
        read_digest(given.digest),
        read_path(given.path),
        read_contacts(given.members),
        given.answer,
    )


def pack_frontier_page(message: FrontierPage) -> pb.Frame:
    return pb.Frame(
        frontier_page={
            "topic": message.topic,
            "marks": [pack_mark(mark) for mark in message.marks],
            "answer": message.answer,
            "more": message.more,
        }
    )


def read_frontier_page(given: pb.FrontierPage) -> FrontierPage:
    check_count(given.marks, MARKS_MAX, "marks")
    marks: list[MarkState] = []
    room = BEYOND_MAX
    for raw in given.marks:
        mark = read_mark(raw, room)
        room -= len(mark.beyond)
        marks.append(mark)
    return FrontierPage(check_cid(given.topic), tuple(marks), given.answer, given.more)


def pack_mark(mark: MarkState) -> Packed:
    """What the sender holds of one publisher's events."""
    packed: Packed = {
        "publisher": mark.publisher,
        "epoch": mark.epoch,
        "floor": mark.floor,
        "retired": mark.retired,
        "high": mark.high,
        "cid": mark.cid,
    }
    if mark.beyond:
        packed["beyond"] = list(_steps(mark.high, mark.beyond))
    return packed


def _steps(start: int, numbers: tuple[int, ...]) -> Iterator[int]:
    """From each number to the next: small, so a byte each, where the numbers are large."""
    for number in numbers:
        assert number > start, "numbers beyond a mark ascend"
        yield number - start
        start = number


def read_mark(given: pb.Mark, beyond_max: int) -> MarkState:
    """What the sender holds of one publisher's events."""
    floor, high = given.floor, read_integer(given.high, "a number")
    if floor > high or given.retired > high:
        raise RemoteError("a mark's floor is above its high")
    steps = given.beyond
    return MarkState(
        check_peer_id(given.publisher),
        read_integer(given.epoch, "an epoch"),
        floor,
        high,
        check_cid(given.cid) if given.HasField("cid") else None,
        _read_beyond(high, steps, beyond_max) if steps else (),
        given.retired,
    )


def _read_beyond(high: int, steps: Collection[int], count_max: int) -> tuple[int, ...]:
    """Numbers above a mark, ascending, from the steps between them."""
    check_count(steps, count_max, "numbers beyond marks")
    _, *beyond = accumulate(steps, initial=high)
    if not all(steps):
        raise RemoteError("numbers beyond a mark do not ascend")
    read_integer(beyond[-1], "a number")
    return tuple(beyond)


def pack_fetch_range(message: FetchRange) -> pb.Frame:
    return pb.Frame(
        fetch_range={
            "request": message.request,
            "topic": message.topic,
            "publisher": message.publisher,
            "epoch": message.epoch,
            "first": message.first,
            "last": message.last,
        }
    )


def read_fetch_range(given: pb.FetchRange) -> FetchRange:
    first, last = given.first, read_integer(given.last, "a number")
    if not 1 <= first <= last:
        raise RemoteError("a range that holds no number")
    return FetchRange(
        read_integer(given.request, "a request"),
        check_cid(given.topic),
        check_peer_id(given.publisher),
        read_integer(given.epoch, "an epoch"),
        first,
        last,
    )


def pack_range(message: Range) -> pb.Frame:
    return pb.Frame(
        range={
            "request": message.request,
            "topic": message.topic,
            "blocks": message.blocks,
            "more": message.more,
            "certificates": message.certificates,
        }
    )


def read_range(given: pb.Range) -> Range:
    certificates = given.certificates
    if certificates and len(certificates) != len(given.blocks):
        raise RemoteError("not one certificate for each event")
    return Range(
        read_integer(given.request, "a request"),
        check_cid(given.topic),
        read_blocks(given.blocks),
        given.more,
        tuple(map(read_certificate, certificates)),
    )
