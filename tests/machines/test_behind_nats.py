"""Nodes behind NATs get every event: each scene is played behind NATs, and in the open beside it.

Private nodes listen on all addresses, announce what their interfaces say, and know the public nodes
as bootstrap peers. The seconds that each step took are printed (`pytest -s`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import pytest

from tests.support.internet import CONE, SYMMETRIC, Internet
from tests.support.namespaces import Lab
from tests.support.remote_nodes import RemoteNode

OPEN = None
"""No NAT: every node has a public address."""
DELIVERED_S_MAX = 30.0
SETTLED_S_MAX = 60.0


class World:
    """Public nodes, and private ones behind a NAT each, unless all are to be in the open."""

    def __init__(
        self, lab: Lab, folder: Path, *, public: int, private: int, kind: str | None
    ) -> None:
        internet = Internet(lab)
        self.public: list[RemoteNode] = []
        for number in range(1, public + 1):
            machine = internet.public(f"p{number}", network=number)
            self.public.append(RemoteNode(machine, folder / f"p{number}", bootstrap=self.addresses))
            self.public[-1].wait_until_up()
        self.private: list[RemoteNode] = []
        for number in range(1, private + 1):
            name, network = f"h{number}", public + number
            if kind is OPEN:
                machine = internet.public(name, network=network)
            else:
                machine = internet.nat(f"n{number}", network=network, kind=kind).host(name)
            self.private.append(RemoteNode(machine, folder / name, bootstrap=self.addresses))
        for node in self.private:
            node.wait_until_up()
        until_s = time.monotonic() + SETTLED_S_MAX
        for node in self.all:
            while self.reach(node) == "unknown":
                assert time.monotonic() < until_s, f"{node.name} does not know its reach"
                time.sleep(0.2)
        assert [self.reach(node) for node in self.public] == ["public"] * public
        # A node behind a NAT is relayed as soon as a public one keeps a place for it.
        ways = {"public"} if kind is OPEN else {"private", "relayed"}
        assert {self.reach(node) for node in self.private} <= ways

    @property
    def addresses(self) -> list[str]:
        """Where the public nodes are."""
        return [address for node in self.public for address in node.addresses]

    @staticmethod
    def reach(node: RemoteNode) -> str:
        """How a node thinks that others can dial it."""
        return str(node.ask("status")["reach"]["kind"])

    @property
    def all(self) -> list[RemoteNode]:
        """All nodes."""
        return [*self.public, *self.private]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


def spread(
    author: RemoteNode, others: Sequence[RemoteNode], *, requester: RemoteNode | None, events: int
) -> None:
    """The author makes a topic and publishes; all subscribe, and get every event."""
    topic = author.ask("create", name="t")["topic"]
    author.ask("subscribe", topic=topic)
    subscribed_s = [
        asked.answer()["took_s"]
        for asked in [node.tell("subscribe", topic=topic) for node in others]
    ]
    texts = [f"event {number}" for number in range(events)]
    asked = {
        text: (time.monotonic(), author.ask("publish", topic=topic, text=text)) for text in texts
    }
    if requester is not None:
        text = "request"
        asked[text] = (time.monotonic(), requester.ask("publish", topic=topic, text=text))
    everybody = [author, *others]
    until_s = time.monotonic() + DELIVERED_S_MAX
    missing = {
        node.name: lacks
        for node in everybody
        if (lacks := [t for t in asked if not node.has_seen(t, until_s - time.monotonic())])
    }
    delivered_s = [
        node.seen[text] - began_s
        for node in everybody
        for text, (began_s, _) in asked.items()
        if text in node.seen
    ]
    published_s = [answer["took_s"] for _, answer in asked.values()]
    print(  # noqa: T201
        f"\n{len(everybody)} nodes: subscribe {_seconds(subscribed_s)}, "
        f"publish (replicated) {_seconds(published_s)}, deliver {_seconds(delivered_s)} "
        "(median, slowest)"
    )
    assert not missing, missing


def _seconds(took_s: Sequence[float]) -> str:
    return f"{median(took_s):.2f} {max(took_s):.2f} s" if took_s else "-"


def test_a_private_subscriber_hears_a_private_author_over_a_public_member(
    lab: Lab, tmp_path: Path
) -> None:
    world = World(lab, tmp_path, public=1, private=2, kind=CONE)
    ann, ben = world.private
    (pub,) = world.public
    spread(ann, [pub, ben], requester=None, events=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [OPEN, CONE, SYMMETRIC])
def test_one_public_node_and_two_private_ones(lab: Lab, tmp_path: Path, kind: str | None) -> None:
    """A topic of the public node, and one of a private node that the public one is no member of."""
    world = World(lab, tmp_path, public=1, private=2, kind=kind)
    (pub,), (ann, ben) = world.public, world.private
    spread(pub, [ann, ben], requester=ann, events=3)
    spread(ann, [ben], requester=ben, events=3)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("author", ["public", "private"])
@pytest.mark.parametrize("kind", [OPEN, CONE, SYMMETRIC])
def test_three_public_nodes_and_twelve_private_ones(
    lab: Lab, tmp_path: Path, author: str, kind: str | None
) -> None:
    world = World(lab, tmp_path, public=3, private=12, kind=kind)
    first = world.public[0] if author == "public" else world.private[0]
    others = [node for node in world.all if node is not first]
    spread(first, others, requester=world.private[-1], events=10)
