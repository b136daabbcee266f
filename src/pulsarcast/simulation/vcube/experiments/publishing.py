"""One publisher (4.1), many (4.2), and brokers (4.6): how long messages take, who carries them."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import fmean, pstdev

from pulsarcast.simulation.vcube.broadcast import Measured, Publication, Tree, broadcast
from pulsarcast.simulation.vcube.settings import Setting
from pulsarcast.simulation.vcube.trees import broker_table, single_root_table, vcube_table

PUBLISHED_WITHIN = 1000
"""Publishers of 4.2 publish once, at a time between 0 and this."""
QUEUES = (0, 2, 4, 8, 16, 32, 4096, 8192, 16384)
"""The groups of table 1, and one more: above each, up to the next."""


def run(setting: Setting, rng: random.Random) -> dict[str, float]:
    """Publish through trees that do not change."""
    subscribers = sorted(
        rng.sample(range(setting.nodes), round(setting.nodes * setting.subscribers))
    )
    root = rng.randrange(setting.nodes if setting.brokers is None else setting.brokers)
    publications = plan(setting, subscribers, rng)
    measured = broadcast(
        setting.nodes,
        [tree_of(setting, subscribers, root)],
        publications,
        setting.delays,
        combine_max=setting.combine_max,
        per_link=setting.queues == "link",
    )
    figures = summarize(setting, measured, subscribers, publications)
    figures["queue_root_mean"] = measured.transmitters.queue_mean(root)
    figures["queue_root_max"] = measured.transmitters.longest[root]
    return figures


def plan(setting: Setting, subscribers: list[int], rng: random.Random) -> list[Publication]:
    """Who publishes when."""
    if setting.publishers is not None:
        chosen = rng.sample(subscribers, round(len(subscribers) * setting.publishers))
        return [Publication(rng.randint(0, PUBLISHED_WITHIN), each) for each in chosen]
    at, plans = 0.0, []
    for _ in range(setting.messages):
        plans.append(Publication(round(at), rng.choice(subscribers)))
        at += rng.expovariate(1 / setting.interval)
    return plans


def tree_of(setting: Setting, subscribers: list[int], root: int) -> Tree:
    """The system's tree; VCube-PS has one table for all of its trees."""
    view = None
    if len(subscribers) < setting.nodes:
        view = bytearray(setting.nodes)
        for each in subscribers:
            view[each] = 1
    if setting.system == "brokers":
        assert setting.brokers is not None, "how many brokers?"
        ways_in = [node % setting.brokers for node in range(setting.nodes)]
        return Tree(broker_table(setting.nodes, setting.brokers), root, ways_in)
    if setting.system == "srpt":
        return Tree(single_root_table(setting.nodes, root, view), root)
    return Tree(vcube_table(setting.nodes, view))


def summarize(
    setting: Setting,
    measured: Measured,
    subscribers: list[int],
    publications: list[Publication],
) -> dict[str, float]:
    """The figures of one run."""
    queues = measured.transmitters
    got = sum(measured.received[node] for node in subscribers)
    due = sum(len(subscribers) - 1 for _ in publications)
    means = [queues.queue_mean(node) for node in range(setting.nodes)]
    copies = sum(queues.copies)
    figures: dict[str, float] = {
        "deliveries": got,
        "coverage": got / due,
        "latency_mean": sum(measured.latency[node] for node in subscribers) / max(1, got),
        "latency_last": fmean(
            done - each.at for done, each in zip(measured.finished_at, publications, strict=True)
        ),
        "messages": copies,
        "messages_entering": measured.entered,
        "false_positives": sum(measured.received) - got,
        "queue_mean": fmean(means),
        "queue_sd": pstdev(means),
        "queue_wait_mean": sum(queues.waited) / max(1, copies),
        "queue_longest": max(queues.longest),
    }
    figures["nodes_queue_0"] = sum(mean == 0 for mean in means)
    for low, high in pairwise(QUEUES):
        figures[f"nodes_queue_{high}"] = sum(low < mean <= high for mean in means)
    inside = figures["nodes_queue_8"] + figures["nodes_queue_16"]
    figures["nodes_queue_4_to_16_percent"] = 100 * inside / setting.nodes
    if setting.brokers is not None:
        figures |= _of_brokers(setting.brokers, measured)
    return figures


def _of_brokers(brokers: int, measured: Measured) -> dict[str, float]:
    """How long a message is in the tree, and how long from a broker to its subscribers."""
    tree = sum(measured.latency[:brokers]) / sum(measured.received[:brokers])
    whole = sum(measured.latency[brokers:]) / sum(measured.received[brokers:])
    return {"latency_tree": tree, "latency_broker": whole - tree}
