"""Ours beside the others: the same load on the same machine, one contestant after another.

All nodes subscribe to all topics. Events go round the topics, by authors drawn from the seed, with
so many in flight: an event is in flight until everyone it is due to has got it, or patience ends.
A node's own events are not counted as deliveries here: nobody had to carry them.
"""

from __future__ import annotations

import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

import msgspec

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid
from pulsarcast.testbed.child import Plan
from pulsarcast.testbed.contestants.contestants import CONTESTANTS, Opener, Settings, Traffic, load
from pulsarcast.testbed.fleet import Fleet
from pulsarcast.testbed.ledger import Ledger, percentile_ms
from pulsarcast.testbed.messages import Answer, Command, Created, CreateTopic, Failed, Subscribe
from pulsarcast.testbed.messages import Publish as PublishCommand

NUMBER_BYTES: Final = 8
POLL_S: Final = 0.002
"""How often the ledger is looked at while events are in flight."""
SETTLE_S: Final = 1.0
"""Replication and acknowledgements trail behind deliveries: they belong into the window too."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""What is being done, how much of it is done, and how much there is."""


def no_progress(what: str, done: int, total: int) -> None:
    """Nobody is watching."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What every contestant is given to do."""

    nodes: int = 30
    events: int = 300
    topics: int = 5
    payload_bytes: int = 256
    concurrency: int = 5
    patience_s: float = 10.0
    quiet_s_min: float = 2.0
    """How long the network is left alone before the load, and then until it is quiet."""
    ack: str = "replicated"
    dissemination: str = "tree"
    """How events of ours travel; the others have no choice."""
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if self.payload_bytes < NUMBER_BYTES:
            raise LocalError(f"a payload has at least {NUMBER_BYTES} bytes: the event's number")

    @property
    def due(self) -> int:
        """Deliveries to others, if nothing is lost."""
        return self.events * (self.nodes - 1)


class Figures(msgspec.Struct, kw_only=True):
    """What one contestant came to."""

    due: int
    delivered: int
    lost: int
    duplicates: int
    refused: int
    """Events that their own author could not publish."""
    cpu_ms_per_delivery: float
    bytes_per_delivery: float
    latency_ms_p50: float
    latency_ms_p99: float
    pss_mib: float
    wall_s: float
    """From the first event to the last delivery."""
    deliveries_per_s: float
    died: list[str]
    """Nodes that ended by themselves."""


def compare(
    load_: Load, names: Sequence[str], *, progress: Progress = no_progress
) -> dict[str, Figures]:
    """Run the contestants one after another."""
    # All before the first fork: then everyone shares the same pages.
    openers = {name: load(name) for name in names or CONTESTANTS}
    return {name: measure(name, opener, load_, progress) for name, opener in openers.items()}


def measure(name: str, opener: Opener, load_: Load, progress: Progress = no_progress) -> Figures:
    """Run one contestant."""
    ledger = Ledger(nodes=load_.nodes, events=load_.events)
    plan = Plan(
        opener=opener,
        size=load_.nodes,
        settings=load_.settings,
        ledger=ledger,
        number_of=number_of,
    )
    with (
        tempfile.TemporaryDirectory(prefix="pulsarcast-") as home,
        Fleet(plan, Path(home)) as fleet,
    ):
        fleet.assemble(progress=lambda done: progress(f"{name}: nodes", done, load_.nodes))
        topics = set_up(fleet, load_.topics, load_.dissemination)
        fleet.wait_until_quiet(s_min=load_.quiet_s_min)
        round_ = Round(fleet, ledger, load_, topics)
        round_.play(lambda done: progress(f"{name}: events", done, load_.events))
        return round_.figures()


def set_up(fleet: Fleet, topics: int, dissemination: str = "tree") -> list[Cid]:
    """Create the topics, each on another node, and subscribe everyone to all of them."""
    created: list[Cid] = []
    for number in range(topics):

        def create(index: int, name: str = f"topic-{number}") -> Callable[[int], Command]:
            return lambda call: CreateTopic(call, name, "none", dissemination)

        answers = fleet.each([number % fleet.size], create)
        fleet.expect(answers)
        created += [Cid(a.topic) for a in answers.values() if isinstance(a, Created)]
    for topic in created:

        def subscribe(index: int, topic: Cid = topic) -> Callable[[int], Command]:
            return lambda call: Subscribe(call, topic)

        # All at once: in some networks one node's subscription waits for another's.
        fleet.expect(fleet.each(fleet.living(), subscribe))
    return created


def number_of(payload: bytes) -> int:
    """Which event of the load a payload belongs to."""
    return int.from_bytes(payload[:NUMBER_BYTES], "big")


def window_s(ledger: Ledger, began_s: float) -> float:
    """From the first event to the last delivery: who waited for what is lost waited in vain."""
    last_ns = ledger.last_arrival_ns()
    return 0.0 if last_ns is None else max(0.0, last_ns / 1e9 - began_s)


