"""Certificates prove a place by most of a topic's sequencers, and by nothing less."""

import pytest

from pulsarcast.model.certificates import (
    PART_BYTES,
    check_certificate,
    is_place_signed,
    make_certificate,
    quorum_of,
    sign_place,
)
from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import EventDescriptor, Position, Sequence, publish_own
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId, cid_of, shared_numbering
from pulsarcast.model.topic_types import SEQUENCERS_MAX
from pulsarcast.protocol.limits import CERTIFICATE_BYTES_MAX

KEYS = [Identity.from_seed(bytes([number + 1]) * 32) for number in range(SEQUENCERS_MAX)]
PEERS = tuple(key.peer_id for key in KEYS)


def make_event(sequence: Sequence, position: Position | None) -> EventDescriptor:
    topic: Cid = cid_of(b"a topic")
    return publish_own(
        KEYS[0],
        topic=topic,
        version=topic,
        payload=b"said",
        created=1,
        nonce=bytes(16),
        sequence=sequence,
        parents=(),
        position=position,
    )


def ordered(number: int = 3) -> EventDescriptor:
    return make_event(Sequence(0, number), Position(2, number))


def signatures(event: EventDescriptor, *signers: int) -> dict[PeerId, bytes]:
    assert event.position is not None
    return {
        PEERS[signer]: sign_place(KEYS[signer], event.topic, event.position, event.cid)
        for signer in signers
    }


@pytest.mark.parametrize(("count", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_a_majority_is_enough(count: int, needed: int) -> None:
    assert quorum_of(PEERS[:count]) == needed
    event = ordered()
    certificate = make_certificate(PEERS[:count], signatures(event, *range(count)))
    assert len(certificate) == needed * PART_BYTES <= CERTIFICATE_BYTES_MAX
    check_certificate(PEERS[:count], event, certificate)


def test_nothing_less_is() -> None:
    event, other = ordered(), ordered(4)
    right = make_certificate(PEERS[:3], signatures(event, 1, 2))
    first, second = right[:PART_BYTES], right[PART_BYTES:]
    for wrong in (
        b"",
        first,
        first + first,
        second + first,
        right + right[:PART_BYTES],
        right[:-1],
        bytes([7]) + right[1:],
        make_certificate(PEERS[:3], signatures(other, 1, 2)),
    ):
        with pytest.raises(RemoteError, match="proves nothing"):
            check_certificate(PEERS[:3], event, wrong)
    with pytest.raises(RemoteError, match="proves nothing"):
        check_certificate(PEERS[3:6], event, right)


def test_a_signature_is_for_one_topic_term_position_and_event() -> None:
    event = ordered()
    position = event.position
    assert position is not None
    signature = sign_place(KEYS[0], event.topic, position, event.cid)
    assert is_place_signed(PEERS[0], event.topic, position, event.cid, signature)
    for wrong in (
        (PEERS[1], event.topic, position, event.cid),
        (PEERS[0], event.cid, position, event.cid),
        (PEERS[0], event.topic, position._replace(term=3), event.cid),
        (PEERS[0], event.topic, position._replace(number=4), event.cid),
        (PEERS[0], event.topic, position, event.topic),
    ):
        assert not is_place_signed(*wrong, signature)


def test_several_sequencers_count_together_and_one_by_itself() -> None:
    shared = ordered()
    assert shared.is_ordered
    assert shared.numbered_by == shared_numbering(shared.topic) != shared.publisher
    for alone in (
        make_event(Sequence(5, 3), Position(0, 3)),
        make_event(Sequence(0, 3), None),
        make_event(Sequence(0, 4), Position(2, 3)),
    ):
        assert not alone.is_ordered
        assert alone.numbered_by == alone.publisher


def test_no_certificate_is_made_of_too_few_signatures() -> None:
    with pytest.raises(AssertionError, match="most of the sequencers signed"):
        make_certificate(PEERS[:3], signatures(ordered(), 1))
