"""The away scenario: a subscriber misses many events, comes back, and catches up.

Before, meanwhile and after there is live traffic in the same topic, so it shows what the catching
up costs the others. The subscriber writes down every message: that tells what it asked for.
"""

from __future__ import annotations

import time
from typing import Final

from pulsarcast.model import trace
from pulsarcast.model.ids import peer_text
from pulsarcast.testbed.hearing import NS_PER_S
from pulsarcast.testbed.options import Outcome, RunOptions
from pulsarcast.testbed.reading import lines_of
from pulsarcast.testbed.scenarios.compare import Progress, no_progress, number_of
from pulsarcast.testbed.scenarios.steady import SteadyLoad
from pulsarcast.testbed.sessions import Session, Stalled, finish, open_session

NODES: Final = 10
EVENTS: Final = 10_000
IN_FLIGHT: Final = 20
CALM_S: Final = 10.0
"""How long the live traffic is measured before, and how long at least while it catches up."""
AWAY: Final = 1
"""The subscriber: not the topic's author, who is the first node."""
POLL_S: Final = 0.02
STALLED_S: Final = 60.0
LOOK_S: Final = 5.0
"""How often each missed event is looked at while it catches up."""


class AwayOutcome(Outcome, kw_only=True):
    """What it came to."""

    away_by: str
    missed: int
    """Events published while the subscriber was away."""
    caught_up: int
    catch_up_s: float | None
    """From the start of its process to the last event that it had missed; None: none came."""
    first_event_s: float | None
    """From the start of its process to the first of them."""
    events_per_s: float
    requests: int
    """FetchRange messages that the subscriber sent, until it had caught up."""
    requests_per_1000_events: float
    messages_sent: dict[str, int]
    """All that it sent until then, by kind."""
    live_rate_per_s: float
    live_ms_p50_before: float
    live_ms_p99_before: float
    live_ms_p50_meanwhile: float
    live_ms_p99_meanwhile: float
    publish_s: float
    """How long the missed events took to publish."""
    redeliveries: int
    refused: dict[str, int]
    died: list[str]


def run_away(options: RunOptions, *, progress: Progress = no_progress) -> AwayOutcome:
    """Live traffic; the subscriber leaves; many events; it comes back."""
    size, missed = options.nodes or NODES, options.events or EVENTS
    room = missed + round(options.rate_per_s * options.timeout_s) + 1
    with open_session(
        options, size=size, events=room, number_of=number_of, rpc_traced=[AWAY]
    ) as session:
        play = _Play(session, missed, progress)
        outcome = play.play()
    peer = peer_text(session.fleet.peers[AWAY])
    _count_requests(outcome, session, peer, until_ns=play.caught_up_wall_ns)
    finish(options, outcome)
    return outcome


