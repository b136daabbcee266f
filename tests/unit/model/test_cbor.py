import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.cbor import DEPTH_MAX, decode, encode, opaque, plain
from pulsarcast.model.errors import LocalError, RemoteError
from pulsarcast.model.ids import cid_of
from tests.unit.model.samples import tricky_bytes, values

SIZE_MAX = 1 << 20


@pytest.fixture(params=[1000, 100_000], ids=["usual recursion limit", "raised recursion limit"])
def recursion_limit(request: pytest.FixtureRequest) -> Iterator[None]:
    """An application may have raised the limit that libipld's own guard relies on."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(request.param)
    yield
    sys.setrecursionlimit(before)


@given(values)
def test_a_value_survives_being_a_block(value: object) -> None:
    block = encode(value)
    assert decode(block, size_max=SIZE_MAX) == value
    assert encode(decode(block, size_max=SIZE_MAX)) == block


@given(tricky_bytes)
def test_opaque_bytes_are_never_written_as_a_link(data: bytes) -> None:
    block = encode(opaque(data))
    assert block[0] >> 5 == 2  # CBOR's byte strings; a link would be a tag, which is 6
    assert plain(decode(block, size_max=SIZE_MAX)) == data


def test_a_content_id_is_written_as_a_link() -> None:
    assert encode(cid_of(b"")).hex().startswith("d82a5825000171")


@pytest.mark.parametrize("data", [b"", b"\1", "text", None, 0])
def test_what_is_not_opaque_is_rejected(data: object) -> None:
    with pytest.raises(RemoteError):
        plain(data)


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("", "nothing"),
        ("1801", "a non-minimal integer"),
        ("190001", "a non-minimal integer"),
        ("5801ff", "a non-minimal length"),
        ("fa3fc00000", "a float of 32 bits"),
        ("f93e00", "a float of 16 bits"),
        ("fb7ff8000000000000", "no number"),
        ("fb7ff0000000000000", "infinity"),
        ("fb8000000000000000", "negative zero"),
        ("f7", "undefined"),
        ("f0", "a simple value"),
        ("c100", "a tag that is not 42"),
        ("d82a4100", "a link to nothing"),
        ("d82a00", "a link that is no byte string"),
        ("a2616201616101", "keys out of order"),
        ("a2616101616102", "a key twice"),
        ("a2626161016162f5", "a longer key before a shorter one"),
        ("a10102", "a key that is no text"),
        ("9fff", "an indefinite list"),
        ("5f4100ff", "indefinite bytes"),
        ("0000", "two values"),
        ("82", "a list that ends early"),
        ("62c328", "text that is not UTF-8"),
        ("63eda080", "a lone surrogate"),
        ("1b8000000000000000", "2^63"),
        ("3b8000000000000000", "-2^63 - 1"),
        ("5bffffffffffffffff", "bytes of a huge length"),
        ("7affffffff", "text of a huge length"),
        ("9bffffffffffffffff", "a list of a huge length"),
        ("bb7fffffffffffffff", "a map of a huge length"),
        ("9b2000000000000000", "a list of a huge length"),
        ("5824" + cid_of(b"").hex(), "a content id that is not written as a link"),
    ],
)
@pytest.mark.usefixtures("recursion_limit")
def test_what_is_not_canonical_is_rejected(block: str, why: str) -> None:
    with pytest.raises(RemoteError):
        decode(bytes.fromhex(block), size_max=SIZE_MAX)


@pytest.mark.usefixtures("recursion_limit")
def test_nesting_as_deep_as_allowed_is_taken() -> None:
    block = b"\x81" * (DEPTH_MAX - 1) + b"\x80"
    assert encode(decode(block, size_max=SIZE_MAX)) == block


@pytest.mark.parametrize("depth", [DEPTH_MAX + 1, 500, 5000, 1_000_000])
@pytest.mark.parametrize("opening", [b"\x81", b"\xa1\x61a", b"\x82\x00", b"\x82\x81\x00"])
@pytest.mark.usefixtures("recursion_limit")
def test_nesting_deeper_than_allowed_is_rejected(opening: bytes, depth: int) -> None:
    block = opening * (depth - 1) + b"\x80"
    with pytest.raises(RemoteError):
        decode(block, size_max=1 << 23)


def test_a_block_beyond_the_size_is_rejected_unread() -> None:
    with pytest.raises(RemoteError, match="oversize"):
        decode(b"\xff" * 11, size_max=10)


@pytest.mark.usefixtures("recursion_limit")
@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_rejected(block: bytes) -> None:
    try:
        value = decode(block, size_max=SIZE_MAX)
    except RemoteError:
        return
    assert encode(value) == block


@pytest.mark.parametrize(
    "value",
    [1 << 63, -(1 << 63) - 1, float("nan"), float("inf"), {1: 2}, {b"": 1}, {"a"}, (1,), "\ud800"],
)
def test_what_has_no_encoding_is_the_callers_error(value: object) -> None:
    with pytest.raises(LocalError):
        encode(value)


def test_a_value_within_itself_is_the_callers_error() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(LocalError):
        encode(value)
