"""The lab of machines itself: what it makes is there, apart from everything else, and goes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.namespaces import Lab, remove_left_behind


def listed() -> str:
    return subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout


def test_two_hosts_on_a_switch_reach_each_other_and_nothing_is_left(tmp_path: Path) -> None:
    with Lab() as lab:
        before = subprocess.run(["ip", "-o", "addr"], capture_output=True, text=True, check=True)
        lan = lab.switch("lan")
        ann, ben = lab.host("ann"), lab.host("ben")
        ann.plug(lan, "10.1.0.1/16", "fd00:1::1/64")
        ben.plug(lan, "10.1.0.2/16", "fd00:1::2/64")
        after = subprocess.run(["ip", "-o", "addr"], capture_output=True, text=True, check=True)
        assert before.stdout == after.stdout, "addresses are inside namespaces only"
        listening = ben.start(
            ["python3", "-c", _SERVE], tmp_path / "serve.log", env={"PATH": "/usr/bin:/bin"}
        )
        for address in ("10.1.0.2", "fd00:1::2"):
            done = ann.run(["python3", "-c", _DIAL, address])
            assert done.stdout == "hello\n"
        assert ann.namespace in listed()
    assert listening.wait(5) is not None, "what runs on a host ends with the lab"
    assert ann.namespace not in listed()


def test_what_a_killed_run_left_behind_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()  # Never left: its process "died".
    monkeypatch.setattr(lab, "_id", "pulsarcast-4194305-1")  # Above the largest process id.
    lab.host("ann")
    assert "pulsarcast-4194305-1-ann" in listed()
    remove_left_behind()
    assert "pulsarcast-4194305-1-ann" not in listed()


_SERVE = """
import socket
server = socket.create_server(("::", 5000), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    server.accept()[0].sendall(b"hello")
"""
_DIAL = """
import socket, sys, time
for _ in range(100):
    try:
        print(socket.create_connection((sys.argv[1], 5000), 5).recv(10).decode())
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
"""
