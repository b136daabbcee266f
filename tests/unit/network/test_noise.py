import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.errors import RemoteError
from pulsarcast.network.noise import PLAINTEXT_BYTES_MAX, TAG_BYTES, NoiseFraming

KEY, OTHER_KEY = bytes(range(32)), bytes(range(32, 64))
LARGE = random.Random(2).randbytes(3 * PLAINTEXT_BYTES_MAX + 5)


def framings() -> tuple[NoiseFraming, NoiseFraming]:
    return NoiseFraming(KEY, OTHER_KEY), NoiseFraming(OTHER_KEY, KEY)


def test_what_one_seals_the_other_opens() -> None:
    ours, theirs = framings()
    for plaintext in (b"a", b"b" * 500, LARGE):
        assert b"".join(theirs.feed(ours.seal(plaintext))) == plaintext
        assert b"".join(ours.feed(theirs.seal(plaintext))) == plaintext


def test_messages_are_as_large_as_noise_allows() -> None:
    ours, theirs = framings()
    sizes = [len(plaintext) for plaintext in theirs.feed(ours.seal(LARGE))]
    assert sizes == [PLAINTEXT_BYTES_MAX] * 3 + [5]
    assert len(ours.seal(bytes(PLAINTEXT_BYTES_MAX))) == 2 + 65_535


def test_nothing_is_sealed_as_nothing() -> None:
    ours, theirs = framings()
    assert ours.seal(b"") == b""
    assert theirs.feed(ours.seal(b"next")) == [b"next"]


@given(
    st.lists(st.binary(min_size=1, max_size=300), max_size=6),
    st.lists(st.integers(0, 2000), max_size=8),
)
def test_messages_split_anywhere(messages: list[bytes], cuts: list[int]) -> None:
    ours, theirs = framings()
    stream = b"".join(map(ours.seal, messages))
    ends = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    opened: list[bytes] = []
    for start, end in pairwise(ends):
        opened += theirs.feed(stream[start:end])
    assert opened == messages
    assert not theirs._held


@given(st.integers(0, 200), st.integers(1, 255))
def test_one_changed_byte_is_found(at: int, change: int) -> None:
    ours, theirs = framings()
    stream = bytearray(ours.seal(b"x" * 80) + ours.seal(b"y" * 85))
    stream[at] ^= change
    with pytest.raises(RemoteError):
        # A changed length may only show once more has come.
        theirs.feed(bytes(stream) + bytes(70_000))


def test_a_message_shown_twice_or_out_of_turn_is_refused() -> None:
    ours, theirs = framings()
    first, second = ours.seal(b"first"), ours.seal(b"second")
    theirs.feed(first)
    with pytest.raises(RemoteError):
        theirs.feed(first)
    ours, theirs = framings()
    with pytest.raises(RemoteError):
        theirs.feed(second)


def test_a_message_without_room_for_its_tag_is_refused() -> None:
    for size in range(TAG_BYTES):
        with pytest.raises(RemoteError):
            framings()[0].feed(bytes((0, size)) + bytes(size))


def test_little_is_held_of_a_message_that_never_ends() -> None:
    ours, _ = framings()
    for _ in range(100):
        assert ours.feed(b"\xff" * 600) == []
    assert len(ours._held) <= 65_537
