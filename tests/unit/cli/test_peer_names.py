"""Peers on a terminal: the name that they have here, and an id to copy."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from pulsarcast.cli import events, topics
from pulsarcast.cli.main import main
from pulsarcast.cli.remote import parent_of
from pulsarcast.cli.top import Rates, picture
from pulsarcast.client import Client
from pulsarcast.model import api
from pulsarcast.model.ids import peer_text
from pulsarcast.model.shown import short, whole
from tests.support.people import peer

ANN, BEN, CAL = (peer_text(peer(name)) for name in ("ann", "ben", "cal"))
NAMES = {ANN: "ann", BEN: "ben"}
STATUS: dict[str, Any] = {
    **{
        name: 0
        for name in api.StatusView.__struct_fields__
        if name.endswith(("_us", "_in", "_out", "bytes", "held", "known", "connected", "max"))
    },
    **dict.fromkeys(("incarnation", "publications", "deliveries", "commits"), 1),
    **dict.fromkeys(("topics", "subscriptions"), 1),
    **dict.fromkeys(("halted", "trace"), None),
    "peer": ANN, "peer_names": NAMES, "addresses": [], "version": "1", "ready": True, "reasons": [],
    "peers": 2, "retention_default": {}, "reach": {"kind": "public"},
}  # fmt: skip


def followed(**more: Any) -> api.FollowedView:
    given = {
        "id": "bafyrei", "name": "weather", "author": ANN, "version": 0, "order": "per-publisher",
        "dissemination": "tree", "open": False, "may_publish": "yes", "aliases": [],
        "subscribed": True, "newest": 1234, "parent": BEN, "children": [ANN, CAL], "lazy": [],
        "is_root": False, "starved": False, "held_back": 0, "missing": 0, "peer_names": NAMES,
        "readers": [{"name": "billing", "done": 1, "behind": 97, "connected": True}],
    }  # fmt: skip
    return msgspec.convert({**given, **more}, api.FollowedView)


def test_a_peer_is_shown_by_its_name_and_an_id() -> None:
    assert whole(BEN, NAMES) == f"{BEN} (ben)"
    assert short(BEN, NAMES) == f"ben …{BEN[-8:]}"
    assert (whole(CAL, NAMES), short(CAL, NAMES)) == (CAL, f"…{CAL[-8:]}")
    assert parent_of(followed()) == f"ben …{BEN[-8:]}"


@pytest.mark.parametrize("width", [80, 120])
def test_top_shows_names_and_breaks_no_column(width: int) -> None:
    status = msgspec.convert(STATUS, api.StatusView)
    peers = [
        api.PeerView(
            peer=each, name=NAMES.get(each, ""), address="/ip4/192.168.100.200/tcp/4420",
            dialled=True, bytes_in=186_000, bytes_out=10**8, queued_bytes=0,
        )
        for each in (BEN, CAL)
    ]  # fmt: skip
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(picture(status, [followed()], peers, Rates(), width=width))
    shown = console.export_text()
    assert f"pulsarcast ann …{ANN[-8:]}  ready" in shown
    for words in ("weather", "1,234", "ben", f"ben …{BEN[-8:]}", f"…{CAL[-8:]}", "billing (97)",
                  "parent", "children", "waiting", "readers", "dialled", "queued"):  # fmt: skip
        assert words in shown, words


def test_a_terminal_names_the_author_of_an_event(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "index": 3, "id": "bafyrei", "topic": "bafyrei", "author": BEN, "publisher": ANN,
        "epoch": "1", "number": 1, "payload": "sunny", "peer_names": NAMES,
    }  # fmt: skip
    event = msgspec.convert(given, api.EventView)
    assert f" of ben …{BEN[-8:]}: 'sunny'" in repr(event)
    events._print(event, as_json=True)
    assert msgspec.json.decode(capsys.readouterr().out)["author"] == BEN
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    events._print(event, as_json=False)
    assert f"3 ben …{BEN[-8:]}" in capsys.readouterr().out
    gap = api.GapView(reason="retention", publisher=BEN, epoch="1", first=1, last=2,
                      peer_names=NAMES)  # fmt: skip
    events._print_gap(gap, as_json=False)
    assert f"2 events of ben …{BEN[-8:]}" in capsys.readouterr().err


def test_a_new_topic_says_by_name_who_may_publish() -> None:
    made = api.TopicView(
        id="bafyrei", name="weather", author=ANN, version=0, version_id="bafyrei", created_us=0,
        settings=api.SettingsView(publishers=[BEN, CAL]), subtopics={}, peer_names=NAMES,
    )  # fmt: skip
    assert topics._rights(made) == (
        f"only ben …{BEN[-8:]}, …{CAL[-8:]} may publish, others may ask"
    )


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ((BEN,), "give a name, or --drop"),
        (("--drop",), "--drop takes the peer alone"),
        ((BEN, "ben", "--drop"), "--drop takes the peer alone"),
    ],
)
def test_name_says_what_it_takes(words: tuple[str, ...], advice: str) -> None:
    ran = CliRunner().invoke(main, ["name", *words, "--url", "http://127.0.0.1:1"])
    assert (ran.exit_code, advice in ran.stderr) == (2, True)


def test_names_are_listed_for_people_and_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(Client, "peer_names", lambda self: NAMES)
    monkeypatch.setattr(Client, "set_peer_name", lambda self, *given: asked.append(given))
    target = ("--url", "http://127.0.0.1:1")
    ran = CliRunner().invoke(main, ["name", BEN, "ben", *target])
    assert asked == [(BEN, "ben")]
    assert ran.output.splitlines() == ["NAME  PEER", f"ann   {ANN}", f"ben   {BEN}"]
    ran = CliRunner().invoke(main, ["name", "--json", *target])
    assert msgspec.json.decode(ran.output) == NAMES
