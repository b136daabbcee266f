"""The 2d-tree thesis' experiment (chapter 4) on our nodes, with its figures beside ours.

Nodes join, subscriptions are installed, events are published. Everything is ten times as fast as in
its table 4.1, which changes nothing: no simulated link queues. A few nodes are full members of the
topic, with whom content subscribers compare; the thesis has none, and delivers what routing finds.

With a workload of names, subscriptions are prefixes and ranges of texts instead of the thesis'
ranges of numbers.
"""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from math import log
from random import Random
from typing import Any

from msgspec import structs

from pulsarcast.model.filters import parse
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topic_types import DeliveryOrder, TopicSettings
from pulsarcast.protocol.content.rules import LINE_S, ContentRules
from pulsarcast.protocol.content.space import CUT_OFF, CUT_OFFS, ROOT
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import CreateTopic, Publish, Subscribe, SubscribeContent
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.simulation import sabotage
from pulsarcast.simulation.content.churn import Sessions, read_sessions
from pulsarcast.simulation.content.counting import (
    COMPARING,
    COPYING,
    DELIVERING,
    FINDING,
    INSTALLING,
    PROBING,
    count_in,
)
from pulsarcast.simulation.content.generator import Generator
from pulsarcast.simulation.content.names import read_names
from pulsarcast.simulation.content.recorder import Ledger
from pulsarcast.simulation.hosts import Seat, make_node
from pulsarcast.simulation.options import Options
from pulsarcast.simulation.process import Core
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.run import Progress, no_progress
from pulsarcast.simulation.world import World

MEMBERS = 8
"""Full members besides the author."""
FASTER = 10
"""How many times as fast as in table 4.1 everything is."""
SUBSCRIBE_S = 0.2
"""Mean time between subscriptions (the thesis: 2 s)."""
PUBLISH_S = 0.1
"""Mean time between events (the thesis: 1 s)."""
CAPACITY = (10, 30)
"""What a node lets a leaf hold before it splits (table 4.1)."""
LOAD_MAX = 20.0
"""Messages a second that a leaf may cause, where the load is followed."""
CALM_S = 15.0


def run_content(options: Options, *, progress: Progress = no_progress) -> Result:
    """Run the experiment once."""
    experiment = Experiment(options, progress)
    experiment.play()
    return experiment.result()


