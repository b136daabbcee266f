"""A topic's settings from the command line and over HTTP."""

from typing import Any

import click
import pytest

from pulsarcast.cli.topics import _changed
from pulsarcast.model import api
from pulsarcast.model.ids import peer_text
from pulsarcast.model.topics import DeliveryOrder, EventLinking, TopicSettings
from tests.support.people import identity

PEERS = [peer_text(identity(name).peer_id) for name in ("one", "two", "three")]
NOTHING: dict[str, Any] = {
    "order": None,
    "dissemination": None,
    "sequencer": (),
    "publisher": (),
    "unlist": False,
    "is_open": False,
    "attribute": (),
    "request_to_publish": None,
    "retention_days": None,
    "retention_count": None,
    "retention_bytes": None,
}


def test_sequencers_are_named_with_total_order() -> None:
    chosen = {**NOTHING, "order": "total", "sequencer": tuple(PEERS)}
    settings = api.settings_from(_changed(api.SettingsView(), **chosen), TopicSettings())
    assert settings.order is DeliveryOrder.TOTAL
    assert [peer_text(peer) for peer in settings.sequencers] == PEERS
    assert api.settings_view(settings).sequencers == PEERS


def test_sequencers_go_with_no_other_order() -> None:
    with pytest.raises(click.UsageError, match="--order total"):
        _changed(api.SettingsView(), **{**NOTHING, "sequencer": tuple(PEERS)})


def test_what_is_not_said_about_sequencers_stays_as_it_is() -> None:
    base = TopicSettings(
        order=DeliveryOrder.TOTAL,
        sequencers=tuple(identity(name).peer_id for name in ("one", "two", "three")),
    )
    kept = api.settings_from(api.SettingsView(order="total"), base)
    assert kept.sequencers == base.sequencers


def test_what_the_library_can_choose_the_command_line_and_http_can() -> None:
    chosen = {
        **NOTHING,
        "linking": "CUSTOM",
        "requester": tuple(PEERS[:2]),
        "recovery_key": tuple(PEERS[2:]),
        "content_routing": True,
    }
    settings = api.settings_from(_changed(api.SettingsView(), **chosen), TopicSettings())
    peers = [identity(name).peer_id for name in ("one", "two", "three")]
    assert settings == TopicSettings(
        linking=EventLinking.CUSTOM,
        requesters=tuple(peers[:2]),
        recovery_keys=tuple(peers[2:]),
        content_routing=True,
    )
    assert api.settings_from(api.settings_view(settings), TopicSettings()) == settings


def test_recovery_keys_stay_unless_others_are_given() -> None:
    base = TopicSettings(recovery_keys=(identity("one").peer_id,))
    assert api.settings_from(api.SettingsView(), base).recovery_keys == base.recovery_keys
    assert api.settings_from(api.SettingsView(recovery_keys=[]), base).recovery_keys == ()
