"""The internet of the lab: who can dial whom, and what NATs make of a port."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.internet import CONE, SYMMETRIC, Internet, Machine
from tests.support.namespaces import Lab

PYTHON = "/usr/bin/python3"
PORT = 4420


@pytest.fixture
def internet() -> Iterator[Internet]:
    with Lab() as lab:
        yield Internet(lab)


def serve(machine: Machine, tmp_path: Path) -> None:
    """Answer every connection with the address that it comes from."""
    log = tmp_path / f"{machine.host.namespace}.log"
    machine.host.start([PYTHON, "-uc", _SERVE, str(PORT)], log)
    while "listening" not in (log.read_text() if log.exists() else ""):
        time.sleep(0.02)


def seen_from(machine: Machine, *targets: str) -> list[str]:
    """Dial targets from one port; how each saw the caller, or "" where it did not answer."""
    done = machine.host.run([PYTHON, "-c", _DIAL, str(PORT), *targets])
    return [line.strip() for line in done.stdout.splitlines()]


def test_public_hosts_reach_each_other_across_networks_and_a_firewall_lets_out_only(
    internet: Internet, tmp_path: Path
) -> None:
    ann = internet.public("ann", network=1)
    ben = internet.public("ben", network=2)
    wall = internet.firewalled("wall", network=3)
    for machine in (ann, ben, wall):
        serve(machine, tmp_path)
    assert ann.address.split(".")[:2] != ben.address.split(".")[:2], "two networks of /16"
    assert seen_from(ann, ben.address, wall.address) == [f"{ann.address}:5555", ""]
    assert seen_from(wall, ann.address, ben.address) == [f"{wall.address}:5555"] * 2


@pytest.mark.parametrize("kind", [CONE, SYMMETRIC])
def test_a_nat_lets_nobody_in_and_maps_ports_as_its_kind_says(
    internet: Internet, tmp_path: Path, kind: str
) -> None:
    ann, ben = internet.public("ann", network=1), internet.public("ben", network=2)
    home = internet.nat("home", network=3, kind=kind)
    cat, dan = home.host("cat"), home.host("dan")
    for machine in (ann, ben, cat, dan):
        serve(machine, tmp_path)
    seen = seen_from(cat, ann.address, ben.address)
    assert {each.split(":")[0] for each in seen} == {home.address}
    ports = {each.split(":")[1] for each in seen}
    if kind is CONE:
        assert ports == {"5555"}, "every peer sees the port that the host sends from"
    else:
        assert len(ports - {"5555"}) == 2, "every peer sees another port"
    assert seen_from(ann, home.address) == [""], "the NAT itself does not answer"
    assert seen_from(cat, dan.address) == [f"{cat.address}:5555"], "both are behind one NAT"


def test_a_nat_behind_a_nat_has_the_outer_address_and_a_forwarded_port_leads_in(
    internet: Internet, tmp_path: Path
) -> None:
    ann = internet.public("ann", network=1)
    outer = internet.nat("outer", network=2)
    inner = outer.nat("inner")
    cat, dan = inner.host("cat"), outer.host("dan")
    for machine in (ann, cat, dan):
        serve(machine, tmp_path)
    assert cat.address.split(".")[:3] != dan.address.split(".")[:3]
    assert seen_from(cat, ann.address, dan.address) == [
        f"{outer.address}:5555",
        f"{inner.address}:5555",
    ]
    assert seen_from(dan, inner.address) == [""], "the inner NAT lets nobody in"
    outer.forward(PORT, dan)
    assert seen_from(ann, outer.address) == [f"{ann.address}:5555"]


def test_an_address_changes_in_the_middle(internet: Internet, tmp_path: Path) -> None:
    ann, ben = internet.public("ann", network=1), internet.public("ben", network=2)
    home = internet.nat("home", network=3)
    cat = home.host("cat")
    for machine in (ann, ben):
        serve(machine, tmp_path)
    before = home.address
    assert seen_from(cat, ann.address) == [f"{before}:5555"]
    home.machine.move()
    assert seen_from(cat, ann.address) == [f"{home.address}:5555"] != [f"{before}:5555"]
    ben_before = ben.address
    ben.move()
    assert seen_from(ann, ben_before, ben.address) == ["", f"{ann.address}:5555"]


_SERVE = """
import socket, sys
server = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print("listening")
while True:
    connection, (host, port) = server.accept()
    connection.sendall(f"{host}:{port}".encode())
    connection.close()
"""
_DIAL = """
import socket, sys
for target in sys.argv[2:]:
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    caller.bind(("0.0.0.0", 5555))
    caller.settimeout(0.3)
    try:
        caller.connect((target, int(sys.argv[1])))
        print(caller.recv(100).decode())
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\\1\\0\\0\\0\\0\\0\\0\\0")
    except OSError:
        print("")
    caller.close()
"""
