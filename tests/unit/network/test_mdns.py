"""Peers of the same local network find each other without being named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import pytest
import trio
from zeroconf import ServiceInfo, ServiceStateChange

from pulsarcast.network import mdns
from pulsarcast.network.mdns import contacts_in
from pulsarcast.network.node import Node

PEER = "12D3KooWPjceQrSwdWXPyLLeABRXmuqt69Rg3sBYbU1Nft9HyQ6X"


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
        properties = MappingProxyType({b"dnsaddr": f"/ip4/127.0.0.1/tcp/1/p2p/{PEER}".encode()})

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


def test_who_listens_everywhere_finds_others_and_names_no_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Silent:
        def __init__(self, *given: object, **named: object) -> None:
            asked.append("")

        def register_service(self, info: ServiceInfo) -> None:
            asked.append(str(info))

        def cancel(self) -> None:
            pass

        close = cancel

    monkeypatch.setattr(mdns, "Zeroconf", Silent)
    monkeypatch.setattr(mdns, "ServiceBrowser", Silent)

    async def scene() -> None:
        async with Node.open(tmp_path / "ann", mdns=True, listen=["/ip4/0.0.0.0/tcp/0"]):
            with trio.fail_after(10):
                while len(asked) < 2:
                    await trio.sleep(0.01)

    trio.run(scene)
    assert asked == ["", ""], "it looks for others, and that is all"


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {b"dnsaddr": None},
        {b"dnsaddr": b"\xff"},
        {b"dnsaddr": b"nonsense"},
        {b"dnsaddr": b"/ip4/127.0.0.1/tcp/1/p2p/nobody"},
        {b"other": b"/ip4/127.0.0.1/tcp/1/p2p/" + PEER.encode()},
    ],
)
def test_what_others_say_there_is_believed_only_if_it_is_an_address(properties: object) -> None:
    assert contacts_in(properties) == []


def test_an_address_with_a_peer_is_one() -> None:
    (contact,) = contacts_in({b"dnsaddr": f"/ip4/127.0.0.1/tcp/1/p2p/{PEER}".encode()})
    assert contact.addresses == ("/ip4/127.0.0.1/tcp/1",)