class Experiment:
    """One run."""

    def __init__(self, options: Options, progress: Progress) -> None:
        self.options = options
        self.progress = progress
        self._began = (time.perf_counter(), time.process_time())
        self.nodes = options.nodes or 100
        self.events = options.events or 1000
        self._spoilt = sabotage.find(options.without)
        rng = Random(f"content/{options.seed}")
        self.generator = Generator(rng) if options.workload is None else read_names(options, rng)
        self.ledger = Ledger(self.generator.schema)
        load_max = LOAD_MAX if options.follow_load else 0.0
        self.world = World(
            options.seed,
            links=options.links(),
            parameters=Parameters(content_load_max=load_max),
            share_verification=options.share_verification,
            through_wire=options.through_wire,
            disk=self._spoilt.disk,
            observer=self.ledger,
            prepare=self._prepare,
            make_node=self._make_node,
            parts={**self._spoilt.parts, ContentRules: self._rules()},
        )
        self.counted = count_in(self.world)
        self.topic: Cid
        self.asked: dict[tuple[PeerId, int], float] = {}
        self.kept: dict[tuple[PeerId, int], float] = {}
        """When a subscriber knew that all pieces of a subscription are kept."""
        self._pieces: dict[tuple[PeerId, int], dict[int, float]] = {}
        """When the leaf of each piece had it."""
        self._newcomers: set[tuple[PeerId, int]] = set()
        """Subscriptions of nodes that did not know the topic yet."""
        self.table: list[tuple[str, str, str]] = []
        self.faults: dict[str, int] = {}
        self.details: list[str] = []
        self._counts: list[dict[str, int]] = []
        self._moved: set[int] = set()
        self._ends_s = 0.0

    def _make_node(self, seat: Seat) -> Core:
        capacity = self.world.stream("capacity").randint(*CAPACITY)
        parameters = structs.replace(seat.parameters, content_capacity=capacity)
        return make_node(replace(seat, parameters=parameters))

    def _prepare(self, node: Any) -> None:
        self._counts.append(node.counts)

    def _rules(self) -> type[ContentRules]:
        """The thesis' variant that the run plays; it notes when subscriptions are kept."""
        experiment, options = self, self.options

        class Rules(ContentRules):
            line_s = LINE_S / FASTER
            multicast = options.probing == "multicast"
            cut_offs = {"follows": CUT_OFFS, "fixed": (CUT_OFF,), "none": (1.0,)}[options.cut_off]

            def taken(self, subscriber: PeerId, sid: int, piece: int) -> None:
                if (subscriber, sid) not in experiment.kept:  # else its range was cut anew
                    pieces = experiment._pieces.setdefault((subscriber, sid), {})
                    pieces.setdefault(piece, experiment.world.now)

            def kept(self, subscriber: PeerId, sid: int) -> None:
                experiment.kept.setdefault((subscriber, sid), experiment.world.now)

        return Rules

    # The three stages of 4.1.1.

    def play(self) -> None:
        """Join, install, publish, and wait until everything has come."""
        self._join()
        self._install()
        self._publish()
        self._settle()

    def _join(self) -> None:
        rng = self.world.stream("joining")
        for index in range(self.nodes):
            self.world.add_node(contacts=rng.sample(range(index), min(3, index)))
            self.world.run(self.world.now + 0.02)
            self.progress("nodes", index + 1, self.nodes)
        self.world.run(self.world.now + 30.0)
        answers: list[Reply] = []
        settings = TopicSettings(
            order=DeliveryOrder.NONE,
            open=True,
            attributes=self.generator.schema,
            content_routing=True,
        )
        self.world.command(0, lambda call: CreateTopic(call, "content", settings), answers.append)
        self.world.run(self.world.now + CALM_S)
        created = answers[0].cid if answers else None
        assert created is not None, "the topic was not created"
        self.topic = created
        for index in range(1, self._first_subscriber):
            self.world.command(index, lambda call: Subscribe(call, self.topic), None)
        self.world.run(self.world.now + CALM_S)

    @property
    def _first_subscriber(self) -> int:
        return 1 + min(MEMBERS, self.nodes // 10)

    def _install(self) -> None:
        """Subscriptions of nodes drawn by chance, one after the other."""
        world, rng = self.world, self.world.stream("subscribing")
        self.counted.clear()
        count = self.options.subscriptions * self.nodes
        for sid in range(count):
            node = rng.randrange(self._first_subscriber, self.nodes)
            where = self.generator.subscription()
            self.ledger.subscribe(node, sid, parse(where, self.generator.schema))
            subscription = (world.peer(node), sid)
            self.asked[subscription] = world.now
            if world.node(node).descriptors.get(self.topic) is None:
                self._newcomers.add(subscription)
            self._subscribe(node, where, sid)
            world.run(world.now + rng.expovariate(1 / SUBSCRIBE_S))
            self.progress("subscriptions", sid + 1, count)
        world.run_until(lambda: len(self.kept) == count, world.now + 60.0)
        self._figure("subscriptions kept", f"{len(self.kept):,} of {count:,}")
        self._installed()
        leaves = [
            place
            for index in range(self.nodes)
            for place in world.node(index).content.homes.places.values()
            if place.is_owner and not place.is_split and place.kept
        ]
        pieces = sum(len(place.kept) for place in leaves)
        depth = max((place.at.bit_length() - 1 for place in leaves), default=0)
        self._figure("the trees", f"{len(leaves)} leaves with {pieces:,} pieces, depth {depth}")
        # Until the line has fallen: the first sample, the move, and its second half.
        calm_s = CALM_S + (0 if self.options.cut_off != "follows" else 4 * LINE_S / FASTER)
        world.run(world.now + calm_s)
        if self.options.cut_off == "follows":
            self._figure("cut-off lines", self._lines())

    def _lines(self) -> str:
        """The line of each attribute, as the home of its tree's root has it."""
        found = {
            place.attribute: f"{place.attribute} {CUT_OFFS[place.line.cut]:g}"
            for index in range(self.nodes)
            for place in self.world.node(index).content.homes.places.values()
            if place.is_owner and place.at == ROOT
        }
        return ", ".join(found[name] for name in sorted(found))

    def _installed(self) -> None:
        """How long it took until the leaves had it, which is what the thesis' nodes wait for."""
        theirs = "mean 331 ms; 70 % < 600 ms, 90 % < 1 s"
        asked = self.asked
        took = {who: max(self._pieces[who].values()) - asked[who] for who in self._pieces}
        informed = [took_s for who, took_s in took.items() if who not in self._newcomers]
        self._figure("installing takes", _delays(informed), theirs)
        self._figure("… with finding the topic first", _delays(list(took.values())))
        answered = [at_s - asked[who] for who, at_s in self.kept.items()]
        self._figure("… until the subscriber knows", _delays(answered))
        count = len(asked)
        parts = {
            "installing, per node and subscription": ((INSTALLING,), "mean 14.32 B; 98 % < 60 B"),
            "… with copies and descriptors": ((INSTALLING, COPYING, FINDING), ""),
        }
        for name, (purposes, theirs) in parts.items():
            sizes = self._all_nodes(self.counted.per_node(*purposes)).values()
            each = [size / count for size in sizes]
            mean = sum(each) / self.nodes
            self._figure(name, f"mean {mean:.2f} B; 98 % < {_within(each, 0.98):.1f} B", theirs)

    def _subscribe(self, node: int, where: str, sid: int) -> None:
        self.world.command(node, lambda call: SubscribeContent(call, self.topic, where, sid), None)

    def _publish(self) -> None:
        """Events of publishers drawn by chance; meanwhile nodes may come and go."""
        world, rng = self.world, self.world.stream("publishing")
        self.counted.clear()
        publishers = max(1, round(self.nodes * self.generator.publishing))
        self._ends_s = world.now + self.events * PUBLISH_S
        if self.options.churn is not None:
            self._churn()
        for number in range(self.events):
            node = rng.randrange(publishers)
            while not world.is_up(node):
                node = rng.randrange(publishers)
            self._inject(node, number)
            world.run(world.now + rng.expovariate(1 / PUBLISH_S))
            self.progress("events", number + 1, self.events)
        world.run(world.now + 3.0)

    def _inject(self, node: int, number: int) -> None:
        attributes = self.generator.event(self.options.skew)
        injection = str(number)
        self.ledger.inject(node, injection, attributes)
        self.world.command(
            node,
            lambda call: Publish(
                call,
                self.topic,
                b"",
                attributes=dict(attributes),
                injection=injection,
                idempotency_key=injection.encode(),
            ),
            None,
        )

    def _settle(self) -> None:
        world, ledger = self.world, self.ledger
        for node in range(self.nodes):
            if not world.is_up(node):
                world.restart(node)
        probing, delivering = self._cost(PROBING), self._cost(DELIVERING)
        both = self._cost(PROBING, DELIVERING)
        messages = self.counted.count(PROBING, DELIVERING) / self.events
        sent = self._all_nodes(self.counted.sent(PROBING, DELIVERING))
        done = world.run_until(
            lambda: not ledger.missing(), world.now + self.options.settle_s_max, 5.0
        )
        if not done:
            self.details.append(f"missing: {len(ledger.missing())} deliveries")
        delays = ledger.delays_s()
        self._figure(
            "delivered of due",
            f"{len(delays):,} of {ledger.due_count:,}; twice: {ledger.duplicates}",
        )
        counts = self._sum_counts()
        routed, compared = counts.get("content_routed", 0), counts.get("content_by_comparison", 0)
        self._figure("by routing, by comparison", f"{routed:,}, {compared:,}", "all by routing")
        slow = "mean 333 ms; 70 % < 400 ms, nearly all < 1 s; at most 1.6 s"
        self._figure("delivering takes", _delays(delays), slow)
        both_of_theirs = "mean 1,320 B; 70 % < 1.6 kB, 90 % < 3 kB"
        self._figure("publishing, per node and event", both, both_of_theirs)
        theirs = {
            (True, "multicast"): "mean 1,050 B; max 9.4 kB",
            (True, "unicast"): "mean 1,480 B; max 12.2 kB",
            (False, "multicast"): "mean 2,120 B",
        }
        how = (self.options.cut_off != "none", self.options.probing)
        self._figure("of which probing", probing, theirs.get(how, ""))
        self._figure("of which delivering", delivering)
        flooding, due = self.nodes - 1, ledger.due_count / self.events
        self._figure(
            "messages per event",
            f"{messages:.1f} for {due:.1f} deliveries; flooding the topic: {flooding} at least",
        )
        busiest, total = max(sent.values()), sum(sent.values())
        times = busiest * self.nodes / max(1, total)
        self._figure(
            "messages of the busiest node", f"{busiest:,} of {total:,}; {times:.1f} x the mean"
        )
        compared_bytes = self.counted.total(COMPARING) / self.events / self.nodes
        self._figure("comparing, per node and event", f"mean {compared_bytes:.1f} B")

    def _cost(self, *purposes: str) -> str:
        each = [
            size / self.events
            for size in self._all_nodes(self.counted.per_node(*purposes)).values()
        ]
        mean = sum(each) / self.nodes
        seventy, ninety = _within(each, 0.7), _within(each, 0.9)
        most = max(each) / 1000
        return (
            f"mean {mean:.1f} B; 70 % < {seventy:.0f} B, 90 % < {ninety:.0f} B; max {most:.2f} kB"
        )

    def _all_nodes(self, counts: dict[int, int]) -> dict[int, int]:
        return {node: counts.get(node, 0) for node in range(self.nodes)}

    # Churn.

    def _churn(self) -> None:
        """Nodes leave and come back; time is scaled so that half leave while events flow."""
        assert self.options.churn is not None
        hours = read_sessions(self.options.churn, hour_s=1.0)
        shape, scale = hours.up
        hour_s = self.events * PUBLISH_S / (scale * log(2.0) ** (1 / shape))
        sessions = read_sessions(self.options.churn, hour_s=hour_s)
        rng = self.world.stream("churn")
        for node in range(self._first_subscriber, self.nodes):
            self._leave_later(node, sessions, rng)

    def _leave_later(self, node: int, sessions: Sessions, rng: Random) -> None:
        self.world.after(sessions.up_s(rng), lambda: self._leave(node, sessions, rng))

    def _leave(self, node: int, sessions: Sessions, rng: Random) -> None:
        if self.world.now >= self._ends_s or not self.world.is_up(node):
            return
        self.faults["left"] = self.faults.get("left", 0) + 1
        self._moved.add(node)
        self.world.kill(node)
        self.world.after(sessions.down_s(rng), lambda: self._return(node, sessions, rng))

    def _return(self, node: int, sessions: Sessions, rng: Random) -> None:
        if self.world.now >= self._ends_s or self.world.is_up(node):
            return
        self.faults["came back"] = self.faults.get("came back", 0) + 1
        self.world.restart(node)
        self._leave_later(node, sessions, rng)

    # The verdict.

    def _figure(self, name: str, ours: str, theirs: str = "") -> None:
        self.table.append((name, ours, theirs))

    def _sum_counts(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for counts in self._counts:
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
        return dict(sorted(total.items()))

    def result(self) -> Result:
        """What it came to."""
        options, ledger, world = self.options, self.ledger, self.world
        missing = len(ledger.missing())
        findings = {
            "lost": missing,
            "duplicate": ledger.duplicates,
            "unasked": ledger.unasked,
            # Who is killed may forget what it was just given.
            "unpublished": 0 if self._moved else ledger.unpublished,
        }
        findings = {kind: count for kind, count in findings.items() if count}
        if self._moved:
            self.faults["nodes that left"] = len(self._moved)
        delays = ledger.delays_s()
        self._figure("probing", f"{options.probing}; cut-off line: {options.cut_off}")
        cpu_s = time.process_time() - self._began[1]
        self._figure("time", f"{world.now:,.0f} s simulated in {cpu_s:,.0f} s of CPU")
        return Result(
            scenario=options.scenario,
            seed=options.seed,
            nodes=self.nodes,
            ok=not findings,
            due=ledger.due_count,
            delivered=len(delays),
            duplicates=ledger.duplicates,
            findings=findings,
            details=self.details,
            faults=self.faults,
            topics=1,
            subscriptions=len(self.asked),
            events=len(ledger.due),
            all_messages=sum(world.messages.values()),
            messages=dict(sorted(world.messages.items())),
            latency_p50_s=round(_within(delays, 0.5), 3),
            latency_p99_s=round(_within(delays, 0.99), 3),
            counts=self._sum_counts(),
            sim_s=round(world.now, 3),
            wall_s=round(time.perf_counter() - self._began[0], 3),
            cpu_s=round(cpu_s, 3),
            messages_per_s=round(sum(world.messages.values()) / max(cpu_s, 1e-6)),
            rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            shared_verification=options.share_verification,
            through_wire=options.through_wire,
            replay=options.replay_command(),
            table=self.table,
        )


def _within(values: list[float], share: float) -> float:
    """Below which value this share of them lies."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _delays(values: list[float]) -> str:
    if not values:
        return "nothing came"
    mean_ms = 1000 * sum(values) / len(values)
    seventy, ninety, last = (1000 * _within(values, share) for share in (0.7, 0.9, 0.99))
    return (
        f"mean {mean_ms:.0f} ms; 70 % < {seventy:.0f} ms, 90 % < {ninety:.0f} ms, "
        f"99 % < {last:.0f} ms; at most {1000 * max(values):.0f} ms"
    )
