"""The vectors on disk are what we make and what we read (design, 5)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import decode_event, decode_request
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import cid_of, cid_text, peer_text
from pulsarcast.model.listings import decode_listing
from pulsarcast.model.mark_blocks import MarkPage, decode_marks
from pulsarcast.model.pointers import decode_pointer
from pulsarcast.model.readable import from_readable, to_readable
from pulsarcast.model.topics import decode_topic
from tests.vectors.make import FILES, FOLDER, render

READERS: dict[str, Callable[[bytes], Any]] = {
    "event": decode_event,
    "topic": decode_topic,
    "pointer": decode_pointer,
    "listing": decode_listing,
    "marks": decode_marks,
}


def load(name: str) -> list[dict[str, Any]]:
    vectors: list[dict[str, Any]] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return vectors


def what(vector: dict[str, Any]) -> str:
    return str(vector["what"])


WRITTEN_BY_PEOPLE = [
    vector for vector in load("golden.json") if vector["kind"] not in ("pointer", "listing")
]


@pytest.mark.parametrize("name", FILES)
def test_the_vectors_are_those_that_we_make(name: str) -> None:
    on_disk = (FOLDER / name).read_text(encoding="utf-8")
    assert on_disk == render(name), "if the format changed: python -m tests.vectors.make"


@pytest.mark.parametrize("vector", load("golden.json"), ids=what)
def test_a_golden_block_is_read(vector: dict[str, Any]) -> None:
    block = bytes.fromhex(vector["block"])
    made = READERS[vector["kind"]](block)
    assert to_readable(made) == vector["readable"]
    assert cid_text(cid_of(block)) == vector["cid"]
    if vector["kind"] == "event":
        assert made.request_id.hex() == vector["request_id"]


@pytest.mark.parametrize("vector", WRITTEN_BY_PEOPLE, ids=what)
def test_a_golden_block_is_made_of_its_readable_form(vector: dict[str, Any]) -> None:
    assert from_readable(vector["readable"]).block.hex() == vector["block"]


@pytest.mark.parametrize("vector", load("requests.json"), ids=what)
def test_a_golden_request_is_read(vector: dict[str, Any]) -> None:
    assert decode_request(bytes.fromhex(vector["block"])).request_id.hex() == vector["request_id"]


@pytest.mark.parametrize("vector", load("marks.json"), ids=what)
def test_a_golden_block_of_marks_is_read(vector: dict[str, Any]) -> None:
    found = decode_marks(bytes.fromhex(vector["block"]))
    if isinstance(found, MarkPage):
        marks = [[peer_text(mark.publisher), *mark[1:]] for mark in found.marks()]
        assert marks == vector["marks"]
    else:
        pages = [cid_text(found.page(at)) for at in range(len(found))]
        assert pages == [each["page"] for each in vector["pages"]]


@pytest.mark.parametrize("vector", load("rejected.json"), ids=what)
def test_a_rejected_block_is_rejected_for_its_reason(vector: dict[str, Any]) -> None:
    with pytest.raises(RemoteError) as caught:
        READERS[vector["kind"]](bytes.fromhex(vector["block"]))
    assert (caught.value.verdict.value, caught.value.code) == (
        vector["verdict"],
        vector["reason"],
    )


@pytest.mark.parametrize("vector", load("identities.json"), ids=lambda vector: vector["name"])
def test_a_seed_gives_its_peer(vector: dict[str, Any]) -> None:
    assert peer_text(Identity.from_seed(bytes.fromhex(vector["seed"])).peer_id) == vector["peer"]
