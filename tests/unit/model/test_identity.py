from itertools import count

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.errors import LocalError
from pulsarcast.model.identity import Identity, has_signed, verify_signature
from pulsarcast.model.ids import peer_id_of, public_key_of
from tests.unit.model.samples import ALICE, BOB, identities
from tests.vectors import edges


def test_a_seed_gives_the_key_of_rfc_8032() -> None:
    # RFC 8032, 7.1, test 1.
    seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
    public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    identity = Identity.from_seed(bytes.fromhex(seed))
    assert public_key_of(identity.peer_id).hex() == public


@given(identities, st.binary(max_size=40))
def test_a_signature_verifies_as_its_own_kind_and_no_other(identity: Identity, body: bytes) -> None:
    signature = identity.sign("event", body)
    assert len(signature) == 64
    assert verify_signature(identity.peer_id, "event", body, signature)
    assert not verify_signature(identity.peer_id, "topic", body, signature)
    assert not verify_signature(identity.peer_id, "event", body + b"x", signature)


def test_another_peers_signature_does_not_verify() -> None:
    assert not verify_signature(BOB.peer_id, "event", b"", ALICE.sign("event", b""))


@pytest.mark.parametrize("length", [0, 63, 65])
def test_a_signature_of_another_length_does_not_verify(length: int) -> None:
    assert not verify_signature(ALICE.peer_id, "event", b"", bytes(length))


@pytest.mark.parametrize("key", edges.KEYS.values(), ids=list(edges.KEYS))
def test_a_key_of_small_order_or_in_another_encoding_signs_nothing(key: bytes) -> None:
    """OpenSSL says that these are signed: nobody needs a private key for that."""
    said = next(b"%d" % each for each in count() if edges.fits(key, b"%d" % each))
    Ed25519PublicKey.from_public_bytes(key).verify(edges.EMPTY, said)
    assert not has_signed(peer_id_of(key), said, edges.EMPTY)


def test_a_signature_whose_point_is_neutral_does_not_verify() -> None:
    signature = edges.with_neutral_point(ALICE, b"said")
    Ed25519PublicKey.from_public_bytes(public_key_of(ALICE.peer_id)).verify(signature, b"said")
    assert not has_signed(ALICE.peer_id, b"said", signature)


def test_what_only_a_check_with_the_cofactor_takes_does_not_verify() -> None:
    """A libsodium that begins to multiply by it would split the network."""
    assert not has_signed(ALICE.peer_id, b"said", edges.with_mixed_point(ALICE, b"said"))
    key, signature = edges.of_mixed_key(ALICE, b"said")
    assert not has_signed(peer_id_of(key), b"said", signature)


def test_a_signature_with_a_large_scalar_does_not_verify() -> None:
    # Adding the group's order to S gives a second signature under laxer rules.
    twisted = edges.with_order_added(ALICE.sign("event", b"body"))
    assert not verify_signature(ALICE.peer_id, "event", b"body", twisted)


def test_a_seed_of_another_length_is_the_callers_error() -> None:
    with pytest.raises(LocalError):
        Identity.from_seed(b"short")


def test_an_identity_does_not_show_its_seed() -> None:
    assert ALICE.seed.hex() not in repr(ALICE)
    assert "alice" not in repr(ALICE)
