"""A thousand sub-topics three deep: joined, heard, partly removed and left, message by message.

    pytest -m slow -s tests/simulation/test_subtopics.py

prints what the same topics cost where the same node subscribes to them one by one. Messages are
those that the subscriber sends and receives.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import pytest

from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import TopicSettings
from pulsarcast.protocol.effects import Deliver, Effect, Reply, Send
from pulsarcast.protocol.inputs import (
    Command,
    CreateTopic,
    Input,
    MessageReceived,
    Now,
    Publish,
    Subscribe,
    Unsubscribe,
    UpdateTopic,
)
from pulsarcast.protocol.topic.life import Stage
from pulsarcast.simulation.links import Constant
from pulsarcast.simulation.world import World

NODES, AUTHOR, READER = 12, 0, 7
AT_ONCE = 32
UPKEEP = ("Status", "CompareKeys", "KeysDiffer", "StorePointer", "StoreBlocks", "Stored")
"""Heartbeats of topics, and what replicas of the DHT say: these go on as time goes on."""


Make: TypeAlias = Callable[[int], Command]


def _make(kind: Callable[..., Command], *given: object) -> Command:
    """A command, once its call is known."""
    *fields, call = given
    return kind(call, *fields)


class Cost(NamedTuple):
    """What one phase came to at the subscriber."""

    followed: int
    seconds: float
    messages: Counter[str]


class Run:
    """One world with an author and its topics, and a subscriber whose messages are counted."""

    def __init__(self, middles: int, branches: int, leaves: int, phase_s: float) -> None:
        self.phase_s = phase_s
        self.messages: Counter[str] = Counter()
        self.delivered: Counter[Cid] = Counter()
        self.world = World(5, links=Constant(0.02), prepare=self._tap)
        for index in range(NODES):
            self.world.add_node(contacts=[other for other in {0, index // 2} if other < index])
        self.world.run(self.world.now + 10.0)
        lowest = self._create("lowest", [{}] * (middles * branches * leaves))
        middle_links = [lowest[at : at + leaves] for at in range(0, len(lowest), leaves)]
        lower = self._create("lower", [named(each) for each in middle_links])
        groups = [lower[at : at + branches] for at in range(0, len(lower), branches)]
        self.middles = self._create("middle", [named(each) for each in groups])
        (self.top,) = self._create("top", [named(self.middles)])
        self.subtopics = [*self.middles, *lower, *lowest]
        last = self.middles[-1]
        self.removed = {last, *groups[-1], *lowest[-branches * leaves :]}

    def _tap(self, core: Any) -> None:
        if self.world_size() != READER:
            return
        handle = core.handle

        def tapped(given: Input, now: Now) -> list[Effect]:
            effects: list[Effect] = handle(given, now)
            if isinstance(given, MessageReceived):
                self.messages[type(given.message).__name__] += 1
            for effect in effects:
                if isinstance(effect, Send):
                    self.messages[type(effect.message).__name__] += 1
                elif isinstance(effect, Deliver):
                    self.delivered[effect.record.topic] += 1
            return effects

        core.handle = tapped

    def world_size(self) -> int:
        """The index of the node that is about to start."""
        return self.world.size - 1

    def ask_all(self, index: int, makes: Iterable[Make]) -> list[Reply]:
        """Give a node many commands, some at a time, and wait for all answers."""
        waiting, replies, asked = list(makes), dict[int, Reply](), 0
        while len(replies) < len(waiting):
            while asked < len(waiting) and asked - len(replies) < AT_ONCE:
                self.world.command(index, waiting[asked], partial(replies.__setitem__, asked))
                asked += 1
            self.world.run(self.world.now + 0.01)
        assert not [reply.refusal for reply in replies.values() if reply.refusal is not None]
        return [replies[at] for at in range(len(waiting))]

    def _create(self, level: str, links: list[dict[str, Cid]]) -> list[Cid]:
        settings = TopicSettings()
        made = self.ask_all(
            AUTHOR,
            [
                partial(_make, CreateTopic, f"{level} {at}", settings, below)
                for at, below in enumerate(links)
            ],
        )
        return [reply.cid for reply in made if reply.cid is not None]

    def followed(self) -> set[Cid]:
        """The topics that the subscriber gets events of."""
        node = self.world.node(READER)
        return {
            cid
            for cid, topic in node.topics.items()
            if topic.subscribed and node.followed.life(cid).stage is Stage.MEMBER
        }

    def phase(self, act: Callable[[], object], wanted: set[Cid]) -> Cost:
        """Do something, and see what it costs until it is done, and until the phase ends."""
        began_s, before = self.world.now, Counter(self.messages)
        act()
        is_done = self.world.run_until(
            lambda: self.followed() == wanted, began_s + self.phase_s, check_every_s=0.1
        )
        assert is_done, f"{len(self.followed())} of {len(wanted)}"
        seconds = self.world.now - began_s
        self.world.run(began_s + self.phase_s)
        return Cost(len(self.followed()), seconds, self.messages - before)


def named(topics: list[Cid]) -> dict[str, Cid]:
    return {f"{at}": topic for at, topic in enumerate(topics)}


def play(run: Run, *, below: bool) -> dict[str, Cost]:
    """Subscribe, publish in each, remove a part by a version, leave."""
    every = {run.top, *run.subtopics}
    kept = every - run.removed

    def ask(makes: list[Make], index: int = READER) -> Callable[[], object]:
        return lambda: run.ask_all(index, makes)

    def leave(topics: Iterable[Cid]) -> list[Make]:
        return [partial(_make, Unsubscribe, topic) for topic in topics]

    def publish(payload: bytes) -> Callable[[], object]:
        return ask([partial(_make, Publish, topic, payload) for topic in sorted(every)], AUTHOR)

    def remove() -> None:
        links = named(run.middles[:-1])
        ask([partial(_make, UpdateTopic, run.top, TopicSettings(), links)], AUTHOR)()
        if not below:
            ask(leave(sorted(run.removed)))()

    ordered = [run.top] if below else [run.top, *run.subtopics]
    subscribe: list[Make] = [partial(_make, Subscribe, topic, below) for topic in ordered]
    costs = {"subscribe": run.phase(ask(subscribe), every)}
    costs["publish"] = run.phase(publish(b"x"), every)
    assert run.delivered == Counter(dict.fromkeys(every, 1))
    costs["remove"] = run.phase(remove, kept)
    costs["publish again"] = run.phase(publish(b"y"), kept)
    heard_twice = {topic for topic, count in run.delivered.items() if count == 2}
    assert heard_twice == kept
    costs["leave"] = run.phase(ask(leave([run.top] if below else sorted(kept))), set())
    node = run.world.node(READER)
    assert not [cid for cid in node.topics if not node.following.is_kept(cid)]
    assert not [row for row in run.world.store(READER).rows() if row.table == "follow"]
    return costs


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "shape",
    [(2, 2, 2, 10.0), pytest.param((10, 9, 10, 120.0), marks=pytest.mark.slow)],
    ids=["14", "1000"],
)
def test_a_tree_of_sub_topics_costs_what_its_members_cost(
    shape: tuple[int, int, int, float],
) -> None:
    together, apart = (play(Run(*shape), below=below) for below in (True, False))
    title = f"{'followed':>8} {'s':>6} {'messages':>9} {'upkeep':>7}"
    lines = [f"{'phase':14} {title}   one by one: {title}"]
    for phase, cost in together.items():
        other = apart[phase]
        lines.append(f"{phase:14} {_row(cost)}               {_row(other)}")
    print("", *lines, sep="\n")  # noqa: T201
    for phase, cost in together.items():
        assert cost.followed == apart[phase].followed
        assert _acting(cost) <= 1.1 * _acting(apart[phase]) + 20, phase


def _upkeep(cost: Cost) -> int:
    return sum(count for kind, count in cost.messages.items() if kind in UPKEEP)


def _acting(cost: Cost) -> int:
    return cost.messages.total() - _upkeep(cost)


def _row(cost: Cost) -> str:
    return f"{cost.followed:8} {cost.seconds:6.1f} {_acting(cost):9} {_upkeep(cost):7}"
