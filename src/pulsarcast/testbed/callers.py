"""Callers: the programs that stand on the nodes and use them, and the account that they keep.

They do what the simulator's `Applications` do, through the same names, so that its workload driver
can drive either. Their trace is the load driver's: what was injected and seen acknowledged, and
what the testbed did to a node. Loss is judged by it, and it is never killed (docs/spec/trace.md).
"""

from __future__ import annotations

import signal
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid, PeerId, peer_text
from pulsarcast.model.topic_types import TopicSettings
from pulsarcast.protocol.inputs import Now
from pulsarcast.simulation.applications import ATTEMPTS, RETRY_S
from pulsarcast.simulation.tracing import TraceWriter
from pulsarcast.testbed.fleet import Death, Fleet
from pulsarcast.testbed.messages import (
    Answer,
    Command,
    Created,
    CreateTopic,
    Failed,
    Published,
    PublishWith,
    Subscribe,
)
from pulsarcast.testbed.messages import Publish as PublishCommand
from pulsarcast.testbed.proxies import Proxies

DRIVER: Final = "driver"
"""The node_id of the load driver, as in the simulator."""


class DriverTrace:
    """The load driver's own trace."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self._writer = TraceWriter(folder, run_id, name_of=str)

    def write(self, record: trace.Record) -> None:
        """Write one record."""
        now = Now(time.monotonic(), time.time_ns() // 1000)
        self._writer.write(DRIVER, 1, now, record)

    def close(self) -> None:
        """Close what is open."""
        self._writer.close()


class Stage:
    """What the workload driver asks of a world: peers and time."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def peer(self, index: int) -> PeerId:
        """A node's peer id."""
        return self._fleet.peers[index]

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Do something later."""
        self._fleet.after(delay_s, act)


class Nodes:
    """The fleet, as the workload driver sees it, and what may be done to it on purpose."""

    def __init__(self, fleet: Fleet, note: Callable[[trace.Record], None]) -> None:
        self.size = fleet.size
        self.stage = Stage(fleet)
        self.faults: dict[str, int] = {}
        self.restarted: list[Callable[[int], None]] = []
        """To be told of every node that is up again."""
        self._fleet = fleet
        self._note = note
        self._returning: dict[int, list[Callable[[], None]]] = {}
        """Nodes that were taken down and come back, and who waits for that."""
        self._paused: dict[int, None] = {}
        self._stopping: dict[int, float | None] = {}
        """Nodes that were told to end, and how long they stay away."""
        fleet.on_death(self._ended)

    def is_ready(self, index: int) -> bool:
        """Whether a node runs and is not about to end."""
        return self._fleet.is_up(index) and not (
            index in self._returning or index in self._stopping
        )

    def is_gone(self, index: int) -> bool:
        """Whether a node does not run, and will not again."""
        return not self._fleet.is_up(index) and index not in self._returning

    @property
    def all_are_well(self) -> bool:
        """Whether nobody is down who comes back, or paused."""
        return not (self._returning or self._paused)

    def when_back(self, index: int, act: Callable[[], None]) -> bool:
        """Do something as soon as a node is back; whether it is away at all."""
        if index not in self._returning:
            return False
        self._returning[index].append(act)
        return True

    # Faults, under the names that the simulator gives them.

    def kill(self, index: int, *, down_s: float | None = None) -> None:
        """SIGKILL; start it again after so long, in its old home."""
        if not self.is_ready(index):
            return
        self.tell("kill", index)
        if down_s is not None:
            self._returning[index] = []
            self._fleet.after(down_s, lambda: self._restart(index))
        self._fleet.kill(index)

    def stop(self, index: int, *, down_s: float | None = None) -> None:
        """Let a node end in good order; start it again so long after that."""
        if not self.is_ready(index):
            return
        self.tell("stop", index)
        self._stopping[index] = down_s
        if down_s is not None:
            self._returning[index] = []
        self._fleet.stop(index)

    def start(self, index: int) -> None:
        """Start a node again that was stopped or killed for an unknown time."""
        if not self._fleet.is_up(index) and index not in self._returning:
            self._returning[index] = []
            self._restart(index)

    def pause(self, index: int, *, for_s: float) -> None:
        """SIGSTOP, and SIGCONT after so long."""
        if self.is_ready(index):
            self.tell("pause", index)
            self._paused[index] = None
            self._fleet.pause(index)
            self._fleet.after(for_s, lambda: self._resume(index))

    def cut(self, group: Sequence[int]) -> None:
        """Cut nodes off from all others."""
        others = [index for index in range(self.size) if index not in group]
        self.tell("cut", None, f"{list(group)} | {others}")
        self._proxies.cut(group)

    def heal(self) -> None:
        """Undo it."""
        self.tell("heal", None)
        self._proxies.heal()

    @property
    def _proxies(self) -> Proxies:
        assert self._fleet.proxies is not None, "without proxies nothing can be cut"
        return self._fleet.proxies

    def tell(self, action: str, index: int | None, detail: str = "") -> None:
        """Write down, and count, what was done to a node, or to the network."""
        self.faults[action] = self.faults.get(action, 0) + 1
        target = "network" if index is None else peer_text(self.stage.peer(index))
        life = None if index is None else self._fleet.life(index)
        self._note(trace.Fault(action, target, detail, life))

    def _ended(self, death: Death) -> None:
        told_to = death.node in self._stopping or self._fleet.is_ending
        late = death.how == signal.SIGKILL.name and not death.by_limit
        if told_to and late and death.node in self._fleet.peers:
            # It took too long to end: the checker must know who ended it.
            self.tell("kill", death.node)
        if death.node not in self._stopping:
            return
        down_s = self._stopping.pop(death.node)
        if down_s is not None:
            self._fleet.after(down_s, lambda: self._restart(death.node))

    def _restart(self, index: int) -> None:
        if self._fleet.is_ending:
            return  # who is down when all are stopped stays so
        self.tell("restart", index)
        self._fleet.restart(index, lambda answer: self._is_back(index, answer))

    def _is_back(self, index: int, answer: Answer) -> None:
        waiting = self._returning.pop(index)
        if not isinstance(answer, Failed):
            for told in self.restarted:
                told(index)
        for act in waiting:
            act()

    def _resume(self, index: int) -> None:
        del self._paused[index]
        if self._fleet.is_up(index):
            self.tell("resume", index)
            self._fleet.resume(index)


class Callers:
    """The programs on all nodes of a fleet: up to five attempts a command (thesis, 5)."""

    def __init__(
        self, fleet: Fleet, *, replicas: int, note: Callable[[trace.Record], None]
    ) -> None:
        self.fleet = Nodes(fleet, note)
        self.subscribed = 0
        self.injected = 0
        self.acknowledged = 0
        self.levels: dict[str, int] = {}
        """Acknowledgements by the level that was reached."""
        self.refused: dict[str, int] = {}
        """Commands given up, by reason."""
        self.retries = 0
        self.answered_us = array("Q")
        """How long each publisher waited for its acknowledgement."""
        self.promised: set[int] = set()
        """Numbers of the events that were acknowledged."""
        self.halted: dict[int, str] = {}
        """Nodes that have said that they promise nothing any more, and why."""
        self.promised_by_halted = 0
        self._fleet = fleet
        self._replicas = replicas
        self._note = note
        self._wanted: dict[tuple[int, Cid], None] = {}
        self._subscribing: dict[tuple[int, Cid], None] = {}
        self.fleet.restarted.append(self._begin_again)

    def create(
        self,
        index: int,
        name: str,
        settings: TopicSettings,
        then: Callable[[Cid | None], None],
    ) -> None:
        """Create a topic; `then` hears its CID. Of the settings, these three go to the node."""
        order, travel = settings.order.value, settings.dissemination.value
        sequencers = [bytes(peer) for peer in settings.sequencers]

        def answered(answer: Answer) -> None:
            then(Cid(answer.topic) if isinstance(answer, Created) else None)

        self._insist(
            index, lambda call: CreateTopic(call, name, order, travel, sequencers), answered
        )

    def subscribe(self, index: int, topic: Cid, then: Callable[[bool], None] | None = None) -> None:
        """Subscribe a node, and again whenever it starts again."""
        self._wanted[index, topic] = self._subscribing[index, topic] = None

        def answered(answer: Answer) -> None:
            self._subscribing.pop((index, topic), None)
            self.subscribed += not isinstance(answer, Failed)
            if then is not None:
                then(not isinstance(answer, Failed))

        self._insist(index, lambda call: Subscribe(call, topic), answered)

    def publish(
        self,
        index: int,
        topic: Cid,
        payload: bytes,
        *,
        injection: str,
        then: Callable[[Cid | None], None] | None = None,
        replicated: bool = True,
        attributes: Mapping[str, bool | int | float | str] | None = None,
    ) -> None:
        """Publish, or request to, and keep account of what was promised."""
        self.injected += 1
        author = self.fleet.stage.peer(index)
        self._note(trace.Injected(topic=topic, injection=injection, author=author))
        ack = "replicated" if replicated else "accepted"

        def make(call: int) -> Command:
            number = int(injection)
            if attributes is None:
                return PublishCommand(call, topic, payload, number, injection, ack)
            return PublishWith(call, topic, payload, dict(attributes), number, injection, ack)

        asked_ns = time.monotonic_ns()

        def answered(answer: Answer) -> None:
            cid = Cid(answer.event) if isinstance(answer, Published) else None
            if isinstance(answer, Published) and cid is not None:
                self.answered_us.append((time.monotonic_ns() - asked_ns) // 1000)
                self._acknowledge(topic, cid, injection, answer.replicas)
                self.promised_by_halted += index in self.halted
            if then is not None:
                then(cid)

        self._insist(index, make, answered)

    def _acknowledge(self, topic: Cid, event: Cid, injection: str, replicas: int) -> None:
        self.acknowledged += 1
        self.promised.add(int(injection))
        level = "replicated" if replicas >= self._replicas else "accepted"
        self.levels[level] = self.levels.get(level, 0) + 1
        self._note(
            trace.Acknowledged(
                topic=topic, event=event, injection=injection, level=level, replicas=replicas
            )
        )

    def _insist(
        self, index: int, make: Callable[[int], Command], then: Callable[[Answer], None]
    ) -> None:
        """Give a command up to five times, and again to a node that fell and is back."""
        left = ATTEMPTS

        def give() -> None:
            self._fleet.ask(index, make, answered)

        def answered(answer: Answer) -> None:
            nonlocal left
            left -= 1
            if isinstance(answer, Failed) and self.fleet.when_back(index, give):
                left += 1  # no attempt: the program on it fell with its node
                return
            if isinstance(answer, Failed) and left and not self.fleet.is_gone(index):
                self.retries += 1
                self._fleet.after(RETRY_S * 2.0 ** (ATTEMPTS - 1 - left), give)
                return
            if isinstance(answer, Failed):
                self.refused[answer.error] = self.refused.get(answer.error, 0) + 1
            then(answer)

        give()

    def _begin_again(self, index: int) -> None:
        """A node is up again, and so is the program on it: it listens where it listened."""
        self.halted.pop(index, None)
        for node, topic in list(self._wanted):
            # What was not answered when the node fell is asked again anyhow.
            if node == index and (node, topic) not in self._subscribing:
                self.subscribe(index, topic)
