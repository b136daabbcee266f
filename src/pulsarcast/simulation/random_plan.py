"""Random plans: what a seed makes of a world, as plain data, before anything runs.

A plan says everything: how many nodes, which topics, who publishes what and when, what breaks and
when. So it can be printed, compared and tested without a world. It promises only what the
protocol promises to survive: at most r-1 lost disks, and never a total order's one sequencer's.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec

from pulsarcast.protocol.parameters import Parameters
from pulsarcast.simulation.places import Place
from pulsarcast.storage.quota import BYTES_MAX

CALM_SHARE = 0.15
"""Seeds without any fault: there, nobody may ever lose its parent."""
HOSTILE_SHARE = 0.3
"""Seeds in which one node turns hostile: it passes nothing on, and hides it."""
CUBE_SHARE = 0.8
"""Topics that are cubes, in runs that have any."""
CAUSAL_SHARE = 0.5
"""Topics with an order per publisher that promise a causal one instead."""
CALM_S = 30.0
"""Between the last fault and the last events, and before the world must settle."""
CROWDED_SHARE = 0.06
"""Seeds in which disks have little room for what other peers send, or none."""
VERSIONS_SHARE = 0.6
"""Topics that some nodes follow for their versions alone; their authors make some."""
ROOMS_BYTES = (0, 5_000, 20_000, 80_000)
"""Such rooms: for no block, for two, eight and thirty of one place."""
RETENTION_INTERVAL_S = 10.0
"""Short, so that a node that was away finds that retention has dropped what it missed."""


class TopicPlan(msgspec.Struct, frozen=True):
    """One topic, and who has to do with it."""

    creator: int
    order: str
    linking: str = "LAST_SEEN"
    allowed: tuple[int, ...] | None = None
    requests: bool = True
    dissemination: str = "tree"
    retention_count: int | None = None
    subscribers: tuple[int, ...] = ()
    """Those there from the beginning."""
    authors: tuple[int, ...] = ()
    """Those who publish or request, subscribed or not."""
    sequencers: tuple[int, ...] = ()
    """Of total order; none: the creator alone."""
    versions_to: tuple[int, ...] = ()
    """Those who follow its versions alone from the beginning: subscribers of its meta topic."""


class Step(msgspec.Struct, frozen=True):
    """Something that is done at a time; what `a` and `b` mean depends on the action.

    Where `a` is a topic, the topics' meta topics are counted behind them.
    """

    at_s: float
    action: str
    a: int = 0
    b: int = 0
    lasts_s: float = 0.0
    flag: bool = False
    group: tuple[int, ...] = ()
    place: Place | None = None


class RandomPlan(msgspec.Struct, frozen=True):
    """Everything about one random run."""

    seed: int
    nodes: int
    latency_s: float
    jitter_s: float
    parameters: Parameters
    clocks: tuple[tuple[float, float], ...]
    """Offset in seconds and drift in ppm of every node's clock."""
    topics: tuple[TopicPlan, ...]
    steps: tuple[Step, ...]
    duration_s: float
    places: tuple[Place, ...] = ()
    """Of every node; none: this world has no addresses."""
    relays: bool = False
    strangers_bytes_max: int = BYTES_MAX
    """Of every disk: room for what other peers have the node keep."""


def make_plan(seed: int, *, dissemination: str = "tree", all_causal: bool = False) -> RandomPlan:
    """The plan that belongs to a seed, always the same one.

    With cubes all else is the same; or all topics are in causal order.
    """
    rng = Random(f"plan/{seed}")
    nodes = rng.randint(5, 40)
    duration_s = rng.uniform(60.0, 240.0)
    latency_s = 0.001 * 800.0 ** rng.random()
    topics = tuple(_topic(rng, nodes) for _ in range(rng.randint(1, 3)))
    # From a source of its own: whatever is not causal stays as it was before there was any.
    causal_rng = Random(f"causal/{seed}")
    topics = tuple(_make_causal(causal_rng, topic, always=all_causal) for topic in topics)
    events = _events(rng, topics, duration_s)
    steps = [
        *events,
        *_talks(causal_rng, topics, duration_s, latency_s),
        *_churn(rng, nodes, topics, duration_s),
        *_faults(rng, nodes, topics, events, duration_s - CALM_S),
    ]
    topics, news = _versions(seed, nodes, topics, steps, duration_s)
    return RandomPlan(
        seed=seed,
        nodes=nodes,
        latency_s=latency_s,
        jitter_s=latency_s * rng.uniform(0.0, 0.6),
        parameters=_with_cubes(seed, _with_barrier(causal_rng, _parameters(rng)), dissemination),
        clocks=tuple(_clock(rng) for _ in range(nodes)),
        topics=tuple(_travelling(seed, topics, dissemination)),
        # By time alone: steps of one time stay in the order in which they were made up.
        steps=tuple(sorted([*steps, *news], key=lambda step: step.at_s)),
        duration_s=duration_s,
        strangers_bytes_max=_room(seed),
    )


