"""Runs to measure: small simulations, and tales told by hand, each with what its teller counted.

A tale goes to the simulator's observer and into a trace, line by line, so that the simulator's own
checkers judge what the pipeline will read.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pulsarcast.model import trace
from pulsarcast.model.events import Position
from pulsarcast.model.ids import Cid, PeerId, cid_of, peer_text
from pulsarcast.model.topic_types import DeliveryOrder, Mark
from pulsarcast.protocol.inputs import Now
from pulsarcast.simulation.checkers.coverage import check_coverage
from pulsarcast.simulation.options import load
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.scenario import run_scenario
from pulsarcast.simulation.tracing import TraceWriter
from tests.unit.simulation.planted import EPOCH, TOPIC, Planted, event, peer

COUNT = 99
"""Whose name several sequencers count under: no node's."""

LEVEL_RPC = {"trace_level": "rpc"}

THESIS: dict[str, dict[str, Any]] = {
    "plain": {**LEVEL_RPC},
    "latency": {"latency_ms": 500.0, "jitter_ms": 300.0},
    "faults": {"faults": "restarts", **LEVEL_RPC},
    "churn": {"faults": "churn"},
    "root-lost": {"faults": "root-lost"},
    "total-order": {"order": "total", "faults": "restarts"},
    # Sabotaged, so that something is lost and something is delivered twice.
    "lost-1": {"faults": "restarts", "without": "frontier-comparison"},
    "lost-2": {"faults": "partition", "without": "frontier-comparison"},
    "twice-1": {"faults": "churn", "without": "duplicate-suppression"},
    "twice-2": {"faults": "restarts", "without": "duplicate-suppression"},
    "lying-disk": {"faults": "restarts", "without": "disk-sync"},
}
"""The thesis' evaluation in small, under its four conditions and some worse ones."""

ENOUGH = 10
"""What a sabotaged run must lose, or deliver twice, at the least."""

SEEDS_MAX = 40
"""Where a sabotaged run finds little, as many seeds are tried; most find enough."""

RANDOM = (6, 42, 49, 51, 227, 280)
"""Random seeds that end soon; among them are deliveries that nobody can decide about (49, 51, 280),
and events that retention let go of (42, 49, 227)."""

SEQUENCED = (3, 8)
"""Seeds of topics with several sequencers, three of which lead: in one run two of them say the same
event (3), in the other some latencies have bounds (8)."""


def simulate(folder: Path, name: str, scenario: str, **changes: Any) -> Result:
    """Play a scenario, with traces in a folder of its own; they call the run by its name."""
    options = msgspec.structs.replace(
        load(scenario), trace=str(folder / name), run_id=name, settle_s_max=60.0, **changes
    )
    return run_scenario(options)


def simulate_thesis(folder: Path, name: str) -> Result:
    """One of `THESIS`; a sabotaged one with the first seed by which enough goes wrong."""
    changes = THESIS[name]
    for seed in range(1, SEEDS_MAX + 1):
        result = simulate(folder, name, "thesis", nodes=8, events=60, seed=seed, **changes)
        wrong = result.findings.get("lost", 0) + result.findings.get("duplicate", 0)
        if "without" not in changes or wrong >= ENOUGH:
            return result
        shutil.rmtree(folder / name)
    raise AssertionError(f"{name}: hardly anything goes wrong in {SEEDS_MAX} seeds")


