"""Making a plan: topics, publishers, subscribers and faults, drawn by lot for a number of lines."""

from __future__ import annotations

from hashlib import sha256
from random import Random
from typing import Final

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import CID_PREFIX, Cid, peer_id_of
from pulsarcast.model.topic_types import DeliveryOrder
from pulsarcast.pipeline.synthetic_traces.plan import (
    ERA,
    PATTERN,
    Death,
    NodePlan,
    Period,
    Plan,
    TopicPlan,
)

LINES_MIN: Final = 5_000
NODES: Final = 128
TOPICS: Final = 24
HOT_SHARE: Final = 0.607
"""Of all deliveries, in the first topic; that makes it 60 % of all lines."""
FILL_SHARE: Final = 0.012
"""Of all lines: messages, resources and repaired gaps, which no promise is about."""
DISORDER_SLOTS: Final = 32

# The first topic, which is the hot one, is in total order: the one that is hardest to check.
_ORDERS: Final = (
    DeliveryOrder.TOTAL,
    DeliveryOrder.NONE,
    DeliveryOrder.PER_PUBLISHER,
    DeliveryOrder.CAUSAL,
)


def make_plan(lines: int, *, seed: int = 1, nodes: int = NODES, run_id: str = "") -> Plan:
    """Plan a trace of exactly so many lines."""
    if lines < LINES_MIN:
        raise LocalError(f"a synthetic trace has at least {LINES_MIN} lines, not {lines}")
    if nodes < 2 * TOPICS:
        raise LocalError(f"a synthetic trace has at least {2 * TOPICS} nodes, not {nodes}")
    rng = Random(f"synthetic trace {seed}")
    name = run_id or f"synthetic-{lines}-{seed}"
    peers = tuple(
        peer_id_of(sha256(b"node %d %d" % (seed, node)).digest()) for node in range(nodes)
    )
    topics = _make_topics(rng, seed, nodes)
    pattern = _make_pattern(topics)
    lots = rng.getrandbits(64)

    def plan_of(slots: int) -> Plan:
        disorder = max(1, min(DISORDER_SLOTS, slots // 24))
        # The same lots for every size: a longer trace is the same story, told more slowly.
        planned = _make_nodes(Random(lots), nodes, topics, slots, disorder)
        return Plan(lines, seed, name, slots, disorder, peers, topics, pattern, planned)

    room = int(lines * (1 - FILL_SHARE))
    low, high = 1, lines
    while low < high:
        middle = (low + high + 1) // 2
        if sum(plan_of(middle).counts().values()) <= room:
            low = middle
        else:
            high = middle - 1
    if low < 2 * TOPICS:
        raise LocalError(f"{lines} lines are too few for {nodes} nodes")
    return plan_of(low)


def _make_topics(rng: Random, seed: int, nodes: int) -> tuple[TopicPlan, ...]:
    steady = range(nodes // 4)
    drafts = []
    for at in range(TOPICS):
        order = _ORDERS[at % len(_ORDERS)]
        total = order is DeliveryOrder.TOTAL
        publishers = tuple(rng.sample(steady, 1 if total else 3))
        others = [node for node in steady if node not in publishers]
        askers = tuple(rng.sample(others, 5)) if total else ()
        share = 1.0 if at == 0 else 0.3 + 0.6 * rng.random()
        follow = {n for n in range(nodes) if rng.random() < share} | {*publishers, *askers}
        weight = 0.0 if at == 0 else 1 / (at + 2)
        drafts.append((order, publishers, askers, tuple(sorted(follow)), weight))
    weights = sum(weight for *_, weight in drafts)
    followers = sum(weight / weights * len(follow) for *_, follow, weight in drafts)
    hot = round(PATTERN * HOT_SHARE * followers / ((1 - HOT_SHARE) * nodes + HOT_SHARE * followers))
    topics = []
    left = PATTERN - hot
    for at in range(TOPICS - 1, -1, -1):
        order, publishers, askers, subscribers, weight = drafts[at]
        # Each of its publishers has as many slots as the others: rounds of causal order need it.
        width = len(publishers)
        # The second topic takes what is left over, so its slots need not be even.
        slots = max(width, round((PATTERN - hot) * weight / weights / width) * width)
        slots = hot if at == 0 else left if at == 1 else slots
        left -= slots
        topics.append(
            TopicPlan(
                Cid(CID_PREFIX + sha256(b"topic %d %d" % (seed, at)).digest()),
                f"topic-{at:02}",
                order,
                publishers,
                tuple(rng.getrandbits(62) + 1 for _ in publishers),
                askers,
                order is DeliveryOrder.NONE,
                subscribers,
                slots,
            )
        )
    return tuple(reversed(topics))


def _make_pattern(topics: tuple[TopicPlan, ...]) -> tuple[tuple[int, int], ...]:
    """Spread each topic's slots evenly; a round of causal order stays together."""
    places: list[tuple[float, int, list[int]]] = []
    for at, topic in enumerate(topics):
        width = len(topic.publishers)
        if topic.order is DeliveryOrder.CAUSAL:
            groups = [list(range(width))] * (topic.slots // width)
        else:
            groups = [[slot % width] for slot in range(topic.slots)]
        phase = (at * 0.618034) % 1
        places += [((n + phase) / len(groups), at, group) for n, group in enumerate(groups)]
    places.sort(key=lambda place: place[:2])
    pattern = tuple((at, by) for _, at, group in places for by in group)
    assert len(pattern) == PATTERN, len(pattern)
    return pattern


def _make_nodes(
    rng: Random, nodes: int, topics: tuple[TopicPlan, ...], slots: int, disorder: int
) -> tuple[NodePlan, ...]:
    plans = []
    for node in range(nodes):
        steady = node < nodes // 4
        follows = [at for at, topic in enumerate(topics) if node in topic.subscribers]
        # Drawn for every node alike, so that one node's fate does not change another's.
        lot, when, then = rng.random(), rng.random(), rng.random()
        late = [rng.random() for _ in topics]
        kill = int((0.3 + 0.5 * when) * slots)
        if kill % ERA < disorder:
            # What was seen before a kill is simple to say only away from the bounds of an era.
            kill += disorder
        if lot < 0.1:
            deaths: tuple[Death, ...] = (Death(kill, keeps_disk=True),)
        elif lot < 0.14 and not steady:
            deaths = (Death(kill + disorder, keeps_disk=False),)
        elif lot < 0.16 and not steady:
            deaths = (Death(kill + disorder, keeps_disk=False, returns=False),)
        elif lot < 0.19:
            again = kill + int((0.02 + 0.1 * then) * slots) + 1
            again += disorder if again % ERA < disorder else 0
            deaths = (Death(kill, keeps_disk=True), Death(again, keeps_disk=True))
        else:
            deaths = ()
        periods: list[Period] = []
        for at in follows:
            first = int((0.02 + late[at]) * slots) if late[at] < 0.1 and not steady else 0
            if deaths and not deaths[0].keeps_disk:
                lost = deaths[0].slot
                periods.append(Period(at, first, lost - disorder))
                if deaths[0].returns:
                    periods.append(Period(at, lost))
            elif late[at] > 0.96 and not steady:
                end = int((0.4 + 0.2 * then) * slots)
                periods.append(Period(at, first, end, unsubscribed=True))
                if late[at] > 0.98:
                    periods.append(Period(at, end + 2 * disorder + 2))
            else:
                periods.append(Period(at, first))
        plans.append(NodePlan(steady, tuple(periods), deaths))
    return tuple(plans)
