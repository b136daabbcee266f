"""The Noise handshake: what both sides come to, the same bytes as others write, and liars."""

from contextlib import suppress

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from noise.connection import Keypair, NoiseConnection

from pulsarcast.model.errors import RemoteError
from pulsarcast.network.handshake import KEY_BYTES, Dialler, Listener, StaticKey
from pulsarcast.network.noise import TAG_BYTES, NoiseFraming
from tests.unit.network.hosts import ANN, BEN, STOCK
from tests.vectors import edges

LOW_ORDER = (
    bytes(32),
    (1).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
)
"""Points of Curve25519 whose secret with any key is zero."""


def key(octet: int) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(bytes((octet,)) * KEY_BYTES)


def agree(one: NoiseFraming, other: NoiseFraming) -> None:
    """What either seals, the other opens."""
    for said in (b"first", b"second"):
        assert other.feed(one.seal(said)) == [said]
        assert one.feed(other.seal(said)) == [said]


def messages() -> tuple[bytes, bytes, bytes]:
    """A handshake between Ann, who dials, and Ben, with keys that are always the same."""
    dialler = Dialler(StaticKey(ANN, key(1)), key(2))
    listener = Listener(StaticKey(BEN, key(3)), key(4))
    first = dialler.begin()
    second = listener.answer(first)
    third, *_ = dialler.finish(second)
    return first, second, third


def dialler_of_messages() -> Dialler:
    dialler = Dialler(StaticKey(ANN, key(1)), key(2))
    dialler.begin()
    return dialler


def listener_of_messages() -> Listener:
    listener = Listener(StaticKey(BEN, key(3)), key(4))
    listener.answer(messages()[0])
    return listener


def test_both_learn_who_the_other_is_and_have_keys_that_agree() -> None:
    dialler, listener = Dialler(StaticKey(ANN)), Listener(StaticKey(BEN))
    third, ben, ours = dialler.finish(listener.answer(dialler.begin()))
    ann, theirs = listener.finish(third)
    assert (ann, ben) == (ANN.peer_id, BEN.peer_id)
    agree(ours, theirs)


def test_no_two_handshakes_have_the_same_keys() -> None:
    static = StaticKey(ANN)
    one, other = Dialler(static), Dialler(static)
    assert one.begin() != other.begin()


# The same as another implementation.


def other_implementation(*, dials: bool) -> NoiseConnection:
    other = NoiseConnection.from_name(b"Noise_XX_25519_ChaChaPoly_SHA256")
    (other.set_as_initiator if dials else other.set_as_responder)()
    own = (1, 2) if dials else (3, 4)
    for kind, octet in zip((Keypair.STATIC, Keypair.EPHEMERAL), own, strict=True):
        other.set_keypair_from_private_bytes(kind, bytes((octet,)) * KEY_BYTES)
    with pytest.warns(UserWarning, match="ephemeral"):
        other.start_handshake()
    return other


def test_another_implementation_that_is_dialled_says_the_same() -> None:
    first, second, third = messages()
    other = other_implementation(dials=False)
    assert other.read_message(first) == b""
    assert bytes(other.write_message(StaticKey(BEN, key(3)).payload)) == second
    assert bytes(other.read_message(third)) == StaticKey(ANN, key(1)).payload
    _, _, ours = dialler_of_messages().finish(second)
    assert ours.feed(framed(other.encrypt(b"hello"))) == [b"hello"]
    assert other.decrypt(ours.seal(b"hello")[2:]) == b"hello"


def test_another_implementation_that_dials_says_the_same() -> None:
    first, second, third = messages()
    other = other_implementation(dials=True)
    assert bytes(other.write_message(b"")) == first
    assert bytes(other.read_message(second)) == StaticKey(BEN, key(3)).payload
    assert bytes(other.write_message(StaticKey(ANN, key(1)).payload)) == third
    _, theirs = listener_of_messages().finish(third)
    assert theirs.feed(framed(other.encrypt(b"hello"))) == [b"hello"]
    assert other.decrypt(theirs.seal(b"hello")[2:]) == b"hello"


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(2, "big") + message


# Liars.


def dialled_by(static: StaticKey) -> None:
    """Have somebody with such a key dial Ben."""
    listener, dialler = Listener(StaticKey(BEN)), Dialler(static)
    third, *_ = dialler.finish(listener.answer(dialler.begin()))
    listener.finish(third)


def dials(static: StaticKey) -> None:
    """Have Ann dial somebody with such a key."""
    dialler, listener = Dialler(StaticKey(ANN)), Listener(static)
    dialler.finish(listener.answer(dialler.begin()))


def with_payload(payload: bytes) -> StaticKey:
    static = StaticKey(STOCK)
    static.payload = payload
    return static


