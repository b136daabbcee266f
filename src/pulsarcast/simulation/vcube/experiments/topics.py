"""Many topics, some of them hot (4.4): messages of all nodes, on topics by Zipf's law or evenly."""

from __future__ import annotations

import random
from itertools import accumulate

from pulsarcast.simulation.vcube.broadcast import Publication, Tree, broadcast
from pulsarcast.simulation.vcube.network import Network
from pulsarcast.simulation.vcube.settings import Setting
from pulsarcast.simulation.vcube.trees import vcube_table


def run(setting: Setting, rng: random.Random) -> dict[str, float]:
    """Everybody subscribes to everything, and publishes now and then."""
    publications = plan(setting, rng)
    if setting.system == "srpt":
        table = vcube_table(setting.nodes, None)  # with everybody in it, nobody only forwards
        trees = [Tree(table, rng.randrange(setting.nodes)) for _ in range(setting.topics)]
        measured = broadcast(setting.nodes, trees, publications, setting.delays)
        queues = measured.transmitters
        latency, received = sum(measured.latency), sum(measured.received)
    else:
        network = Network.of(setting)
        for topic in range(setting.topics):
            network.begin_with(topic, range(setting.nodes), shared=True)
        for each in publications:
            network.publish_at(each.at, each.publisher, each.tree)
        tally = network.run()
        assert network.held() == 0, "a message was never delivered"
        queues = network.queues
        latency, received = tally.latency, tally.receptions
    return {
        "deliveries": received,
        "latency_mean": latency / received,
        "messages": sum(queues.copies),
        "queue_wait_mean": sum(queues.waited) / sum(queues.copies),
        "queue_longest": max(queues.longest),
    }


def plan(setting: Setting, rng: random.Random) -> list[Publication]:
    """Each node publishes its share of the messages, every `interval` on average."""
    weights = [1 / rank**setting.zipf for rank in range(1, setting.topics + 1)]
    cumulative = list(accumulate(weights))
    plans = []
    for number in range(setting.nodes):
        count = (setting.messages + number) // setting.nodes
        at = 0.0
        for _ in range(count):
            at += rng.expovariate(1 / setting.interval)
            topic = rng.choices(range(setting.topics), cum_weights=cumulative)[0]
            plans.append(Publication(round(at), number, topic))
    return plans
