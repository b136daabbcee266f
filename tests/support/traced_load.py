"""A load on nodes of a lab that all write traces, and the driver's own trace of it.

The driver says what it asked for, what it was promised, and which node it killed
(docs/spec/trace.md). `pulsarcast pipeline` judges: nobody else knows what was due.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pulsarcast.model import trace
from pulsarcast.model.ids import parse_cid, parse_peer
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.testbed.callers import DriverTrace
from tests.support.internet import Machine
from tests.support.remote_nodes import Asked, RemoteNode

PIPELINE_S_MAX: Final = 600.0
"""It only ends what hangs."""


@dataclass
class Place:
    """A machine, the home on it, and the node that lives there now."""

    machine: Machine
    home: Path
    options: dict[str, Any]
    node: RemoteNode
    incarnation: int = 1
    is_up: bool = True
    topics: list[str] = field(default_factory=list)
    """The topics that its program listens to, in all its lives."""
    earlier: list[dict[str, Any]] = field(default_factory=list)
    """What the node said of itself before each kill."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    def status(self) -> dict[str, Any]:
        """What the node says of itself now."""
        return self.node.ask("status")


@dataclass
class Topic:
    """A topic, and which nodes listen and publish."""

    id: str
    author: Place
    speakers: list[Place]
    """Nodes that publish themselves, or ask a publisher to."""
    members: list[Place]


@dataclass
class _Published:
    """An event that was asked for."""

    topic: Topic
    by: Place
    asked: Asked
    asked_s: float
    is_acknowledged: bool = False


class TracedLoad:
    """Starts nodes, publishes on them, kills them, and keeps the account of it."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.traces = folder / "traces"
        self.published: dict[str, _Published] = {}
        """By text."""
        self.published_s: list[float] = []
        """How long each publication waited for its acknowledgement."""
        self.subscribed_s: list[float] = []
        self.places: list[Place] = []
        self._folder = folder
        self._run_id = run_id
        self._trace = DriverTrace(self.traces, run_id)

    # Nodes.

    def start(self, machine: Machine, name: str, bootstrap: list[str]) -> Place:
        """Start a node that writes a trace."""
        options = {
            "bootstrap": bootstrap,
            "trace_level": "delivery",
            "trace_folder": str(self.traces),
            "run_id": self._run_id,
        }
        home = self._folder / name
        place = Place(machine, home, options, RemoteNode(machine, home, **options))
        self.places.append(place)
        return place

    def kill(self, place: Place) -> None:
        """SIGKILL."""
        place.earlier.append(place.status())
        self._trace.write(trace.Fault("kill", place.node.peer, "", place.incarnation))
        os.kill(place.node.pid, signal.SIGKILL)
        place.node.wait_until_ended()
        place.is_up = False

    def restart(self, place: Place) -> None:
        """Start a killed node again, with its disk, and its program with it."""
        self._trace.write(trace.Fault("restart", place.node.peer, "", place.incarnation))
        seen = place.node.seen
        place.node = RemoteNode(place.machine, place.home, **place.options)
        place.node.seen = seen
        place.node.wait_until_up()
        place.incarnation += 1
        place.is_up = True
        for topic in place.topics:
            place.node.ask("subscribe", topic=topic)

    def stop(self) -> None:
        """End all nodes in good order, and the trace with them."""
        for place in self.places:
            place.node.begin_to_stop()
        for place in self.places:
            place.node.wait_until_ended()
        self._trace.close()

    # The load.

    def create(
        self, name: str, order: str, *, publishers: list[Place], askers: list[Place],
        members: list[Place],
    ) -> Topic:  # fmt: skip
        """Make a topic of the first publisher, to which all members subscribe."""
        author = publishers[0]
        peers = [place.node.peer for place in publishers]
        made = author.node.ask("create", name=name, order=order, publishers=peers)
        topic = Topic(made["topic"], author, [*publishers, *askers], members)
        asked = []
        for place in members:
            place.topics.append(topic.id)
            asked.append(place.node.tell("subscribe", topic=topic.id))
        self.subscribed_s += [each.answer()["took_s"] for each in asked]
        return topic

    def publish(self, topic: Topic, by: Place) -> None:
        """Publish the next event, or ask a publisher to; nobody waits for it."""
        number = len(self.published)
        text = f"event {number} by {by.name}"
        cid, author = parse_cid(topic.id), parse_peer(by.node.peer)
        self._trace.write(trace.Injected(topic=cid, injection=str(number), author=author))
        asked_s = time.monotonic()
        asked = by.node.tell("publish", topic=topic.id, text=text, injection=str(number))
        self.published[text] = _Published(topic, by, asked, asked_s)

    def note_answers(self, *, wait: bool = False) -> None:
        """Write down what was promised since the last time."""
        for text, each in self.published.items():
            if each.is_acknowledged or not (wait or each.asked.is_answered):
                continue
            answer = each.asked.answer()
            replicated = answer["replicas"] >= Parameters().replicas
            self._trace.write(
                trace.Acknowledged(
                    topic=parse_cid(each.topic.id),
                    event=parse_cid(answer["id"]),
                    injection=text.split()[1],
                    level="replicated" if replicated else "accepted",
                    replicas=answer["replicas"],
                )
            )
            self.published_s.append(answer["took_s"])
            each.is_acknowledged = True

    # The account.

    @property
    def due(self) -> int:
        """Events times members."""
        return sum(len(each.topic.members) for each in self.published.values())

    def delivered_s(self, *, up: bool = False) -> list[float]:
        """How long each delivery took; `up`: to nodes that were never killed."""
        return [
            place.node.seen[text] - each.asked_s
            for text, each in self.published.items()
            for place in each.topic.members
            if text in place.node.seen and not (up and place.earlier)
        ]

    def missing(self) -> dict[str, list[str]]:
        """What nodes lack."""
        found: dict[str, list[str]] = {}
        for text, each in self.published.items():
            for place in each.topic.members:
                if text not in place.node.seen:
                    found.setdefault(place.name, []).append(text)
        return found

    def wait_until_delivered(self, seconds: float) -> None:
        """Wait until no member lacks anything, or until the time is over."""
        until_s = time.monotonic() + seconds
        while self.missing() and time.monotonic() < until_s:
            time.sleep(0.2)


def pipeline(*words: str | Path) -> dict[str, Any]:
    """Run a command of `pulsarcast pipeline` in a process of its own; what it says as JSON."""
    command = [sys.executable, "-m", "pulsarcast", "pipeline", *map(str, words), "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PIPELINE_S_MAX, check=False
    )
    assert done.stdout, f"{command}: {done.stderr[-4000:]}"
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said
