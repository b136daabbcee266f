import random
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pulsarcast.model.errors import LocalError, RemoteError, Verdict
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.reach import Reach
from pulsarcast.protocol import messages
from pulsarcast.protocol.content.messages import (
    Held,
    PlaceState,
    PlaceSubscription,
    Purpose,
    Stage,
)
from pulsarcast.protocol.limits import FRAME_BYTES_MAX
from pulsarcast.protocol.messages import (
    BlockFound,
    CompareFrontiers,
    CompareTopics,
    Contact,
    Credit,
    DialAnswer,
    DialCode,
    DialMe,
    EventMessage,
    FetchRange,
    FetchStart,
    FindListings,
    FindPeers,
    FrontierPage,
    FrontierPart,
    HandOver,
    Join,
    JoinAccepted,
    JoinRefused,
    ListingsFound,
    Meet,
    Members,
    Message,
    PartHash,
    Peers,
    ReachChanged,
    RequestAnswered,
    Role,
    StartParts,
    Status,
    StoreBlocks,
    Stored,
    StoreListings,
)
from pulsarcast.protocol.store import MarkState
from pulsarcast.wire import codec, derive
from pulsarcast.wire import pulsarcast_pb2 as pb
from pulsarcast.wire.codec import decode, encode, size_of
from tests.unit.wire.strategies import (
    KINDS,
    PEER,
    TOPIC,
    any_message,
    broken_records,
    of_kind,
    sample,
)

DIGEST = bytes(16)


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_of_any_kind_comes_back_as_it_was(kind: type) -> None:
    @given(of_kind(kind))
    def check(message: Message) -> None:
        data = encode(message)
        assert decode(data) == message
        assert size_of(message) == len(data)

    check()


def test_every_kind_has_a_place_in_both_tables_and_in_the_schema() -> None:
    fields = {field.name for field in pb.Frame.DESCRIPTOR.oneofs_by_name["message"].fields}
    assert set(codec._PACK) == set(KINDS)
    assert set(codec._READ) == fields - {"hello"}
    assert len(codec._READ) == len(KINDS)


def test_what_is_decoded_is_made_of_plain_values() -> None:
    # Nothing may keep a frame of four megabytes alive, and everything must sort and hash.
    message = decode(encode(Join(TOPIC, 1, Role.VISITOR, PEER, False, True)))
    assert isinstance(message, Join)
    assert type(message.role) is Role
    assert type(message.topic) is bytes
    found = decode(encode(BlockFound(1, b"block", (Contact(PEER, ("/ip4/10.0.0.1",)),))))
    assert isinstance(found, BlockFound)
    assert type(found.contacts) is tuple
    assert type(found.contacts[0]) is Contact
    assert type(found.contacts[0].addresses) is tuple
    assert hash(found) == hash(BlockFound(1, b"block", (Contact(PEER, ("/ip4/10.0.0.1",)),)))


def test_an_event_travels_as_the_very_bytes_of_its_block() -> None:
    block = random.Random(1).randbytes(500)
    assert block in encode(EventMessage(block, 3))