class _Play:
    """One absence."""

    def __init__(self, session: Session, missed: int, progress: Progress) -> None:
        self._session = session
        self._missed = missed
        self._load = SteadyLoad(session, topics=session.options.topics or 1, progress=progress)
        self._progress = progress
        self.caught_up_wall_ns = 0

    def play(self) -> AwayOutcome:
        """All acts."""
        session, load = self._session, self._load
        options, fleet, nodes = session.options, session.fleet, session.callers.fleet
        load.silent.add(AWAY)
        load.set_up()

        load.flow(options.rate_per_s)
        fleet.wait(CALM_S)
        before = range(load.count)

        # What was under way to it would be delivered at once, or by catching up: who could tell?
        load.flow(0)
        load.run_dry()
        if options.by_kill:
            nodes.kill(AWAY)
        else:
            nodes.stop(AWAY)
        fleet.run_until(lambda: not fleet.is_up(AWAY), s_max=60.0)
        began_s = time.monotonic()
        first = load.count
        load.burst(self._missed, in_flight=IN_FLIGHT, what="publish")
        missed = range(first, load.count)
        publish_s = time.monotonic() - began_s

        load.flow(options.rate_per_s)
        fleet.wait(1.0)
        back_ns, live_first = time.monotonic_ns(), load.count
        nodes.start(AWAY)
        caught_up = self._wait_for(missed)
        self.caught_up_wall_ns = time.time_ns()
        # Live events may come before them, and after.
        came_ns = [at_ns for at_ns, _ in session.ledger.arrivals_ns(AWAY, missed)]
        came_s = [(at_ns - back_ns) / NS_PER_S for at_ns in came_ns]
        meanwhile = range(live_first, load.count)
        load.flow(0)
        load.run_dry()
        fleet.wait(1.0)
        account = load.account()
        lost, duplicates = account.due - account.delivered, session.ledger.duplicates
        return AwayOutcome(
            scenario=options.scenario,
            nodes=session.size,
            due=account.due,
            delivered=account.delivered,
            lost=lost,
            duplicates=duplicates,
            strays=session.ledger.strays,
            # The one that is away publishes nothing: its fault excuses nobody.
            ok=load.is_well(account) and not account.not_published and caught_up == len(missed),
            away_by="SIGKILL" if options.by_kill else "a stop in good order",
            missed=len(missed),
            caught_up=caught_up,
            catch_up_s=round(came_s[-1], 3) if came_s else None,
            first_event_s=round(came_s[0], 3) if came_s else None,
            events_per_s=round(caught_up / came_s[-1], 1) if came_s else 0.0,
            requests=0,
            requests_per_1000_events=0.0,
            messages_sent={},
            live_rate_per_s=options.rate_per_s,
            live_ms_p50_before=load.latency_ms(before, 0.5, but=[AWAY]),
            live_ms_p99_before=load.latency_ms(before, 0.99, but=[AWAY]),
            live_ms_p50_meanwhile=load.latency_ms(meanwhile, 0.5, but=[AWAY]),
            live_ms_p99_meanwhile=load.latency_ms(meanwhile, 0.99, but=[AWAY]),
            publish_s=round(publish_s, 3),
            redeliveries=session.ledger.redeliveries,
            refused=dict(sorted(session.callers.refused.items())),
            died=session.died(),
        )

    def _wait_for(self, missed: range) -> int:
        """Wait until all missed events have come, or none of them comes any more; how many did."""
        ledger, fleet = self._session.ledger, self._session.fleet
        waiting, had = list(missed), ledger.deliveries_of(AWAY)
        stalled, looked_s = Stalled(STALLED_S), time.monotonic()

        def is_over() -> bool:
            nonlocal waiting, looked_s
            # Live events come as well: it is not worth while to look at each before so many have.
            may_be_all = ledger.deliveries_of(AWAY) - had >= len(missed)
            if may_be_all or time.monotonic() - looked_s >= LOOK_S:
                looked_s = time.monotonic()
                waiting = [number for number in waiting if ledger.missing(number, [AWAY])]
            self._progress("catch up", len(missed) - len(waiting), len(missed))
            return not waiting or stalled.is_so(len(waiting))

        fleet.run_until(is_over, s_max=float("inf"), poll_s=POLL_S)
        return len(missed) - len(waiting)


def _count_requests(outcome: AwayOutcome, session: Session, peer: str, *, until_ns: int) -> None:
    """What the subscriber sent in its second life, from its own trace."""
    sent: dict[str, int] = {}
    for envelope, record in lines_of(session.traces, peer):
        if envelope.incarnation < 2 or envelope.wall_ns > until_ns:
            continue
        if isinstance(record, trace.RpcSent):
            sent[record.operation] = sent.get(record.operation, 0) + 1
    outcome.messages_sent = dict(sorted(sent.items()))
    outcome.requests = sent.get("FetchRange", 0)
    outcome.requests_per_1000_events = round(outcome.requests * 1000 / max(1, outcome.caught_up), 2)
