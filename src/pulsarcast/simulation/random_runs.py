"""Random runs: the plans of `random_plan`, carried out.

Verification is real and every message goes through the wire format, so what these runs find is
what real nodes would do.
"""

from __future__ import annotations

from collections.abc import Callable

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topic_types import (
    DeliveryOrder,
    Dissemination,
    EventLinking,
    Retention,
    TopicSettings,
)
from pulsarcast.model.topics import META
from pulsarcast.simulation.fleet import Fleet
from pulsarcast.simulation.links import Jittered
from pulsarcast.simulation.options import Options
from pulsarcast.simulation.random_plan import RandomPlan, Step, TopicPlan, make_plan
from pulsarcast.simulation.reach_plan import make_reach_plan
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.run import Progress, Run, no_progress
from pulsarcast.simulation.sequenced_plan import make_sequenced_plan

SETUP_S_MAX = 1_800.0
ANSWERS_S_MAX = 1_800.0


def run_random(options: Options, *, progress: Progress = no_progress) -> Result:
    """Carry out the plan of one seed."""
    plan = make_plan(
        options.seed,
        dissemination=options.dissemination,
        all_causal=options.order == "causal",
    )
    run = Run(
        options,
        links=Jittered(plan.latency_s, plan.jitter_s),
        parameters=plan.parameters,
        progress=progress,
        may_withhold=any(step.action == "withhold" for step in plan.steps),
        strangers_bytes_max=plan.strangers_bytes_max,
    )
    _Performance(run, plan).play()
    return run.result()


def run_sequenced(options: Options, *, progress: Progress = no_progress) -> Result:
    """Carry out the plan of one seed whose topics have several sequencers each."""
    plan = make_sequenced_plan(options.seed)
    run = Run(
        options,
        links=Jittered(plan.latency_s, plan.jitter_s),
        parameters=plan.parameters,
        progress=progress,
    )
    _Performance(run, plan).play()
    return run.result()


def run_reach(options: Options, *, progress: Progress = no_progress) -> Result:
    """Carry out the plan of one seed whose nodes have addresses, and cannot all be dialled."""
    plan = make_reach_plan(options.seed)
    run = Run(
        options,
        links=Jittered(plan.latency_s, plan.jitter_s),
        parameters=plan.parameters,
        progress=progress,
        may_withhold=any(step.action == "withhold" for step in plan.steps),
        relays=plan.relays,
    )
    _Performance(run, plan).play()
    return run.result()


def _sequencers(topic: TopicPlan, peer: Callable[[int], PeerId]) -> tuple[PeerId, ...]:
    return tuple(peer(node) for node in topic.sequencers or (topic.creator,))


