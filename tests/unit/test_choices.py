"""Orders and ways to travel can be chosen wherever topics are made; nobody forgets a new one."""

from __future__ import annotations

import enum
from typing import Any, get_args, get_type_hints

import click
import pytest

from pulsarcast.cli import main, topics
from pulsarcast.model import api
from pulsarcast.model.topic_types import DeliveryOrder, Dissemination, EventLinking
from pulsarcast.simulation.options import Options


def choices_of(command: str, option: str) -> set[str]:
    """What an option of a command takes."""
    found: Any = main
    with click.Context(main) as context:
        for word in command.split():
            found = found.get_command(context, word)
            assert found is not None, command
    (parameter,) = (each for each in found.params if option in each.opts)
    return set(parameter.type.choices)


def values(kind: type[enum.Enum]) -> set[str]:
    return {member.value for member in kind}


def test_every_choice_of_a_topic_can_be_made_over_http() -> None:
    assert set(get_args(api.Order)) == values(DeliveryOrder)
    assert set(get_args(api.DisseminationName)) == values(Dissemination)
    assert set(get_args(api.Linking)) == values(EventLinking)


def test_every_choice_of_a_topic_can_be_made_by_the_command() -> None:
    assert set(topics.ORDERS) == values(DeliveryOrder)
    assert choices_of("topic create", "--order") == values(DeliveryOrder)
    assert choices_of("topic create", "--dissemination") == values(Dissemination)


def test_every_choice_of_a_topic_can_be_simulated() -> None:
    hints = get_type_hints(Options)
    assert set(get_args(hints["order"])) == values(DeliveryOrder)
    assert set(get_args(hints["dissemination"])) == values(Dissemination)
    assert choices_of("simulate", "--order") == values(DeliveryOrder)
    assert choices_of("simulate", "--dissemination") == values(Dissemination)


def test_every_order_can_be_chosen_on_the_testbed() -> None:
    pytest.importorskip("trio", reason="the testbed needs the extra network")
    from pulsarcast.testbed import scenario_files as scenarios
    from pulsarcast.testbed.scenarios import mirror

    assert set(get_args(mirror.Order)) == values(DeliveryOrder)
    (order, _) = get_args(get_type_hints(scenarios.Scenario)["order"])
    assert set(get_args(order)) == values(DeliveryOrder)
    assert choices_of("testbed run", "--order") == values(DeliveryOrder)
