"""Random plans for nodes with addresses, most of which cannot be dialled.

A plan is the one that `random_plan` makes of the seed, with a place for every node, changes of
places in the middle, and relays or none. It promises what the protocol promises:
- One node, the first, stays public, keeps its disk, and is a contact of every other node. It may be
  killed, paused and cut off like any other; once the faults end, every node can dial it. So every
  node has a way to every other one, and all that is due has to be delivered.
- Without relays correctness needs a public member that stays (docs/spec/reach.md): the first node
  subscribes to every topic. A request to publish is sent to a publisher: where the author of a
  topic does not stay public, only its publishers write in it. Nor does a private node reach two
  members there, whose word it needs to skip what retention dropped: topics keep everything.
"""

from __future__ import annotations

from random import Random

import msgspec

from pulsarcast.simulation.places import Place
from pulsarcast.simulation.random_plan import CALM_S, RandomPlan, Step, TopicPlan, make_plan
from pulsarcast.storage.quota import BYTES_MAX

PRIVATE_SHARE_MAX = 0.9
ALL_PUBLIC_SHARE = 0.1
"""Seeds in which no node is behind anything when it starts."""
RELAYS_SHARE = 0.5
"""Seeds with relays; in all others correctness depends on public members alone."""
MOVES_SHARE = 0.6
"""Seeds in which places change."""
ANCHOR = 0
"""The node that stays public."""


class _Addresses:
    """Hands out prefixes, few of them to many nodes or many of them, and NATs of every size."""

    def __init__(self, rng: Random, nodes: int) -> None:
        self.rng = rng
        self._prefixes = rng.choice((3, 3 + nodes // 4, 2 * nodes))
        self._barriers = 0
        self._shared: list[Place] = []

    def public(self) -> Place:
        return Place(f"7.0.{self.rng.randrange(self._prefixes)}")

    def private(self) -> Place:
        """Behind a NAT that others are behind too, a NAT of its own, or a firewall."""
        kind = self.rng.random()
        if kind < 0.3 and self._shared:
            return self.rng.choice(self._shared)
        self._barriers += 1
        place = Place(self.public().prefix, self._barriers, translated=kind < 0.8)
        if place.translated:
            self._shared.append(place)
        return place

    def firewalled(self, place: Place) -> Place:
        """The same address, where a firewall now drops dials."""
        self._barriers += 1
        return Place(place.prefix, self._barriers)


def make_reach_plan(seed: int) -> RandomPlan:
    """The plan that belongs to a seed, always the same one."""
    plan = make_plan(seed)
    rng = Random(f"reach/{seed}")
    addresses = _Addresses(rng, plan.nodes)
    share = rng.uniform(0.0, PRIVATE_SHARE_MAX) if rng.random() >= ALL_PUBLIC_SHARE else 0.0
    others = [node for node in range(plan.nodes) if node != ANCHOR]
    private = set(rng.sample(others, round(share * len(others))))
    places = [
        addresses.private() if node in private else addresses.public() for node in range(plan.nodes)
    ]
    relays = rng.random() < RELAYS_SHARE
    moves = _moves(rng, addresses, places, plan.duration_s - CALM_S)
    hidden = private | {step.a for step in moves if step.place and not step.place.is_public}
    topics = tuple(_writable(topic, hidden, relays=relays) for topic in plan.topics)
    steps = [
        _by_author(rng, step, topics)
        for step in plan.steps
        if _is_promised(step) and (relays or not _changes_anchor(step))
    ]
    return msgspec.structs.replace(
        plan,
        topics=topics,
        steps=tuple(sorted([*steps, *moves], key=lambda step: step.at_s)),
        places=tuple(places),
        relays=relays,
        strangers_bytes_max=BYTES_MAX,
    )


def _moves(rng: Random, addresses: _Addresses, places: list[Place], until_s: float) -> list[Step]:
    """Nodes get other addresses, become private and public, and are hidden by firewalls."""
    steps: list[Step] = []
    others = [node for node in range(len(places)) if node != ANCHOR]
    if rng.random() >= MOVES_SHARE:
        return steps
    now = list(places)
    for at_s in sorted(rng.uniform(0.0, until_s) for _ in range(rng.randint(1, 6))):
        node = rng.choice(others)
        match rng.choice(("public", "private", "address", "firewall")):
            case "public":
                # A firewall that goes leaves the address; so does a port that is forwarded.
                stays = not now[node].translated and rng.random() < 0.5
                now[node] = Place(now[node].prefix) if stays else addresses.public()
            case "private":
                now[node] = addresses.private()
            case "address":
                moved = addresses.public().prefix
                now[node] = now[node]._replace(prefix=moved)
            case _:
                now[node] = addresses.firewalled(now[node])
        steps.append(Step(at_s, "move", node, place=now[node]))
    return steps


def _writable(topic: TopicPlan, hidden: set[int], *, relays: bool) -> TopicPlan:
    """The topic without retention and with a public member, and with authors whose requests reach
    a publisher."""
    if relays:
        return topic
    subscribers = tuple(dict.fromkeys((*topic.subscribers, ANCHOR)))
    authors = topic.authors
    if topic.allowed is not None and topic.creator in hidden:
        authors = tuple(author for author in authors if author in topic.allowed)
        authors = authors or topic.allowed[:1]
    return msgspec.structs.replace(
        topic, subscribers=subscribers, authors=authors, retention_count=None
    )


def _by_author(rng: Random, step: Step, topics: tuple[TopicPlan, ...]) -> Step:
    """The step, where it is a publication by one of those who write in its topic."""
    if step.action != "publish" or step.b in topics[step.a].authors:
        return step
    return msgspec.structs.replace(step, b=rng.choice(topics[step.a].authors))


def _changes_anchor(step: Step) -> bool:
    return step.action in ("subscribe", "unsubscribe") and step.b == ANCHOR


def _is_promised(step: Step) -> bool:
    return step.action not in ("lose", "wipe") or step.a != ANCHOR
