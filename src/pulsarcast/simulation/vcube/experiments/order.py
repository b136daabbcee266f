"""Causal order (4.3): somebody asks, everybody answers; how large are barriers, who waits?"""

from __future__ import annotations

import random
from collections import Counter

from pulsarcast.simulation.vcube.network import Network
from pulsarcast.simulation.vcube.node import Message
from pulsarcast.simulation.vcube.settings import Setting

_TOPIC = 0


def run(setting: Setting, rng: random.Random) -> dict[str, float]:
    """Publish the first messages at once; whoever has them all answers after a while."""
    askers = rng.sample(range(setting.nodes), setting.first_messages)
    first = {(asker, 1) for asker in askers}
    seen = [0] * setting.nodes

    def on_deliver(node: int, message: Message) -> None:
        if (message.source, message.counter) not in first or node in askers:
            return
        seen[node] += 1
        if seen[node] == len(first):
            network.publish_at(network.now + _take(setting, rng), node, _TOPIC)

    network = Network.of(setting, on_deliver=on_deliver)
    network.begin_with(_TOPIC, range(setting.nodes), shared=True)
    for asker in askers:
        network.publish_at(0, asker, _TOPIC)
    tally = network.run()
    assert network.held() == 0, "a message was never delivered"
    return {
        "deliveries": sum(tally.delays.values()),
        "latency_mean": tally.latency / tally.receptions,
        "messages": sum(network.queues.copies),
        **_barriers(tally.barriers),
        **_delays(tally.delays),
    }


def _take(setting: Setting, rng: random.Random) -> int:
    if setting.answer == "uniform":
        return rng.randint(0, round(2 * setting.answer_mean))
    return round(rng.expovariate(1 / setting.answer_mean))


def _barriers(sizes: Counter[int]) -> dict[str, float]:
    """Figure 6: how large barriers are, in % of the messages."""
    total = sum(sizes.values())

    def percent(low: int, high: int) -> float:
        return 100 * sum(count for size, count in sizes.items() if low <= size <= high) / total

    return {
        "barrier_1_percent": percent(1, 1),
        "barrier_below_5_percent": percent(0, 4),
        "barrier_10_percent": percent(10, 10),
        "barrier_below_15_percent": percent(0, 14),
        "barrier_mean": sum(size * count for size, count in sizes.items()) / total,
        "barrier_max": max(sizes),
    }


def _delays(delays: Counter[int]) -> dict[str, float]:
    """How long deliveries waited for causal order."""
    total = sum(delays.values())
    return {
        "delay_none_percent": 100 * delays[0] / total,
        "delay_below_10_percent": 100 * sum(n for t, n in delays.items() if t < 10) / total,
        "delay_above_50": sum(n for t, n in delays.items() if t > 50),
        "delay_max": max(delays),
    }
