"""Probing: the nodes of an unknown tree are guessed, between two levels."""

from typing import cast

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.content.homes import Homes
from pulsarcast.protocol.content.messages import ProbeEvent
from pulsarcast.protocol.content.probing import GUESS_LEVELS, Probing
from pulsarcast.protocol.content.space import level
from pulsarcast.protocol.content.trees import Trees
from tests.support.parts import Core
from tests.unit.protocol.content.stage import event_at

EVENT = event_at(50.0)


class Probed:
    """Plays the homes: remembers what is sent to the leaves."""

    def __init__(self) -> None:
        self.probes: list[tuple[ProbeEvent, PeerId | None]] = []

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
