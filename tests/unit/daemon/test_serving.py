"""Streams that wait for their reader, but not for ever; the clock is the test's own."""

from __future__ import annotations

from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair

from pulsarcast.daemon.serving import PatientStream

SLOW_S: Final = 30
BODY: Final = bytes(range(256)) * (16 << 10)
STEP: Final = 16 << 10
"""What a reader takes in a second."""


def patient(stream: Any, cut: list[str]) -> PatientStream:
    stream.socket = None
    return PatientStream(stream, SLOW_S, lambda: cut.append("cut"))


def test_who_reads_slowly_but_all_the_time_gets_everything() -> None:
    cut: list[str] = []
    taken = bytearray()

    async def scene() -> None:
        ours, theirs = lockstep_stream_pair()

        async def read() -> None:
            while len(taken) < len(BODY):
                await trio.sleep(1)
                taken.extend(await theirs.receive_some(STEP))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await patient(ours, cut).send_all(BODY)
        assert trio.current_time() > 2 * SLOW_S

    trio.run(scene, clock=MockClock(autojump_threshold=0))
    assert bytes(taken) == BODY
    assert not cut


@pytest.mark.parametrize("read_s", [0, 40])
def test_who_stops_reading_is_cut_off(read_s: int) -> None:
    cut: list[str] = []

    async def scene() -> None:
        ours, theirs = lockstep_stream_pair()

        async def read_a_little() -> None:
            for _ in range(read_s):
                await trio.sleep(1)
                await theirs.receive_some(STEP)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_a_little)
            with pytest.raises(trio.BrokenResourceError, match="took nothing for too long"):
                await patient(ours, cut).send_all(BODY)
        assert read_s < trio.current_time() <= read_s + SLOW_S

    trio.run(scene, clock=MockClock(autojump_threshold=0))
    assert cut == ["cut"]
