"""Two machines of one network, fresh homes, defaults: they find each other, and stay together.

The guide "Two machines" is played in tests/docs/test_two_machines_guide.py.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from tests.support.namespaces import Host, Lab, Switch

PROGRAM = [sys.executable, "-m", "pulsarcast"]
AGAIN_S_MAX = 10.0
"""Two nodes that are started again are connected within this time after both are ready."""


class Machine:
    """A host with the home of one node."""

    def __init__(self, host: Host, home: Path) -> None:
        self.host = host
        self.home = home
        self.log = home.parent / f"{home.name}.log"
        self._env = {
            name: value for name, value in os.environ.items() if not name.startswith("PULSARCAST_")
        }

    def start(self, *words: str) -> Popen[bytes]:
        """Start a command that goes on."""
        return self.host.start(
            [*PROGRAM, *words, "--home", str(self.home)], self.log, env=self._env
        )

    def run(self, *words: str, fails: bool = False) -> str:
        """Run a command to its end; what it printed, or said where it fails."""
        done = self.host.run(
            [*PROGRAM, *words, "--home", str(self.home)], env=self._env, check=not fails
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout.strip()

    def status(self) -> dict[str, Any]:
        """What its node says of itself, once it runs."""
        found: dict[str, Any] = json.loads(self.run("status", "--wait", "--json"))
        return found

    def printed(self, text: str) -> None:
        """Wait until a command that was started prints something."""
        wait_for(lambda: text in self.log.read_text(encoding="utf-8"), 30.0, self.log)


def wait_for(holds: Callable[[], bool], seconds: float, log: Path | None = None) -> None:
    deadline_s = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline_s, "" if log is None else log.read_text()[-4000:]
        time.sleep(0.05)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


@pytest.fixture
def lan(lab: Lab) -> Switch:
    return lab.switch("lan")


@pytest.fixture
def ann(lab: Lab, lan: Switch, tmp_path: Path) -> Machine:
    host = lab.host("ann")
    host.plug(lan, "10.1.0.1/16", "fd00:1::1/64")
    return Machine(host, tmp_path / "ann")


@pytest.fixture
def ben(lab: Lab, lan: Switch, tmp_path: Path) -> Machine:
    host = lab.host("ben")
    host.plug(lan, "10.1.0.2/16", "fd00:1::2/64")
    return Machine(host, tmp_path / "ben")


def invited(machine: Machine) -> str:
    """A topic on a machine that starts now, and a ticket to it."""
    machine.start("daemon")
    machine.run("topic", "create", "weather", "--alias", "weather", "--wait")
    return machine.run("invite", "weather")


@pytest.mark.slow
def test_both_started_again_without_any_option_are_connected_within_ten_seconds(
    ann: Machine, ben: Machine
) -> None:
    first = ben.start("join", invited(ann))
    ben.printed("alias  weather")
    ann.run("publish", "weather", "sunny")
    ben.printed("sunny")
    for machine in (ann, ben):
        pids = machine.host.run(["cat", str(machine.home / "lock")]).stdout.split()
        machine.host.run(["kill", *pids])
    assert first.wait(20) == 0
    wait_for(lambda: not (ann.home / "http").exists(), 20.0)
    ann.start("daemon")
    ben.start("daemon")
    ann.status()
    ben.status()
    wait_for(lambda: ben.status()["peers"] == 1, AGAIN_S_MAX)
    ann.run("publish", "weather", "cloudy")
    assert (
        ben.run("subscribe", "weather", "--start", "beginning", "--count", "2") == "sunny\ncloudy"
    )


@pytest.mark.slow
def test_with_mdns_two_machines_need_no_ticket(ann: Machine, ben: Machine) -> None:
    ann.start("daemon", "--mdns")
    ben.start("daemon", "--mdns")
    peer = ann.status()["peer"]
    ben.status()
    wait_for(lambda: ben.status()["peers"] == 1, 30.0, ben.log)
    ann.run("topic", "create", "weather", "--alias", "weather")
    ann.run("publish", "weather", "sunny")
    topic = f"{peer}/weather"
    assert ben.run("subscribe", topic, "--start", "beginning", "--count", "1") == "sunny"


@pytest.mark.slow
def test_a_second_node_on_a_machine_needs_no_option_but_a_home(ann: Machine) -> None:
    ticket = invited(ann)
    second = Machine(ann.host, ann.home.with_name("second"))
    second.start("join", ticket)
    second.printed("alias  weather")
    ann.run("publish", "weather", "sunny")
    second.printed("sunny")
    assert "/tcp/4421/" in second.status()["addresses"][0]
    assert (second.home / "http").read_text().strip() == "http://127.0.0.1:8421"


@pytest.mark.slow
def test_a_node_that_moves_is_announced_and_found_where_it_is_now(
    ann: Machine, ben: Machine
) -> None:
    """A laptop gets another address; the peers that knew the old one are found again."""
    ticket = invited(ann)
    ben.start("join", ticket)
    ben.printed("alias  weather")
    for words in (("del", "10.1.0.2/16"), ("del", "fd00:1::2/64"), ("add", "10.1.0.9/16")):
        ben.host.ip("addr", *words, "dev", "eth0")
    wait_for(
        lambda: [each.split("/")[2] for each in ben.status()["addresses"]] == ["10.1.0.9"], 15.0
    )
    ann.run("publish", "weather", "sunny", "--ack", "accepted")
    wait_for(lambda: "sunny" in ben.log.read_text(), 90.0, ben.log)


@pytest.mark.slow
def test_a_network_that_has_ipv6_alone_will_do(lab: Lab, lan: Switch, tmp_path: Path) -> None:
    machines = []
    for number, name in enumerate(("ann", "ben"), 1):
        host = lab.host(name)
        host.plug(lan, f"fd00:1::{number}/64")
        machines.append(Machine(host, tmp_path / name))
    ann, ben = machines
    ben.start("join", invited(ann))
    ben.printed("alias  weather")
    ann.run("publish", "weather", "sunny")
    ben.printed("sunny")


@pytest.mark.slow
def test_a_peer_that_cannot_be_reached_is_told_with_its_addresses_and_joined_later(
    ann: Machine, ben: Machine
) -> None:
    ticket = invited(ann)
    ann.host.ip("link", "set", "eth0", "down")
    said = ben.run("join", ticket, fails=True)
    assert "the topic of the ticket was not found" in said
    assert "/ip4/10.1.0.1/tcp/4420: " in said, "each address with its reason"
    ann.host.ip("link", "set", "eth0", "up")
    ben.start("join", ticket)
    ben.printed("alias  weather")


@pytest.mark.slow
def test_a_new_home_takes_the_network_of_the_ticket_and_another_is_refused(
    ann: Machine, ben: Machine
) -> None:
    ann.run("init")
    config = ann.home / "config.toml"
    config.write_text('[node]\nnetwork = "trial"\n')
    ticket = invited(ann)
    ben.start("join", ticket)
    ben.printed("alias  weather")
    third = Machine(ben.host, ben.home.with_name("third"))
    third.run("init")
    said = third.run("join", ticket, fails=True)
    assert "for the network 'trial', and this node is in 'main'" in said
