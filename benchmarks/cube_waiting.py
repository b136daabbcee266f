"""What it costs a publisher to wait, as VCube-PS' does, until everyone has the message before.

    python -m benchmarks.cube_waiting [--members 100] [--events 50] [--latency-ms 50]

One cube in the simulator, one publisher. Once it publishes all events at once, as our nodes do;
once each only when every member has delivered the one before, which is less than the paper's
publisher waits for: its acknowledgements have to come back as well. Simulated time until all is
delivered. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json

from pulsarcast.model.ids import Cid
from pulsarcast.simulation.applications import settings_for
from pulsarcast.simulation.links import Constant
from pulsarcast.simulation.options import Options
from pulsarcast.simulation.run import Run

STEP_S = 0.001


def measure(members: int, events: int, latency_s: float, *, waits: bool) -> float:
    """Seconds from the first event until everyone has all of them."""
    run = Run(Options(kind="tree", scenario="cube", seed=1), links=Constant(latency_s))
    world = run.world
    run.join(members)
    topics: list[Cid | None] = []
    settings = settings_for("per-publisher", world.peer(0), "cube")
    run.applications.create(0, "hot", settings, topics.append)
    world.run_until(lambda: bool(topics), world.now + 600)
    topic = topics[0]
    assert topic is not None
    for index in range(members):
        run.applications.subscribe(index, topic)
    run.settle()
    began_s, published = world.now, 0

    def publish() -> None:
        nonlocal published
        published += 1
        run.applications.publish(
            1, topic, b"%d" % published, injection=str(published), replicated=False
        )

    def wait_for(count: int) -> None:
        deadline_s = began_s + 3600
        world.run_until(lambda: run.observer.deliveries >= count, deadline_s, STEP_S)

    for number in range(1, events + 1):
        publish()
        if waits:
            wait_for(number * members)
    wait_for(events * members)
    assert run.observer.deliveries == events * members
    return world.now - began_s


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--events", type=int, default=50)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    given = parser.parse_args()
    latency_s = given.latency_ms / 1000
    at_once_s = measure(given.members, given.events, latency_s, waits=False)
    waiting_s = measure(given.members, given.events, latency_s, waits=True)
    print(
        json.dumps(
            {
                **vars(given),
                "at_once_s": round(at_once_s, 3),
                "waiting_s": round(waiting_s, 3),
                "times": round(waiting_s / at_once_s, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
