"""Load in the simulator looks like load on real nodes: goodput stays, latency grows."""

import msgspec
import pytest

from pulsarcast.protocol.dissemination.tree import DisseminationTree
from pulsarcast.protocol.effects import Effect, Send
from pulsarcast.protocol.inputs import Input, Now
from pulsarcast.protocol.messages import Credit, EventMessage
from pulsarcast.protocol.node import Node
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.simulation import scenario_load
from pulsarcast.simulation.hardware.costs import MEASURED, Costs, read_costs
from pulsarcast.simulation.hardware.machines import Hardware
from pulsarcast.simulation.hosts import Seat
from pulsarcast.simulation.links import Constant
from pulsarcast.simulation.loads import Heard, Load, Outcome, outcome
from pulsarcast.simulation.options import load
from pulsarcast.simulation.scenario import run_scenario
from pulsarcast.simulation.scenario_load import play

SLOWER = 5
"""So many times slower than measured, so that fewer events are a load."""


def slow() -> Hardware:
    measured = msgspec.structs.asdict(read_costs(MEASURED))
    return Hardware(Costs(**{name: SLOWER * cost for name, cost in measured.items()}), cores=2)


def under(rate: float, in_flight: int, dissemination: str = "tree") -> Outcome:
    asked = Load(5, 5, dissemination, 256, 3.0, rate, in_flight)
    return play(asked, hardware=slow(), links=Constant(0.0001), seed=1)


@pytest.mark.parametrize("dissemination", ["tree", "cube"])
def test_more_than_there_is_room_for_takes_longer_and_carries_no_more(dissemination: str) -> None:
    capacity = under(0.0, 4, dissemination)
    half = under(capacity.goodput_per_s / 2, 16, dissemination)
    twice = under(capacity.goodput_per_s * 2, 16, dissemination)
    assert capacity.goodput_per_s > 10
    assert half.goodput_per_s == pytest.approx(capacity.goodput_per_s / 2, rel=0.1)
    assert twice.goodput_per_s < 1.25 * capacity.goodput_per_s
    assert half.p99_s
    assert twice.p99_s
    assert twice.p99_s > 3 * half.p99_s
    assert half.arrived == half.due
    # Turns are shared by more inputs, so that a delivery costs less.
    assert capacity.cpu_ms_per_delivery < half.cpu_ms_per_delivery


def test_without_hardware_nothing_takes_time() -> None:
    asked = Load(5, 5, "tree", 256, 0.5, 200.0, 16)
    free = play(asked, hardware=Hardware(), links=Constant(0.0001), seed=1)
    assert (free.offered, free.refused, free.arrived) == (100, 0, 400)
    assert free.cpu_ms_per_delivery == 0.0


def test_a_thin_uplink_makes_large_events_wait() -> None:
    asked = Load(4, 1, "tree", 100_000, 4.0, 1.0, 16)
    waits_s = []
    for mbit in (100, 4):
        hardware = Hardware(uplink=mbit * 125_000)
        waits_s.append(play(asked, hardware=hardware, links=Constant(0.0001), seed=1).p50_s)
    fast_s, thin_s = waits_s
    assert fast_s is not None
    assert thin_s is not None
    assert thin_s > 0.2 > fast_s


def test_who_has_a_narrow_line_serves_fewer_and_all_get_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Load(10, 1, "tree", 20_000, 80.0, 0.0, 30)
    hardware, links = Hardware(uplink=10 * 125_000), Constant(0.02)
    fewer = play(asked, hardware=hardware, links=links, seed=1)
    monkeypatch.setattr(DisseminationTree, "serve_fewer", lambda _: None)
    all_children = play(asked, hardware=hardware, links=links, seed=1)
    assert fewer.counts["served_fewer"] >= 1
    assert fewer.goodput_per_s > 1.3 * all_children.goodput_per_s
    assert fewer.arrived == fewer.due


class Withholding(Node):
    """Never sends some kinds of messages."""

    withheld: tuple[type, ...] = (Credit,)

    def handle(self, given: Input, now: Now) -> list[Effect]:
        effects = super().handle(given, now)
        return [
            each
            for each in effects
            if not (isinstance(each, Send) and isinstance(each.message, self.withheld))
        ]


class PassingNothingOn(Withholding):
    withheld = (Credit, EventMessage)


INNER = 1
SMALL = Parameters(fanout=3, window_bytes=256 * 1024)
"""The publisher and the inner node have three children each; their credit is used up soon."""


def beside(hostile: type[Withholding] | None) -> Outcome:
    """What one publisher's members get where one that has children is hostile."""

    def make(seat: Seat) -> Node:
        kind = hostile if hostile is not None and seat.index == INNER else Node
        return kind(
            seat.identity, seat.rng, SMALL, decode_event=seat.decode_event, parts=seat.parts
        )

    asked = Load(13, 1, "tree", 256, 20.0, 0.0, 200)
    return play(asked, hardware=slow(), links=Constant(0.01), seed=1, make_node=make)


@pytest.mark.parametrize("hostile", [Withholding, PassingNothingOn])
def test_an_inner_node_that_gives_no_credit_costs_the_topic_little(
    hostile: type[Withholding], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last events that it withheld come with the second heartbeat of some members.
    monkeypatch.setattr(scenario_load, "QUIET_S", 60.0)
    plain, attacked = beside(None), beside(hostile)
    assert attacked.counts.get("recovered", 0) > 100, "it was in the way of events"
    assert attacked.goodput_per_s >= 0.8 * plain.goodput_per_s
    assert attacked.accepted >= 0.8 * plain.accepted
    assert attacked.arrived == attacked.due


@pytest.mark.parametrize("changes", [{"cores": 2}, {"uplink_mbit": 1.0}])
def test_a_run_on_hardware_delivers_everything_and_is_the_same_every_time(
    changes: dict[str, float],
) -> None:
    options = msgspec.structs.replace(load("tree"), nodes=20, subscribers=8, events=5, **changes)
    one, other = run_scenario(options), run_scenario(options)
    assert one.ok, one.to_text()
    assert one.delivered == one.due
    for result in (one, other):
        result.wall_s = result.cpu_s = result.messages_per_s = result.rss_mb = 0.0
    assert one == other


def test_what_all_saw_together() -> None:
    asked = Load(2, 2, "tree", 256, 10.0, 1.0, 4)
    heard = [
        Heard(3, 1, [0.0, 1.0], [0.5, None], [(0, 0, 0.6), (1, 0, 3.0)], 0.25, {"rejoin": 1}),
        Heard(1, 0, [2.0], [2.5], [(0, 0, 11.0)], 0.75, {"rejoin": 2}),
    ]
    came = outcome(asked, heard)
    assert (came.offered, came.accepted, came.refused) == (4, 2, 1)
    assert (came.due, came.arrived, came.goodput_per_s) == (2, 2, 0.1)
    assert (came.p50_s, came.p99_s, came.accepting_p99_s) == (0.5, 0.5, 0.5)
    assert came.cpu_ms_per_delivery == 1000.0
    assert came.counts == {"rejoin": 3}
