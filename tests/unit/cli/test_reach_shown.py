"""What `status`, `doctor` and the page say of relays and holes."""

from typing import Any

from pulsarcast.cli.operating import best_address, relaying_line
from pulsarcast.model.api import ReachView, RelayingView
from pulsarcast.model.shown import reach_shown
from tests.unit.cli.test_doctor import LAN, status

RELAYED = "/ip4/192.0.2.9/tcp/4420/p2p/RELAY/p2p-circuit/p2p/ann"


def shown(**fields: Any) -> str:
    return reach_shown(ReachView(**fields), {"12D3relay": "ben"}, 0)


def test_a_relayed_node_names_its_relays_and_the_holes_that_were_punched() -> None:
    text = shown(kind="relayed", relays=["12D3relay"], punched=2, not_punched=1)
    assert text.endswith("by way of ben, 2 of 3 holes punched")
    assert "way of" not in shown(kind="public")
    assert "holes" not in shown(kind="public")


def test_the_address_to_give_away_is_one_that_leads_to_the_node() -> None:
    addresses = [f"{LAN}/p2p/ann", RELAYED]
    ways = {
        kind: best_address(status(1, addresses=addresses, reach=ReachView(kind=kind)))
        for kind in ("public", "relayed", "unknown")
    }
    assert ways == {"public": addresses[0], "relayed": RELAYED, "unknown": addresses[0]}
    assert best_address(status(1, addresses=[])) == ""


def test_a_node_says_what_it_relays_if_it_ever_did() -> None:
    assert relaying_line(RelayingView()) == []
    ((name, text),) = relaying_line(RelayingView(peers=2, circuits=1, bytes=3_000_000))
    assert name == "relay for"
    assert text.startswith("2 peers, 1 connections, ")
    assert "since the start" in text
