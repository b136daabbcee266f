"""Which addresses of a machine are announced."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from pulsarcast.network.interfaces import Interface, find_interfaces, is_near, to_announce
from pulsarcast.protocol.limits import ADDRESSES_MAX

EVERYWHERE = ("/ip4/0.0.0.0/tcp/4420", "/ip6/::/tcp/4421")


def machine(*pairs: tuple[str, str]) -> list[Interface]:
    return [Interface(name, ip_address(text)) for name, text in pairs]


LAPTOP = machine(
    ("lo", "127.0.0.1"),
    ("lo", "::1"),
    ("wlan0", "192.168.1.7"),
    ("wlan0", "2001:db8::7"),
    ("wlan0", "fe80::1"),
    ("docker0", "172.17.0.1"),
    ("br-0123456789ab", "172.18.0.1"),
    ("tailscale0", "100.64.0.7"),
)


def test_all_interfaces_stand_for_0_0_0_0_each_in_its_family() -> None:
    assert to_announce(EVERYWHERE, LAPTOP) == (
        "/ip4/192.168.1.7/tcp/4420",
        "/ip4/100.64.0.7/tcp/4420",
        "/ip6/2001:db8::7/tcp/4421",
    )
    assert to_announce(EVERYWHERE[1:], LAPTOP) == ("/ip6/2001:db8::7/tcp/4421",)


@pytest.mark.parametrize(
    ("found", "announced"),
    [
        (machine(("lo", "127.0.0.1")), ("/ip4/127.0.0.1/tcp/4420",)),
        # A cable between two laptops, without anything that gives out addresses.
        (machine(("lo", "127.0.0.1"), ("eth0", "169.254.3.4")), ("/ip4/169.254.3.4/tcp/4420",)),
        # Containers of a machine that is offline still reach it.
        (machine(("lo", "127.0.0.1"), ("docker0", "172.17.0.1")), ("/ip4/172.17.0.1/tcp/4420",)),
        # A bridge that is the machine's own way out.
        (machine(("br0", "192.168.1.7")), ("/ip4/192.168.1.7/tcp/4420",)),
        (machine(("eth0", "fe80::1")), ()),
        ([], ()),
    ],
)
def test_loopback_and_addresses_that_lead_less_far_are_for_where_nothing_else_is(
    found: list[Interface], announced: tuple[str, ...]
) -> None:
    assert to_announce(EVERYWHERE, found) == announced


def test_an_address_that_was_named_is_announced_as_it_is() -> None:
    bound = ("/ip4/172.17.0.1/tcp/1", "/ip4/127.0.0.1/tcp/2")
    assert to_announce(bound, LAPTOP) == ("/ip4/172.17.0.1/tcp/1",)
    assert to_announce(bound[1:], LAPTOP) == bound[1:]


def test_no_machine_announces_more_addresses_than_a_message_may_have() -> None:
    many = machine(*(("eth0", f"10.0.{each}.1") for each in range(100)))
    assert len(to_announce(EVERYWHERE, many)) == ADDRESSES_MAX


def test_this_machine_has_interfaces() -> None:
    assert any(each.ip.is_loopback for each in find_interfaces())


@pytest.mark.parametrize(
    ("host", "near"),
    [
        ("127.0.0.3", True),
        ("::1", True),
        ("192.168.1.200", True),
        ("192.168.2.7", False),
        ("10.8.0.1", True),
        ("10.8.0.2", False),
        ("2001:db8::99", True),
        ("2001:db8:0:1::1", False),
    ],
)
def test_a_peer_is_near_in_a_network_of_this_machine_alone(host: str, near: bool) -> None:
    here = [
        Interface("wlan0", ip_address("192.168.1.7"), 24),
        Interface("wlan0", ip_address("2001:db8::7"), 64),
        Interface("tun0", ip_address("10.8.0.1")),
    ]
    assert is_near(host, here) is near
