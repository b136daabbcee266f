"""The hot scenario: one topic, everyone subscribes, and everyone publishes at once.

What the thesis' evaluation never had: no topic of it has many publishers at a time. A tree sends
all of it through its root; a cube makes every publisher the root of its own tree (VCube-PS, 4.2).
So it is played once with each (`--dissemination`), and the busiest node is put beside the mean.
"""

from __future__ import annotations

import time
from typing import Final

from pulsarcast.testbed.contestants.contestants import Messages, Volume
from pulsarcast.testbed.hearing import hear
from pulsarcast.testbed.ledger import messages_since, spread
from pulsarcast.testbed.options import Outcome, RunOptions
from pulsarcast.testbed.reading import lines_of
from pulsarcast.testbed.scenarios.compare import (
    SETTLE_S,
    Progress,
    no_progress,
    number_of,
    window_s,
)
from pulsarcast.testbed.scenarios.steady import SteadyLoad
from pulsarcast.testbed.sessions import finish, open_session

NODES: Final = 50
EVENTS_PER_NODE: Final = 20


class HotOutcome(Outcome, kw_only=True):
    """What it came to; the window is from the first event to the last delivery."""

    order: str
    dissemination: str
    events: int
    wall_s: float
    deliveries_per_s: float
    latency_ms_p50: float
    latency_ms_p99: float
    received_per_node: dict[str, float] | None
    """Messages of the protocol that a node received: how they spread; None: it does not count."""
    sent_per_node: dict[str, float] | None
    busiest_over_mean: float | None
    """Messages that the busiest node received and sent, in those of a node in the mean."""
    cpu_ms_per_delivery: float
    bytes_per_delivery: float
    pss_mib: float
    refused: dict[str, int]
    died: list[str]
    findings: dict[str, int] | None = None
    """What the simulator's checkers object to in the traces; None: there are none."""


def run_hot(options: RunOptions, *, progress: Progress = no_progress) -> HotOutcome:
    """Everyone publishes its share of the events, each as soon as the one before is answered."""
    size = options.nodes or NODES
    each = max(1, (options.events or EVENTS_PER_NODE * size) // size)
    with open_session(options, size=size, events=each * size, number_of=number_of) as session:
        load, fleet = SteadyLoad(session, topics=1, progress=progress), session.fleet
        load.set_up()
        messages, traffic = fleet.messages(), fleet.traffic()
        cpu_s, began_s = fleet.cpu_s(), time.monotonic()
        left = [each] * size

        def publish(author: int) -> None:
            if left[author]:
                left[author] -= 1
                load.publish(lambda number: publish(load.authors[number]), author=author)

        for author in range(size):
            publish(author)
        fleet.run_until(lambda: not any(left), s_max=float("inf"))
        load.run_dry()
        wall_s = window_s(session.ledger, began_s)
        fleet.wait(SETTLE_S)
        cpu_s = fleet.cpu_s() - cpu_s
        after = fleet.traffic()
        volume = Volume(after.bytes_in - traffic.bytes_in, after.bytes_out - traffic.bytes_out)
        counts = messages_since(messages, fleet.messages())
        account = load.account()
        lost, duplicates = account.due - account.delivered, session.ledger.duplicates
        carried = max(1, account.delivered)
        outcome = HotOutcome(
            scenario=options.scenario,
            nodes=size,
            due=account.due,
            delivered=account.delivered,
            lost=lost,
            duplicates=duplicates,
            strays=session.ledger.strays,
            ok=load.is_well(account),
            order=options.order,
            dissemination=options.dissemination,
            events=load.count,
            wall_s=round(wall_s, 3),
            deliveries_per_s=round(account.delivered / wall_s, 1) if wall_s else 0.0,
            latency_ms_p50=load.latency_ms(range(load.count), 0.5),
            latency_ms_p99=load.latency_ms(range(load.count), 0.99),
            received_per_node=None if counts is None else spread([c.received for c in counts]),
            sent_per_node=None if counts is None else spread([c.sent for c in counts]),
            busiest_over_mean=_busiest(counts),
            cpu_ms_per_delivery=round(cpu_s * 1000 / carried, 4),
            bytes_per_delivery=round(volume.bytes_out / carried, 1),
            pss_mib=round(fleet.pss_bytes() / 2**20, 1),
            refused=dict(sorted(session.callers.refused.items())),
            died=session.died(),
        )
    if options.trace_level is not None and options.contestant == "ours":
        outcome.findings = hear(lines_of(session.traces)).findings
        outcome.ok = outcome.ok and not outcome.findings
    finish(options, outcome)
    return outcome


def _busiest(counts: list[Messages] | None) -> float | None:
    if not counts:
        return None
    handled = [each.received + each.sent for each in counts]
    mean = sum(handled) / len(handled)
    return round(max(handled) / mean, 2) if mean else None
