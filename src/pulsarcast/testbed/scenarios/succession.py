"""The succession scenario: a total order whose acting sequencer is killed again and again.

One topic, whose sequencers are the first nodes; the topic's author is one of them. The others
publish at a steady rate, and everyone subscribes. Every so often whoever leads is killed (SIGKILL),
and started again with its disk some seconds later. Nothing may be lost or come twice, everyone must
get everything in one order, and what is measured is how long the others wait for their next event.
"""

from __future__ import annotations

import bisect
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import msgspec

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid
from pulsarcast.testbed.hearing import NS_PER_S, Heard, hear
from pulsarcast.testbed.ledger import Ledger, percentile_ms
from pulsarcast.testbed.messages import Answer, AskLead, Lead
from pulsarcast.testbed.options import Outcome, RunOptions
from pulsarcast.testbed.reading import lines_of
from pulsarcast.testbed.scenarios.compare import Progress, no_progress, number_of
from pulsarcast.testbed.scenarios.steady import SteadyLoad
from pulsarcast.testbed.sessions import Session, finish, open_session

NODES: Final = 10
LOOK_AGAIN_S: Final = 0.2
"""While they elect, nobody leads: whoever is to be killed is looked for again so soon."""
ANSWER_S_MAX: Final = 5.0
FIRST_LEADER_S_MAX: Final = 120.0


class Kill(msgspec.Struct, kw_only=True):
    """The acting sequencer was killed."""

    at_s: float
    """Since the load began."""
    node: int
    term: int
    """In which it led."""
    elected_s: float | None = None
    """Until another one, or the same, said that it leads."""
    pause_s: float = 0.0
    """The longest that any node that is no sequencer had no event, until the next kill."""
    resumed_s: float | None = None
    """Until the last of those nodes had an event that was asked for after the kill."""

    def __str__(self) -> str:
        after = (self.elected_s, self.resumed_s)
        elected, resumed = ("never" if s is None else f"{s:.2f} s" for s in after)
        return (
            f"{self.at_s:.1f} s: node {self.node}, elected {elected}, pause {self.pause_s:.2f} s, "
            f"resumed {resumed}"
        )


class SuccessionOutcome(Outcome, kw_only=True):
    """What it came to."""

    orders: int
    """Different orders in which subscribers got the events: 1, if all is well."""
    findings: dict[str, int]
    """What the simulator's checkers object to in the traces."""
    lines: int
    """Of the traces that they heard."""
    sequencers: int
    dissemination: str
    rate_per_s: float
    duration_s: float
    every_s: float
    down_s: float
    events: int
    acknowledged: int
    held_back: int
    kills: int
    terms: int
    """How many terms had a leader."""
    election_timeout_s: float
    elected_s_p50: float
    elected_s_max: float
    pauses: int
    """Of every node that is no sequencer, after every kill."""
    pause_s_p50: float
    pause_s_max: float
    pause_timeouts_p50: float
    """The same in election timeouts."""
    pause_timeouts_max: float
    resumed_s_p50: float
    """From a kill until a node that is no sequencer had an event that was asked for after it."""
    resumed_s_max: float
    gap_s_p99: float
    """Between two events at a node that is no sequencer, whether or not anyone was killed."""
    latency_ms_p50: float
    latency_ms_p99: float
    answered_ms_p50: float
    """How long whoever published waited for the acknowledgement."""
    answered_ms_p99: float
    answered_ms_max: float
    redeliveries: int
    faults: dict[str, int]
    refused: dict[str, int]
    died: list[str]
    each_kill: list[Kill]


def run_succession(options: RunOptions, *, progress: Progress = no_progress) -> SuccessionOutcome:
    """A steady rate for so long, while whoever leads is killed every so often."""
    size = options.nodes or NODES
    _refuse(options, size)
    options = replace(options, order="total")
    s_max = options.duration_s + _late_s_max(options)
    room = round(options.rate_per_s * s_max * 1.1) + 100
    with open_session(
        options, size=size, events=room, number_of=number_of, ordered=True
    ) as session:
        play = _Play(session, progress)
        play.play()
    outcome = play.outcome(hear(lines_of(session.traces)))
    finish(options, outcome)
    return outcome


def _refuse(options: RunOptions, size: int) -> None:
    if options.order not in ("none", "total"):
        raise LocalError("succession is about total order")
    if options.trace_level is None:
        raise LocalError("succession is judged by its traces: it needs --trace-level delivery")
    if size <= options.sequencers:
        raise LocalError(f"{size} nodes: somebody has to be no sequencer, and publish")
    if options.duration_s < 1.5 * options.every_s:
        raise LocalError("nobody would be killed: --duration-s is too short for --every-s")


def _late_s_max(options: RunOptions) -> float:
    """How long a load goes on at most until everyone who is to be killed has been."""
    return 10 * options.parameters().election_timeout_s + options.every_s


