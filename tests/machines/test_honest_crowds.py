"""Crowds of honest nodes: fifty behind one NAT that join at once, and a LAN of twenty.

Nobody refuses them and closes their connections. The seconds that each step took are printed
(`pytest -s`); a busy machine makes them long, so that what is held against is what nodes say.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.internet import Internet
from tests.support.namespaces import Lab
from tests.support.remote_nodes import RemoteNode

WORKER = Path(__file__).parent.parent / "support" / "crowd_worker.py"
REFUSED_S_MAX = 5.0
EVERYBODY_S_MAX = 90.0


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


def show(what: str, took_s: Sequence[float]) -> None:
    print(f"{what}: {sorted(took_s)[len(took_s) // 2]:.2f} {max(took_s):.2f} s (median, slowest)")  # noqa: T201


def check(status: dict[str, Any]) -> None:
    """A node closed no connection for others, and no peer has refused it for long."""
    assert not status["cut_off"], status
    assert all(refused_s < REFUSED_S_MAX for refused_s, _ in status["refused"].values()), status


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_fifty_nodes_behind_one_nat_join_at_once(lab: Lab, tmp_path: Path) -> None:
    internet = Internet(lab)
    public = RemoteNode(internet.public("p1", network=1), tmp_path / "p1")
    public.wait_until_up()
    topic = public.ask("create", name="t")["topic"]
    public.ask("subscribe", topic=topic)
    public.ask("publish", topic=topic, text="hello")
    home = internet.nat("n1", network=2).host("h1")
    options = {"listen": ["/ip4/0.0.0.0/tcp/0"], "bootstrap": public.addresses}
    log = tmp_path / "crowd.log"
    words = [str(tmp_path / "crowd"), "50", json.dumps(options), topic]
    process = home.host.start([sys.executable, str(WORKER), *words], log)
    assert process.wait(EVERYBODY_S_MAX) == 0, log.read_text()[-4000:]
    told = list(map(json.loads, log.read_text().splitlines()))
    assert len(told) == 50
    show("joined", [each["joined_s"] for each in told])
    show("subscribed", [each["subscribed_s"] for each in told])
    for each in (*told, public.ask("status")):
        check(each)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_twenty_nodes_of_a_lan_find_each_other(lab: Lab, tmp_path: Path) -> None:
    """All are of one network prefix, and all hear of the others from it."""
    lan = Internet(lab).nat("n1", network=1)
    nodes = [
        RemoteNode(lan.host(f"h{number}"), tmp_path / f"h{number}", mdns=True)
        for number in range(20)
    ]
    for node in nodes:
        node.wait_until_up()
    began_s = time.monotonic()
    found_s: list[float] = []
    for node in nodes:
        while len(node.ask("status")["peers"]) < len(nodes) - 1:
            assert time.monotonic() < began_s + EVERYBODY_S_MAX, node.ask("status")
            time.sleep(0.1)
        found_s.append(time.monotonic() - began_s)
    show("found all others", found_s)
    topic = nodes[0].ask("create", name="t")["topic"]
    subscribed = [node.tell("subscribe", topic=topic) for node in nodes]
    show("subscribed", [asked.answer()["took_s"] for asked in subscribed])
    nodes[0].ask("publish", topic=topic, text="hello")
    for node in nodes:
        assert node.has_seen("hello", EVERYBODY_S_MAX), node.name
    for node in nodes:
        check(node.ask("status"))
