"""Members that come and go (4.5): for each that leaves another joins, all the time.

t_med is the median session, and N nodes with that median have N ln 2 / t_med departures in the same
unit of time (the paper's source for it, "Handling churn in a DHT"). The paper's figures are those
of that formula in seconds (46 at 4000 members and one minute), its text says "per minute".
"""

from __future__ import annotations

import math
import random
from typing import Protocol

from pulsarcast.simulation.vcube.network import Act, Network, Tally
from pulsarcast.simulation.vcube.settings import Setting
from pulsarcast.simulation.vcube.single_root import SingleRootNetwork

_TOPIC = 0
_MS = 1000


class Churning(Protocol):
    """What both systems can be asked for."""

    def at(self, when: int, act: Act) -> None:
        """Let a user do something."""

    def run(self) -> Tally:
        """Go on until nothing is on its way."""


class Users:
    """Who is in, and what they do next."""

    def __init__(self, setting: Setting, rng: random.Random) -> None:
        assert setting.members is not None, "how many members?"
        nodes = list(range(setting.nodes))
        rng.shuffle(nodes)
        self.inside, self.outside = nodes[: setting.members], nodes[setting.members :]
        self._rng = rng

    def swap(self) -> tuple[int, int]:
        """One leaves, another one joins."""
        going = self._rng.randrange(len(self.inside))
        coming = self._rng.randrange(len(self.outside))
        pair = self.inside[going], self.outside[coming]
        self.inside[going], self.outside[coming] = pair[1], pair[0]
        return pair

    def publisher(self) -> int:
        """Any of those inside."""
        return self._rng.choice(self.inside)


def run(setting: Setting, rng: random.Random) -> dict[str, float]:
    """Publish every `interval`, while members come and go."""
    users = Users(setting, rng)
    due = 0
    root = rng.randrange(setting.nodes)
    network: Network | SingleRootNetwork
    if setting.system == "srpt":
        single = network = SingleRootNetwork(setting.nodes, setting.delays, root, users.inside)
        publish, join, leave = single.publish, single.subscribe, single.unsubscribe
    else:
        cube = network = Network.of(setting)
        cube.begin_with(_TOPIC, users.inside, shared=setting.session_s is None)

        def publish(node: int) -> bool:
            return cube.publish(node, _TOPIC)

        def join(node: int) -> bool:
            return cube.subscribe(node, _TOPIC)

        def leave(node: int) -> bool:
            return cube.unsubscribe(node, _TOPIC)

    def swap(_: int) -> None:
        leaving, joining = users.swap()
        leave(leaving)
        join(joining)

    def say(_: int) -> None:
        nonlocal due
        if publish(users.publisher()):
            due += len(users.inside) - 1

    swaps = _plan(network, setting, rng, swap, say)
    tally = network.run()
    queues = network.queues
    received = tally.receptions + tally.false_positives
    figures: dict[str, float] = {
        "deliveries": tally.receptions,
        "due": due,
        "coverage_percent": 100 * tally.receptions / max(1, due),
        "latency_mean": tally.latency / max(1, tally.receptions),
        "false_positive_percent": 100 * tally.false_positives / max(1, received),
        "queue_wait_mean": sum(queues.waited) / max(1, sum(queues.copies)),
        "queue_wait_root": queues.waited[root] / max(1, queues.copies[root]),
        "messages": sum(queues.copies),
        "swaps": swaps,
    }
    if isinstance(network, Network):
        figures["held_percent"] = 100 * network.held() / max(1, tally.receptions)
    return figures


def _plan(network: Churning, setting: Setting, rng: random.Random, swap: Act, say: Act) -> int:
    """Say when everybody does what, until the end; return how many leave."""
    end = setting.duration_s * _MS
    swaps = 0
    if setting.session_s is not None:
        assert setting.members is not None
        per_ms = setting.members * math.log(2) / setting.session_s / setting.churn_unit_s / _MS
        at = rng.expovariate(per_ms)
        while at < end:
            network.at(round(at), swap)
            at += rng.expovariate(per_ms)
            swaps += 1
    at = setting.interval
    while at <= end:
        network.at(round(at), say)
        at += setting.interval
    return swaps
