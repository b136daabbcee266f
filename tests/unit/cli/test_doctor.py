"""What `pulsarcast doctor` says of a key, and of peers that do not answer."""

import time
from pathlib import Path
from typing import Any

import pytest

from pulsarcast.cli.doctor import _bootstrap, _key, _peers, _reach, _relays, _state
from pulsarcast.model.api import (
    BootstrapView,
    ReachKind,
    ReachReport,
    ReachView,
    RetentionView,
    StatusView,
)
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import peer_text
from pulsarcast.storage.home import write_key


def test_only_the_key_of_the_node_that_was_asked_is_judged(tmp_path: Path) -> None:
    own, other = (peer_text(Identity.from_seed(bytes([n]) * 32).peer_id) for n in (1, 2))
    elsewhere = "it is on another machine, or in another home"
    assert _key(tmp_path, own).text == elsewhere
    write_key(tmp_path, Identity.from_seed(bytes([1]) * 32))
    assert _key(tmp_path, own).text == "nobody else can read it"
    (tmp_path / "key").chmod(0o644)
    assert _key(tmp_path, own).verdict == "bad"
    assert _key(tmp_path, other) == ("key", "good", elsewhere)


NUMBERS = {name: 0 for name, kind in StatusView.__annotations__.items() if kind == "int"}
LAN = "/ip4/192.0.2.7/tcp/4420"


def status(peers: int = 0, **more: Any) -> StatusView:
    given: dict[str, Any] = {
        **NUMBERS, "peer": "ann", "addresses": [f"{LAN}/p2p/ann"], "version": "1", "halted": None,
        "ready": True, "reasons": [], "retention_default": RetentionView(), "trace": None,
        "peers": peers, "reach": ReachView(kind="unknown"), **more,
    }  # fmt: skip
    return StatusView(**given)


def silent(peer: str, reason: str) -> BootstrapView:
    since_us = time.time_ns() // 1000 - 40_000_000
    return BootstrapView(
        peer=peer, addresses=[LAN], state="unreachable", since_us=since_us, reason=reason
    )


def test_a_node_that_was_told_of_peers_is_not_advised_to_name_some() -> None:
    assert "--bootstrap" in _peers(status()).text
    named = status(bootstrap=[silent("ben", f"{LAN}: no program listens there")])
    assert "--bootstrap" not in _peers(named).text
    (finding,) = _bootstrap(named)
    assert finding.verdict == "bad"
    assert finding.text == f"ben does not answer, for 40 s: {LAN}: no program listens there"


def test_each_bootstrap_peer_that_does_not_answer_is_named_and_no_other() -> None:
    good = [
        BootstrapView(peer="cat", addresses=[LAN], state="connected"),
        BootstrapView(peer="dan", addresses=[LAN], state="idle"),
    ]
    assert _bootstrap(status(2, bootstrap=good)) == [("bootstrap", "good", "all 2 answer")]
    mixed = _bootstrap(status(2, bootstrap=[*good, silent("ben", "why"), silent("eve", "else")]))
    assert [finding.verdict for finding in mixed] == ["look", "look"]
    assert [finding.text[:3] for finding in mixed] == ["ben", "eve"]
    assert _bootstrap(status()) == []
    trying = BootstrapView(peer="fay", addresses=[LAN], state="trying")
    assert _bootstrap(status(bootstrap=[trying])) == []


def test_remembered_peers_that_do_not_answer_are_counted() -> None:
    assert "none of 3 remembered peers answers" in _peers(status(peers_remembered=3)).text


def test_the_state_of_a_node_that_reaches_nobody_says_so() -> None:
    assert _state(status()) == ("state", "good", "ready")
    alone = status(state="ready, but alone: no peer answers")
    assert _state(alone) == ("state", "look", "ready, but alone: no peer answers")


def report(*, reached: bool, near: bool = False) -> ReachReport:
    return ReachReport(peer="ben", reached=reached, address="", near=near, at_us=0)


def test_how_others_dial_the_node_is_told_with_who_says_so_and_what_to_do() -> None:
    since_us = time.time_ns() // 1000 - 40_000_000
    public = ReachView(
        kind="public", since_us=since_us, address=LAN, reports=[report(reached=True)]
    )
    assert _reach(status(1, reach=public)) == (
        "reach",
        "good",
        f"public: peers can dial the node at {LAN}, for 40 s, as …ben found",
    )
    private = ReachView(kind="private", reports=[report(reached=False)], advice="forward a port")
    assert _reach(status(1, reach=private)) == (
        "reach",
        "look",
        "private: no peer can dial the node, as …ben found; forward a port",
    )
    near = ReachView(
        kind="public",
        reports=[report(reached=True, near=True)],
        advice="only peers of this network",
    )
    assert _reach(status(1, reach=near)).verdict == "look"
    assert "(of this network)" in _reach(status(1, reach=near)).text
    assert _reach(status(addresses=[], reach=private)).verdict == "bad"


@pytest.mark.parametrize(
    ("kind", "relays", "verdicts"),
    [
        ("public", [], []),
        ("private", [], ["look"]),
        ("relayed", ["ben"], ["look"]),
        ("relayed", ["ben", "cat"], ["good"]),
    ],
)
def test_a_node_that_needs_relays_is_told_whether_it_has_two(
    kind: ReachKind, relays: list[str], verdicts: list[str]
) -> None:
    found = _relays(status(1, reach=ReachView(kind=kind, relays=relays)))
    assert [each.verdict for each in found] == verdicts
