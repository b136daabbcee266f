"""What a frame may take is known before it is parsed."""

import resource
import time
from typing import Any

import pytest

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.events import EVENT_BYTES_MAX
from pulsarcast.protocol.limits import (
    ADDRESS_BYTES_MAX,
    ADDRESSES_MAX,
    BEYOND_MAX,
    BLOCKS_MAX,
    CERTIFICATE_BYTES_MAX,
    CONTACTS_MAX,
    FRAME_BYTES_MAX,
    INTEGER_MAX,
    MARKS_MAX,
)
from pulsarcast.protocol.messages import (
    BlockFound,
    Contact,
    EventMessage,
    FrontierPage,
    Message,
    Peers,
    Range,
)
from pulsarcast.protocol.store import MarkState
from pulsarcast.wire import pulsarcast_pb2 as pb
from pulsarcast.wire.bounds import SMALL_BYTES, UNKNOWN_BYTES_MAX
from pulsarcast.wire.codec import BOUNDS, bytes_max_of, decode, encode
from pulsarcast.wire.framing import FrameReader, write_frames
from pulsarcast.wire.hello import HELLO_BYTES_MAX, Hello, encode_hello
from pulsarcast.wire.parts import Cut, Joiner
from tests.support.people import ALICE, peer, topic_of

FIELDS = {field.number: field for field in pb.Frame.DESCRIPTOR.fields}
TOPIC = topic_of(ALICE).cid
FAR = tuple(
    f"/dns/{'x' * 240}/tcp/{number}".ljust(ADDRESS_BYTES_MAX, "9")
    for number in range(ADDRESSES_MAX)
)
CROWD = tuple(Contact(peer(f"p{number}"), FAR) for number in range(CONTACTS_MAX))
NUMBER = INTEGER_MAX - BEYOND_MAX - 1
PAGE = (MarkState(ALICE.peer_id, INTEGER_MAX, NUMBER, NUMBER, TOPIC, (), NUMBER),) * MARKS_MAX
LARGEST: list[Message] = [
    EventMessage(bytes(EVENT_BYTES_MAX), 1, bytes(CERTIFICATE_BYTES_MAX)),
    BlockFound(INTEGER_MAX, bytes(EVENT_BYTES_MAX), CROWD),
    Peers(INTEGER_MAX, CROWD),
    Range(INTEGER_MAX, TOPIC, (b"b" * 3000,) * BLOCKS_MAX, True, (b"c" * 512,) * BLOCKS_MAX),
]


def _varint(number: int) -> bytes:
    octets = b""
    while number >= 0x80:
        octets += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return octets + bytes((number,))


def _framed(kind: int, body: bytes) -> bytes:
    return _varint(kind << 3 | 2) + _varint(len(body)) + body


def bombs(kind: int, bytes_max: int) -> dict[str, bytes]:
    """A frame for each list of the kind: as many empty elements as it can hold."""
    made: dict[str, bytes] = {}
    for field in FIELDS[kind].message_type.fields:
        if field.is_repeated:
            width = 2 if field.message_type or field.cpp_type == field.CPPTYPE_STRING else 0
            element = _varint(field.number << 3 | width) + b"\0"
            count = (bytes_max - 16) // len(element)
            made[f"{FIELDS[kind].name}.{field.name}"] = _framed(kind, element * count)
    return made


def feed(reader: FrameReader | Joiner, *pieces: Any) -> None:
    """Let a reader take what arrived, piece by piece."""
    take = reader.feed if isinstance(reader, FrameReader) else reader.join
    for piece in pieces:
        take(piece)


@pytest.mark.parametrize("message", LARGEST, ids=lambda each: type(each).__name__)
def test_the_largest_message_of_a_kind_is_within_its_bounds(message: Message) -> None:
    frame = encode(message)
    assert SMALL_BYTES < len(frame) <= bytes_max_of(frame)
    assert decode(frame) == message


def test_a_page_of_full_marks_is_within_its_bounds() -> None:
    beyond = tuple(range(NUMBER + 1, INTEGER_MAX))
    marks = (PAGE[0]._replace(beyond=beyond), *PAGE[1:])
    frame = encode(FrontierPage(TOPIC, marks, answer=True))
    assert len(frame) <= bytes_max_of(frame)


