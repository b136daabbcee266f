"""A made-up workload of the thesis' shape, for where its own is not at hand.

A few topics have most of the events, most users are quiet, and every user subscribes to what it
posts in. Nothing in it stands for a person.
"""

from random import Random

from pulsarcast.model.workload import Workload, WorkloadEvent, WorkloadTopic, WorkloadUser

TOPICS = 23
EVENTS = 2_000


def make_workload(
    rng: Random, *, nodes: int, events: int = EVENTS, topics: int = TOPICS
) -> Workload:
    """Users and topics with Zipf's popularity."""
    names = [f"topic-{rank}" for rank in range(1, topics + 1)]
    topic_weights = [1 / rank for rank in range(1, topics + 1)]
    user_weights = [1 / rank for rank in range(1, nodes + 1)]
    rng.shuffle(user_weights)
    by_user: list[list[WorkloadEvent]] = [[] for _ in range(nodes)]
    counts = dict.fromkeys(names, 0)
    chosen = zip(
        rng.choices(range(nodes), user_weights, k=events),
        rng.choices(names, topic_weights, k=events),
        strict=True,
    )
    for number, (user, topic) in enumerate(chosen):
        by_user[user].append(WorkloadEvent(number, topic, rng.randint(-5, 50)))
        counts[topic] += 1
    return Workload(
        [
            WorkloadTopic(name, f"node-{rng.randint(1, nodes)}", count)
            for name, count in counts.items()
            if count
        ],
        [
            WorkloadUser(
                f"user-{number}",
                f"node-{number}",
                own,
                list(dict.fromkeys(event.topic for event in own)),
            )
            for number, own in enumerate(by_user, start=1)
        ],
    )