class Tale(Planted):
    """A tale that is written down as it is told; `counted` is what the simulator makes of it."""

    def __init__(
        self, folder: Path, name: str, *, nodes: int = 4, retention_count: int | None = None
    ) -> None:
        self.name = name
        self._retention_count = retention_count
        self._writer = TraceWriter(
            folder / name, name, name_of=lambda index: peer_text(peer(index)), level="rpc"
        )
        super().__init__(DeliveryOrder.NONE, nodes=nodes)
        self.observer.book(TOPIC).retention_count = retention_count
        for index in range(nodes):
            self.tell(index, trace.NodeStarted())

    def tell(self, index: int, record: trace.Record) -> None:
        """A node says something, to the observer and in its trace."""
        if isinstance(record, trace.TopicCreated):
            record = msgspec.structs.replace(record, retention_count=self._retention_count)
        super().tell(index, record)
        # Each node's clock began at another time.
        now = Now(mono_s=self.time_s + 1_000.0 * index, wall_us=round(self.time_s * 1e6))
        self._writer.record(self.time_s, index, self.lives[index], now, record)

    def note(self, record: trace.Record) -> None:
        """The driver says something."""
        self.time_s += 1.0
        self._writer.write("driver", 1, Now(self.time_s, round(self.time_s * 1e6)), record)

    def agree(self, number: int, *sayers: int) -> Cid:
        """Sequencers say an event of their common count, one after the other."""
        cid = event(number, publisher=COUNT)
        for sayer in sayers:
            self.tell(
                sayer,
                trace.Published(
                    topic=TOPIC,
                    event=cid,
                    version=TOPIC,
                    publisher=peer(COUNT),
                    author=peer(sayers[0]),
                    epoch=EPOCH,
                    number=number,
                    parents=(),
                    position=Position(1, number),
                    request_id=cid,
                    injection=None,
                ),
            )
        return cid

    def acknowledge(self, cid: Cid, level: str = "replicated") -> None:
        """A caller is told that an event is safe, and says so."""
        super().acknowledge(cid, level)
        self.note(trace.Acknowledged(TOPIC, cid, None, level, 2))

    def inject(self, injection: str) -> None:
        """A caller asks for an event."""
        self.note(trace.Injected(TOPIC, injection, peer(0)))

    def unsubscribe(self, index: int, *end: Mark) -> None:
        """A node leaves, knowing of so much."""
        self.tell(index, trace.Unsubscribed(TOPIC, end))

    def crash(self, index: int, *, keep_disk: bool = True) -> None:
        """A node is killed and starts again."""
        life = self.lives[index]
        self.note(trace.Fault("kill", peer_text(peer(index)), "", life))
        if not keep_disk:
            self.note(trace.Fault("restart_empty", peer_text(peer(index)), "", life))
        super().crash(index, keep_disk=keep_disk)
        self.tell(index, trace.NodeStarted())

    def counted(self) -> dict[str, int]:
        """What the simulator counts in the end."""
        self._writer.close()
        coverage = check_coverage(self.observer, now_s=self.time_s + 1.0)
        tally = coverage.tally
        return {
            "due": tally.due,
            "delivered": tally.delivered,
            "undecided": tally.undecided,
            "retired": tally.retired,
            "unacknowledged_lost": tally.unacknowledged_lost,
            "lost": coverage.findings.count("lost"),
            "lost_acknowledged": coverage.lost_acknowledged,
            "duplicates": coverage.findings.count("duplicate"),
            "redeliveries": self.observer.redeliveries,
        }


def mark(number: int, *, of: int = 0) -> Mark:
    """The place of a node's number in a frontier."""
    return Mark(peer(of), EPOCH, number)


# Tales. Each is named after what it is about.


def _a_late_subscriber(tale: Tale) -> None:
    tale.publish(1)
    tale.publish(2)
    tale.subscribe(1, start=(mark(2),))
    tale.subscribe(2, start=(mark(1),))
    tale.publish(3)
    tale.deliver(1, 3)
    tale.deliver(2, 2, 3)
    # Before its start: delivered, but not due, and no delivery that counts.
    tale.deliver(2, 1)


def _a_leaver_that_knew_more(tale: Tale) -> None:
    tale.subscribe(1, 2)
    for number in range(1, 6):
        tale.publish(number)
    tale.deliver(1, 1, 2)
    tale.unsubscribe(1, mark(4))
    tale.deliver(2, *range(1, 6))
    tale.subscribe(1, start=(mark(5),))
    tale.publish(6)
    tale.deliver(1, 6)
    tale.deliver(2, 6)


def _a_disk_lost_between_two_subscriptions(tale: Tale) -> None:
    tale.subscribe(1, 2)
    tale.publish(1)
    tale.publish(2)
    tale.deliver(1, 1)
    tale.deliver(2, 1, 2)
    tale.crash(1, keep_disk=False)
    tale.subscribe(1, start=(mark(1),))
    tale.deliver(1, 2)
    # Not subscribed at all: counts for nothing.
    tale.deliver(3, 1)


