"""A process that writes traces as nodes do, until it is told to end; run as a script by tests."""

import sys
import time
from pathlib import Path

from pulsarcast.protocol.inputs import Now
from pulsarcast.simulation.tracing import TraceWriter
from tests.pipeline.trace_files import record_of

NODES = 4


def main(folder: str, enough: str) -> None:
    """Write into `folder` until the file `enough` is there."""
    numbers = dict.fromkeys(range(NODES), 0)
    with TraceWriter(
        Path(folder), "busy", name_of=lambda index: f"node-{index}", segment_bytes=1
    ) as writer:
        start = time.monotonic()
        while not Path(enough).exists():
            for index in numbers:
                for _ in range(100):
                    numbers[index] += 1
                    incarnation, seq = divmod(numbers[index], 2_000)
                    now = Now(time.monotonic() - start, time.time_ns() // 1000)
                    writer.record(now.mono_s, index, incarnation + 1, now, record_of(seq))
            time.sleep(0.5)


if __name__ == "__main__":
    main(*sys.argv[1:])