# Bytes that are written down, so that no change of schema or library goes unnoticed. They are
# shown as tag, length and value; X is the topic's CID and P the peer's id.
X, P = TOPIC.hex(), PEER.hex()
GOLDEN: list[tuple[Message, str]] = [
    (EventMessage(b"block", 0), "0a07 0a05626c6f636b"),
    (EventMessage(b"block", 300), "0a0a 0a05626c6f636b 10ac02"),
    (Credit(TOPIC, 64), f"1228 0a24{X} 1040"),
    (
        Status(TOPIC, bytes(16), (PEER,), (Contact(PEER, ("/a",)),), True),
        f"1a9001 0a24{X} 1210{'00' * 16} 1a26{P} 222c0a26{P}12022f61 2801",
    ),
    (
        Status(TOPIC, bytes(16), (PEER,), (), False, True),
        f"1a62 0a24{X} 1210{'00' * 16} 1a26{P} 3001",
    ),
    (FindPeers(7, 1), f"2224 0807 1220{'00' * 31}01"),
    (Peers(0, ()), "2a00"),
    (Peers(1, (Contact(PEER),)), f"2a2c 0801 12280a26{P}"),
    (StoreBlocks(2, (b"a", b"bc")), "3209 0802 120161 12026263"),
    (Stored(2, (TOPIC,)), f"3a28 0802 1224{X}"),
    (BlockFound(3, None, ()), "4a02 0803"),
    (
        FrontierPage(TOPIC, (MarkState(PEER, 5, 1, 300, TOPIC, (302, 303, 500)),), True),
        f"528c01 0a24{X} 1262 0a26{P} 110500000000000000 1801 20ac02 2a24{X} 32040201c501 1801",
    ),
    (
        CompareFrontiers(TOPIC, (FrontierPart(b"\x01\x0f", bytes(256)),)),
        f"b202b002 0a24{X} 128702 0a02010f 128002{'00' * 256}",
    ),
    (
        FrontierPage(TOPIC, (), True, (b"\x01",)),
        f"522b 0a24{X} 1801 220101",
    ),
    (CompareTopics(bytes(32), True), f"e20124 0a20{'00' * 32} 1001"),
    (
        FetchStart(TOPIC, bytes(16), (b"", b"\x0f")),
        f"ba023d 0a24{X} 1210{'00' * 16} 1a00 1a010f",
    ),
    (
        StartParts(TOPIC, bytes(16), (PartHash(b"\x01", bytes(16)),), (), ()),
        f"da014f 0a24{X} 1210{'00' * 16} 1a15 0a0101 1210{'00' * 16}",
    ),
    (
        Join(TOPIC, 9, Role.VISITOR, PEER, True, False),
        f"820154 0a24{X} 1009 1801 2226{P} 2801",
    ),
    (
        JoinAccepted(TOPIC, 9, (PEER,), (), bytes(16), True),
        f"8a0164 0a24{X} 1009 1a26{P} 2a10{'00' * 16} 3001",
    ),
    (HandOver(TOPIC, None), f"aa0126 0a24{X}"),
    (Meet(TOPIC, 1, 8), f"82024a 0a24{X} 1220{'00' * 31}01 1808"),
    (Members(TOPIC, (Contact(PEER),)), f"8a0250 0a24{X} 12280a26{P}"),
    (DialMe(7), "920202 0807"),
    (DialAnswer(7, DialCode.REACHED, "/a"), "9a0206 0807 1a022f61"),
    (DialAnswer(7, DialCode.BUSY), "9a0204 0807 1002"),
    (ReachChanged(Reach.PRIVATE, ("/a",)), "a20206 0803 12022f61"),
    (FindListings(7, 1), f"b20424 0807 1220{'00' * 31}01"),
    (ListingsFound(7, (b"a", b"bc"), True, ()), "ba040b 0807 120161 12026263 1801"),
    (StoreListings(8, 1, (b"a",)), f"c20427 0808 1220{'00' * 31}01 1a0161"),
]


@pytest.mark.parametrize(("message", "text"), GOLDEN, ids=lambda value: type(value).__name__)
def test_golden_bytes(message: Message, text: str) -> None:
    data = bytes.fromhex(text.replace(" ", ""))
    assert encode(message).hex() == data.hex()
    assert decode(data) == message


# What is refused. Messages that our own core would never make are made by hand.

SHORT_CID = Cid(TOPIC[:-1])
OTHER_CODEC = Cid(b"\x01\x55" + TOPIC[2:])
SHORT_PEER = PeerId(PEER[:-1])


def mark(**change: Any) -> FrontierPage:
    whole = MarkState(PEER, 1, 2, 3, TOPIC, ())
    return FrontierPage(TOPIC, (whole._replace(**change),), True)