def _deliveries_that_come_again(tale: Tale) -> None:
    tale.subscribe(1, 2)
    for number in (1, 2, 3):
        tale.acknowledge(tale.publish(number))
    tale.deliver(1, 1, 2, 3)
    tale.deliver(1, 2)
    tale.deliver(2, 1, 2)
    tale.crash(2)
    tale.deliver(2, 1, redelivery=True)
    tale.deliver(2, 1, redelivery=True)
    tale.deliver(2, 2)
    # First seen after the crash, but marked: still the first.
    tale.deliver(2, 3, redelivery=True, hops=0)


def _a_number_taken_back(tale: Tale) -> None:
    tale.subscribe(0, 1)
    tale.publish(1)
    tale.deliver(0, 1, hops=0)
    tale.crash(0)
    tale.publish(1, variant="again")
    tale.deliver(0, 1, variant="again", hops=0)
    tale.deliver(1, 1, variant="again")
    tale.publish(2)
    tale.deliver(0, 2, hops=0)
    tale.deliver(1, 2)


def _events_lost_before_anyone_was_told(tale: Tale) -> None:
    tale.subscribe(1, 2, 3)
    tale.publish(1)
    tale.acknowledge(tale.publish(2), "accepted")
    tale.acknowledge(tale.publish(3), "replicated")
    tale.publish(4)
    tale.deliver(1, 1, 2)
    tale.crash(0, keep_disk=False)
    tale.publish(1, by=3)
    tale.deliver(3, 1, by=3, hops=0)
    tale.crash(3)


def _events_that_no_one_sequencer_can_lose(tale: Tale) -> None:
    tale.subscribe(2, 3)
    tale.acknowledge(tale.agree(1, 0), "accepted")
    tale.agree(2, 1)
    tale.deliver(2, 1, by=COUNT)
    tale.crash(0, keep_disk=False)
    tale.crash(1)


def _sequencers_with_clocks_of_their_own(tale: Tale) -> None:
    def pass_on(number: int, *nodes: int) -> None:
        for node in nodes:
            tale.deliver(node, number, by=COUNT)

    tale.subscribe(0, 1, 2, 3)
    for number, sayer in enumerate((0, 1, 2), 1):
        tale.agree(number, sayer)
        pass_on(number, *(node for node in range(4) if node != sayer), sayer)
    # Two have the event when the second one says it, whom readers take for the first: it has said
    # less before.
    tale.agree(4, 0)
    pass_on(4, 0, 1)
    tale.agree(4, 2)
    pass_on(4, 2, 3)
    tale.agree(5, 0)
    pass_on(5, 0, 3, 2, 1)


def _a_killed_publisher_whose_event_left(tale: Tale) -> None:
    tale.subscribe(1, 2)
    tale.publish(1)
    tale.deliver(1, 1)
    tale.crash(0)
    tale.publish(2)


def _an_event_that_retention_let_go(tale: Tale) -> None:
    tale.subscribe(1, 2)
    for number in range(1, 5):
        tale.acknowledge(tale.publish(number))
    tale.deliver(1, 1, 2, 3, 4)
    tale.tell(2, trace.Retired(TOPIC, peer(0), EPOCH, 2))
    tale.deliver(2, 3)


def _an_event_that_a_flush_let_go(tale: Tale) -> None:
    tale.subscribe(1, 2, 3)
    for number in range(1, 6):
        tale.acknowledge(tale.publish(number))
    tale.deliver(1, *range(1, 6))
    version = trace.TopicVersion(TOPIC, cid_of(b"version 1"), 1, flushed=(mark(3),))
    for index in (0, 1, 2, 3):
        tale.tell(index, version)
    tale.deliver(2, 1)
    # Up to 3 it was flushed; what nobody flushed is lost, whatever the node says.
    tale.tell(2, trace.Retired(TOPIC, peer(0), EPOCH, 4))
    tale.deliver(2, 5)
    # It says nothing: it had these numbers, and never handed the second out.
    tale.deliver(3, 1, 3, 4, 5)


def _twins_of_a_request(tale: Tale) -> None:
    tale.subscribe(2, 3)
    tale.publish(1, by=0, request_id=b"r")
    tale.publish(1, by=1, request_id=b"r")
    tale.publish(2, by=1)
    tale.deliver(2, 1, by=0)
    tale.deliver(2, 2, by=1)
    tale.deliver(3, 1, by=1)
    tale.deliver(3, 1, by=0)
    tale.deliver(3, 2, by=1)


