"""What people see of values in a session: short, the ends of ids, no bytes of descriptors."""

from __future__ import annotations

from typing import Any

import pytest

from pulsarcast.model import api
from pulsarcast.model.ids import cid_of, cid_text, peer_text
from pulsarcast.model.publications import Publication
from pulsarcast.model.shown import preview
from pulsarcast.model.topic_types import DeliveryOrder, Retention, TopicSettings
from pulsarcast.network.subscriptions import Event
from pulsarcast.network.values import Published, Topic, Walked
from tests.unit.model.samples import ALICE, BOB, own_event, topic

ID = cid_text(cid_of(b"x"))
EVENT = own_event(topic().topic, payload=b'{"org":"a"}')
HOSTILE = own_event(topic().topic, payload=b"\x1b[2J\xff" * 9000, name="\x1b[2J")

SHOWN = {
    "topic": Topic(topic()),
    "its view": api.topic_view(topic(), {}),
    "event": Event(3, EVENT),
    "its view ": api.event_view(3, EVENT),
    "hostile event": Event(0, HOSTILE),
    "its view  ": api.event_view(0, HOSTILE),
    "receipt": Published(cid_of(b"x"), 2),
    "its view   ": api.PublishedView(ID, 2),
    "result": api.BatchResult(id=ID, replicas=2),
    "walk": Walked((Event(3, EVENT),) * 100, (), "more"),
    "its view    ": api.WalkView(events=[api.event_view(3, EVENT)] * 100, gaps=[], cursor=""),
    "settings": TopicSettings(publishers=(ALICE.peer_id, BOB.peer_id)),
    "their view": api.settings_view(TopicSettings(publishers=(ALICE.peer_id, BOB.peer_id))),
    "publication": Publication(payload=b"x" * 100_000),
    "token": api.TokenView(id="1", name="n", scopes=["read"], token="secret"),
}


@pytest.mark.parametrize("what", SHOWN)
def test_what_a_session_prints_is_short_and_clean(what: str) -> None:
    value: Any = SHOWN[what]
    shown = repr(value)
    assert len(shown) <= 300
    assert shown.isprintable()
    assert str(value) == shown
    for whole in ("bafyrei", "12D3KooW", "\\x00$\\x08", "secret"):
        assert whole not in shown


def test_each_names_what_matters() -> None:
    author = peer_text(ALICE.peer_id)[-8:]
    made = Topic(topic())
    assert repr(made) == f"<Topic {made.name!r} …{made.id[-8:]} of …{author}, version 0>"
    event = Event(3, EVENT)
    rest = f"3 …{event.id[-8:]} of …{author}: " + '\'{"org":"a"}\'>'
    assert repr(event) == f"<Event {rest}"
    assert repr(api.event_view(3, EVENT)) == f"<EventView {rest}"
    assert repr(Published(cid_of(b"x"), 2)) == f"<Published …{ID[-8:]}, replicas: 2>"


def test_settings_show_what_differs_from_the_defaults() -> None:
    settings = TopicSettings(order=DeliveryOrder.TOTAL, sequencers=(ALICE.peer_id,))
    end = peer_text(ALICE.peer_id)[-8:]
    assert repr(settings) == f"TopicSettings(sequencers=(…{end}), order=DeliveryOrder.TOTAL)"
    assert repr(TopicSettings()) == "TopicSettings()"
    bounded = TopicSettings(retention=Retention(count=5))
    assert repr(bounded) == "TopicSettings(retention=Retention(age_s=None, count=5, bytes=None))"


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"sunny", "'sunny'"),
        ("é".encode(), "'é'"),
        (b"\xff\x00", r"b'\xff\x00'"),
        (b"", "''"),
        (b"x" * 61, f"'{'x' * 60}'… (61 bytes)"),
        (b"x" + "é".encode() * 40, f"'x{'é' * 29}'… (81 bytes)"),
    ],
)
def test_a_preview_is_text_where_the_payload_is(payload: bytes, shown: str) -> None:
    assert preview(payload) == shown
