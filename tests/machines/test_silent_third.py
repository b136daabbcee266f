"""Thirty nodes, of which many are stopped at once (SIGSTOP): the others have what is published.

Connections of a stopped process stand, and its kernel goes on acknowledging. The figures of each
run are printed (`pytest -s`).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support.internet import Internet
from tests.support.namespaces import Lab
from tests.support.remote_nodes import RemoteNode

NODES = 30
PUBLISHERS = 3
"""The author and two others publish, and are not stopped."""
EVENTS = 20
PAUSE_S = 1.5
"""Between two events."""
LATE_S_MAX = 20.0
WOKEN_S_MAX = 60.0


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


def start(lab: Lab, folder: Path) -> list[RemoteNode]:
    """The nodes, in one public network; all know the first one."""
    internet = Internet(lab)
    nodes: list[RemoteNode] = []
    for number in range(NODES):
        known = nodes[0].addresses if nodes else []
        machine = internet.public(f"s{number}")
        nodes.append(RemoteNode(machine, folder / f"s{number}", bootstrap=known))
        nodes[-1].wait_until_up()
    return nodes


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", [1 / 3, 1 / 2])
def test_the_others_have_every_event_within_seconds(lab: Lab, tmp_path: Path, part: float) -> None:
    nodes = start(lab, tmp_path)
    publishers = nodes[:PUBLISHERS]
    topic = publishers[0].ask(
        "create", name="crowd", order="per-publisher", publishers=[each.peer for each in publishers]
    )["topic"]
    for node in nodes:
        node.ask("subscribe", topic=topic)
    publishers[1].ask("publish", topic=topic, text="before", ack="accepted")
    assert all(node.has_seen("before", 60.0) for node in nodes)
    time.sleep(10.0)

    stopped = Random(1).sample(nodes[PUBLISHERS:], round(part * NODES))
    others = [node for node in nodes if node not in stopped]
    published: dict[str, float] = {}
    for node in stopped:
        os.kill(node.pid, signal.SIGSTOP)
    try:
        for number in range(EVENTS):
            text = f"event {number}"
            published[text] = time.monotonic()
            publishers[number % PUBLISHERS].tell("publish", topic=topic, text=text, ack="accepted")
            time.sleep(PAUSE_S)
        lacking = [
            (node.name, text)
            for node in others
            for text in published
            if not node.has_seen(text, max(0.0, published[text] + LATE_S_MAX - time.monotonic()))
        ]
    finally:
        for node in stopped:
            os.kill(node.pid, signal.SIGCONT)
    late = sorted(
        node.seen[text] - at_s for node in others for text, at_s in published.items()
        if text in node.seen
    )  # fmt: skip
    p50, p99, most = late[len(late) // 2], late[len(late) * 99 // 100], late[-1]
    print(f"\n{len(stopped)} of {NODES} stopped: p50 {p50:.2f}, p99 {p99:.2f}, max {most:.2f} s")  # noqa: T201
    assert not lacking
    assert p99 <= LATE_S_MAX / 2
    until_s = time.monotonic() + WOKEN_S_MAX
    assert all(
        node.has_seen(text, max(0.0, until_s - time.monotonic()))
        for node in stopped
        for text in published
    )
