from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.errors import RemoteError
from pulsarcast.protocol.limits import FRAME_BYTES_MAX
from pulsarcast.wire.framing import FrameReader, write_frames
from pulsarcast.wire.parts import PART_BYTES, Cut, Joiner


def parts_of(frame: bytes, number: int) -> list[bytes]:
    """The parts of a frame, without their lengths."""
    cut = Cut(write_frames([frame]), number)
    parts: list[bytes] = []
    while cut.left_bytes:
        parts += FrameReader().feed(cut.next_part())
    return parts


def test_golden_bytes_of_a_part() -> None:
    part, last = parts_of(b"\x0a" * (PART_BYTES + 3), 5)
    assert part == b"\x00\x05" + b"\x0a" * PART_BYTES
    assert last == b"\x00\x85" + b"\x0a" * 3
    assert Cut(write_frames([b"\x0a" * 300]), 2).next_part() == b"\xae\x02\x00\x82" + b"\x0a" * 300


@given(st.lists(st.integers(1, 3 * PART_BYTES), min_size=1, max_size=4), st.randoms())
def test_frames_in_parts_come_whole_whatever_goes_in_between(sizes: list[int], rng: Random) -> None:
    frames = [bytes((10 + number,)) * size for number, size in enumerate(sizes)]
    cuts = [parts_of(frame, number) for number, frame in enumerate(frames)]
    stream: list[bytes] = []
    while cuts:
        cut = rng.choice(cuts)
        stream.append(cut.pop(0))
        stream.append(b"\x12small")
        if not cut:
            cuts.remove(cut)
    joiner = Joiner()
    whole = [frame for part in stream for frame in joiner.join([part])]
    assert sorted(each for each in whole if each != b"\x12small") == sorted(frames)
    assert joiner.held_bytes == 0


def test_a_peer_that_ends_no_frame_fills_no_memory() -> None:
    joiner = Joiner()
    parts = [bytes((0, number)) + bytes(PART_BYTES) for number in range(128)]
    with pytest.raises(RemoteError, match="more in parts"):
        joiner.join(parts)
    assert joiner.held_bytes <= FRAME_BYTES_MAX + PART_BYTES


@pytest.mark.parametrize("part", [b"\x00", b"\x00\x01", b"\x00\x81"])
def test_a_part_of_nothing_is_rejected(part: bytes) -> None:
    with pytest.raises(RemoteError, match="without a body"):
        Joiner().join([part])
