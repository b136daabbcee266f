"""How late events are when many of thirty real nodes fall silent, ours or gossipsub's.

    python benchmarks/silent_third.py CONTESTANT [--nodes 30] [--stopped 10] [--events 20]

Thirty processes of this machine, one topic, all of them subscribed; three publish in turn, one
event every 1.5 s. Before the first event, others are stopped with SIGSTOP: their connections stand,
and their kernel goes on acknowledging. CONTESTANT is `ours` or `gossipsub` (py-libp2p's; needs the
extra `baselines`). Prints, for those that run, what was delivered of what was due and how late it
was, as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from array import array
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from pulsarcast.testbed.child import Plan
from pulsarcast.testbed.contestants.contestants import Settings, load
from pulsarcast.testbed.fleet import Fleet
from pulsarcast.testbed.ledger import Ledger, percentile_ms
from pulsarcast.testbed.messages import Answer, Command, Publish
from pulsarcast.testbed.scenarios.compare import NUMBER_BYTES, number_of, set_up

PUBLISHERS: Final = 3
PAUSE_S: Final = 1.5
"""Between two events."""
SETTLE_S: Final = 10.0
PATIENCE_S: Final = 20.0
FILLER: Final = bytes(256 - NUMBER_BYTES)


def main() -> None:
    """Start everyone, stop some, publish, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("contestant", choices=("ours", "gossipsub"))
    parser.add_argument("--nodes", type=int, default=30)
    parser.add_argument("--stopped", type=int, default=10)
    parser.add_argument("--events", type=int, default=20)
    given = parser.parse_args()
    opener = load(given.contestant)
    ledger = Ledger(nodes=given.nodes, events=given.events)
    plan = Plan(
        opener=opener, size=given.nodes, settings=Settings(), ledger=ledger, number_of=number_of
    )
    stopped = set(Random(1).sample(range(PUBLISHERS, given.nodes), given.stopped))
    others = [node for node in range(given.nodes) if node not in stopped]
    with tempfile.TemporaryDirectory() as home, Fleet(plan, Path(home)) as fleet:
        fleet.assemble()
        [topic] = set_up(fleet, 1)
        fleet.wait(SETTLE_S)
        for node in stopped:
            fleet.pause(node)
        for number in range(given.events):
            payload = number.to_bytes(NUMBER_BYTES, "big") + FILLER
            fleet.ask(number % PUBLISHERS, _publish(topic, payload, number), _ignore)
            fleet.wait(PAUSE_S)
        fleet.run_until(
            lambda: not any(ledger.missing(number, others) for number in range(given.events)),
            s_max=PATIENCE_S,
        )
    late, due = array("Q"), 0
    for number in range(given.events):
        listening = [node for node in others if node != number % PUBLISHERS]
        late.extend(ledger.latencies_us(number, listening))
        due += len(listening)
    late = array("Q", sorted(late))
    result = {
        "contestant": given.contestant,
        "stopped": given.stopped,
        "delivered_of_due": f"{len(late)} of {due}",
        "p50_s": round(percentile_ms(late, 0.5) / 1000, 3),
        "p99_s": round(percentile_ms(late, 0.99) / 1000, 3),
        "max_s": round(percentile_ms(late, 1.0) / 1000, 3),
    }
    print(json.dumps(result))


def _publish(topic: bytes, payload: bytes, number: int) -> Callable[[int], Command]:
    return lambda call: Publish(call, topic, payload, number, str(number), "accepted")


def _ignore(answer: Answer) -> None:
    """The ledger says what came."""


if __name__ == "__main__":
    main()
