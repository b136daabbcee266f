from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.keys import KEY_BITS, bucket_of, key_of

keys = st.integers(0, (1 << KEY_BITS) - 1)


def test_a_key_is_the_sha_256_read_as_a_big_endian_number() -> None:
    assert f"{key_of(b'abc'):064x}" == sha256(b"abc").hexdigest()


def test_keys_that_differ_in_their_first_bit_are_in_the_last_bucket() -> None:
    assert bucket_of(0, 1 << 255) == 255
    assert bucket_of(0, 1) == 0
    assert bucket_of(5, 5) == -1


@given(keys, keys)
def test_a_bucket_holds_the_distances_of_one_power_of_two(a: int, b: int) -> None:
    if a != b:
        assert 1 << bucket_of(a, b) <= a ^ b < 2 << bucket_of(a, b)