def test_only_what_carries_blocks_may_be_as_large_as_a_frame() -> None:
    largest = {FIELDS[kind].name for kind, it in BOUNDS.items() if it.bytes_max == FRAME_BYTES_MAX}
    assert largest == {"append", "content_compared", "range", "store_blocks"}
    assert bytes_max_of(encode_hello(Hello("main", (2,)))) == UNKNOWN_BYTES_MAX
    assert HELLO_BYTES_MAX < 16 * 1024


@pytest.mark.parametrize("kind", BOUNDS, ids=lambda kind: FIELDS[kind].name)
def test_a_frame_of_empty_elements_is_refused_before_it_is_parsed(kind: int) -> None:
    """Of 4 MiB, 200 MB came; now the worst list that is parsed has as many as its kind may."""
    for name, bomb in bombs(kind, BOUNDS[kind].bytes_max).items():
        if len(bomb) <= SMALL_BYTES:
            continue
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began_s = time.process_time()
        with pytest.raises(RemoteError) as refused:
            decode(bomb)
        assert refused.value.code is Rejection.TOO_MANY, name
        assert time.process_time() - began_s < 0.1, name
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 4 * 1024, f"{name}: {grown} KB"


def test_addresses_without_end_inside_a_contact_stay_small() -> None:
    kind = next(number for number, field in FIELDS.items() if field.name == "peers")
    inner = b"\x12\0" * (BOUNDS[kind].bytes_max // 2 - 64)
    with pytest.raises(RemoteError):
        decode(_framed(kind, b"\x08\x02\x12" + _varint(len(inner)) + inner))
    with pytest.raises(RemoteError, match="a frame of more than"):
        decode(_framed(kind, b"\x12\0" * (FRAME_BYTES_MAX // 2 - 8)))


def test_a_large_frame_of_two_messages_is_refused() -> None:
    event = encode(EventMessage(bytes(SMALL_BYTES), 1))
    with pytest.raises(RemoteError, match="not one message"):
        decode(event + event)
    with pytest.raises(RemoteError, match="64 bits"):
        decode(event[:1] + b"\xff" * 5000)
    with pytest.raises(RemoteError, match="not Protocol Buffers"):
        decode(_framed(1, b"\x0a" + _varint(SMALL_BYTES) + bytes(SMALL_BYTES) + b"\x10"))


@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_a_frame_that_is_larger_than_its_kind_is_refused_by_its_first_bytes(step: int) -> None:
    reader = FrameReader(bytes_max_of=bytes_max_of)
    framed = write_frames([_framed(5, bytes(FRAME_BYTES_MAX - 16))])
    pieces = [framed[at : at + step] for at in range(0, 12, step)]
    with pytest.raises(RemoteError, match="a frame of more than"):
        feed(reader, *pieces)
    assert reader.pending_bytes < 128


def test_parts_of_a_frame_that_is_larger_than_its_kind_are_refused() -> None:
    joiner = Joiner(bytes_max_of)
    cut = Cut(write_frames([_framed(5, bytes(FRAME_BYTES_MAX - 16))]), 3)
    parts = [FrameReader().feed(cut.next_part()) for _ in range(10)]
    with pytest.raises(RemoteError, match="its kind"):
        feed(joiner, *parts)
    assert joiner.held_bytes < 400 * 1024


def test_the_largest_frames_pass_a_reader_and_come_together_from_parts() -> None:
    for message in LARGEST:
        frame = encode(message)
        framed = write_frames([frame])
        reader, joiner = FrameReader(bytes_max_of=bytes_max_of), Joiner(bytes_max_of)
        cuts = range(0, len(framed), 60_000)
        assert [each for at in cuts for each in reader.feed(framed[at : at + 60_000])] == [frame]
        cut, whole = Cut(framed, 0), []
        while cut.left_bytes:
            whole += joiner.join(reader.feed(cut.next_part()))
        assert whole == [frame]


def test_before_hello_only_small_frames_are_taken() -> None:
    hello = encode_hello(Hello("main", (2,), addresses=FAR))
    large = encode(LARGEST[0])
    for first in (large, large[: HELLO_BYTES_MAX + 1], b"\0\x83part"):
        reader = FrameReader(bytes_max_of=bytes_max_of)
        reader.first_bytes_max = HELLO_BYTES_MAX
        with pytest.raises(RemoteError):
            feed(reader, write_frames([first])[: HELLO_BYTES_MAX + 100], b"more")
    reader = FrameReader(bytes_max_of=bytes_max_of)
    reader.first_bytes_max = HELLO_BYTES_MAX
    assert reader.feed(write_frames([hello, large])) == [hello, large]
    assert reader.feed(write_frames([large])) == [large]
