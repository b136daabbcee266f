"""Proxies in front of nodes: what comes in arrives late, in order, and not at all across a cut."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.proxies import INNER, OUTER, Delay, Proxies, host_of, parse_delay

SIZE = 4


class Echo:
    """A node that says back what it hears, and when it heard it."""

    def __init__(self, host: str, port: int) -> None:
        self._listener = socket.create_server((host, port))
        self.heard: list[tuple[float, bytes]] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with closing(connection):
            while data := connection.recv(1 << 16):
                self.heard.append((time.monotonic(), data))
                connection.sendall(data)

    def close(self) -> None:
        self._listener.close()


@contextmanager
def network(delay: Delay) -> Iterator[tuple[Proxies, list[Echo]]]:
    with Proxies(SIZE, delay, seed=3) as proxies:
        nodes = [Echo(host_of(INNER, index), proxies.port) for index in range(SIZE)]
        try:
            yield proxies, nodes
        finally:
            for node in nodes:
                node.close()


def dial(proxies: Proxies, dialer: int, node: int) -> socket.socket:
    connection = socket.create_connection(
        (host_of(OUTER, node), proxies.port), 10, source_address=(host_of(INNER, dialer), 0)
    )
    connection.settimeout(10)
    return connection


def read(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = connection.recv(count - len(found))
        assert data, "it ended too early"
        found += data
    return found


def timed(line: socket.socket, node: Echo, tries: int = 5) -> tuple[float, float]:
    """The fastest way there, and there and back: a busy machine only adds to both."""
    there, both = [], []
    for _ in range(tries):
        began_s = time.monotonic()
        line.sendall(b"hello")
        assert read(line, 5) == b"hello"
        both.append(time.monotonic() - began_s)
        there.append(node.heard[-1][0] - began_s)
    return min(there), min(both)


def test_what_comes_in_is_late_and_what_goes_out_is_not() -> None:
    with network(Delay(base_ms=200)) as (proxies, nodes), dial(proxies, 0, 1) as line:
        there_s, both_s = timed(line, nodes[1])
        assert 0.19 < there_s < 0.6
        assert both_s - there_s < 0.15


def test_jitter_changes_no_order_and_loses_nothing() -> None:
    pieces = [b"%06d" % number for number in range(300)]
    with network(Delay(base_ms=30, jitter_ms=30)) as (proxies, _), dial(proxies, 0, 1) as line:
        for piece in pieces:
            line.sendall(piece)
            time.sleep(0.0005)
        assert read(line, 1800) == b"".join(pieces)


def test_a_delay_is_what_it_says() -> None:
    rng = random.Random(1)
    delay = Delay(base_ms=500, jitter_ms=300)
    found = [delay.of(0, 1, rng) for _ in range(2000)]
    assert 0.2 <= min(found) < 0.22
    assert 0.78 < max(found) <= 0.8
    assert abs(sum(found) / len(found) - 0.5) < 0.02
    pairs = Delay(pairs_ms=[[0, 10], [40, 0]])
    assert [pairs.of(1, 0, rng), pairs.of(0, 1, rng)] == [0.04, 0.01]
    assert (str(delay), str(pairs)) == ("500ms~300ms", "a matrix of 2 nodes")


def test_with_a_matrix_both_directions_are_late_by_who_talks_to_whom() -> None:
    pairs = [[0.0] * SIZE for _ in range(SIZE)]
    pairs[0][1], pairs[1][0] = 150, 250
    with network(Delay(pairs_ms=pairs)) as (proxies, nodes):
        with dial(proxies, 0, 1) as line:
            there_s, both_s = timed(line, nodes[1])
            assert 0.14 < there_s < 0.3
            assert 0.39 < both_s < 0.8
        with dial(proxies, 2, 3) as line:
            assert timed(line, nodes[3])[1] < 0.2


def test_a_cut_holds_what_is_said_and_healed_it_arrives() -> None:
    with network(Delay()) as (proxies, nodes):
        with dial(proxies, 0, 1) as across, dial(proxies, 2, 3) as beside:
            across.sendall(b"before")
            assert read(across, 6) == b"before"
            proxies.cut([0])
            time.sleep(0.2)
            across.sendall(b"during")
            beside.sendall(b"others")
            assert read(beside, 6) == b"others"
            time.sleep(0.3)
            assert [data for _, data in nodes[1].heard] == [b"before"]
            with dial(proxies, 0, 2) as new:
                new.sendall(b"new")
                time.sleep(0.3)
                assert not nodes[2].heard
                proxies.heal()
                assert read(new, 3) == b"new"
            assert read(across, 6) == b"during"


def test_where_nobody_listens_a_dialer_sees_just_that() -> None:
    with Proxies(2, Delay()) as proxies, dial(proxies, 0, 1) as line:
        with suppress(ConnectionResetError):
            assert line.recv(1) == b""


def test_much_at_once_is_bounded_and_arrives() -> None:
    with network(Delay(base_ms=20)) as (proxies, _), dial(proxies, 0, 1) as line:
        data = bytes(range(256)) * 40_000  # more than is held at a time

        def send() -> None:
            line.sendall(data)

        sender = threading.Thread(target=send)
        sender.start()
        assert read(line, len(data)) == data
        sender.join(10)
        assert proxies.cpu_s() < 5


@pytest.mark.parametrize("text", ["", "500", "~1ms", "-1ms", "1e9ms", "fastms"])
def test_a_latency_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(LocalError, match="500ms~300ms"):
        parse_delay(text)


def test_a_latency_is_read() -> None:
    assert parse_delay("500ms~300ms") == Delay(500, 300)
    assert parse_delay("0.5ms") == Delay(0.5, 0)


def test_a_narrow_line_carries_so_much_a_second_for_all_its_connections() -> None:
    with (
        network(Delay(mbit_s=8.0)) as (proxies, _),
        dial(proxies, 0, 1) as one,
        dial(proxies, 0, 2) as other,
    ):
        began_s = time.monotonic()
        for line in (one, other):
            threading.Thread(target=line.sendall, args=(bytes(500_000),), daemon=True).start()
        for line in (one, other):
            assert len(read(line, 500_000)) == 500_000
        assert time.monotonic() - began_s > 0.95
