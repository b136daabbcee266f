"""What `pulsarcast doctor` says of a key, and of peers that do not answer."""

import time
from pathlib import Path
from typing import Any

from pulsarcast.cli.doctor import _bootstrap, _key, _peers, _reachable, _state
from pulsarcast.model.api import BootstrapView, ReachedView, RetentionView, StatusView
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
HERE = "/ip4/127.0.0.1/tcp/4420"
LAN = "/ip4/192.0.2.7/tcp/4420"


def status(peers: int = 0, **more: Any) -> StatusView:
    given: dict[str, Any] = {
        **NUMBERS, "peer": "ann", "addresses": [f"{LAN}/p2p/ann"], "version": "1", "halted": None,
        "ready": True, "reasons": [], "retention_default": RetentionView(), "trace": None,
        "peers": peers, **more,
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


def test_only_a_peer_of_another_machine_shows_that_others_can_dial_in() -> None:
    afar, near = (ReachedView(address=LAN, from_afar=yes) for yes in (True, False))
    assert _reachable(status(1, reached=[afar]), []).verdict == "good"
    assert LAN in _reachable(status(1, reached=[afar]), []).text
    only_near = _reachable(status(1, reached=[near]), [])
    assert only_near.verdict == "look"
    assert "on this machine have dialled" in only_near.text
    local = status(addresses=[f"{HERE}/p2p/ann"])
    assert "listens on this machine only" in _reachable(local, []).text
