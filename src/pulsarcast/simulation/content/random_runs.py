"""Random worlds of content subscribers: joins, kills, cuts, broken connections, changing filters.

Verification is real and every message goes through the wire format. Everything heals in the end,
and by then whatever was published while a filter was wanted must have come, once. Seeds in which
nodes only join are held to more: there routing alone must find everyone, and nobody may have to
learn of an event by comparing.
"""

from __future__ import annotations

import time
from random import Random
from typing import Any

from pulsarcast.model import trace
from pulsarcast.model.filters import parse
from pulsarcast.model.ids import Cid, peer_text
from pulsarcast.model.topic_types import AttributeRule, DeliveryOrder, TopicSettings
from pulsarcast.protocol.content.line import Lines
from pulsarcast.protocol.content.place import Place
from pulsarcast.protocol.content.rules import ContentRules
from pulsarcast.protocol.context import Parts
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import (
    Command,
    CreateTopic,
    Publish,
    Subscribe,
    SubscribeContent,
    UnsubscribeContent,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.simulation import sabotage
from pulsarcast.simulation.content.recorder import Ledger
from pulsarcast.simulation.links import Jittered
from pulsarcast.simulation.options import Options
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.tracing import open_trace, write_result
from pulsarcast.simulation.world import World

SCHEMA = (
    AttributeRule("price", "float", 0.0, 100.0),
    AttributeRule("number", "int", 0, 1000),
    AttributeRule("kind", "str"),
    AttributeRule("sensor", "str", "sensor-0000", "sensor-9999"),
)
KINDS = ("ask", "bid", "trade")
TEXTS_SHARE = 0.4
"""Of the filters, those that ask about texts."""
RESTLESS_LINE_S = 12.0
"""Short, and still twice as long as a node waits between two questions to the same home."""
RESTLESS_LEVELS = 3
"""Levels that a restless line takes: lower ones would make hundreds of pieces of a wide range."""
JOINS_ONLY_SHARE = 0.3
ORDERED_SHARE = 0.3
ORDERS = (DeliveryOrder.PER_PUBLISHER, DeliveryOrder.CAUSAL, DeliveryOrder.TOTAL)
PATIENCE_S = 120.0


def run_random_content(options: Options) -> Result:
    """Play one seed."""
    play = _Play(options)
    play.run()
    return play.result()


class _Play:
    """One seed."""

    def __init__(self, options: Options) -> None:
        rng = self.rng = Random(f"random-content/{options.seed}")
        self.options = options
        self._began = (time.perf_counter(), time.process_time())
        self.joins_only = rng.random() < JOINS_ONLY_SHARE
        self.text_rng = Random(f"random-content/texts/{options.seed}")
        """Draws what was added later, so that a seed's faults stay the same."""
        order_rng = Random(f"random-content/order/{options.seed}")
        self.order = DeliveryOrder.NONE
        if not self.joins_only and rng.random() < ORDERED_SHARE:
            self.order = order_rng.choice(ORDERS)
        self.nodes = rng.randint(8, 14)
        self.members = rng.randint(2, 3)
        self.duration_s = rng.uniform(30.0, 60.0)
        self.gap_s = rng.choice((0.4, 1.0))
        self.kinds = [
            kind for kind in ("kill", "cut", "reset", "change", "join") if rng.random() < 0.6
        ]
        if self.joins_only:
            self.kinds = ["join"]
        self.capacity = rng.choice((2, 4, 8))
        self._spoilt = sabotage.find(options.without)
        self.trace = open_trace(options, lambda index: peer_text(self.world.peer(index)))
        self.ledger = Ledger(SCHEMA, tracer=self.trace)
        self._counts: list[dict[str, int]] = []
        latency_s = rng.uniform(0.01, 0.08)
        self.world = World(
            options.seed,
            links=Jittered(latency_s, latency_s / 2),
            parameters=Parameters(
                content_capacity=self.capacity,
                content_load_max=rng.choice((0.0, 2.0)),
                content_lease_s=rng.choice((60.0, 240.0)),
                content_upkeep_s=5.0,
                content_compare_s=rng.choice((5.0, 15.0)),
                repair_interval_s=20.0,
                contact_retry_s=10.0,
                barrier_max=order_rng.choice((2, 3, 64)),
            ),
            share_verification=options.share_verification,
            through_wire=options.through_wire,
            disk=self._spoilt.disk,
            observer=self.ledger,
            trace_rpc=self.trace is not None and options.trace_level == "rpc",
            prepare=self._prepare,
            parts={**self._line_parts(), **self._spoilt.parts},
        )
        self.topic: Cid | None = None
        self.faults: dict[str, int] = {}
        self.findings: dict[str, int] = {}
        self.details: list[str] = []
        self._wanted: dict[tuple[int, int], str] = {}
        self._sids = 0
        self._events = 0
        self._calm = False
        self._late = 0

    def _line_parts(self) -> Parts:
        """In half of the worlds the cut-off lines move all the time, whatever is subscribed."""
        if self.text_rng.random() < 0.5:
            return {}

        class Rules(ContentRules):
            line_s = RESTLESS_LINE_S

        class RestlessLines(Lines):
            def wanted(self, place: Place) -> int:
                return self._turn.rng.randrange(RESTLESS_LEVELS)

        return {ContentRules: Rules, Lines: RestlessLines}

    def _prepare(self, node: Any) -> None:
        self._counts.append(node.counts)

    # The play.

    def run(self) -> None:
        """Everything at once, then calm, and the end."""
        world, rng = self.world, self.rng
        for index in range(self.nodes):
            world.add_node(contacts=rng.sample(range(index), min(3, index)))
            world.run(world.now + 0.1)
        world.run(world.now + 10.0)
        self._create()
        for index in range(1, 1 + self.members):
            self._command(index, lambda call: Subscribe(call, self._topic), None)
        world.run(world.now + 10.0)
        for index in range(1 + self.members, self.nodes):
            for _ in range(rng.randint(1, 3)):
                self._want(index)
        world.run(world.now + 20.0)
        missed_before = self._sum("content_by_comparison")
        ends_s = world.now + self.duration_s
        world.after(rng.uniform(0.0, 3.0), self._break)
        while world.now < ends_s:
            self._publish()
            world.run(world.now + rng.expovariate(1 / self.gap_s))
        self._calm = True
        self._heal()
        world.run(world.now + 1.0)
        missed = self._sum("content_by_comparison") - missed_before
        if self.joins_only and missed:
            self._found("routing_missed", f"{missed} deliveries though nodes only joined")
        for index in range(world.size):
            self._restart(index)
        ends_s = world.now + self.options.settle_s_max
        while world.run_until(self._is_settled, ends_s, 5.0):
            world.run(world.now + 5.0)
            if self._is_settled():
                break
        if lost := self.ledger.missing():
            self._found("lost", f"{len(lost)} deliveries, of nodes {sorted({n for _, n in lost})}")
            self.findings["lost"] = len(lost)
        for kind in ("duplicates", "unasked"):
            if count := getattr(self.ledger, kind):
                self._found(kind, f"{count} deliveries")
        if self._disorders:
            self._found("disorders", f"{self._disorders} deliveries")

    def _is_settled(self) -> bool:
        """Whether everything due was delivered, and no request waits that could make more due."""
        waiting = (len(self.world.node(index).outbox) for index in range(self.world.size))
        return not self.ledger.missing() and not any(waiting)

    @property
    def _disorders(self) -> int:
        """Deliveries against the topic's order."""
        if self.order is DeliveryOrder.NONE:
            return 0
        causal = self.order is DeliveryOrder.CAUSAL
        return self.ledger.disorders + (self.ledger.upside_down if causal else 0)

    @property
    def _topic(self) -> Cid:
        assert self.topic is not None, "there is no topic yet"
        return self.topic

    def _create(self) -> None:
        settings = TopicSettings(
            order=self.order,
            open=self.order is not DeliveryOrder.TOTAL,
            attributes=SCHEMA,
            content_routing=True,
        )
        answers: list[Reply] = []
        self._command(0, lambda call: CreateTopic(call, "content", settings), answers.append)
        self.world.run_until(lambda: bool(answers), self.world.now + PATIENCE_S)
        self.topic = answers[0].cid

    def _command(self, index: int, make: Any, then: Any) -> None:
        self.world.command(index, make, then)

    # Filters.

    def _where(self) -> str:
        rng = self.rng
        low, high = sorted((rng.uniform(0, 100), rng.uniform(0, 100)))
        first, last = sorted((rng.randint(0, 1000), rng.randint(0, 1000)))
        price = rng.choice(
            (f"price >= {low:.2f} and price < {high:.2f}", f"price < {low:.2f}", "price > 5")
        )
        number = f"number >= {first} and number <= {last}"
        kind = f'kind = "{rng.choice(KINDS)}"'
        where = rng.choice(
            (
                price,
                number,
                f"{price} and {number}",
                f"({price}) or ({number})",
                f"{price} and {kind}",
                f"not ({price}) and {number}",
            )
        )
        asks_texts = self.text_rng.random() < TEXTS_SHARE
        return self._where_text(kind, price) if asks_texts else where

    def _where_text(self, kind: str, price: str) -> str:
        """A filter that is routed by texts: equality, prefixes, ranges, and what no range says."""
        rng = self.text_rng
        first, last = sorted((self._sensor(), self._sensor()))
        prefix = first[: rng.randint(6, 10)]
        return rng.choice(
            (
                kind,
                f"kind starts with '{rng.choice(KINDS)[:1]}'",
                f"sensor starts with '{prefix}'",
                f"sensor in '{first}'..'{last}'",
                f"sensor < '{first}'",
                f"not sensor starts with '{prefix}'",
                f"sensor in ('{first}', '{last}') or {kind}",
                f"sensor starts with '{prefix}' and {kind}",
                f"sensor > '{first}' and {price}",
                f"sensor ends with '{first[-1]}'",
            )
        )

    def _sensor(self) -> str:
        return f"sensor-{self.text_rng.randrange(10_000):04}"

    def _want(self, index: int) -> None:
        """A node wants one filter more."""
        sid, where = self._sids, self._where()
        self._sids += 1
        wanted = parse(where, SCHEMA)
        self._wanted[(index, sid)] = where
        self.ledger.asked(index, wanted)

        def answered(reply: Reply) -> None:
            if reply.refusal is None and (index, sid) in self._wanted:
                self.ledger.subscribe(index, sid, wanted)

        def make(call: int) -> Command:
            return SubscribeContent(call, self._topic, where, sid)

        self._command(index, make, answered)

    def _change(self) -> None:
        """A node wants another filter, or one less, but never none: that would be a new start."""
        if not self._wanted:
            return
        index, sid = self.rng.choice(list(self._wanted))
        if not self.world.is_up(index):
            return
        if sum(node == index for node, _ in self._wanted) < 2:
            self._want(index)
            return
        del self._wanted[(index, sid)]
        self.ledger.unsubscribe(index, sid)
        self._command(index, lambda call: UnsubscribeContent(call, self._topic, sid), None)
        if self.rng.random() < 0.7:
            self._want(index)

    # Events.

    def _publish(self) -> None:
        rng = self.rng
        up = [index for index in range(self.world.size) if self.world.is_up(index)]
        node = rng.choice(up)
        attributes: dict[str, Any] = {
            "price": rng.uniform(0, 100),
            "number": rng.randint(0, 1000),
            "kind": rng.choice(KINDS),
            "sensor": self._sensor(),
        }
        for name in list(attributes):
            if rng.random() < 0.15:
                del attributes[name]  # a partial event (thesis, 3.4.1)
        injection = str(self._events)
        self._events += 1
        self.ledger.inject(node, injection, attributes)
        self._note(trace.Injected(self._topic, injection, self.world.peer(node)))

        def make(call: int) -> Command:
            return Publish(
                call,
                self._topic,
                b"",
                attributes=attributes,
                injection=injection,
                idempotency_key=injection.encode(),
            )

        self._command(node, make, None)

    # Faults.

    def _break(self) -> None:
        if self._calm:
            return
        world, rng = self.world, self.rng
        kind = rng.choice(self.kinds) if self.kinds else ""
        lasts_s = rng.choice((0.5, 5.0, 20.0)) * rng.uniform(0.5, 1.5)
        up = [index for index in range(world.size) if world.is_up(index)]
        if kind == "kill" and len(up) > world.size // 2:
            node = rng.choice(up)
            self._note_fault("kill", node)
            world.kill(node)
            world.after(lasts_s, lambda: self._restart(node))
        elif kind == "cut":
            some = rng.sample(range(world.size), world.size // 2)
            self._note_fault("cut", None, str(sorted(some)))
            world.cut([some])
            world.after(lasts_s, self._heal)
        elif kind == "reset":
            for _ in range(5):
                one, other = rng.sample(up, 2)
                self._note_fault("reset", one, f"to node {other}")
                world.reset(one, other)
        elif kind == "change":
            self._change()
        elif kind == "join" and world.size < 3 * self.nodes:
            node = world.add_node(contacts=rng.sample(up, min(3, len(up))))
            if not self.joins_only:
                world.after(3.0, lambda: self._want(node) if world.is_up(node) else None)
        else:
            kind = ""
        if kind:
            self.faults[kind] = self.faults.get(kind, 0) + 1
        world.after(rng.expovariate(1 / rng.choice((1.0, 4.0))), self._break)

    def _heal(self) -> None:
        self._note_fault("heal", None)
        self.world.heal()

    def _restart(self, node: int) -> None:
        if not self.world.is_up(node):
            self._note_fault("restart", node)
            self.world.restart(node)

    def _note_fault(self, action: str, node: int | None, detail: str = "") -> None:
        target = "network" if node is None else peer_text(self.world.peer(node))
        life = None if node is None else self.world.incarnation(node)
        self._note(trace.Fault(action, target, detail, life))

    def _note(self, record: trace.Record) -> None:
        if self.trace is not None:
            self.trace.note(self.world.now, record)

    # The verdict.

    def _found(self, kind: str, detail: str) -> None:
        self.findings[kind] = self.findings.get(kind, 0) + 1
        self.details.append(f"{kind}: {detail}")

    def _sum(self, name: str) -> int:
        return sum(counts.get(name, 0) for counts in self._counts)

    def result(self) -> Result:
        """What it came to."""
        options, ledger, world = self.options, self.ledger, self.world
        if self.trace is not None:
            world.stop_all(trace.StopReason.RUN_ENDED)
            self.trace.close()
        total: dict[str, int] = {}
        for counts in self._counts:
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
        due, lost = ledger.due_count, len(ledger.missing())
        cpu_s = max(time.process_time() - self._began[1], 1e-6)
        messages = sum(world.messages.values())
        result = Result(
            scenario=options.scenario,
            seed=options.seed,
            nodes=world.size,
            order=self.order.value,
            faults=dict(sorted(self.faults.items())),
            ok=not self.findings,
            due=due,
            delivered=due - lost,
            duplicates=ledger.duplicates,
            order_violations=self._disorders,
            findings=dict(sorted(self.findings.items())),
            details=self.details,
            topics=1,
            subscriptions=self._sids,
            events=len(ledger.due),
            all_messages=messages,
            messages=dict(sorted(world.messages.items())),
            messages_lost=world.messages_lost,
            counts=dict(sorted(total.items())),
            sim_s=round(world.now, 3),
            wall_s=round(time.perf_counter() - self._began[0], 3),
            cpu_s=round(cpu_s, 3),
            messages_per_s=round(messages / cpu_s),
            shared_verification=options.share_verification,
            through_wire=options.through_wire,
            replay=options.replay_command(),
        )
        write_result(options, result)
        return result
