from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.model.errors import RemoteError, Verdict
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.limits import FRAME_BYTES_MAX
from pulsarcast.protocol.messages import EventMessage
from pulsarcast.wire import pulsarcast_pb2 as pb
from pulsarcast.wire.codec import decode, encode
from pulsarcast.wire.hello import Hello, decode_hello, encode_hello
from tests.unit.wire.strategies import of_kind


@given(of_kind(Hello))
def test_a_hello_comes_back_as_it_was(hello: Hello) -> None:
    assert decode_hello(encode_hello(hello)) == hello


def test_golden_bytes() -> None:
    hello = Hello("main", (2,), ("cube",), FRAME_BYTES_MAX, ("/a",), reach=Reach.PRIVATE)
    text = "fa011a 0a046d61696e 120102 1a0463756265 2080808002 2a022f61 3803"
    assert encode_hello(hello).hex() == text.replace(" ", "")


def test_a_hello_is_no_message_and_a_message_no_hello() -> None:
    with pytest.raises(RemoteError, match="a Hello where"):
        decode(encode_hello(Hello("main", (2,))))
    with pytest.raises(RemoteError, match="a message where"):
        decode_hello(encode(EventMessage(b"block", 0)))


def test_an_unknown_kind_in_place_of_a_hello_is_ignored() -> None:
    with pytest.raises(RemoteError) as caught:
        decode_hello(bytes.fromhex("fa0700"))
    assert caught.value.verdict is Verdict.IGNORE


@pytest.mark.parametrize(
    "hello",
    [
        Hello("n" * 65, (2,)),
        Hello("main", ()),
        Hello("main", (2,) * 17),
        Hello("main", (2**63,)),
        Hello("main", (2,), ("f",) * 65),
        Hello("main", (2,), ("f" * 65,)),
        Hello("main", (2,), (), 0),
        Hello("main", (2,), (), 2**63),
        Hello("main", (2,), (), 1, ("/a",) * 17),
        Hello("main", (2,), (), 1, ("/" * 257,)),
        Hello("main", (2,), (), 1, (), b"i" * 17),
    ],
)
def test_a_hello_out_of_bounds_is_rejected(hello: Hello) -> None:
    with pytest.raises(RemoteError) as caught:
        decode_hello(encode_hello(hello))
    assert caught.value.verdict is Verdict.REJECT


@given(st.binary(max_size=100))
def test_noise_never_raises_anything_but_a_remote_error(noise: bytes) -> None:
    data = pb.Frame(hello=pb.Hello(network="main")).SerializeToString() + noise
    with suppress(RemoteError):
        decode_hello(data)
