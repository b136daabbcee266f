"""A run: one world, everything that stands around it, and what it came to in the end."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid, peer_text
from pulsarcast.protocol.dissemination.overlay import CubeView, TreeView
from pulsarcast.protocol.node import Node
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.sequencing.state import SequencerState
from pulsarcast.protocol.turn import Turn
from pulsarcast.simulation import sabotage
from pulsarcast.simulation.applications import Applications
from pulsarcast.simulation.checkers.causality import settle_causality
from pulsarcast.simulation.checkers.coverage import check_coverage, complete, open_starts
from pulsarcast.simulation.checkers.cubes import check_cubes
from pulsarcast.simulation.checkers.memory import bounds, check_memory
from pulsarcast.simulation.checkers.sequencers import check_sequencers
from pulsarcast.simulation.checkers.starvation import check_starved, reach_counts
from pulsarcast.simulation.checkers.trees import check_trees
from pulsarcast.simulation.disk import DiskModel
from pulsarcast.simulation.findings import Findings
from pulsarcast.simulation.fleet import Fleet, Unanswered
from pulsarcast.simulation.links import Links
from pulsarcast.simulation.observer import Observer
from pulsarcast.simulation.options import Options
from pulsarcast.simulation.places import Place
from pulsarcast.simulation.results import ORDER_KINDS, Result
from pulsarcast.simulation.tracing import open_trace, write_result
from pulsarcast.simulation.withholding import withholding
from pulsarcast.simulation.world import World
from pulsarcast.storage.quota import BYTES_MAX

JOIN_GAP_S = 0.02
CONTACTS = 3
SETTLE_CHECK_S = 5.0
TAIL_S = 10.0
"""How long a settled world is watched on: a duplicate may still come."""
CHILDREN_MAX = 256
"""Children of a node that cannot hand joiners down, since no child can be dialled."""
BREAKING = ("kill", "cut", "pause", "reset", "disk_full", "move")
"""Faults under which a node may have to say no."""
EVENT_MESSAGES = ("EventMessage", "RequestToPublish")
DHT_MESSAGES = (
    "FindPeers",
    "Peers",
    "FindBlock",
    "BlockFound",
    "StoreBlocks",
    "Stored",
    "FindPointer",
    "PointerFound",
    "StorePointer",
    "CompareKeys",
    "KeysDiffer",
    "WantBlocks",
)

AnyView = TypeVar("AnyView", TreeView, CubeView)

Progress: TypeAlias = Callable[[str, int, int], None]
"""What is being done, how much of it is done, and how much there is."""


def no_progress(what: str, done: int, total: int) -> None:
    """Nobody is watching."""


class Run:
    """A world in the making, then running, then judged."""

    def __init__(
        self,
        options: Options,
        *,
        links: Links | None = None,
        parameters: Parameters | None = None,
        progress: Progress = no_progress,
        may_withhold: bool = False,
        relays: bool = False,
        strangers_bytes_max: int = BYTES_MAX,
    ) -> None:
        self.options = options
        self.parameters = Parameters() if parameters is None else parameters
        self.progress = progress
        self._began_s = time.perf_counter()
        self._began_cpu_s = time.process_time()
        self._counts: list[Mapping[str, int]] = []
        spoilt = sabotage.find(options.without)
        self.hostile: set[Turn] = set()
        """The turns of the nodes that withhold events now."""
        parts = withholding(spoilt.parts, self.hostile) if may_withhold else spoilt.parts
        self.trace = open_trace(options, lambda index: peer_text(self.world.peer(index)))
        self.observer = Observer(tracer=self.trace)
        self._without_room = strangers_bytes_max == 0
        self.world = World(
            options.seed,
            links=options.links() if links is None else links,
            parameters=self.parameters,
            share_verification=options.share_verification,
            through_wire=options.through_wire,
            disk=msgspec.structs.replace(
                spoilt.disk or DiskModel(), strangers_bytes_max=strangers_bytes_max
            ),
            observer=self.observer,
            trace_rpc=self.trace is not None and options.trace_level == "rpc",
            prepare=self._prepare,
            parts=parts,
            relays=relays,
            hardware=options.hardware(),
        )
        note = None if self.trace is None else self._note
        self.fleet = Fleet(self.world, self.observer, note=note)
        self.applications = Applications(self.fleet, replicas=self.parameters.replicas, note=note)
        self.settled = True
        self.expected_due: int | None = None
        self.dropped = 0
        self._messages_before: dict[str, int] = {}
        self._bytes_before: dict[str, int] = {}
        self._range_events_before = 0
        self._writes_before = 0
        self._has_places = False

    def _prepare(self, node: Any) -> None:
        # Only the counts are kept: nodes of earlier lives must not stay in memory.
        self._counts.append(node.counts)

    def _note(self, record: trace.Record) -> None:
        assert self.trace is not None
        self.trace.note(self.world.now, record)

    # Acts that scenarios share.

    def join(self, count: int, *, settle_s: float = 30.0, places: Sequence[Place] = ()) -> None:
        """Start nodes one after the other, each with a few earlier ones to ask that it can dial."""
        self._has_places = bool(places)
        rng = self.world.stream("joining")
        for index in range(count):
            known = rng.sample(range(index), min(CONTACTS, index))
            if places:
                # The first node can be dialled by all.
                known = [0, *(each for each in known if each and _can_dial(places, index, each))]
            place = places[index] if places else None
            self.fleet.add(contacts=known if index else (), place=place)
            self.world.run(self.world.now + JOIN_GAP_S)
            self.progress("nodes", index + 1, count)
        self.world.run(self.world.now + settle_s)

    def join_settled(self, count: int) -> None:
        """Start nodes that know each other as if they had joined, which takes no time."""
        self.fleet.add_down(count)
        self.world.start_settled()
        self.progress("nodes", count, count)

    def measure_from_here(self) -> None:
        """The load begins: the cost of setting up is not its cost."""
        self._messages_before = dict(self.world.messages)
        self._bytes_before = dict(self.world.bytes)
        self._range_events_before = self.world.range_events
        self._writes_before = self.world.writes

    def settle(self) -> None:
        """Let time pass until everything is delivered and every topic has its one tree."""
        deadline_s = self.world.now + self.options.settle_s_max
        self.settled = self.world.run_until(self.is_settled, deadline_s, SETTLE_CHECK_S)
        self.world.run(self.world.now + TAIL_S)
        # Trees go on moving a little: one that is being left just now is no finding yet.
        self.world.run_until(self.is_settled, deadline_s, 1.0)

    def is_settled(self) -> bool:
        """Whether everything is delivered and every topic has its one tree."""
        if open_starts(self.observer, self.fleet.living()):
            return False
        return complete(self.observer, self.world.now) and not self._tree_findings()[0]

    # The verdict.

    def result(self) -> Result:
        """Let every checker have its say, and count."""
        observer, options, world = self.observer, self.options, self.world
        for detail in open_starts(observer, self.fleet.living()):
            observer.findings.add("open_start", detail)
        coverage = check_coverage(observer, now_s=world.now, topics=self.applications.topics)
        settle_causality(observer)
        trees, fanout_max = self._tree_findings()
        for finding in trees.details:
            observer.findings.add(finding.kind, finding.detail)
        self._check_sequencers()
        if self._has_places:
            check_starved(self._nodes(), self.applications.topics, observer.findings)
        footprint_max = self._check_memory()
        self._check_answers()
        self._check_dropped()
        if self.trace is not None:
            # A node that simply stops writing could have been lost unnoticed.
            self.world.stop_all(trace.StopReason.RUN_ENDED)
            self.trace.close()
        findings = observer.findings
        wall_s = time.perf_counter() - self._began_s
        cpu_s = time.process_time() - self._began_cpu_s
        all_messages = sum(world.messages.values())
        tally = coverage.tally
        topics = self.applications.topics
        result = Result(
            scenario=options.scenario,
            seed=options.seed,
            nodes=self.fleet.size,
            order=options.order,
            faults=dict(sorted(self.fleet.faults.items())),
            ok=not findings,
            due=tally.due,
            delivered=tally.delivered,
            undecided=tally.undecided,
            duplicates=findings.count("duplicate"),
            order_violations=findings.count(*ORDER_KINDS),
            lost_acknowledged=coverage.lost_acknowledged,
            unacknowledged_lost=tally.unacknowledged_lost,
            retired=tally.retired,
            findings=findings.by_kind(),
            details=[f"{finding.kind}: {finding.detail}" for finding in findings.details],
            topics=len(topics),
            subscriptions=sum(len(observer.book(topic).subscriptions) for topic in topics),
            events=sum(len(observer.book(topic).history) for topic in topics),
            acknowledged=self.applications.acknowledged,
            levels=dict(sorted(self.applications.levels.items())),
            refused=dict(sorted(self.applications.refused.items())),
            dropped=self.dropped,
            retries=self.applications.retries,
            expected_due=self.expected_due,
            redeliveries=observer.redeliveries,
            all_messages=all_messages,
            messages=dict(sorted(world.messages.items())),
            messages_lost=world.messages_lost,
            hops_mean=round(observer.hops_mean(), 4),
            hops_max=max(observer.hops, default=0),
            fanout_max=fanout_max,
            latency_p50_s=round(observer.latency_s(0.5), 3),
            latency_p99_s=round(observer.latency_s(0.99), 3),
            footprint_max=footprint_max,
            counts=self._sum_counts(),
            gaps_found=observer.kinds.get("GapFound", 0),
            gaps_filled=observer.kinds.get("GapFilled", 0),
            rejections=dict(sorted(observer.rejections.items())),
            settled=self.settled,
            sim_s=round(world.now, 3),
            wall_s=round(wall_s, 3),
            cpu_s=round(cpu_s, 3),
            messages_per_s=round(all_messages / cpu_s),
            rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            shared_verification=options.share_verification,
            through_wire=options.through_wire,
            replay=options.replay_command(),
        )
        self._add_costs(result)
        write_result(options, result)
        return result

    def _add_costs(self, result: Result) -> None:
        sent = _since(self.world.messages, self._messages_before)
        sizes = _since(self.world.bytes, self._bytes_before)
        deliveries = max(1, self.observer.deliveries - self.observer.self_deliveries)
        event_messages = sum(sent.get(name, 0) for name in EVENT_MESSAGES)
        event_messages += self.world.range_events - self._range_events_before
        event_bytes = sum(sizes.get(name, 0) for name in (*EVENT_MESSAGES, "Range"))
        result.messages_per_delivery = round(event_messages / deliveries, 4)
        result.bytes_per_delivery = round(event_bytes / deliveries, 1)
        result.all_bytes_per_delivery = round(sum(sizes.values()) / deliveries, 1)
        writes = max(1, self.world.writes - self._writes_before)
        result.messages_per_write = round(sum(sent.values()) / writes, 4)
        result.dht_messages = sum(sent.get(name, 0) for name in DHT_MESSAGES)

    def _tree_findings(self) -> tuple[Findings, int]:
        found = Findings()
        nodes = self._nodes()
        trees = {self.world.peer(index): _own(node.trees()) for index, node in nodes.items()}
        names = {topic: book.name for topic, book in self.observer.books.items()}
        # A parent that cannot hand a joiner down takes it in.
        fanout_max = CHILDREN_MAX if self._has_places else self.parameters.fanout
        widest = check_trees(trees, found, fanout_max=fanout_max, names=names)
        cubes = {self.world.peer(index): _own(node.cubes()) for index, node in nodes.items()}
        shapes = check_cubes(cubes, found, names=names)
        return found, max((widest, *(shape.fanout_max for shape in shapes)))

    def _nodes(self) -> dict[int, Node]:
        return {index: self.world.node(index) for index in self.fleet.living()}

    def _check_sequencers(self) -> None:
        groups: dict[Cid, list[tuple[int, SequencerState]]] = {}
        for index in self.fleet.living():
            for topic, member in self.world.node(index).sequencer_registry.by_topic.items():
                groups.setdefault(topic, []).append((index, member.sequencer.state))
        check_sequencers(groups, self.observer.findings)

    def _check_memory(self) -> dict[str, int]:
        footprints = {index: self.world.node(index).footprint() for index in self.fleet.living()}
        limits = bounds(self.parameters, topics=2 * len(self.applications.topics))
        return check_memory(footprints, self.observer.findings, limits)

    def _check_answers(self) -> None:
        """A node owes every command an answer: silence is excused by loss, refusal by faults.

        Where disks have no room for others, no peer has the topics that a node looks for.
        """
        faults = self.fleet.faults
        may_refuse = self._without_room or any(fault in faults for fault in BREAKING)
        for reason, count in self.applications.refused.items():
            silent = reason == Unanswered.LATE.value
            if "lose" in faults or (not silent and may_refuse):
                continue
            kind = "unanswered" if silent else "refused"
            self.observer.findings.add(kind, f"{count} commands: {reason}", count=count)

    def _check_dropped(self) -> None:
        """An event that no node could be given was not published: only a fault excuses that."""
        excused = any(fault in self.fleet.faults for fault in (*BREAKING, "lose"))
        if self.dropped and not excused:
            self.observer.findings.add(
                "dropped", f"{self.dropped} events: their topic is not there", count=self.dropped
            )

    def check_nobody_was_orphaned(self) -> None:
        """Where nothing breaks, nobody loses its parent: whoever leaves hands its children over.

        Where a node ranks before its root once it knows its reach, the root moves: two moves may
        cross, and make a cycle that breaks. Who leaves a parent that lags does so on purpose.
        """
        counts = self._sum_counts()
        orphans = counts.get("rejoin", 0) - counts.get("lagging_parent", 0)
        if orphans and not counts.get("outranked", 0):
            self.observer.findings.add("orphaned", f"{orphans} times, without a fault")

    def _sum_counts(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for counts in self._counts:
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
        if self._has_places:
            total["relayed_dial"] = self.world.relayed_dials
            total.update(reach_counts(self._nodes(), self.applications.topics))
        return {name: total[name] for name in sorted(total)}


def _can_dial(places: Sequence[Place], source: int, target: int) -> bool:
    return places[target].can_be_dialled_from(places[source])


def _own(places: dict[Cid, AnyView]) -> dict[Cid, AnyView]:
    """The places without those of meta topics that ride on their topics."""
    return {topic: view for topic, view in places.items() if not view.rides}


def _since(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in now.items()}
