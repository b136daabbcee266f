"""Thirty nodes, most of them behind NATs, while relays are killed: traces show every promise kept.

All nodes write traces, and so does the driver of the load. `pulsarcast pipeline` judges them. The
figures of each run are printed (`pytest -s`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.support.internet import CONE, SYMMETRIC, Internet
from tests.support.namespaces import Lab
from tests.support.traced_load import Place, Topic, TracedLoad, pipeline

SETTLED_S_MAX = 120.0
NETWORKS = 6
"""Public networks that NATs are in, beside those of the public nodes."""


@dataclass(frozen=True)
class Size:
    """How large a run is."""

    public: int
    private: int
    events: int
    pause_s: float
    """Between two events."""
    down_s: float
    """How long a killed node stays away."""
    delivered_s_max: float
    """How long the last deliveries may take after the load."""


SMALL = Size(public=2, private=8, events=60, pause_s=0.1, down_s=3.0, delivered_s_max=60.0)
LARGE = Size(public=3, private=27, events=500, pause_s=0.2, down_s=60.0, delivered_s_max=240.0)
"""Both relays that are killed are down together for a while: one alone relays then."""


class World:
    """Public nodes, and private ones behind NATs of both kinds, some of them two by two."""

    def __init__(self, lab: Lab, load: TracedLoad, size: Size) -> None:
        internet = Internet(lab)
        self.public: list[Place] = []
        for number in range(1, size.public + 1):
            name = f"p{number}"
            machine = internet.public(name, network=number)
            self.public.append(load.start(machine, name, self.addresses))
            self.public[-1].node.wait_until_up()
        self.private: list[Place] = []
        nats = 0
        while len(self.private) < size.private:
            kind = SYMMETRIC if nats % 3 == 2 else CONE
            network = size.public + 1 + nats % NETWORKS
            nat = internet.nat(f"n{nats}", network=network, kind=kind)
            for _ in range(min(2 if nats % 6 == 0 else 1, size.private - len(self.private))):
                name = f"h{len(self.private)}"
                self.private.append(load.start(nat.host(name), name, self.addresses))
            nats += 1
        for place in self.private:
            place.node.wait_until_up()

    @property
    def addresses(self) -> list[str]:
        """Where the public nodes are."""
        return [address for place in self.public for address in place.node.addresses]

    def settle(self) -> None:
        """Wait until every node knows its reach, and each private one has a relay."""
        until_s = time.monotonic() + SETTLED_S_MAX
        for places, reach in ((self.public, "public"), (self.private, "relayed")):
            for place in places:
                while (now := place.status()["reach"])["kind"] != reach:
                    assert time.monotonic() < until_s, f"{place.name} is {now}"
                    time.sleep(0.5)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


def topics_of(load: TracedLoad, world: World) -> list[Topic]:
    """Two topics of private authors: one with a public member, one with private ones alone."""
    private = world.private
    far = len(private) // 2
    return [
        load.create(
            "causal", "causal",
            publishers=[private[0], private[far]], askers=[private[1], private[-1]],
            members=[world.public[-1], *private[: 2 * len(private) // 3], private[-1]],
        ),
        load.create(
            "ordered", "per-publisher",
            publishers=[private[2], private[-2]], askers=[private[far + 1], private[-1]],
            members=private[len(private) // 4 :],
        ),
    ]  # fmt: skip


def play(load: TracedLoad, topics: Sequence[Topic], relays: Sequence[Place], size: Size) -> None:
    """Publish all events, and kill all relays but one on the way, one after the other."""
    kills = {
        size.events * number // len(relays): relay for number, relay in enumerate(relays) if number
    }
    back_s: dict[float, Place] = {}
    """When killed nodes start again."""
    speakers = [cycle(topic.speakers) for topic in topics]
    for number in range(size.events):
        if number in kills:
            load.kill(kills[number])
            back_s[time.monotonic() + size.down_s] = kills[number]
        load.publish(topics[number % 2], next(speakers[number % 2]))
        load.note_answers()
        if back_s and min(back_s) <= time.monotonic():
            load.restart(back_s.pop(min(back_s)))
        time.sleep(size.pause_s)
    for at_s, place in sorted(back_s.items()):
        time.sleep(max(0.0, at_s - time.monotonic()))
        load.restart(place)
    load.wait_until_delivered(size.delivered_s_max)
    load.note_answers(wait=True)


def rank(values: Sequence[float], share: float) -> float:
    """The least value that a share of all do not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def figures(load: TracedLoad, before: Sequence[dict[str, Any]]) -> str:
    """What is printed: how long everything took, and what went through relays."""
    lives = [each for place in load.places for each in (*place.earlier, place.status())]
    began = {"relayed": sum(each["relaying"]["bytes"] for each in before),
             "received": sum(each["bytes_in"] for each in before)}  # fmt: skip
    relayed = sum(each["relaying"]["bytes"] for each in lives) - began["relayed"]
    # A relay receives what it passes on, and so does the node that it is meant for.
    received = sum(each["bytes_in"] for each in lives) - began["received"] - relayed
    delivered, up = load.delivered_s(), load.delivered_s(up=True)
    # Both ends count.
    punched, not_punched = (
        sum(each["reach"][name] for each in lives) // 2 for name in ("punched", "not_punched")
    )
    return "\n".join(
        (
            f"{len(load.places)} nodes, {len(load.published)} events: {len(delivered)} delivered",
            f"  subscribe p50, max: {_s(load.subscribed_s, 0.5, 1.0)}",
            f"  publish (replicated) p50, p99, max: {_s(load.published_s, 0.5, 0.99, 1.0)}",
            f"  deliver (to nodes that stay up) p50, p99, max: {_s(up, 0.5, 0.99, 1.0)}",
            f"  over relays: {relayed:,} of {received:,} bytes, {relayed / received:.1%}",
            f"  connections punched, and not: {punched} {not_punched}",
        )
    )


def _s(values: Sequence[float], *shares: float) -> str:
    return ", ".join(f"{rank(values, share):.2f} s" for share in shares)


def show(lab: Lab, folder: Path, size: Size, run_id: str) -> None:
    """Play a run, print its figures, and have the pipeline judge its traces."""
    load = TracedLoad(folder, run_id)
    world = World(lab, load, size)
    world.settle()
    before = [place.status() for place in load.places]
    play(load, topics_of(load, world), world.public, size)
    delivered = len(load.delivered_s())
    print(f"\n{figures(load, before)}")  # noqa: T201
    load.stop()
    tables = load.traces
    if size is LARGE:  # `check` lands what was not ingested; a second program takes its time.
        tables = folder / "tables"
        ingested = pipeline("ingest", load.traces, "--out", tables, "--finish")
        assert ingested["quarantined"] == 0, ingested
    judged = pipeline("check", tables)
    found = {**judged["findings"], **judged["unknown"]}
    print(f"  {judged['lines']} lines of traces: {judged['outcome']}; due {load.due}")  # noqa: T201
    assert (delivered, load.missing()) == (load.due, {})
    assert judged["exit"] == 0, {kind: count for kind, count in found.items() if count}
    assert judged["runs"] == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_nodes_get_every_event_though_a_relay_is_killed(lab: Lab, tmp_path: Path) -> None:
    show(lab, tmp_path, SMALL, "ten")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("tries", [3, 0])
def test_thirty_nodes_get_every_event_though_relays_are_killed(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    """With holes punched, and with relays alone."""
    monkeypatch.setenv("PULSARCAST_TEST_PUNCH_TRIES", str(tries))
    show(lab, tmp_path, LARGE, f"thirty-{tries}")