class _Performance:
    """One plan on one run."""

    def __init__(self, run: Run, plan: RandomPlan) -> None:
        self.run = run
        self.plan = plan
        self.topics: list[Cid | None] = [None] * (2 * len(plan.topics))
        """Behind all topics come their meta topics."""
        self._fleet: Fleet = run.fleet
        self._outstanding = 0
        self._injections = 0

    def play(self) -> None:
        """Join, create, subscribe, then everything at once; then calm, and the end."""
        run, plan = self.run, self.plan
        run.join(plan.nodes, settle_s=20.0, places=plan.places)
        for index, (offset_s, drift_ppm) in enumerate(plan.clocks):
            if offset_s:
                self._fleet.set_clock(index, offset_s=offset_s, drift_ppm=drift_ppm)
        for number, topic in enumerate(plan.topics):
            self._create(number, topic)
        self._wait("topics were created")
        for number, topic in enumerate(plan.topics):
            for index in topic.subscribers:
                self._subscribe(number, index)
            for index in topic.versions_to:
                self._subscribe(len(plan.topics) + number, index)
        self._wait("subscriptions were made")

        run.measure_from_here()
        begin_s = run.world.now
        for step in plan.steps:
            run.world.at(begin_s + step.at_s, self._doing(step))
        run.world.run(begin_s + plan.duration_s)
        self._end_faults()
        self._wait("commands were answered", s_max=ANSWERS_S_MAX)
        run.settle()
        if not self._fleet.faults.keys() - {"clock", "heal", "resume"}:
            run.check_nobody_was_orphaned()

    def _wait(self, what: str, s_max: float = SETUP_S_MAX) -> None:
        world = self.run.world
        if not world.run_until(lambda: self._outstanding == 0, world.now + s_max):
            self.run.observer.findings.add(
                "stuck", f"not all {what}: {self._outstanding} are still open"
            )
            self._outstanding = 0

    def _answered(self, _: object) -> None:
        self._outstanding -= 1

    # Steps.

    def _doing(self, step: Step) -> Callable[[], None]:
        return lambda: self._do(step)

    def _do(self, step: Step) -> None:
        fleet, after = self._fleet, self.run.world.after
        match step.action:
            case "publish":
                self._publish(step.a, step.b, replicated=step.flag)
            case "subscribe":
                self._subscribe(step.a, step.b, from_start=step.flag)
            case "unsubscribe":
                self._unsubscribe(step.a, step.b)
            case "renew":
                self._renew(step.a, step.b)
            case "kill":
                fleet.kill(step.a, down_s=step.lasts_s)
            case "wipe":
                fleet.kill(step.a, down_s=step.lasts_s, keep_disk=False)
            case "lose":
                fleet.lose(step.a)
            case "pause":
                fleet.pause(step.a)
                after(step.lasts_s, lambda: fleet.resume(step.a))
            case "cut":
                rest = set(range(fleet.size)) - set(step.group)
                fleet.cut([set(step.group), rest])
                after(step.lasts_s, fleet.heal)
            case "reset":
                fleet.reset(step.a, step.b)
            case "move":
                assert step.place is not None, "a move leads somewhere"
                fleet.move(step.a, step.place)
            case "withhold":
                fleet.turn_hostile(step.a, self.run.hostile)
            case _:
                raise AssertionError(f"unknown step {step}")

    def _end_faults(self) -> None:
        """Whatever is still broken is mended now."""
        self._fleet.heal()
        for index in range(self._fleet.size):
            if self._fleet.is_up(index):
                self._fleet.resume(index)
            elif not self._fleet.is_gone(index):
                self._fleet.restart(index)

    def _create(self, number: int, topic: TopicPlan) -> None:
        peer = self.run.world.peer
        allowed = topic.allowed
        order = DeliveryOrder(topic.order)
        settings = TopicSettings(
            open=allowed is None and order is not DeliveryOrder.TOTAL,
            publishers=tuple(map(peer, allowed or ())),
            request_to_publish=topic.requests,
            linking=EventLinking(topic.linking),
            order=order,
            sequencers=_sequencers(topic, peer) if order is DeliveryOrder.TOTAL else (),
            retention=Retention(count=topic.retention_count),
            dissemination=Dissemination(topic.dissemination),
        )

        def created(cid: Cid | None) -> None:
            self.topics[number] = cid
            if cid is not None:
                first = self.run.applications.first_versions[cid]
                self.topics[len(self.plan.topics) + number] = first.subtopics[META]
            self._outstanding -= 1

        self._outstanding += 1
        self.run.applications.create(topic.creator, f"topic-{number}", settings, created)

    def _subscribe(self, number: int, index: int, *, from_start: bool = False) -> None:
        topic = self.topics[number]
        if topic is not None and not self._fleet.is_gone(index):
            self._outstanding += 1
            self.run.applications.subscribe(index, topic, self._answered, from_start=from_start)

    def _unsubscribe(self, number: int, index: int) -> None:
        topic = self.topics[number]
        if topic is not None and not self._fleet.is_gone(index):
            self._outstanding += 1
            self.run.applications.unsubscribe(index, topic, self._answered)

    def _renew(self, number: int, index: int) -> None:
        topic = self.topics[number]
        if topic is not None and not self._fleet.is_gone(index):
            self._outstanding += 1
            self.run.applications.renew(index, topic, self._answered)

    def _publish(self, number: int, index: int, *, replicated: bool) -> None:
        topic = self.topics[number]
        if topic is None or self._fleet.is_gone(index):
            self.run.dropped += 1
            return
        self._outstanding += 1
        self._injections += 1
        self.run.applications.publish(
            index,
            topic,
            b"event %d" % self._injections,
            injection=str(self._injections),
            then=self._answered,
            replicated=replicated,
        )
