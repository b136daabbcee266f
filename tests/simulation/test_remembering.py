"""Simulated nodes that start again and are told of nobody (decision 0037)."""

from itertools import pairwise

import pytest

from pulsarcast.protocol.dht.calls import Answered, Calls, Question
from pulsarcast.protocol.dht.first_contacts import BOOTSTRAP
from pulsarcast.protocol.dht.membership import JOIN_RETRY_S_MAX
from pulsarcast.protocol.inputs import AddBootstrap
from pulsarcast.protocol.messages import Contact
from pulsarcast.protocol.store import DropState
from pulsarcast.simulation.links import Constant
from pulsarcast.simulation.world import World

NODES = 12


def world_of(count: int) -> World:
    world = World(1, links=Constant(0.02))
    for index in range(count):
        world.add_node(contacts=[0] if index else [])
        world.run(world.now + 1.0)
    world.run(world.now + 60.0)
    return world


def known(world: World, index: int) -> int:
    return world.node(index).dht.known_count


def test_a_whole_network_that_starts_again_is_one_network() -> None:
    """Nobody is named: each node goes by the peers that it was connected to."""
    world = world_of(NODES)
    for index in range(NODES):
        world.kill(index)
    for index in range(1, NODES):  # The one bootstrap peer is gone for good.
        world.store(index).apply([DropState(BOOTSTRAP, b"")])
        assert world.store(index).rows()
        world.restart(index)
        assert world.node(index).dht.bootstrap == ()
    world.run(world.now + 30.0)
    assert [known(world, index) for index in range(1, NODES)] == [NODES - 2] * (NODES - 1)


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("away_s", [0.0, 60.0, 7200.0])
def test_of_a_pair_each_may_come_back_late(late: int, away_s: float) -> None:
    world = world_of(2)
    for index in range(2):
        world.kill(index)
    world.restart(1 - late)
    world.run(world.now + away_s)
    world.restart(late)
    world.run(world.now + 10.0)
    assert (known(world, 0), known(world, 1)) == (1, 1)


def test_a_bootstrap_peer_that_never_answers_is_tried_for_ever_and_not_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_of(2)
    world.kill(0)
    tries: list[float] = []
    ask = Calls.ask

    def counted(calls: Calls, contact: Contact, question: Question, then: Answered) -> None:
        tries.append(world.now)
        ask(calls, contact, question, then)

    monkeypatch.setattr(Calls, "ask", counted)
    world.run(world.now + 7200.0)
    gaps = [later - earlier for earlier, later in pairwise(tries)]
    assert max(gaps) < 1.5 * JOIN_RETRY_S_MAX
    assert world.now - tries[-1] < 1.5 * JOIN_RETRY_S_MAX
    assert len(tries) < 1000


def test_a_node_is_told_of_peers_while_it_runs() -> None:
    world = world_of(3)
    loner = world.add_node()
    world.run(world.now + 60.0)
    assert known(world, loner) == 0
    world.command(loner, lambda call: AddBootstrap(call, (Contact(world.peer(0)),)))
    world.run(world.now + 5.0)
    assert known(world, loner) == 3
    world.kill(loner)
    world.restart(loner)
    assert [contact.peer for contact in world.node(loner).dht.bootstrap] == [world.peer(0)]
