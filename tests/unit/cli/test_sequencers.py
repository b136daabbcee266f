"""Naming sequencers from the command line and over HTTP."""

from typing import Any

import click
import pytest

from pulsarcast.cli.topics import _changed
from pulsarcast.model import api
from pulsarcast.model.ids import peer_text
from pulsarcast.model.topics import DeliveryOrder, TopicSettings
from tests.support.people import identity

PEERS = [peer_text(identity(name).peer_id) for name in ("one", "two", "three")]
NOTHING: dict[str, Any] = {
    "order": None,
    "dissemination": None,
    "sequencer": (),
    "publisher": (),
    "is_open": False,
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