SIGNED = StaticKey(STOCK).payload
PUBLIC_KEY, SIGNATURE = SIGNED[:38], SIGNED[38:]
LIES = {
    "somebody else's word for another key": StaticKey(ANN).payload,
    "nothing": b"",
    "no key": SIGNATURE,
    "no signature": PUBLIC_KEY,
    "a signature that is too short": PUBLIC_KEY + b"\x12\x3f" + SIGNATURE[2:-1],
    "a key of another kind": b"\x0a\x24\x08\x02" + PUBLIC_KEY[4:] + SIGNATURE,
    "a key that is too short": b"\x0a\x23" + PUBLIC_KEY[2:-1] + SIGNATURE,
    "a key that is no point": PUBLIC_KEY[:6] + b"\xff" * 32 + SIGNATURE,
    "a field that ends too late": PUBLIC_KEY + b"\x12\x41" + SIGNATURE[2:],
    "a length without an end": b"\x0a\xff\xff\xff",
    "a field without a length": b"\x0a",
    "a number where bytes belong": b"\x08\x01" + SIGNED,
}


@pytest.mark.parametrize("lie", LIES)
def test_who_does_not_prove_who_it_is_is_refused_on_either_side(lie: str) -> None:
    for meet in (dialled_by, dials):
        with pytest.raises(RemoteError):
            meet(with_payload(LIES[lie]))


@pytest.mark.parametrize("key", edges.KEYS.values(), ids=list(edges.KEYS))
def test_nobody_is_a_peer_whose_key_nobody_has(key: bytes) -> None:
    """OpenSSL takes an empty signature of such a key for one of eight static keys."""
    static = next(
        each
        for each in (StaticKey(STOCK) for _ in range(1000))
        if edges.fits(key, b"noise-libp2p-static-key:" + each.public)
    )
    static.payload = PUBLIC_KEY[:6] + key + SIGNATURE[:2] + edges.EMPTY
    for meet in (dialled_by, dials):
        with pytest.raises(RemoteError, match="did not sign"):
            meet(static)


def test_a_payload_with_more_in_it_is_taken() -> None:
    extensions = b"\x22\xc8\x01" + bytes(200)
    honest = StaticKey(STOCK)
    honest.payload += extensions
    dialled_by(honest)
    honest.payload = extensions + SIGNED
    with pytest.raises(RemoteError, match="did not sign"):
        dialled_by(honest)  # of another process' key


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_key_that_gives_every_secret_away_is_refused(point: bytes) -> None:
    with pytest.raises(RemoteError, match="a key that is none"):
        Listener(StaticKey(BEN)).answer(point)
    _, second, _ = messages()
    with pytest.raises(RemoteError, match="a key that is none"):
        dialler_of_messages().finish(point + second[KEY_BYTES:])


def test_a_changed_byte_anywhere_is_found() -> None:
    _, second, third = messages()
    for at in range(len(second)):
        with pytest.raises(RemoteError):
            dialler_of_messages().finish(changed(second, at))
    for at in range(len(third)):
        with pytest.raises(RemoteError):
            listener_of_messages().finish(changed(third, at))


def changed(message: bytes, at: int) -> bytes:
    return message[:at] + bytes((message[at] ^ 1,)) + message[at + 1 :]


def test_a_message_that_is_cut_off_or_goes_on_is_refused() -> None:
    first, second, third = messages()
    for size in range(len(first)):
        with pytest.raises(RemoteError):
            Listener(StaticKey(BEN)).answer(first[:size])
    for size in (0, 31, KEY_BYTES, KEY_BYTES + KEY_BYTES + TAG_BYTES, len(second) - 1):
        with pytest.raises(RemoteError):
            dialler_of_messages().finish(second[:size])
    for size in (0, KEY_BYTES, KEY_BYTES + TAG_BYTES, len(third) - 1):
        with pytest.raises(RemoteError):
            listener_of_messages().finish(third[:size])
    for finish, message in (
        (dialler_of_messages().finish, second),
        (listener_of_messages().finish, third),
    ):
        with pytest.raises(RemoteError):
            finish(message + b"\0")


def test_a_recorded_handshake_does_not_work_again() -> None:
    first, _, third = messages()
    listener = Listener(StaticKey(BEN, key(3)))
    listener.answer(first)
    with pytest.raises(RemoteError):
        listener.finish(third)


def test_who_sits_in_between_cannot_pass_one_word_on_for_another() -> None:
    """Mallory, dialled by Ann, dials Ben, and gives each the other's word in an own handshake."""
    mallory = StaticKey(STOCK)
    mallory.payload = StaticKey(BEN).payload
    with pytest.raises(RemoteError, match="did not sign"):
        dials(mallory)


@given(st.binary(max_size=400), st.binary(max_size=400))
def test_whatever_a_stranger_sends_is_refused_as_a_strangers(first: bytes, more: bytes) -> None:
    with suppress(RemoteError):
        Listener(StaticKey(BEN, key(3)), key(4)).answer(first)
    for finish in (listener_of_messages().finish, dialler_of_messages().finish):
        with pytest.raises(RemoteError):
            finish(more)


@given(st.binary(max_size=200))
def test_whatever_a_payload_has_is_refused_as_a_strangers(payload: bytes) -> None:
    with pytest.raises(RemoteError):
        dialled_by(with_payload(payload))
