import pytest
from hypothesis import given

from pulsarcast.model.errors import LocalError, RemoteError
from pulsarcast.model.ids import (
    Cid,
    PeerId,
    check_cid,
    check_peer_id,
    cid_key,
    cid_of,
    cid_text,
    parse_cid,
    parse_peer,
    peer_id_of,
    peer_key,
    peer_text,
    public_key_of,
)
from pulsarcast.model.keys import key_of
from tests.unit.model.samples import ALICE, cids, peers

# The example of libp2p's peer id specification.
LIBP2P_PEER = "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"
# The empty map's content id, known all over IPFS.
EMPTY_MAP = "bafyreigbtj4x7ip5legnfznufuopl4sg4knzc2cof6duas4b3q2fy6swua"


def test_a_peer_id_is_the_one_that_libp2p_gives_an_ed25519_key() -> None:
    peer = parse_peer(LIBP2P_PEER)
    assert peer_text(peer) == LIBP2P_PEER
    assert peer_id_of(public_key_of(peer)) == peer


def test_a_content_id_is_the_one_that_ipfs_gives_a_block() -> None:
    assert cid_text(cid_of(b"\xa0")) == EMPTY_MAP
    assert parse_cid(EMPTY_MAP) == cid_of(b"\xa0")


@given(peers)
def test_a_peer_id_survives_being_text(peer: PeerId) -> None:
    assert parse_peer(peer_text(peer)) == peer


@given(cids)
def test_a_content_id_survives_being_text(cid: Cid) -> None:
    assert parse_cid(cid_text(cid)) == cid


@pytest.mark.parametrize(
    "raw", [b"", None, 7, "text", b"\0" * 38, ALICE.peer_id + b"\0", cid_of(b"")]
)
def test_what_is_no_ed25519_peer_id_is_rejected(raw: object) -> None:
    with pytest.raises(RemoteError):
        check_peer_id(raw)


@pytest.mark.parametrize(
    "raw", [b"", None, 7, "text", cid_of(b"")[:-1], b"\x12\x20" + bytes(32), ALICE.peer_id]
)
def test_what_is_no_dag_cbor_content_id_is_rejected(raw: object) -> None:
    with pytest.raises(RemoteError):
        check_cid(raw)


@pytest.mark.parametrize(
    "text", ["", "bafy", "12D3KooW", "0OIl", EMPTY_MAP, "é", " " + LIBP2P_PEER[:-1]]
)
def test_a_mistyped_peer_is_the_callers_error(text: str) -> None:
    with pytest.raises(LocalError):
        parse_peer(text)


@pytest.mark.parametrize("text", ["", "bafy", LIBP2P_PEER, "é", EMPTY_MAP.upper(), EMPTY_MAP + "a"])
def test_a_mistyped_content_id_is_the_callers_error(text: str) -> None:
    with pytest.raises(LocalError):
        parse_cid(text)


def test_peers_and_content_live_where_their_bytes_hash_to() -> None:
    assert peer_key(ALICE.peer_id) == key_of(ALICE.peer_id)
    assert cid_key(cid_of(b"x")) == key_of(cid_of(b"x"))