def _room(seed: int) -> int:
    """The room for strangers' blocks; from a source of its own, as all else stays as it was."""
    rng = Random(f"rooms/{seed}")
    return rng.choice(ROOMS_BYTES) if rng.random() < CROWDED_SHARE else BYTES_MAX


def _versions(
    seed: int, nodes: int, topics: tuple[TopicPlan, ...], steps: list[Step], duration_s: float
) -> tuple[tuple[TopicPlan, ...], list[Step]]:
    """Some follow the versions of a topic alone, and its author makes some; a source of its own."""
    rng = Random(f"versions/{seed}")
    lost = {step.a for step in steps if step.action in ("wipe", "lose")}
    followed, more = [], []
    for number, topic in enumerate(topics):
        if rng.random() >= VERSIONS_SHARE or topic.creator in lost:
            followed.append(topic)
            continue
        early = _some(rng, nodes, 1, nodes)
        followed.append(msgspec.structs.replace(topic, versions_to=early))
        meta = len(topics) + number
        for node in range(nodes):
            action, chance = ("unsubscribe", 0.15) if node in early else ("subscribe", 0.3)
            if rng.random() < chance:
                more.append(Step(rng.uniform(0.1, 0.9) * duration_s, action, meta, node))
        more += [
            Step(rng.uniform(0.0, duration_s), "renew", number, topic.creator)
            for _ in range(rng.randint(0, 4))
        ]
    return tuple(followed), more


def _parameters(rng: Random) -> Parameters:
    """Small windows and pages, so that their edges are met in a small world."""
    chosen: dict[str, Any] = {
        "fanout": rng.choice((2, 2, 3, 4, 6, 8)),
        "retention_interval_s": RETENTION_INTERVAL_S,
    }
    if rng.random() < 0.5:
        chosen["window_bytes"] = rng.choice((1, 1, 4)) * 512
    if rng.random() < 0.3:
        chosen["held_back_max"] = rng.choice((4, 16))
    if rng.random() < 0.3:
        # Hashed down to single marks, so that few publishers make a start of several parts.
        chosen["frontier_page"], chosen["frontier_list"] = rng.choice((1, 2)), 1
    if rng.random() < 0.3:
        chosen["range_bytes_max"] = rng.choice((1_000, 4_000))
    if rng.random() < 0.3:
        chosen["bucket_size"] = rng.choice((4, 8))
    return Parameters(**chosen)


def _travelling(
    seed: int, topics: tuple[TopicPlan, ...], dissemination: str
) -> Iterator[TopicPlan]:
    """Most topics as cubes, where cubes are asked for."""
    rng = Random(f"travel/{seed}")
    for topic in topics:
        is_cube = rng.random() < CUBE_SHARE and dissemination == "cube"
        yield msgspec.structs.replace(topic, dissemination="cube" if is_cube else "tree")


def _with_cubes(seed: int, parameters: Parameters, dissemination: str) -> Parameters:
    """Views and buckets so small that a small world is a large topic."""
    rng = Random(f"cubes/{seed}")
    if dissemination == "tree" or rng.random() < 0.4:
        return parameters
    return msgspec.structs.replace(
        parameters, cube_view=rng.choice((2, 6, 12)), cube_bucket=rng.choice((1, 2, 3))
    )


def _clock(rng: Random) -> tuple[float, float]:
    if rng.random() < 0.5:
        return (0.0, 0.0)
    return (rng.uniform(-30.0, 30.0), rng.uniform(-200.0, 200.0))


def _some(rng: Random, nodes: int, least: int, most: int) -> tuple[int, ...]:
    return tuple(rng.sample(range(nodes), min(nodes, rng.randint(least, most))))


