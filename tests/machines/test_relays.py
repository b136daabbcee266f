"""Topics of nodes that cannot be dialled, where only relays join them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.internet import CONE, SYMMETRIC, Internet
from tests.support.namespaces import Lab
from tests.support.remote_nodes import RemoteNode

RELAYED_S_MAX = 60.0
DELIVERED_S_MAX = 30.0


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


def until(holds: Callable[[], Any], seconds: float, what: str) -> None:
    until_s = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until_s, what
        time.sleep(0.1)


def is_relayed(node: RemoteNode) -> bool:
    """Whether peers can dial a node through a relay only."""
    return bool(node.ask("status")["reach"]["kind"] == "relayed")


def relays_of(node: RemoteNode) -> list[str]:
    """The relays that carry a node's connections."""
    return [peer["relay"] for peer in node.ask("status")["peers"] if peer["relay"]]


def tried(node: RemoteNode) -> bool:
    """Whether a node has tried in vain to punch a hole."""
    reach = node.ask("status")["reach"]
    return bool(reach["not_punched"]) and not reach["punched"]


class World:
    """Relays, each in a network of its own, and nodes behind a NAT each."""

    def __init__(
        self, lab: Lab, folder: Path, relays: int, kind: str = SYMMETRIC, private: int = 2
    ) -> None:
        self.internet = internet = Internet(lab)
        self.relays: list[RemoteNode] = []
        for number in range(1, relays + 1):
            machine = internet.public(f"r{number}", network=number)
            self.relays.append(RemoteNode(machine, folder / f"r{number}", bootstrap=self.addresses))
            self.relays[-1].wait_until_up()
        self.private: list[RemoteNode] = []
        for number in range(1, private + 1):
            nat = internet.nat(f"n{number}", network=relays + number, kind=kind)
            home = folder / f"h{number}"
            node = RemoteNode(nat.host(f"h{number}"), home, bootstrap=self.addresses)
            node.wait_until_up()
            self.private.append(node)
        for node in self.private:
            until(partial(is_relayed, node), RELAYED_S_MAX, f"{node.name} has no relay")

    @property
    def addresses(self) -> list[str]:
        return [address for node in self.relays for address in node.addresses]


def check_both_ways(ann: RemoteNode, ben: RemoteNode, topic: str, name: str) -> None:
    """The author's event and the other's request to publish reach both."""
    asked = [
        node.tell("publish", topic=topic, text=f"{name} by {node.name}", ack="accepted")
        for node in (ann, ben)
    ]
    for node in (ann, ben):
        for by in (ann, ben):
            text = f"{name} by {by.name}"
            assert node.has_seen(text, DELIVERED_S_MAX), f"{node.name} lacks {text}"
    for each in asked:
        each.answer()


def test_a_topic_of_two_private_nodes_and_no_public_member(lab: Lab, tmp_path: Path) -> None:
    world = World(lab, tmp_path, relays=1)
    ann, ben = world.private
    topic = ann.ask("create", name="t")["topic"]
    ann.ask("subscribe", topic=topic)
    ben.ask("subscribe", topic=topic)
    check_both_ways(ann, ben, topic, "event")
    (relay,) = world.relays
    assert relays_of(ann) == relays_of(ben) == [relay.peer]
    assert relay.ask("status")["topics"] == []


@pytest.mark.slow
def test_where_no_hole_can_be_punched_the_relay_stays(lab: Lab, tmp_path: Path) -> None:
    world = World(lab, tmp_path, relays=1)
    ann, ben = world.private
    topic = ann.ask("create", name="t")["topic"]
    ann.ask("subscribe", topic=topic)
    ben.ask("subscribe", topic=topic)
    until(lambda: tried(ann) and tried(ben), 40.0, "no hole was tried")
    check_both_ways(ann, ben, topic, "still")
    (relay,) = world.relays
    assert relays_of(ann) == relays_of(ben) == [relay.peer]


def test_a_ticket_leads_to_a_node_behind_a_nat_by_way_of_its_relay(
    lab: Lab, tmp_path: Path
) -> None:
    """The node that joins knows the ticket and nothing else, and is behind a NAT itself."""
    world = World(lab, tmp_path, relays=1, private=1)
    (ann,) = world.private
    topic = ann.ask("create", name="t")["topic"]
    ann.ask("subscribe", topic=topic)
    ann.ask("publish", topic=topic, text="hello", ack="accepted")
    ticket = ann.ask("invite", topic=topic)["ticket"]
    home = world.internet.nat("n9", network=9, kind=SYMMETRIC)
    ben = RemoteNode(home.host("h9"), tmp_path / "h9")
    ben.wait_until_up()
    assert ben.ask("join", ticket=ticket)["topic"] == topic
    ben.tell("subscribe", topic=topic)
    assert ben.has_seen("hello", DELIVERED_S_MAX)
    check_both_ways(ann, ben, topic, "joined")


def test_a_hole_through_two_nats_makes_the_connection_direct_and_loses_nothing(
    lab: Lab, tmp_path: Path
) -> None:
    """Events flow from both while the direct connection takes the place of the relayed one."""
    world = World(lab, tmp_path, relays=1, kind=CONE)
    ann, ben = world.private
    topic = ann.ask("create", name="t")["topic"]
    ann.ask("subscribe", topic=topic)
    texts = [f"event {number}" for number in range(200)]
    asked = []
    subscribing = None
    for number, text in enumerate(texts[:100]):
        asked.append(ann.tell("publish", topic=topic, text=text, ack="accepted"))
        if number == 10:
            subscribing = ben.tell("subscribe", topic=topic)  # He dials her through the relay now.
        time.sleep(0.005)
    assert subscribing is not None
    subscribing.answer()
    asked += [ben.tell("publish", topic=topic, text=text, ack="accepted") for text in texts[100:]]
    until_s = time.monotonic() + DELIVERED_S_MAX
    for node in (ann, ben):
        lacks = [text for text in texts if not node.has_seen(text, until_s - time.monotonic())]
        assert not lacks, f"{node.name} lacks {lacks}"
    # The author publishes all of them, also those that the other asks for: there is one order.
    assert list(ann.seen) == list(ben.seen)
    for each in asked:
        each.answer()
    for node in (ann, ben):
        until(lambda n=node: not relays_of(n), DELIVERED_S_MAX, f"{node.name} is relayed")  # type: ignore[misc]
        reach = node.ask("status")["reach"]
        assert (reach["punched"], reach["not_punched"]) == (1, 0)
    (relay,) = world.relays
    until(lambda: relay.ask("status")["relaying"]["circuits"] == 0, 15.0, "the circuit stays")
    check_both_ways(ann, ben, topic, "direct")


@pytest.mark.slow
def test_a_relay_that_is_killed_is_replaced_by_a_second_one(lab: Lab, tmp_path: Path) -> None:
    world = World(lab, tmp_path, relays=2)
    ann, ben = world.private
    topic = ann.ask("create", name="t")["topic"]
    ann.ask("subscribe", topic=topic)
    ben.ask("subscribe", topic=topic)
    check_both_ways(ann, ben, topic, "before")
    (used,) = relays_of(ann)
    (killed,) = [relay for relay in world.relays if relay.peer == used]
    os.kill(killed.pid, signal.SIGKILL)
    check_both_ways(ann, ben, topic, "after")
    (other,) = [relay for relay in world.relays if relay is not killed]
    assert relays_of(ann) == relays_of(ben) == [other.peer]
