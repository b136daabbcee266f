import pytest
from hypothesis import given
from hypothesis import strategies as st
from multiaddr import Multiaddr

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import peer_text
from pulsarcast.network.addresses import parse_contact
from pulsarcast.network.multiaddrs import (
    Relay,
    address_bytes,
    address_text,
    check_address,
    host_of,
    is_dialable,
    is_everywhere,
    relay_of,
    relayed_address,
)
from tests.unit.network.hosts import ANN, BEN, STOCK

R, A, B = (peer_text(each.peer_id) for each in (STOCK, ANN, BEN))
RELAYED = f"/ip4/192.0.2.1/tcp/4001/p2p/{R}/p2p-circuit"


def test_a_relayed_address_names_its_relay_and_where_that_is() -> None:
    relay = Relay(STOCK.peer_id, "/ip4/192.0.2.1/tcp/4001")
    assert relay_of(RELAYED) == relay
    assert relay_of(f"{RELAYED}/p2p/{A}", ANN.peer_id) == relay
    assert relayed_address(relay) == RELAYED
    assert relay_of("/ip4/192.0.2.1/tcp/4001") is None
    assert host_of(RELAYED) == "192.0.2.1"
    assert parse_contact(f"{RELAYED}/p2p/{A}") == (ANN.peer_id, (RELAYED,))
    check_address(RELAYED, ANN.peer_id)
    assert is_dialable(RELAYED, ANN.peer_id)


@pytest.mark.parametrize(
    "address",
    [
        "/p2p-circuit",
        "/ip4/192.0.2.1/tcp/4001/p2p-circuit",
        f"/p2p/{R}/p2p-circuit",
        f"/ip4/192.0.2.1/tcp/4001/p2p/{R}/p2p-circuit/p2p/{B}",
        f"/ip4/192.0.2.1/tcp/4001/p2p/{B}/p2p/{R}/p2p-circuit",
        f"{RELAYED}/p2p/{B}/p2p-circuit",
        f"{RELAYED}/p2p-circuit",
        f"{RELAYED}/p2p/{A}/p2p-circuit/p2p/{A}",
        f"{RELAYED}s",
        "/ip4/192.0.2.1/tcp/4001/p2p/not-a-peer/p2p-circuit",
        f"/ip4/192.0.2.1/udp/4001/p2p/{R}/p2p-circuit",
    ],
)
def test_relays_of_relays_and_relays_without_a_name_are_no_addresses(address: str) -> None:
    with pytest.raises(LocalError):
        check_address(address, ANN.peer_id)
    assert not is_dialable(address, ANN.peer_id)


def test_a_relay_that_stands_for_all_addresses_of_a_machine_is_not_dialled() -> None:
    assert is_everywhere(RELAYED.replace("192.0.2.1", "0.0.0.0"))
    assert not is_dialable(RELAYED.replace("192.0.2.1", "0.0.0.0"), ANN.peer_id)


@pytest.mark.parametrize(
    "address",
    [
        "/ip4/192.0.2.1/tcp/4001",
        "/ip6/2001:db8::1/tcp/65535",
        "/dns4/example.org/tcp/1",
        "/dns6/example.org/tcp/1",
        "/dns/example.org/tcp/1",
        f"/ip4/192.0.2.1/tcp/4001/p2p/{R}",
        RELAYED,
        f"{RELAYED}/p2p/{A}",
    ],
)
def test_binary_addresses_are_those_of_the_multiaddr_library(address: str) -> None:
    assert address_bytes(address) == Multiaddr(address).to_bytes()
    assert address_text(address_bytes(address)) == address


@pytest.mark.parametrize(
    "address",
    [
        "/ip4/192.0.2.1/udp/4001/quic-v1",
        "/ip4/192.0.2.1/tcp/4001/ws",
        "/unix/tmp/x",
        "/ip4/192.0.2.1",
    ],
)
def test_addresses_of_kinds_that_are_not_understood_are_left_out(address: str) -> None:
    assert address_text(Multiaddr(address).to_bytes()) is None


@given(st.binary(max_size=100))
def test_whatever_comes_is_an_address_or_none(data: bytes) -> None:
    text = address_text(data)
    assert text is None or text.startswith("/")


def test_an_address_that_is_cut_off_is_none() -> None:
    data = address_bytes(RELAYED)
    known = {address_text(data[:size]) for size in range(len(data))}
    assert known == {
        None,
        "/ip4/192.0.2.1/tcp/4001",
        f"/ip4/192.0.2.1/tcp/4001/p2p/{R}",
    }
