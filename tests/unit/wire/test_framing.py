import random
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.errors import LocalError, RemoteError
from pulsarcast.protocol.limits import FRAME_BYTES_MAX
from pulsarcast.wire.framing import FrameReader, write_frames

SIZES = [0, 1, 127, 128, 129, 300, 16383, 16384]
FRAMES = [random.Random(size).randbytes(size) for size in SIZES]


def test_golden_bytes() -> None:
    assert write_frames([]) == b""
    assert write_frames([b"", b"a"]) == b"\x00\x01a"
    assert write_frames([b"a" * 300]) == b"\xac\x02" + b"a" * 300


def test_frames_in_one_piece() -> None:
    assert FrameReader().feed(write_frames(FRAMES)) == FRAMES


def test_frames_split_at_every_byte() -> None:
    frames = [FRAMES[0], FRAMES[1], FRAMES[3], FRAMES[5], FRAMES[2]]
    stream = write_frames(frames)
    for at in range(len(stream) + 1):
        reader = FrameReader()
        assert reader.feed(stream[:at]) + reader.feed(stream[at:]) == frames
        assert reader.pending_bytes == 0


def test_frames_byte_by_byte() -> None:
    reader = FrameReader()
    found: list[bytes] = []
    for octet in write_frames(FRAMES):
        found += reader.feed(bytes((octet,)))
    assert found == FRAMES


@given(st.lists(st.binary(max_size=400), max_size=12), st.lists(st.integers(0, 4000), max_size=8))
def test_frames_split_anywhere(frames: list[bytes], cuts: list[int]) -> None:
    stream = write_frames(frames)
    ends = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    reader = FrameReader()
    found: list[bytes] = []
    for start, end in pairwise(ends):
        found += reader.feed(stream[start:end])
    assert found == frames
    assert reader.pending_bytes == 0


def test_what_is_held_of_a_frame_shows() -> None:
    reader = FrameReader()
    assert reader.feed(b"\x01a\x05abc") == [b"a"]
    assert reader.pending_bytes == 4


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    largest = bytes(FRAME_BYTES_MAX)
    assert FrameReader().feed(write_frames([largest])) == [largest]
    with pytest.raises(LocalError):
        write_frames([largest + b"a"])
    with pytest.raises(RemoteError, match="more than 4194304 bytes"):
        FrameReader().feed(bytes.fromhex("81808002"))


def test_a_length_that_is_too_large_is_refused_before_the_frame_arrives() -> None:
    for limit, length in [(100, "65"), (300, "ad02"), (300, "8080"), (100, "80"), (300, "ffff")]:
        with pytest.raises(RemoteError, match="more than"):
            FrameReader(limit).feed(bytes.fromhex(length))


def test_a_length_that_never_ends_is_refused_byte_by_byte() -> None:
    reader = FrameReader()
    for _ in range(3):
        assert reader.feed(b"\xff") == []
    with pytest.raises(RemoteError):
        reader.feed(b"\xff")


def test_a_length_in_more_bytes_than_it_needs_is_refused() -> None:
    for length in ("8000", "858000", "ff00"):
        with pytest.raises(RemoteError, match="more bytes than it needs"):
            FrameReader().feed(bytes.fromhex(length))


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_noise_never_raises_anything_but_a_remote_error(pieces: list[bytes]) -> None:
    reader = FrameReader(64)
    for piece in pieces:
        try:
            frames = reader.feed(piece)
        except RemoteError:
            return
        assert all(len(frame) <= 64 for frame in frames)
        assert reader.pending_bytes <= 65


def test_a_large_frame_in_many_pieces_takes_linear_time() -> None:
    # 16 times as many bytes may take 16 times as long, and not 256 times; the rest is for noise.
    small, large = (min(_seconds_for(size) for _ in range(3)) for size in (1 << 18, 1 << 22))
    assert large < 80 * small


def _seconds_for(size: int) -> float:
    stream = write_frames([bytes(size)])
    reader = FrameReader()
    start = time.process_time()
    for at in range(0, len(stream), 64):
        reader.feed(stream[at : at + 64])
    return time.process_time() - start