REFUSED: dict[str, Message] = {
    "an event that is no CID": RequestAnswered(TOPIC, bytes(32), Cid(b""), 0, ""),
    "a long code": JoinRefused(TOPIC, 1, "é" * 17),
    "a referral to nobody": messages.JoinReferred(TOPIC, 1, Contact(PeerId(b"")), False),
    "too many addresses": Peers(1, (Contact(PEER, ("/a",) * 17),)),
    "a long address": Peers(1, (Contact(PEER, ("/" * 257,)),)),
    "hashes of fewer parts": CompareFrontiers(TOPIC, (FrontierPart(b"", bytes(255)),)),
    "too many parts": CompareFrontiers(TOPIC, (FrontierPart(b"", bytes(256)),) * 65),
    "too many steps": CompareFrontiers(TOPIC, (FrontierPart(bytes(33), bytes(256)),)),
    "no hashes of topics": CompareTopics(b"", True),
    "half a hash of topics": CompareTopics(bytes(24), True),
    "too many hashes of topics": CompareTopics(bytes(16 * 257), True),
    "no parts to start at": FetchStart(TOPIC, bytes(16), ()),
    "a start of a short hash": StartParts(TOPIC, bytes(15), (), (), ()),
    "too many parts to start at": FetchStart(TOPIC, b"", (b"",) * 17),
    "too many marks": FrontierPage(TOPIC, mark().marks * 1025, True),
    "a mark of no publisher": mark(publisher=SHORT_PEER),
    "an epoch too large": mark(epoch=2**63),
    "a floor above the high": mark(floor=4),
    "a high too large": mark(high=2**63),
    "a mark of no CID": mark(cid=SHORT_CID),
    "a number beyond too large": mark(beyond=(2**63,)),
    "too many numbers beyond": mark(beyond=tuple(range(4, 4 + 65_537))),
    "a range of nothing": FetchRange(1, TOPIC, PEER, 1, 3, 2),
    "a range from zero": FetchRange(1, TOPIC, PEER, 1, 0, 2),
    "a range without end": FetchRange(1, TOPIC, PEER, 1, 1, 2**63),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_out_of_bounds_is_rejected(what: str) -> None:
    data = encode(REFUSED[what])
    with pytest.raises(RemoteError) as caught:
        decode(data)
    assert caught.value.verdict is Verdict.REJECT


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_of_every_kind_passes_and_breaks_every_check_of_every_field(kind: type) -> None:
    message = sample(kind)
    assert decode(encode(message)) == message
    for wrong in broken_records(kind):
        data = encode(wrong)
        with pytest.raises(RemoteError) as caught:
            decode(data)
        assert caught.value.verdict is Verdict.REJECT


def test_a_field_without_a_bound_is_a_mistake() -> None:
    class Credit(msgspec.Struct):
        topic: Cid
        size: int

    class Leave(msgspec.Struct):
        topic: bytes

    class Members(msgspec.Struct):
        topic: Cid
        members: tuple[Contact, ...]

    for kind, name in ((Credit, "credit"), (Leave, "leave"), (Members, "members")):
        with pytest.raises(TypeError, match="bound"):
            derive.fields_of(kind, pb.Frame.DESCRIPTOR.fields_by_name[name].message_type)


def test_a_type_and_the_schema_have_the_same_fields() -> None:
    class Bare(msgspec.Struct):
        topic: Cid

    with pytest.raises(TypeError, match="size"):
        derive.derive(Bare, "credit")


@pytest.mark.parametrize(
    "held",
    [
        Held(b"", 0, 0.0, 1.0, True, 1),
        Held(bytes(4096 + 513), 0, 0.0, 1.0, True, 1),
        Held(b"record", 0, 0.5, 0.4, True, 1),
        Held(b"record", 0, -0.1, 0.4, True, 1),
        Held(b"record", 0, 0.5, 1.1, True, 1),
        Held(b"record", 0, float("nan"), 1.0, True, 1),
        Held(b"record", 0, 0.0, 1.0, True, 86_401),
    ],
)
def test_a_piece_of_a_subscription_is_a_part_of_the_unit_interval_with_a_lease(held: Held) -> None:
    messages = (
        PlaceSubscription(TOPIC, "price", 1, Stage.GUESSED, held, 7),
        PlaceState(TOPIC, "price", 1, Purpose.REPLICA, False, (held,)),
    )
    for message in messages:
        with pytest.raises(RemoteError):
            decode(encode(message))


ALLOWED: dict[str, Message] = {
    "hops": EventMessage(b"block", 1024),
    "credit": Credit(TOPIC, 2**32 - 1),
    "path": Status(TOPIC, bytes(32), (PEER,) * 256, (Contact(PEER),) * 64, False),
    "addresses": Peers(2**63 - 1, (Contact(PEER, ("/" * 256,) * 16),) * 64),
    "marks": FrontierPage(TOPIC, mark().marks * 1024, True),
    "beyond": mark(beyond=tuple(range(4, 4 + 65_536))),
    "blocks": StoreBlocks(1, (b"a",) * 1024),
    "largest block": EventMessage(bytes(1024 * 1024 + 64 * 1024), 1),
    "code": JoinRefused(TOPIC, 1, "é" * 16),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_what_is_just_within_bounds_is_taken(what: str) -> None:
    assert decode(encode(ALLOWED[what])) == ALLOWED[what]


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_has_32_bytes(size: int) -> None:
    frames = [
        pb.Frame(find_peers=pb.FindPeers(request=1, key=bytes(size))),
        pb.Frame(find_pointer=pb.FindPointer(request=1, key=bytes(size))),
        pb.Frame(compare_keys={"range": {"first": bytes(size), "last": bytes(32)}}),
    ]
    for frame in frames:
        with pytest.raises(RemoteError, match="32 bytes"):
            decode(frame.SerializeToString())


def test_numbers_beyond_a_mark_ascend() -> None:
    steps = {"publisher": PEER, "high": 3, "beyond": [1, 0]}
    frame = pb.Frame(frontier_page={"topic": TOPIC, "marks": [steps]})
    with pytest.raises(RemoteError, match="ascend"):
        decode(frame.SerializeToString())


def test_numbers_beyond_marks_are_counted_over_the_whole_page() -> None:
    one = mark(beyond=tuple(range(4, 4 + 32_769))).marks
    decode(encode(FrontierPage(TOPIC, one, True)))
    with pytest.raises(RemoteError, match="beyond"):
        decode(encode(FrontierPage(TOPIC, one * 2, True)))


def test_a_message_of_an_unknown_kind_is_ignored() -> None:
    unknown = bytes.fromhex("fa07 00".replace(" ", ""))  # field 127
    with pytest.raises(RemoteError) as caught:
        decode(unknown)
    assert caught.value.verdict is Verdict.IGNORE


def test_an_unknown_role_is_ignored() -> None:
    frame = pb.Frame(join={"topic": TOPIC, "role": 2, "root": PEER})
    with pytest.raises(RemoteError, match="role") as caught:
        decode(frame.SerializeToString())
    assert caught.value.verdict is Verdict.IGNORE


def test_unknown_fields_inside_a_known_message_are_left_alone() -> None:
    inner = bytes.fromhex("0a05626c6f636b") + bytes.fromhex("7a0161 980101")  # fields 15 and 19
    assert decode(bytes((0x0A, len(inner))) + inner) == EventMessage(b"block", 0)


@pytest.mark.parametrize(
    "text",
    ["", "0a", "0aff", "0a07", "08", "00", "0b", "ffffffffffffffffffffff", "0a03 0a0562"],
)
def test_what_is_not_a_frame_is_rejected(text: str) -> None:
    with pytest.raises(RemoteError) as caught:
        decode(bytes.fromhex(text))
    assert caught.value.verdict is Verdict.REJECT


def test_text_that_is_not_utf_8_is_rejected() -> None:
    data = encode(JoinRefused(TOPIC, 1, "full"))
    with pytest.raises(RemoteError, match="not Protocol Buffers"):
        decode(data.replace(b"full", b"\xff\xfe\xfd\xfc"))


def test_nested_groups_do_not_exhaust_the_stack() -> None:
    for depth in (10, 1_000, 1_000_000):
        with pytest.raises(RemoteError):
            decode(b"\xfb\x07" * depth)  # field 127, a group that starts and never ends


def test_a_frame_that_is_too_large_is_neither_made_nor_taken() -> None:
    block = bytes(FRAME_BYTES_MAX)
    with pytest.raises(LocalError):
        encode(EventMessage(block, 1))
    with pytest.raises(RemoteError, match="a frame of more than"):
        decode(pb.Frame(event=pb.Event(block=block)).SerializeToString())
    largest = StoreBlocks(0, (bytes(FRAME_BYTES_MAX - 10),))
    assert len(encode(largest)) == FRAME_BYTES_MAX
    assert decode(encode(largest)) == largest


def mutate(data: bytes, chance: random.Random) -> bytes:
    """A few changes of the kinds that wires and attackers make."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(6):
            case 0 if at < len(changed):
                changed[at] = chance.randrange(256)
            case 1 if at < len(changed):
                changed[at] ^= 1 << chance.randrange(8)
            case 2:
                changed[at:at] = chance.randbytes(chance.randint(1, 3))
            case 3:
                del changed[at : at + chance.randint(1, 3)]
            case 4:
                del changed[at:]
            case _:
                changed[at:at] = changed[: chance.randint(0, 40)]
    return bytes(changed)


@cache
def sample_messages(count_each: int) -> list[Message]:
    found: list[Message] = []

    @settings(
        max_examples=count_each,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        found.extend(data.draw(of_kind(kind)) for kind in KINDS)

    draw()
    return found


def test_mutated_bytes_never_raise_anything_but_a_remote_error() -> None:
    chance = random.Random(20)
    originals = [encode(message) for message in sample_messages(8)]
    refused = taken = 0
    for _ in range(20_000):
        data = mutate(chance.choice(originals), chance)
        try:
            message = decode(data)
        except RemoteError:
            refused += 1
        else:
            # Whatever is taken is a message like any other.
            assert decode(encode(message)) == message
            assert size_of(message) == len(encode(message))
            taken += 1
    # A test that only ever meets one of the two proves little.
    assert refused > 5_000
    assert taken > 1_000


@given(st.binary(max_size=200))
def test_noise_never_raises_anything_but_a_remote_error(data: bytes) -> None:
    with suppress(RemoteError):
        decode(data)


@given(any_message, any_message)
def test_of_two_messages_in_a_frame_one_is_taken_or_none(one: Message, other: Message) -> None:
    # Protocol Buffers lets the last member of a oneof win, or merges two of one kind.
    try:
        decode(encode(one) + encode(other))
    except RemoteError:
        assert type(one) is type(other)
