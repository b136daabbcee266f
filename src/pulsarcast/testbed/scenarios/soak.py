"""The soak scenario: the same load for a long time; does memory grow with what was delivered?

Growth is a straight line through the samples of all nodes that ran through, after a third of the
time: one slope, and for each node a level of its own. With churn a third of the nodes come and go
all the time; they are not in the line, since a process that is new always grows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from random import Random
from typing import Final, NamedTuple

from pulsarcast.testbed import meters
from pulsarcast.testbed.options import Outcome, RunOptions
from pulsarcast.testbed.scenarios.compare import Progress, no_progress, number_of
from pulsarcast.testbed.scenarios.steady import SteadyLoad
from pulsarcast.testbed.sessions import Session, finish, open_session

NODES: Final = 30
TOPICS: Final = 5
WARM_UP_SHARE: Final = 1 / 3
CHURNING_SHARE: Final = 1 / 3
UP_S: Final = (5.0, 20.0)
DOWN_S: Final = (2.0, 10.0)
MIB: Final = 2**20
MEMORY: Final = "memory.csv"
"""Every sample, for whoever wants to draw them."""


class Sample(NamedTuple):
    """The memory of one node, when it had been given so many events."""

    node: int
    life: int
    at_s: float
    deliveries: int
    rss_bytes: int


class SoakOutcome(Outcome, kw_only=True):
    """What it came to."""

    duration_s: float
    rate_per_s: float
    events: int
    held_back: int
    churn: bool
    faults: dict[str, int]
    samples: int
    """Those behind the slope: of nodes that ran through, after the warm-up."""
    rss_mib_warm: float
    """Of such a node on average, at the end of the warm-up."""
    rss_mib_end: float
    growth_mib_per_million_deliveries: float
    growth_mib_per_hour: float
    latency_ms_p50: float
    latency_ms_p99: float
    redeliveries: int
    refused: dict[str, int]
    died: list[str]
    cpu_ms_per_delivery: float


def run_soak(options: RunOptions, *, progress: Progress = no_progress) -> SoakOutcome:
    """A steady rate for so long, with peers that come and go if wanted."""
    size = options.nodes or NODES
    room = round(options.rate_per_s * options.duration_s * 1.1) + 100
    with open_session(options, size=size, events=room, number_of=number_of) as session:
        play = _Play(session, progress)
        outcome = play.play()
    with (options.out / MEMORY).open("w") as file:
        file.write(",".join(Sample._fields) + "\n")
        file.writelines(",".join(map(str, sample)) + "\n" for sample in play.samples)
    finish(options, outcome)
    return outcome


class _Play:
    """One soak."""

    def __init__(self, session: Session, progress: Progress) -> None:
        self._session = session
        self._progress = progress
        self._load = SteadyLoad(session, topics=session.options.topics or TOPICS, progress=progress)
        self._rng = Random(f"churn/{session.options.seed}")
        self.samples: list[Sample] = []
        self._over = False

    def play(self) -> SoakOutcome:
        """Load, samples, churn; then until everything has come."""
        session, load = self._session, self._load
        options, fleet = session.options, session.fleet
        load.set_up()
        cpu_s, began_s = fleet.cpu_s(), time.monotonic()
        load.flow(options.rate_per_s)
        churning = self._churn() if options.churn else []
        self._sample()

        def is_over() -> bool:
            passed_s = time.monotonic() - began_s
            self._progress("soak", int(passed_s), int(options.duration_s))
            return passed_s >= options.duration_s

        fleet.run_until(is_over, s_max=float("inf"))
        self._over = True
        load.flow(0)
        load.run_dry()
        cpu_s = fleet.cpu_s() - cpu_s
        account = load.account()
        warm_s = began_s + WARM_UP_SHARE * options.duration_s
        kept = [s for s in self.samples if s.at_s >= warm_s and s.node not in churning]
        lost, duplicates = account.due - account.delivered, session.ledger.duplicates
        return SoakOutcome(
            scenario=options.scenario,
            nodes=session.size,
            due=account.due,
            delivered=account.delivered,
            lost=lost,
            duplicates=duplicates,
            strays=session.ledger.strays,
            ok=load.is_well(account),
            duration_s=options.duration_s,
            rate_per_s=options.rate_per_s,
            events=load.count,
            held_back=load.held_back,
            churn=options.churn,
            faults=dict(sorted(session.callers.fleet.faults.items())),
            samples=len(kept),
            rss_mib_warm=_mean_mib(_ends(kept, first=True)),
            rss_mib_end=_mean_mib(_ends(kept, first=False)),
            growth_mib_per_million_deliveries=round(
                slope((s.node, s.deliveries, s.rss_bytes) for s in kept) * 1e6 / MIB, 2
            ),
            growth_mib_per_hour=round(
                slope((s.node, s.at_s, s.rss_bytes) for s in kept) * 3600 / MIB, 2
            ),
            latency_ms_p50=load.latency_ms(range(load.count), 0.5),
            latency_ms_p99=load.latency_ms(range(load.count), 0.99),
            redeliveries=session.ledger.redeliveries,
            refused=dict(sorted(session.callers.refused.items())),
            died=session.died(),
            cpu_ms_per_delivery=round(cpu_s * 1000 / max(1, account.delivered), 4),
        )

    def _sample(self) -> None:
        if self._over:
            return
        fleet, ledger = self._session.fleet, self._session.ledger
        now_s = time.monotonic()
        for index in fleet.living():
            rss_bytes = meters.own_rss_bytes(fleet.pid(index))
            if not rss_bytes:
                continue  # It has ended, and nobody has heard of it yet.
            sample = Sample(index, fleet.life(index), now_s, ledger.deliveries_of(index), rss_bytes)
            self.samples.append(sample)
        fleet.after(self._session.options.sample_s, self._sample)

    def _churn(self) -> list[int]:
        """Let some nodes come and go, in good order and otherwise, until it is over."""
        size, nodes = self._session.size, self._session.callers.fleet
        churning = self._rng.sample(range(1, size), max(1, round(CHURNING_SHARE * size)))

        def leave(index: int) -> Callable[[], None]:
            def act() -> None:
                if self._over:
                    return
                if nodes.is_ready(index):
                    down_s = self._rng.uniform(*DOWN_S)
                    if self._rng.random() < 0.5:
                        nodes.kill(index, down_s=down_s)
                    else:
                        nodes.stop(index, down_s=down_s)
                self._session.fleet.after(self._rng.uniform(*UP_S), leave(index))

            return act

        for index in churning:
            self._session.fleet.after(self._rng.uniform(0, UP_S[1]), leave(index))
        return churning


def slope(points: Iterable[tuple[int, float, float]]) -> float:
    """The slope that lines of all groups (group, x, y) have in common; each has its own level."""
    groups: dict[int, list[tuple[float, float]]] = {}
    for group, x, y in points:
        groups.setdefault(group, []).append((x, y))
    product = square = 0.0
    for pairs in groups.values():
        x_mean = sum(x for x, _ in pairs) / len(pairs)
        y_mean = sum(y for _, y in pairs) / len(pairs)
        product += sum((x - x_mean) * (y - y_mean) for x, y in pairs)
        square += sum((x - x_mean) ** 2 for x, _ in pairs)
    return product / square if square else 0.0


def _ends(samples: list[Sample], *, first: bool) -> list[int]:
    """Each node's first sample, or its last."""
    found: dict[int, int] = {}
    for sample in samples:
        if not (first and sample.node in found):
            found[sample.node] = sample.rss_bytes
    return list(found.values())


def _mean_mib(values: list[int]) -> float:
    return round(sum(values) / max(1, len(values)) / MIB, 3)
