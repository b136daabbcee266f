"""What halted a topic is kept as a code with its details."""

from pulsarcast.model import cbor
from pulsarcast.model.errors import Halted
from pulsarcast.model.ids import cid_of, cid_text
from pulsarcast.protocol.topic.halts import HALT_BYTES_MAX, TwoCertificates

HALT = TwoCertificates(2**63 - 1, cid_of(b"one"), cid_of(b"another"))


def test_what_halted_a_topic_is_the_same_behind_the_disk() -> None:
    row = HALT.to_bytes()
    assert TwoCertificates.from_bytes(row) == HALT
    fields = cbor.decode(row, size_max=HALT_BYTES_MAX)
    assert isinstance(fields, list)
    assert fields[0] == "two_certificates"


def test_a_caller_is_told_which_events_they_are() -> None:
    assert HALT.refusal.code == Halted.code
    assert all(cid_text(event) in HALT.refusal.message for event in (HALT.held, HALT.other))
