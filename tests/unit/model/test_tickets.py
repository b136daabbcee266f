"""Tickets: what is written is read, and what is damaged, strange or hostile is refused in words."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model import tickets
from pulsarcast.model.cbor import encode
from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import cid_of
from pulsarcast.model.tickets import (
    ADDRESSES_MAX,
    PREFIX,
    TICKET_CHARS_MAX,
    Ticket,
    _checksum,
    parse_ticket,
    ticket_text,
)
from pulsarcast.protocol import limits
from tests.vectors.make import ALICE, BOB, FOLDER, TOPIC

TICKET = Ticket(
    network="main",
    peer=ALICE.peer_id,
    addresses=("/ip4/192.0.2.1/tcp/4420", "/ip6/2001:db8::1/tcp/4420"),
    topic=TOPIC.topic,
    author=ALICE.peer_id,
    name="news",
)
FIELDS: dict[str, Any] = {
    "n": "main",
    "p": ALICE.peer_id,
    "l": ["/ip4/192.0.2.1/tcp/4420"],
    "t": TOPIC.topic,
    "m": "news",
}


def written(fields: object) -> str:
    """A ticket of any fields, with the right checksum."""
    block = encode(fields)
    return PREFIX + base64.b32encode(block + _checksum(block)).decode().rstrip("=").lower()


def test_a_ticket_is_one_line_of_small_letters_and_digits() -> None:
    text = ticket_text(TICKET)
    assert text.isascii()
    assert text.isalnum()
    assert text == text.lower()
    assert len(text) < 350


@pytest.mark.parametrize(
    "ticket",
    [
        TICKET,
        msgspec.structs.replace(TICKET, author=BOB.peer_id, name="", addresses=()),
        msgspec.structs.replace(TICKET, name="Wetter in Köln / 天気", network="a b"),
    ],
)
def test_what_is_written_is_read(ticket: Ticket) -> None:
    assert parse_ticket(ticket_text(ticket)) == ticket


def test_line_breaks_and_capitals_do_no_harm() -> None:
    text = ticket_text(TICKET)
    assert parse_ticket(f"  {text[:70]}\n{text[70:].upper()}\r\n") == TICKET


def test_a_field_of_a_later_version_is_ignored() -> None:
    more = {**FIELDS, "r": ["/ip4/192.0.2.9/tcp/1/p2p-circuit"], "key": {"x": [1, "2"]}}
    assert parse_ticket(written(more)) == parse_ticket(written(FIELDS))


@given(cut=st.integers(min_value=0, max_value=len(ticket_text(TICKET)) - 1))
def test_a_ticket_that_was_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(LocalError, match=r"cut off|begins with|newer version"):
        parse_ticket(ticket_text(TICKET)[:cut])


@given(at=st.integers(min_value=len(PREFIX), max_value=len(ticket_text(TICKET)) - 2), by=st.data())
def test_a_letter_that_was_mistyped_is_refused(at: int, by: st.DataObject) -> None:
    text = ticket_text(TICKET)
    letter = by.draw(st.sampled_from("abcdefghijklmnopqrstuvwxyz234567").filter(text[at].__ne__))
    with pytest.raises(LocalError, match="cut off"):
        parse_ticket(text[:at] + letter + text[at + 1 :])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begins with"),
        ("weather", "begins with"),
        ("12D3KooWPjceQrSwdWXPyLLeABRXmuqt69Rg3sBYbU1Nft9HyQ6X", "begins with"),
        ("pulsarcast2abc", "newer version"),
        (PREFIX, "cut off"),
        (f"{PREFIX}äöü", "cut off"),
        (PREFIX + "a" * TICKET_CHARS_MAX, "more than"),
        ("x" * (10 << 20), "more than"),
    ],
)
def test_what_is_no_ticket_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        parse_ticket(text)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        {},
        {**FIELDS, "l": ["/ip4/192.0.2.1/tcp/1"] * (ADDRESSES_MAX + 1)},
        {**FIELDS, "l": [f"/ip4/192.0.2.1/tcp/{port}" for port in range(300)]},
        {**FIELDS, "l": "/ip4/192.0.2.1/tcp/1"},
        {**FIELDS, "l": ["x" * 257]},
        {**FIELDS, "l": [""]},
        {**FIELDS, "l": ["/dns/\x1b[2J/tcp/1"]},
        {**FIELDS, "l": [1]},
        {**FIELDS, "m": "\x1b[2Jweather"},
        {**FIELDS, "m": "two\nlines"},
        {**FIELDS, "m": "\u202egnp.exe"},
        {**FIELDS, "m": "x" * 257},
        {**FIELDS, "m": ""},
        {**FIELDS, "n": ""},
        {**FIELDS, "n": "x" * 65},
        {**FIELDS, "n": "\x07"},
        {**FIELDS, "p": TOPIC.topic},
        {**FIELDS, "a": b"nobody"},
        {**FIELDS, "t": ALICE.peer_id},
        {**FIELDS, "x": "y" * 9000},
    ],
)
def test_a_hostile_ticket_is_refused(fields: object) -> None:
    with pytest.raises(LocalError, match=r"^not a ticket"):
        parse_ticket(written(fields))


def test_what_would_be_refused_is_not_written() -> None:
    for wrong in ({"name": "\x1b"}, {"network": ""}, {"addresses": ("a",) * 17}):
        with pytest.raises(LocalError):
            ticket_text(msgspec.structs.replace(TICKET, **wrong))


def test_a_tickets_addresses_are_bounded_as_those_in_messages() -> None:
    for name in ("ADDRESSES_MAX", "ADDRESS_BYTES_MAX", "NETWORK_BYTES_MAX"):
        assert getattr(tickets, name) == getattr(limits, name)


def test_the_vectors_are_read() -> None:
    for vector in json.loads((FOLDER / "tickets.json").read_text(encoding="utf-8")):
        ticket = parse_ticket(vector["ticket"])
        assert ticket.topic == cid_of(TOPIC.block)
        assert list(ticket.addresses) == vector["addresses"]
        assert ticket_text(ticket) == vector["ticket"]