class _Play:
    """One run."""

    def __init__(self, session: Session, progress: Progress) -> None:
        options = session.options
        self._session = session
        self._progress = progress
        self._sequencers = list(range(options.sequencers))
        self._others = list(range(options.sequencers, session.size))
        self._load = SteadyLoad(session, topics=1, progress=progress, sequencers=self._sequencers)
        self._load.silent.update(self._sequencers)
        self._kills: list[tuple[int, Kill]] = []
        """With the time of the machine's clock, in nanoseconds."""
        self._wanted = 0
        """How many are to be killed."""
        self._began_ns = 0
        self._over = False
        self._flow_ended_ns = 0

    def play(self) -> None:
        """Load and kills; then until everything has come."""
        load, fleet, options = self._load, self._session.fleet, self._session.options
        load.set_up()
        self._wait_for_a_leader()
        self._began_ns = time.monotonic_ns()
        load.flow(options.rate_per_s)
        # The last one has half of its time at least to be followed by another.
        self._wanted = int(options.duration_s / options.every_s - 0.5)
        for number in range(1, self._wanted + 1):
            fleet.after(number * options.every_s, self._hunt)

        def is_over() -> bool:
            passed_s = self._since(time.monotonic_ns())
            self._progress("succession", int(passed_s), int(options.duration_s))
            if passed_s >= options.duration_s + _late_s_max(options):
                return True
            killed_s = self._kills[-1][1].at_s if self._kills else 0.0
            is_late = len(self._kills) < self._wanted or passed_s < killed_s + options.every_s / 2
            return passed_s >= options.duration_s and not is_late

        fleet.run_until(is_over, s_max=float("inf"))
        self._over = True
        load.flow(0)
        self._flow_ended_ns = time.monotonic_ns()
        load.run_dry()

    def _since(self, at_ns: int) -> float:
        return (at_ns - self._began_ns) / NS_PER_S

    # Who leads.

    def _wait_for_a_leader(self) -> None:
        """A topic begins once all of its sequencers were up together."""
        fleet, terms = self._session.fleet, dict[int, int]()
        asked_s = 0.0

        def is_led() -> bool:
            nonlocal asked_s
            if not terms and time.monotonic() >= asked_s:
                asked_s = time.monotonic() + LOOK_AGAIN_S
                self._ask(terms.update)
            return bool(terms)

        if not fleet.run_until(is_led, s_max=FIRST_LEADER_S_MAX):
            raise LocalError("the sequencers have elected nobody")

    def _hunt(self) -> None:
        """Kill whoever leads, as soon as somebody does."""

        def found(terms: dict[int, int]) -> None:
            nodes = self._session.callers.fleet
            if self._over:
                return
            # Who was deposed may not know yet: the highest term counts.
            leader = max(terms, key=terms.__getitem__, default=None)
            if leader is None or not nodes.is_ready(leader):
                self._session.fleet.after(LOOK_AGAIN_S, self._hunt)
                return
            now_ns = time.monotonic_ns()
            kill = Kill(at_s=round(self._since(now_ns), 3), node=leader, term=terms[leader])
            self._kills.append((now_ns, kill))
            nodes.kill(leader, down_s=self._session.options.down_s)

        if not self._over:
            self._ask(found)

    def _ask(self, then: Callable[[dict[int, int]], None]) -> None:
        """Ask all sequencers that are up whether they lead; `then` hears in which term who does."""
        fleet, topic = self._session.fleet, Cid(self._load.topics[0])
        up = [index for index in self._sequencers if fleet.is_up(index)]
        if len(self._sequencers) == 1:
            # Alone, it has no term, and always leads.
            then(dict.fromkeys(up, 0))
            return
        terms: dict[int, int] = {}
        left = len(up)

        def hear_from(index: int) -> Callable[[Answer], None]:
            def answered(answer: Answer) -> None:
                nonlocal left
                left -= 1
                if isinstance(answer, Lead) and answer.term is not None:
                    terms[index] = answer.term
                if not left:
                    then(terms)

            return answered

        for index in up:
            fleet.ask(
                index, lambda call: AskLead(call, topic), hear_from(index), patience_s=ANSWER_S_MAX
            )
        if not up:
            then(terms)

    # What it came to.

    def outcome(self, heard: Heard) -> SuccessionOutcome:
        """All figures; the traces were heard already."""
        session, load, options = self._session, self._load, self._session.options
        ledger, callers = session.ledger, session.callers
        account = load.account()
        pauses, resumed = self._measure(heard)
        timeout_s = options.parameters().election_timeout_s
        elected = [kill.elected_s for _, kill in self._kills if kill.elected_s is not None]
        lost, duplicates = account.due - account.delivered, ledger.duplicates
        orders = count_orders(ledger, range(session.size))
        answered = array("Q", sorted(callers.answered_us))
        died = session.died()
        return SuccessionOutcome(
            scenario=options.scenario,
            nodes=session.size,
            due=account.due,
            delivered=account.delivered,
            lost=lost,
            duplicates=duplicates,
            strays=ledger.strays,
            ok=not (lost or duplicates or heard.findings or died or ledger.strays)
            and orders == 1
            and callers.acknowledged == load.count
            and len(self._kills) == self._wanted,
            orders=orders,
            findings=heard.findings,
            lines=heard.lines,
            sequencers=options.sequencers,
            dissemination=options.dissemination,
            rate_per_s=options.rate_per_s,
            duration_s=options.duration_s,
            every_s=options.every_s,
            down_s=options.down_s,
            events=load.count,
            acknowledged=callers.acknowledged,
            held_back=load.held_back,
            kills=len(self._kills),
            terms=len({election.term for election in heard.elections}),
            election_timeout_s=timeout_s,
            elected_s_p50=_middle(elected),
            elected_s_max=max(elected, default=0.0),
            pauses=len(pauses),
            pause_s_p50=_middle(pauses),
            pause_s_max=round(max(pauses, default=0.0), 3),
            pause_timeouts_p50=round(_middle(pauses) / timeout_s, 2),
            pause_timeouts_max=round(max(pauses, default=0.0) / timeout_s, 2),
            resumed_s_p50=_middle(resumed),
            resumed_s_max=round(max(resumed, default=0.0), 3),
            gap_s_p99=self._gap_s_p99(),
            latency_ms_p50=load.latency_ms(range(load.count), 0.5),
            latency_ms_p99=load.latency_ms(range(load.count), 0.99),
            answered_ms_p50=percentile_ms(answered, 0.5),
            answered_ms_p99=percentile_ms(answered, 0.99),
            answered_ms_max=percentile_ms(answered, 1.0),
            redeliveries=ledger.redeliveries,
            faults=dict(sorted(callers.fleet.faults.items())),
            refused=dict(sorted(callers.refused.items())),
            died=died,
            each_kill=[kill for _, kill in self._kills],
        )

    def _measure(self, heard: Heard) -> tuple[list[float], list[float]]:
        """Put down at each kill what came of it; all pauses, and how long until all went on."""
        arrivals = [self._session.ledger.arrivals_ns(node) for node in self._others]
        # Of the last one: what was asked for before the load ended may come after it.
        came_ns = [each[-1][0] for each in arrivals if each]
        last_ns = max([self._flow_ended_ns, *came_ns])
        ends = [at_ns for at_ns, _ in self._kills[1:]] + [last_ns]
        elections = sorted(election.at_ns for election in heard.elections)
        pauses: list[float] = []
        resumed: list[float] = []
        for (at_ns, kill), end_ns in zip(self._kills, ends, strict=True):
            waited = [longest_gap_s([at for at, _ in each], at_ns, end_ns) for each in arrivals]
            kill.pause_s = round(max(waited), 3)
            pauses += waited
            back = [s for each in arrivals if (s := resumed_s(each, at_ns)) is not None]
            if len(back) == len(arrivals):
                kill.resumed_s = round(max(back), 3)
            resumed += back
            place = bisect.bisect_right(elections, at_ns)
            if place < len(elections):
                kill.elected_s = round((elections[place] - at_ns) / NS_PER_S, 3)
        return pauses, resumed

    def _gap_s_p99(self) -> float:
        gaps: list[float] = []
        for node in self._others:
            times = [at_ns for at_ns, _ in self._session.ledger.arrivals_ns(node)]
            gaps += [(after - before) / NS_PER_S for before, after in pairwise(times)]
        gaps.sort()
        return round(gaps[int(0.99 * (len(gaps) - 1))], 3) if gaps else 0.0


def resumed_s(arrivals_ns: Sequence[tuple[int, int]], from_ns: int) -> float | None:
    """From a moment until the first event that was published after it came, if one did."""
    later = (at_ns for at_ns, published_ns in arrivals_ns if published_ns > from_ns)
    first_ns = next(later, None)
    return None if first_ns is None else (first_ns - from_ns) / NS_PER_S


def longest_gap_s(times_ns: Sequence[int], from_ns: int, to_ns: int) -> float:
    """The longest time without an event between two moments."""
    first, end = bisect.bisect_right(times_ns, from_ns), bisect.bisect_left(times_ns, to_ns)
    moments = [from_ns, *times_ns[first:end], to_ns]
    return max(after - before for before, after in pairwise(moments)) / NS_PER_S


def count_orders(ledger: Ledger, nodes: Sequence[int]) -> int:
    """In how many different orders nodes got the events; who lacks one has an order of its own."""
    return len({tuple(ledger.order_at(node)) for node in nodes})


def _middle(values: Sequence[float]) -> float:
    return round(sorted(values)[len(values) // 2], 3) if values else 0.0