def _topic(rng: Random, nodes: int) -> TopicPlan:
    creator = rng.randrange(nodes)
    order = rng.choice(("none", "per-publisher", "total"))
    allowed: tuple[int, ...] | None = None
    requests = rng.random() < 0.8
    linking = "LAST_SEEN"
    if order == "total":
        allowed, requests = (creator,), True
    else:
        if rng.random() < 0.5:
            allowed = tuple(dict.fromkeys((creator, *_some(rng, nodes, 1, 3))))
        if rng.random() < 0.15:
            linking = "CUSTOM"
    authors = _some(rng, nodes, 1, 8)
    if allowed is not None and not requests:
        # Nobody else may even ask.
        authors = allowed
    return TopicPlan(
        creator=creator,
        order=order,
        linking=linking,
        allowed=allowed,
        requests=requests,
        retention_count=rng.randint(3, 25) if rng.random() < 0.35 else None,
        subscribers=_some(rng, nodes, 2, nodes),
        authors=authors,
    )


def _make_causal(rng: Random, topic: TopicPlan, *, always: bool) -> TopicPlan:
    """Some of the topics without a total order promise a causal one."""
    chance = {"per-publisher": CAUSAL_SHARE, "none": CAUSAL_SHARE / 2}.get(topic.order, 0.0)
    is_chosen = rng.random() < chance and topic.linking == "LAST_SEEN"
    if not is_chosen and not always:
        return topic
    return msgspec.structs.replace(topic, order="causal", linking="LAST_SEEN")


def _with_barrier(rng: Random, parameters: Parameters) -> Parameters:
    """Room for few parents, so that heads have to be merged in a small world."""
    barrier_max = rng.choice((2, 2, 3, 4, parameters.barrier_max))
    return msgspec.structs.replace(parameters, barrier_max=barrier_max)


def _talks(
    rng: Random, topics: tuple[TopicPlan, ...], duration_s: float, latency_s: float
) -> list[Step]:
    """In causal topics all speak at once now and then, and answer what they have just heard."""
    steps = []
    for number, topic in enumerate(topics):
        if topic.order != "causal":
            continue
        for _ in range(rng.randint(2, 6)):
            at_s = rng.uniform(0.0, duration_s)
            for author in topic.authors:
                for _ in range(rng.randint(1, 3)):
                    moment_s = at_s + rng.uniform(0.0, 6.0) * latency_s
                    replicated = rng.random() < 0.7
                    steps.append(Step(moment_s, "publish", number, author, flag=replicated))
    return steps


def _events(rng: Random, topics: tuple[TopicPlan, ...], duration_s: float) -> list[Step]:
    """Events at random times, and now and then a burst of them."""
    steps = []
    for number, topic in enumerate(topics):
        for _ in range(rng.randint(10, 80)):
            at_s, author = rng.uniform(0.0, duration_s), rng.choice(topic.authors)
            burst = rng.randint(2, 12) if rng.random() < 0.05 else 1
            replicated = rng.random() < 0.7
            steps += [
                Step(at_s + 0.001 * extra, "publish", number, author, flag=replicated)
                for extra in range(burst)
            ]
    return steps


def _churn(rng: Random, nodes: int, topics: tuple[TopicPlan, ...], duration_s: float) -> list[Step]:
    """Late subscribers, and subscribers that leave, some to come back."""
    steps = []
    for number, topic in enumerate(topics):
        early = set(topic.subscribers)
        for node in range(nodes):
            if node in early:
                # The creator of a restricted topic stays: requests need someone who follows it.
                stays = topic.allowed is not None and node == topic.creator
                if rng.random() < 0.15 and not stays:
                    at_s = rng.uniform(0.2, 0.8) * duration_s
                    steps.append(Step(at_s, "unsubscribe", number, node))
                    if rng.random() < 0.5:
                        back_s = at_s + rng.uniform(5.0, 40.0)
                        steps.append(Step(back_s, "subscribe", number, node))
            elif rng.random() < 0.3:
                at_s = rng.uniform(0.1, 0.9) * duration_s
                from_start = rng.random() < 0.25 and topic.retention_count is None
                steps.append(Step(at_s, "subscribe", number, node, flag=from_start))
    return steps


