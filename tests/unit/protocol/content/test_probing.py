"""Probing: the nodes of an unknown tree are guessed, between two levels."""

from typing import cast

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.content.homes import Homes
from pulsarcast.protocol.content.messages import ProbeEvent
from pulsarcast.protocol.content.probing import GUESS_LEVELS, SEARCHES_MIN, Probing
from pulsarcast.protocol.content.rules import LINE_S
from pulsarcast.protocol.content.shape import Shape
from pulsarcast.protocol.content.space import ROOT, Line, level
from pulsarcast.protocol.content.trees import Trees
from tests.support.parts import Core
from tests.unit.protocol.content.stage import event_at

EVENT = event_at(50.0)


class Probed:
    """Plays the homes: remembers what is sent to the leaves."""

    def __init__(self) -> None:
        self.probes: list[tuple[ProbeEvent, PeerId | None]] = []

        self.asked = 0

    @property
    def shape_hints(self) -> "Probed":
        """As `Homes` has it."""
        return self

    def ask_line(self, topic: object, attribute: str) -> None:
        """As `ShapeHints` does."""
        self.asked += 1

    def probe(self, message: ProbeEvent, sender: PeerId | None) -> None:
        self.probes.append((message, sender))


def test_nodes_of_an_unknown_tree_are_guessed_between_two_levels() -> None:
    homes = Probed()
    Probing(Core().context, Trees(), cast("Homes", homes)).publish(EVENT, {"price": 0.5})
    ((probe, _),) = homes.probes
    first, last = GUESS_LEVELS
    assert all(first <= level(target.at) <= last for target in probe.targets)


def test_an_event_without_any_attribute_of_the_topic_is_sent_nowhere() -> None:
    homes = Probed()
    Probing(Core().context, Trees(), cast("Homes", homes)).publish(EVENT, {})
    assert homes.probes == []


def leaves_probed(core: Core, trees: Trees) -> int:
    homes = Probed()
    Probing(core.context, trees, cast("Homes", homes)).publish(EVENT, {"price": 0.4})
    return len(homes.probes[0][0].targets)


def full_tree(levels: int) -> tuple[Trees, Shape]:
    trees = Trees()
    shape = trees.shape(EVENT.topic, "price")
    for node in range(1, 1 << levels):
        shape.split(node)
    return trees, shape


def test_an_event_searches_up_to_the_line_while_what_is_known_of_it_is_good() -> None:
    core = Core()
    trees, shape = full_tree(8)
    everything = leaves_probed(core, trees)
    shape.hear_line(Line(4, 4), core.turn.now)
    assert leaves_probed(core, trees) < everything / 2
    shape.hear_line(Line(4, 0), core.turn.now)
    assert leaves_probed(core, trees) == everything, "subscribers may still cut by the old line"
    shape.hear_line(Line(4, 4), core.turn.now)
    core.turn.now += LINE_S
    assert leaves_probed(core, trees) == everything, "the line may have risen meanwhile"


def test_a_publisher_asks_for_the_line_once_its_events_repay_the_question() -> None:
    core, homes = Core(), Probed()
    trees, shape = full_tree(2)
    probing = Probing(core.context, trees, cast("Homes", homes))
    for _ in range(SEARCHES_MIN):
        assert homes.asked == 0
        probing.publish(EVENT, {"price": 0.5})
    assert homes.asked == 1
    shape.hear_line(Line(), core.turn.now)
    for _ in range(3 * SEARCHES_MIN):
        probing.publish(EVENT, {"price": 0.5})
    assert homes.asked == 1, "what it knows is good for a while"


def test_no_publisher_asks_for_the_line_of_a_tree_that_has_not_split() -> None:
    core, homes, trees = Core(), Probed(), Trees()
    trees.shape(EVENT.topic, "price").merge(ROOT, Shape().to_bytes())
    probing = Probing(core.context, trees, cast("Homes", homes))
    for _ in range(3 * SEARCHES_MIN):
        probing.publish(EVENT, {"price": 0.5})
    assert homes.asked == 0
