"""What the paper left open: buckets instead of full views, and members that do not answer."""

from __future__ import annotations

import random
from statistics import fmean

from pulsarcast.simulation.vcube.experiments.publishing import PUBLISHED_WITHIN
from pulsarcast.simulation.vcube.partial_views import Knowledge, repair, spread
from pulsarcast.simulation.vcube.settings import Setting

NEIGHBOURS = 8
"""With how many of its nearest members a member compares, where buckets do not say it."""


def run(setting: Setting, rng: random.Random) -> dict[str, float]:
    """Publish some messages over what members know, then repair what did not arrive."""
    members = rng.sample(range(setting.nodes), round(setting.nodes * setting.subscribers))
    dead = frozenset(rng.sample(members, round(len(members) * setting.dead)))
    alive = [member for member in members if member not in dead]
    knowledge = Knowledge(
        setting.nodes, members, rng, bucket=setting.bucket, missing=setting.missing
    )
    publishers = [
        (rng.randint(0, PUBLISHED_WITHIN), rng.choice(alive)) for _ in range(setting.messages)
    ]
    outcome = spread(knowledge, publishers, dead, setting.delays, setting.timeout)
    due = setting.messages * (len(alive) - 1)
    got = sum(len(reached) - 1 for reached in outcome.reached)
    sample = alive if len(alive) <= 256 else rng.sample(alive, 256)
    figures: dict[str, float] = {
        "due": due,
        "deliveries": got,
        "coverage_percent": 100 * got / due,
        "latency_mean": outcome.latency / max(1, got),
        "messages_per_delivery": outcome.sent / max(1, got),
        "given_up_per_message": outcome.given_up / setting.messages,
        "entries_per_node": fmean(knowledge.entries(member) for member in sample),
    }
    if setting.repair != "none":
        rounds, messages = repair(
            knowledge,
            outcome,
            dead,
            neighbours=setting.bucket or NEIGHBOURS,
            far=rng if setting.repair == "far" else None,
        )
        got = sum(len(reached) - 1 for reached in outcome.reached)
        figures["coverage_repaired_percent"] = 100 * got / due
        figures["lost"] = due - got
        figures["repair_rounds"] = rounds
        figures["repair_messages_per_member"] = messages / len(alive)
    return figures