def _faults(
    rng: Random,
    nodes: int,
    topics: tuple[TopicPlan, ...],
    events: list[Step],
    until_s: float,
) -> list[Step]:
    """What breaks; each seed leaves some kinds out, so that none hides behind another."""
    steps: list[Step] = []
    if rng.random() < CALM_SHARE:
        return steps
    kinds = [kind for kind in ("kill", "disk", "pause", "cut", "reset") if rng.random() < 0.6]
    hostile = rng.randrange(nodes)
    if rng.random() < HOSTILE_SHARE and not _publishes(hostile, topics):
        steps.append(Step(rng.uniform(0.0, until_s / 2), "withhold", hostile))

    def when() -> float:
        return rng.uniform(0.0, until_s)

    if "kill" in kinds:
        steps += [
            Step(when(), "kill", rng.randrange(nodes), lasts_s=rng.uniform(1.0, 40.0))
            for _ in range(rng.randint(1, 8))
        ]
    if "kill" in kinds and rng.random() < 0.7:
        steps += _untimely_kills(rng, topics, events, until_s)
    if "disk" in kinds:
        steps += _disk_losses(rng, nodes, topics, until_s)
    if "pause" in kinds:
        for _ in range(rng.randint(1, 4)):
            # Some shorter than a heartbeat, some long enough to be taken for dead.
            lasts_s = rng.uniform(0.5, 40.0) if rng.random() < 0.5 else rng.uniform(60.0, 150.0)
            steps.append(Step(when(), "pause", rng.randrange(nodes), lasts_s=lasts_s))
    if "cut" in kinds:
        for start_s in _apart(rng, rng.randint(1, 2), until_s, 70.0):
            group = _some(rng, nodes, 1, nodes - 1)
            steps.append(Step(start_s, "cut", lasts_s=rng.uniform(2.0, 60.0), group=group))
    if "reset" in kinds:
        for _ in range(rng.randint(1, 20)):
            a, b = rng.sample(range(nodes), 2)
            steps.append(Step(when(), "reset", a, b))
    return steps


def _untimely_kills(
    rng: Random, topics: tuple[TopicPlan, ...], events: list[Step], until_s: float
) -> list[Step]:
    """Authors and publishers killed just when a request is on its way between them."""
    requests = [
        event
        for event in events
        if event.at_s < until_s and event.b not in (topics[event.a].allowed or (event.b,))
    ]
    steps = []
    for event in rng.sample(requests, min(len(requests), 6)):
        victim = event.b if rng.random() < 0.4 else topics[event.a].creator
        at_s = event.at_s + rng.choice((0.003, 0.05, 0.5, 2.0)) * rng.random()
        # A publisher that only stops may publish what its author asks another for meanwhile.
        others = len(topics[event.a].allowed or ()) > 1
        action = "pause" if victim != event.b and others else "kill"
        lasts_s = rng.uniform(12.0, 40.0) if action == "pause" else rng.uniform(1.0, 15.0)
        steps.append(Step(at_s, action, victim, lasts_s=lasts_s))
    return steps


def _publishes(node: int, topics: tuple[TopicPlan, ...]) -> bool:
    """Whether others depend on a node to publish: one that lies there breaks no promise of ours."""
    return any(
        node == topic.creator or node in topic.authors or node in (topic.allowed or ())
        for topic in topics
    )


def _disk_losses(
    rng: Random, nodes: int, topics: tuple[TopicPlan, ...], until_s: float
) -> list[Step]:
    """At most r-1 lost disks in all, and none that the protocol says must not be lost."""
    # A total order waits for its one sequencer; a topic needs one allowed publisher for requests.
    needed = {topic.creator for topic in topics if topic.order == "total"}
    for topic in topics:
        if topic.allowed is not None:
            needed.update(topic.allowed)
    victims = [node for node in range(nodes) if node not in needed]
    replicas = Parameters().replicas
    count = min(rng.randint(1, replicas - 1), len(victims), nodes - replicas - 1)
    steps = []
    for node in rng.sample(victims, max(0, count)):
        at_s = rng.uniform(0.0, until_s)
        if rng.random() < 0.25:
            steps.append(Step(at_s, "lose", node))
        else:
            steps.append(Step(at_s, "wipe", node, lasts_s=rng.uniform(1.0, 40.0)))
    return steps


def _apart(rng: Random, count: int, until_s: float, gap_s: float) -> list[float]:
    """Some times that are at least so far apart; fewer if they do not fit."""
    times: list[float] = []
    for _ in range(count):
        at_s = rng.uniform(0.0, until_s)
        if all(abs(at_s - other) >= gap_s for other in times):
            times.append(at_s)
    return times