def _a_twin_before_the_start(tale: Tale) -> None:
    tale.publish(1, by=1, request_id=b"r")
    tale.subscribe(2, start=(mark(1, of=1),))
    tale.publish(1, request_id=b"r")
    tale.publish(2)
    tale.deliver(2, 2)


def _twins_in_two_subscriptions(tale: Tale) -> None:
    tale.subscribe(2)
    tale.publish(1, by=1, request_id=b"r")
    tale.deliver(2, 1, by=1)
    tale.crash(2, keep_disk=False)
    tale.subscribe(2, start=(mark(0, of=1),))
    tale.publish(1, request_id=b"r")
    tale.deliver(2, 1)


def _events_without_requests(tale: Tale) -> None:
    """As networks that know no requests tell of them."""
    tale.subscribe(1, 2)
    for number in (1, 2, 3):
        tale.publish(number, request_id=b"")
    tale.deliver(1, 1, 2, 3)
    tale.deliver(2, 1, 3)


def _an_event_in_anothers_name(tale: Tale) -> None:
    tale.subscribe(1, 2)
    tale.publish(1)
    tale.publish(9, by=1, claimed=0)
    tale.deliver(1, 1)
    tale.deliver(2, 1)
    # Never published, and published with another CID.
    tale.deliver(2, 7)
    tale.deliver(2, 1, variant="forged")


def _injections(tale: Tale) -> None:
    tale.subscribe(1, 2, 3)
    for name in ("a", "b", "c"):
        tale.inject(name)
    tale.publish(1, injection="a")
    tale.publish(2, injection="c")
    tale.deliver(1, 1, 2)
    tale.deliver(2, 1, 2)
    tale.deliver(3, 1, 2)
    # Another topic that nobody made: it came with the first.
    meta = cid_of(b"meta")
    tale.tell(1, trace.Subscribed(meta, ()))
    tale.note(trace.Injected(meta, "d", peer(0)))


def _resources(tale: Tale) -> None:
    tale.tell(1, trace.Resources(1.5, 1_000, 10, 20))
    tale.tell(1, trace.Resources(2.25, 3_000, 30, 40))
    tale.tell(2, trace.Resources(0.000_000_4, 9_000_000_000, 5, 6))
    tale.crash(1)
    tale.tell(1, trace.Resources(0.5, 2_000, 1, 2))


def _gaps(tale: Tale) -> None:
    def gap(first: int, last: int) -> None:
        tale.tell(1, trace.GapFound(TOPIC, peer(0), EPOCH, first, last))

    def filled(number: int) -> None:
        tale.tell(1, trace.GapFilled(TOPIC, peer(0), EPOCH, number, peer(2)))

    tale.subscribe(1)
    gap(1, 3)
    filled(3)
    # Came by itself; the next stretch has nothing to do with it.
    gap(4, 5)
    gap(9, 10)
    gap(9, 10)
    filled(10)
    # Grew while it was asked for.
    gap(11, 12)
    filled(14)
    # Of a life that is over: two clocks.
    gap(15, 15)
    tale.crash(1)
    filled(15)


def _messages(tale: Tale) -> None:
    def sent(
        index: int, to: int, operation: str = "EventMessage", topic: Cid | None = TOPIC
    ) -> None:
        tale.tell(index, trace.RpcSent(operation, topic, peer(to), 100))
        tale.tell(to, trace.RpcReceived(operation, topic, peer(index), 100))

    for to in (1, 2, 3, 3):
        sent(0, to)
    sent(1, 2)
    sent(2, 1, "FindPeers", None)


TALES: dict[str, Callable[[Tale], None]] = {
    name.removeprefix("_").replace("_", "-"): tell
    for name, tell in list(globals().items())
    if name.startswith("_") and getattr(tell, "__annotations__", {}).get("tale") == "Tale"
}


def tell_all(folder: Path) -> dict[str, dict[str, int]]:
    """Tell every tale into a folder of its own, and return what the simulator counted in each."""
    counted: dict[str, dict[str, int]] = {}
    for name, tell in TALES.items():
        keeps = 2 if "retention" in name else None
        tale = Tale(folder, name, retention_count=keeps)
        tell(tale)
        counted[name] = tale.counted()
    return counted


__all__ = [
    "RANDOM",
    "SEQUENCED",
    "THESIS",
    "PeerId",
    "Tale",
    "event",
    "mark",
    "simulate",
    "tell_all",
]
