"""VCube-PS, section 6: combining, which the paper leaves to future work, on the model and live.

"... to combine, without any extra cost, causal related broadcast messages within a single message,
reducing, therefore, the number of sent messages and contention over the network" [44].

Deviations, said aloud: not only causally related messages are combined, but all that wait on one
link; and they stay messages of their own, in one write of one stream, because a frame for several
saves next to nothing (docs/decisions/0031-messages-that-wait-travel-together.md).
"""

from typing import Literal

import msgspec
import pytest

from pulsarcast.model.ids import Cid
from pulsarcast.protocol.messages import Message
from pulsarcast.simulation.applications import settings_for
from pulsarcast.simulation.lines import Line
from pulsarcast.simulation.links import Constant
from pulsarcast.simulation.options import Options
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.run import Run
from pulsarcast.simulation.vcube.experiments import run as run_model
from pulsarcast.simulation.vcube.settings import Setting

MEMBERS = 8
EACH = 4
SLOW = 20_000.0


@pytest.mark.parametrize("system", ["vcube", "srpt"])
def test_the_model_sends_fewer_messages_that_wait_less(system: Literal["vcube", "srpt"]) -> None:
    """In the model a combined transmission takes as long as any other: the most it can bring."""
    apart = Setting(experiment="publish", nodes=64, publishers=1.0, system=system)
    together = msgspec.structs.replace(apart, combine_max=16)
    before, after = run_model(apart, 1), run_model(together, 1)
    assert after["deliveries"] == before["deliveries"]
    assert after["messages"] < before["messages"]
    assert after["latency_mean"] < before["latency_mean"]


class ApartLine(Line):
    """A line on which every message leaves by itself, whatever waits."""

    __slots__ = ()

    def send(self, message: Message) -> None:
        self.write_s = -1.0
        super().send(message)


def _everyone_publishes(line: type[Line], bandwidth: float | None) -> tuple[Result, int]:
    """Every member of a live cube publishes some events at once; the result, and the writes."""
    links = Constant(0.05, bandwidth=bandwidth)
    run = Run(Options(kind="tree", scenario="cube", seed=1, order="per-publisher"), links=links)
    world = run.world
    world.use_lines(line)
    run.join(MEMBERS)
    topics: list[Cid | None] = []
    settings = settings_for("per-publisher", world.peer(0), "cube")
    run.applications.create(0, "hot", settings, topics.append)
    assert world.run_until(lambda: bool(topics), world.now + 60)
    topic = topics[0]
    assert topic is not None
    for index in range(MEMBERS):
        run.applications.subscribe(index, topic)
    run.settle()
    run.measure_from_here()
    writes = world.writes
    for number in range(MEMBERS * EACH):
        run.applications.publish(
            number % MEMBERS, topic, b"x" * 256, injection=str(number), replicated=False
        )
    due = MEMBERS * MEMBERS * EACH
    assert world.run_until(lambda: run.observer.deliveries >= due, world.now + 60, 0.01)
    writes = world.writes - writes
    run.settle()
    return run.result(), writes


def test_live_messages_that_wait_on_a_link_travel_together_at_no_cost() -> None:
    """Fewer writes, nothing lost or out of order, and no event later than without."""
    apart, writes_apart = _everyone_publishes(ApartLine, SLOW)
    together, writes = _everyone_publishes(Line, SLOW)
    for result in (apart, together):
        assert result.ok, result.details
        assert result.delivered == MEMBERS * MEMBERS * EACH
        assert result.duplicates == result.order_violations == 0
    assert writes < 0.6 * writes_apart
    assert together.messages_per_write > apart.messages_per_write == 1.0
    assert together.latency_p50_s <= apart.latency_p50_s
    assert together.latency_p99_s <= apart.latency_p99_s


def test_live_messages_do_not_wait_in_order_to_travel_together() -> None:
    """Where a link has room, each message leaves at once: latencies are those without combining."""
    apart, _ = _everyone_publishes(ApartLine, None)
    together, _ = _everyone_publishes(Line, None)
    assert together.latency_p50_s == apart.latency_p50_s
    assert together.latency_p99_s == apart.latency_p99_s
