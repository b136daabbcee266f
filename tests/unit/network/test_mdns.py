"""Peers of the same local network find each other without being named."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path

import pytest
import trio
from zeroconf import ServiceInfo, ServiceStateChange

from pulsarcast.model.ids import parse_peer
from pulsarcast.network import driver, mdns
from pulsarcast.network.addresses import HEARSAY_MAX
from pulsarcast.network.interfaces import Interface
from pulsarcast.network.mdns import contacts_in, text_of
from pulsarcast.network.node import Node
from pulsarcast.protocol.messages import Contact

PEER = "12D3KooWPjceQrSwdWXPyLLeABRXmuqt69Rg3sBYbU1Nft9HyQ6X"
OTHER = "12D3KooWNNMEgSvMsXX1yuMV9hXLVThEr9LeMD3s9vbWFMJgQTu9"


def entry(text: str | bytes) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return bytes([len(data)]) + data


def test_two_nodes_find_each_other_and_an_event_arrives(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Node.open(tmp_path / "ann", mdns=True) as ann,
            Node.open(tmp_path / "ben", mdns=True) as ben,
        ):
            with trio.fail_after(20):
                while not ann.peers() or not ben.peers():
                    await trio.sleep(0.05)
            topic = await ann.create_topic("weather")
            events = await ben.subscribe(f"{ann.peer_id}/weather")
            await ann.publish(topic, b"sunny", ack="accepted")
            with trio.fail_after(20):
                assert (await anext(events)).payload == b"sunny"

    trio.run(scene)


def test_a_peer_that_is_found_while_we_close_is_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a thread of theirs says then must not be raised where nobody can catch it."""
    handlers: list[Callable[..., None]] = []

    class Peers:
        text = entry(f"dnsaddr=/ip4/127.0.0.1/tcp/1/p2p/{PEER}")

        def get_service_info(self, kind: str, name: str, timeout: int) -> Peers:
            return self

        def cancel(self) -> None:
            for number in range(100):
                handlers[0](self, "", f"late {number}", ServiceStateChange.Added)

        def close(self) -> None:
            self.cancel()

    def begin(me: object, addresses: object, changed: Callable[..., None]) -> tuple[Peers, Peers]:
        handlers.append(changed)
        return Peers(), Peers()

    monkeypatch.setattr(mdns, "_begin", begin)

    async def scene() -> None:
        async with Node.open(tmp_path / "ann", mdns=True):
            while not handlers:
                await trio.sleep(0.01)

    trio.run(scene)


def test_without_an_address_for_it_a_node_works_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with Node.open(tmp_path / "ann", mdns=True, listen=()) as ann:
            topic = await ann.create_topic("weather")
            events = await ann.subscribe(topic)
            await ann.publish(topic, b"sunny", ack="accepted")
            with trio.fail_after(10):
                assert (await anext(events)).payload == b"sunny"
                while not caplog.records:
                    await trio.sleep(0.02)
        assert "mDNS needs an IPv4 address" in caplog.text

    trio.run(scene)


def test_who_listens_everywhere_tells_the_addresses_of_the_interfaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [Interface("eth0", IPv4Address("192.0.2.1")), Interface("lo", IPv4Address("127.0.0.1"))]
    asked: list[list[str]] = []
    told: list[list[Contact]] = []

    class Silent:
        def __init__(self, *given: object, interfaces: list[str] | None = None, **named: object):
            if interfaces is not None:
                asked.append(interfaces)

        def register_service(self, info: ServiceInfo) -> None:
            told.append(contacts_in(info.text))

        def cancel(self) -> None:
            pass

        close = cancel

    monkeypatch.setattr(mdns, "Zeroconf", Silent)
    monkeypatch.setattr(mdns, "ServiceBrowser", Silent)
    monkeypatch.setattr(driver, "find_interfaces", lambda: tuple(there))
    monkeypatch.setattr(driver, "INTERFACES_S", 0.01)

    async def scene() -> None:
        async with Node.open(tmp_path / "ann", mdns=True, listen=["/ip4/0.0.0.0/tcp/0"]) as ann:
            with trio.fail_after(10):
                while not told:
                    await trio.sleep(0.01)
                port = ann.addresses[0].split("/")[4]
                there[0] = Interface("eth0", IPv4Address("192.0.2.2"))
                while len(told) < 2:
                    await trio.sleep(0.01)
            assert ann.addresses == (f"/ip4/192.0.2.2/tcp/{port}/p2p/{ann.peer_id}",)
            assert asked == [["192.0.2.1"], ["192.0.2.2"]], "anew where the machine has moved"
            assert told == [
                [Contact(ann.identity, (f"/ip4/192.0.2.{host}/tcp/{port}",))] for host in (1, 2)
            ]

    trio.run(scene)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x00",
        b"\xff",
        b"\xffdnsaddr=",
        entry("dnsaddr"),
        entry(b"dnsaddr=\xff"),
        entry("dnsaddr=nonsense"),
        entry("dnsaddr=/ip4/127.0.0.1/tcp/1/p2p/nobody"),
        entry(f"other=/ip4/127.0.0.1/tcp/1/p2p/{PEER}"),
        entry(f"dnsaddr=/ip4/127.0.0.1/tcp/1/p2p/{PEER}")[:-1],
    ],
)
def test_what_others_say_there_is_believed_only_if_it_is_an_address(text: bytes) -> None:
    assert contacts_in(text) == []


def test_all_addresses_of_a_peer_are_taken_together_within_bounds() -> None:
    one = entry(f"dnsaddr=/ip4/192.0.2.1/tcp/1/p2p/{OTHER}")
    many = [entry(f"dnsaddr=/ip4/127.0.0.1/tcp/{port}/p2p/{PEER}") for port in range(100)]
    first, second = contacts_in(b"".join([*many, entry("else"), one]))
    assert first.addresses == tuple(f"/ip4/127.0.0.1/tcp/{port}" for port in range(HEARSAY_MAX))
    assert second == Contact(parse_peer(OTHER), ("/ip4/192.0.2.1/tcp/1",))


def test_what_a_node_tells_is_what_another_reads() -> None:
    addresses = ("/ip4/192.0.2.1/tcp/4420", "/ip6/2001:db8::1/tcp/4420")
    text = text_of(parse_peer(PEER), (*addresses, f"/dns/{'a' * 250}/tcp/1"))
    assert contacts_in(text) == [Contact(parse_peer(PEER), addresses)]
