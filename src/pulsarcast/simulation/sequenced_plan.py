"""Random plans for topics with several sequencers, which are what breaks most.

Of 2f+1 sequencers at most f lose their stores in a run, and no more than r-1 nodes do so in all:
that is what is promised. Kills, pauses and cuts hit any number.
"""

from __future__ import annotations

from random import Random

import msgspec

from pulsarcast.protocol.parameters import Parameters
from pulsarcast.simulation import random_plan
from pulsarcast.simulation.random_plan import CALM_S, RandomPlan, Step, TopicPlan


def make_sequenced_plan(seed: int) -> RandomPlan:
    """The plan that belongs to a seed, always the same one."""
    rng = Random(f"sequenced/{seed}")
    nodes = rng.randint(6, 16)
    duration_s = rng.uniform(60.0, 150.0)
    latency_s = 0.001 * 300.0 ** rng.random()
    topics = tuple(_topic(rng, nodes) for _ in range(rng.choice((1, 1, 2))))
    events = random_plan._events(rng, topics, duration_s)
    churn = random_plan._churn(rng, nodes, topics, duration_s)
    steps = [*events, *churn, *_faults(rng, nodes, topics, duration_s - CALM_S)]
    return RandomPlan(
        seed=seed,
        nodes=nodes,
        latency_s=latency_s,
        jitter_s=latency_s * rng.uniform(0.0, 0.6),
        parameters=_parameters(rng),
        clocks=tuple(random_plan._clock(rng) for _ in range(nodes)),
        topics=topics,
        steps=tuple(sorted(steps, key=lambda step: step.at_s)),
        duration_s=duration_s,
    )


def _parameters(rng: Random) -> Parameters:
    """Logs so short that those who were away have missed more than they hold."""
    usual = random_plan._parameters(rng)
    return msgspec.structs.replace(usual, sequencer_log=rng.choice((4, 16, 64)))


def _topic(rng: Random, nodes: int) -> TopicPlan:
    sequencers = tuple(rng.sample(range(nodes), rng.choice((3, 3, 5))))
    creator = rng.choice((sequencers[0], rng.randrange(nodes)))
    return TopicPlan(
        creator=creator,
        order="total",
        allowed=sequencers,
        retention_count=rng.randint(5, 25) if rng.random() < 0.2 else None,
        subscribers=random_plan._some(rng, nodes, 2, nodes),
        authors=random_plan._some(rng, nodes, 1, 6),
        sequencers=sequencers,
    )


def _faults(rng: Random, nodes: int, topics: tuple[TopicPlan, ...], until_s: float) -> list[Step]:
    """What breaks: mostly sequencers."""
    kinds = [kind for kind in ("kill", "wipe", "pause", "cut", "reset") if rng.random() < 0.65]
    sequencers = [node for topic in topics for node in topic.sequencers]
    steps: list[Step] = []

    def when() -> float:
        return rng.uniform(0.0, until_s)

    def victim() -> int:
        return rng.choice(sequencers) if rng.random() < 0.75 else rng.randrange(nodes)

    if "kill" in kinds:
        steps += [
            Step(when(), "kill", victim(), lasts_s=rng.choice((0.3, 10.0, 40.0)) * rng.random())
            for _ in range(rng.randint(2, 10))
        ]
    if "wipe" in kinds:
        steps += _wipes(rng, nodes, topics, until_s)
    if "pause" in kinds:
        steps += [
            Step(when(), "pause", victim(), lasts_s=rng.uniform(0.5, 30.0))
            for _ in range(rng.randint(1, 5))
        ]
    if "cut" in kinds:
        for start_s in random_plan._apart(rng, rng.randint(1, 3), until_s, 45.0):
            group = random_plan._some(rng, nodes, 1, nodes - 1)
            steps.append(Step(start_s, "cut", lasts_s=rng.uniform(2.0, 40.0), group=group))
    if "reset" in kinds:
        for _ in range(rng.randint(1, 15)):
            one, other = rng.sample(range(nodes), 2)
            steps.append(Step(when(), "reset", one, other))
    return steps


def _wipes(rng: Random, nodes: int, topics: tuple[TopicPlan, ...], until_s: float) -> list[Step]:
    """Lost disks: no more than any topic's sequencers, or the DHT, can do without."""
    left = {number: (len(topic.sequencers) - 1) // 2 for number, topic in enumerate(topics)}
    steps: list[Step] = []
    for node in rng.sample(range(nodes), rng.randint(1, Parameters().replicas - 1)):
        hit = [number for number, topic in enumerate(topics) if node in topic.sequencers]
        if all(left[number] for number in hit):
            for number in hit:
                left[number] -= 1
            at_s = rng.uniform(0.0, until_s)
            steps.append(Step(at_s, "wipe", node, lasts_s=rng.uniform(0.5, 30.0)))
    return steps
