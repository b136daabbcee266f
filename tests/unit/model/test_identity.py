import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.errors import LocalError
from pulsarcast.model.identity import Identity, verify_signature
from pulsarcast.model.ids import peer_id_of, public_key_of
from tests.unit.model.samples import ALICE, BOB, identities


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


def test_a_key_of_small_order_signs_nothing() -> None:
    # With the neutral element as key, a signature of the neutral element and zero would fit any
    # message under a laxer rule than libsodium's.
    neutral = (1).to_bytes(32, "little")
    assert not verify_signature(peer_id_of(neutral), "event", b"any", neutral + bytes(32))


def test_a_signature_with_a_large_scalar_does_not_verify() -> None:
    # Adding the group's order to S gives a second signature under laxer rules.
    order = (1 << 252) + 27742317777372353535851937790883648493
    signature = ALICE.sign("event", b"body")
    scalar = int.from_bytes(signature[32:], "little") + order
    twisted = signature[:32] + scalar.to_bytes(32, "little")
    assert not verify_signature(ALICE.peer_id, "event", b"body", twisted)


def test_a_seed_of_another_length_is_the_callers_error() -> None:
    with pytest.raises(LocalError):
        Identity.from_seed(b"short")


def test_an_identity_does_not_show_its_seed() -> None:
    assert ALICE.seed.hex() not in repr(ALICE)
    assert "alice" not in repr(ALICE)
