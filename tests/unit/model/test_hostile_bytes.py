"""Whatever bytes a peer sends, reading them ends in a descriptor or in a RemoteError."""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import Position, decode_event, decode_request
from pulsarcast.model.ids import cid_of
from pulsarcast.model.listings import decode_listing, sign_listing
from pulsarcast.model.mark_blocks import decode_marks, make_mark_blocks
from pulsarcast.model.pointers import decode_pointer, sign_pointer
from pulsarcast.model.topics import (
    AttributeRule,
    DeliveryOrder,
    Mark,
    Retention,
    TopicSettings,
    decode_topic,
    next_version,
)
from tests.unit.model.samples import ALICE, BOB, CREATED, own_event, request, requested_event, topic

RICH = TopicSettings(
    order=DeliveryOrder.TOTAL,
    recovery_keys=(BOB.peer_id,),
    retention=Retention(1, 2, 3),
    attributes=(AttributeRule("price", "float", 0, 1.5),),
    extensions={"a": [{"b": None}]},
)
FIRST = topic(RICH)
BLOCKS = [
    own_event(
        name="name",
        attributes={"price": 1.5, "raw": b"\x01\x02"},
        parents=(cid_of(b"1"), cid_of(b"2")),
        position=Position(1, 2),
        extensions={"deep": [[[{"a": 1 << 40}]]]},
    ).block,
    requested_event(version=cid_of(b"version")).block,
    request().block,
    FIRST.block,
    next_version(ALICE, FIRST, RICH, created=CREATED, valid_until=[Mark(BOB.peer_id, 1, 2)]).block,
    sign_pointer(ALICE, "news", 7, FIRST.cid, topic=FIRST.cid).block,
    sign_listing(ALICE, FIRST, 7).block,
    *make_mark_blocks(ALICE, [Mark(BOB.peer_id, 1, 2)], created=CREATED, page_marks=1),
]
READERS: list[Callable[[bytes], object]] = [
    decode_event,
    decode_request,
    decode_topic,
    decode_pointer,
    decode_listing,
    decode_marks,
]
# Heads of CBOR items that claim much, nest, or end early.
LARGE = ["9bffffffffffffffff", "bb7fffffffffffffff", "5affffffff", "7bffffffffffffffff"]
NUMBERS = ["1bffffffffffffffff", "3bffffffffffffffff", "fb7ff8000000000000", "00", "20", "1800"]
SMALL = ["81", "a1", "80", "a0", "40", "60", "d82a", "9f", "ff", "f6", "f7"]
HEADS = [bytes.fromhex(head) for head in (*LARGE, *NUMBERS, *SMALL)]


def mutated(rng: Random, block: bytes) -> bytes:
    """A block with one to three things done to it."""
    for _ in range(rng.randint(1, 3)):
        at, upto = sorted(rng.randrange(len(block) + 1) for _ in range(2))
        match rng.randrange(6):
            case 0:
                block = block[:at] + rng.randbytes(1) + block[at + 1 :]
            case 1:
                block = block[:at] + rng.choice(HEADS) + block[at + 1 :]
            case 2:
                block = block[:at]
            case 3:
                block = block[:at] + block[upto:]
            case 4:
                other = rng.choice(BLOCKS)
                block = block[:at] + other[rng.randrange(len(other)) :]
            case _:
                block = block[:at] + rng.choice(HEADS) * rng.choice([1, 17, 3000]) + block[at:]
    return block


def takers(block: bytes) -> int:
    """How many readers take a block; anything but a RemoteError fails the test."""
    taken = 0
    for read in READERS:
        with suppress(RemoteError):
            read(block)
            taken += 1
    return taken


@pytest.mark.parametrize("seed", range(10))
def test_a_mutated_block_is_rejected_and_nothing_worse(seed: int) -> None:
    rng = Random(seed)
    for _ in range(500):
        block = mutated(rng, rng.choice(BLOCKS))
        assert takers(block) == (block in BLOCKS)


def test_random_bytes_are_rejected_and_nothing_worse() -> None:
    rng = Random(0)
    for _ in range(2000):
        assert takers(rng.choice(HEADS) + rng.randbytes(rng.randrange(60))) == 0


def test_every_block_is_taken_by_the_one_reader_that_it_is_for() -> None:
    assert [takers(block) for block in BLOCKS] == [1] * len(BLOCKS)