class Round:
    """The load, played once on a fleet that is ready."""

    def __init__(self, fleet: Fleet, ledger: Ledger, load_: Load, topics: Sequence[Cid]) -> None:
        self._fleet = fleet
        self._ledger = ledger
        self._load = load_
        self._topics = topics
        rng = Random(f"compare/{load_.settings.seed}")
        self.authors = [rng.randrange(load_.nodes) for _ in range(load_.events)]
        self._filler = rng.randbytes(load_.payload_bytes - NUMBER_BYTES)
        self._next = 0
        self._in_flight: dict[int, float] = {}
        """Events, and when patience with them ends."""
        self.refused: dict[int, str] = {}
        self._cpu_s = 0.0
        self._wall_s = 0.0
        self._traffic = Traffic(0, 0)
        self._pss_bytes = 0

    def play(self, progress: Callable[[int], None] = lambda done: None) -> None:
        """Publish everything, wait for it, and read the meters before and after."""
        fleet, load_ = self._fleet, self._load
        traffic = fleet.traffic()
        cpu_s, began_s = fleet.cpu_s(), time.monotonic()

        def step() -> bool:
            done = self._step()
            progress(self._next - len(self._in_flight))
            return done

        fleet.run_until(step, s_max=float("inf"), poll_s=POLL_S)
        # What patience ended for may be late and not lost.
        fleet.run_until(self._is_complete, s_max=load_.patience_s)
        self._wall_s = window_s(self._ledger, began_s)
        fleet.wait(SETTLE_S)
        self._cpu_s = fleet.cpu_s() - cpu_s
        after = fleet.traffic()
        self._traffic = Traffic(
            after.bytes_in - traffic.bytes_in, after.bytes_out - traffic.bytes_out
        )
        self._pss_bytes = fleet.pss_bytes()

    def _step(self) -> bool:
        """Take out what is complete, put in what may follow; whether that was all."""
        now_s = time.monotonic()
        for number, patience_ends_s in list(self._in_flight.items()):
            if now_s >= patience_ends_s or self._has_arrived(number):
                del self._in_flight[number]
        while len(self._in_flight) < self._load.concurrency and self._next < self._load.events:
            self._publish(self._next, now_s)
            self._next += 1
        return not self._in_flight

    def _has_arrived(self, number: int) -> bool:
        author = self.authors[number]
        if number in self.refused or self._ledger.is_complete(number, but=author):
            return True
        if len(self._fleet.living()) == self._load.nodes:
            return False
        # The dead are not waited for; what was due to them is lost all the same.
        living = [node for node in self._fleet.living() if node != author]
        return not self._ledger.missing(number, living)

    def _is_complete(self) -> bool:
        return all(self._has_arrived(number) for number in range(self._load.events))

    def _publish(self, number: int, now_s: float) -> None:
        topic = self._topics[number % len(self._topics)]
        payload = number.to_bytes(NUMBER_BYTES, "big") + self._filler
        self._in_flight[number] = now_s + self._load.patience_s

        def make(call: int) -> Command:
            return PublishCommand(call, topic, payload, number, str(number), self._load.ack)

        def answered(answer: Answer) -> None:
            if isinstance(answer, Failed):
                self.refused[number] = answer.error

        self._fleet.ask(self.authors[number], make, answered)

    def figures(self) -> Figures:
        """What it came to; everything per delivery that happened, not that was due."""
        load_, latencies = self._load, array("Q")
        for number, author in enumerate(self.authors):
            due = (node for node in range(load_.nodes) if node != author)
            latencies.extend(self._ledger.latencies_us(number, due))
        latencies = array("Q", sorted(latencies))
        delivered = len(latencies)
        return Figures(
            due=load_.due,
            delivered=delivered,
            lost=load_.due - delivered,
            duplicates=self._ledger.duplicates,
            refused=len(self.refused),
            cpu_ms_per_delivery=round(self._cpu_s * 1000 / max(1, delivered), 4),
            bytes_per_delivery=round(self._traffic.bytes_out / max(1, delivered), 1),
            latency_ms_p50=percentile_ms(latencies, 0.5),
            latency_ms_p99=percentile_ms(latencies, 0.99),
            pss_mib=round(self._pss_bytes / 2**20, 1),
            wall_s=round(self._wall_s, 3),
            deliveries_per_s=round(delivered / self._wall_s, 1) if self._wall_s else 0.0,
            died=[f"node {d.node}: {d.how}" for d in self._fleet.unexpected_deaths()],
        )


def to_json(results: dict[str, Figures]) -> str:
    """One line."""
    return msgspec.json.encode(results).decode()


def to_text(results: dict[str, Figures]) -> str:
    """A table, for people."""
    columns: dict[str, Callable[[Figures], str]] = {
        "delivered": lambda f: f"{f.delivered:,} of {f.due:,}",
        "CPU ms": lambda f: f"{f.cpu_ms_per_delivery:.3f}",
        "bytes": lambda f: f"{f.bytes_per_delivery:,.0f}",
        "p50 ms": lambda f: f"{f.latency_ms_p50:,.1f}",
        "p99 ms": lambda f: f"{f.latency_ms_p99:,.1f}",
        "PSS MiB": lambda f: f"{f.pss_mib:,.0f}",
        "twice": lambda f: f"{f.duplicates:,}",
        "per s": lambda f: f"{f.deliveries_per_s:,.0f}",
    }
    rows = [["", *columns]]
    rows += [[name, *(cell(f) for cell in columns.values())] for name, f in results.items()]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        ).rstrip()
        for row in rows
    ]
    lines += [f"{name}: {death}" for name, f in results.items() for death in f.died]
    return "\n".join(lines)
