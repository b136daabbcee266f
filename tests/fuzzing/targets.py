"""What is fuzzed: every decoder of bytes that strangers send, and what must hold of each.

A target takes any bytes. It may refuse them, as a stranger's (`RemoteError`) or as a caller's
(`LocalError`): both have a sentence of ours. Anything else that it raises is a fault, and so is a
value that is not the same once it was written and read again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from pulsarcast.model import api, cbor, trace
from pulsarcast.model.errors import LocalError, RemoteError
from pulsarcast.model.events import decode_event
from pulsarcast.model.filters.filter import parse_received
from pulsarcast.model.identity import Identity
from pulsarcast.model.listings import decode_listing
from pulsarcast.model.mark_blocks import decode_marks
from pulsarcast.model.pages import decode_page, encode_page
from pulsarcast.model.pointers import decode_pointer
from pulsarcast.model.requests import decode_request
from pulsarcast.model.subscriptions import decode_subscription
from pulsarcast.model.tickets import parse_ticket, ticket_text
from pulsarcast.model.topics import AttributeRule, TopicSettings, decode_topic
from pulsarcast.network import circuits, identify
from pulsarcast.network.addresses import parse_contact
from pulsarcast.network.handshake import Dialler, Listener, StaticKey
from pulsarcast.network.multiaddrs import address_bytes, address_text
from pulsarcast.network.negotiation import cut_line
from pulsarcast.network.noise import NoiseFraming
from pulsarcast.network.yamux import Yamux
from pulsarcast.wire import codec
from pulsarcast.wire.framing import FrameReader, write_frames
from pulsarcast.wire.hello import Hello, decode_hello, encode_hello
from pulsarcast.wire.libp2p import parse
from pulsarcast.wire.libp2p_pb2 import Envelope, HolePunch, HopMessage, Identify, StopMessage

VECTORS: Final = Path(__file__).parents[1] / "vectors"
BLOCK_BYTES_MAX: Final = 1 << 20
ANN, BEN = (Identity.from_seed(bytes([number]) * 32) for number in (1, 2))
SCHEMA: Final = (
    AttributeRule("price", "float", 0, 99.5),
    AttributeRule("count", "int"),
    AttributeRule("sensor", "str", "sensor-0000", "sensor-9999"),
    AttributeRule("live", "bool"),
)


class Target(NamedTuple):
    """A decoder."""

    run: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    """Inputs to begin from: some that are good, and some that are nearly so."""


def try_on(target: Target, data: bytes) -> None:
    """Have a target read an input; returns if it takes or refuses it as it should."""
    try:
        target.run(data)
    except (RemoteError, LocalError):
        return


# Of peers.


def _messages(data: bytes) -> None:
    message = codec.decode(data)
    written = codec.encode(message)
    assert codec.decode(written) == message
    assert codec.size_of(message) == len(written)


def _frames(data: bytes) -> None:
    """The same frames come of bytes however they arrive."""
    at_once = FrameReader(bytes_max_of=codec.bytes_max_of)
    frames = at_once.feed(data)
    reader = FrameReader(bytes_max_of=codec.bytes_max_of)
    middle = len(data) // 2
    assert [*reader.feed(data[:middle]), *reader.feed(data[middle:])] == frames
    assert write_frames(frames) == data[: len(data) - at_once.pending_bytes]
    for frame in frames:
        codec.decode(frame)


def _hello(data: bytes) -> None:
    hello = decode_hello(data)
    assert decode_hello(encode_hello(hello)) == hello


def _yamux(data: bytes) -> None:
    """As either side, with a stream of our own open and another one that the peer may open."""
    for initiator in (False, True):
        mux = Yamux(initiator)
        mux.open().send(b"said")
        mux.take()
        for start in range(0, len(data), 50):
            mux.feed(data[start : start + 50])
            mux.take()


def _noise(data: bytes) -> None:
    NoiseFraming(bytes(32), bytes(32)).feed(data)


def _handshake(data: bytes) -> None:
    """As each of the three messages, and as what the last one says in secret."""
    pairs = [X25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in range(1, 5)]
    ann, ben = StaticKey(ANN, pairs[0]), StaticKey(BEN, pairs[1])

    def shake(first: bytes | None, second: bytes | None, third: bytes | None) -> None:
        dialler, listener = Dialler(ann, pairs[2]), Listener(ben, pairs[3])
        begun = dialler.begin()
        answered = listener.answer(begun if first is None else first)
        ended, *_ = dialler.finish(answered if second is None else second)
        listener.finish(ended if third is None else third)

    for messages in ((data, None, None), (None, data, None), (None, None, data)):
        try:
            shake(*messages)
        except RemoteError:
            continue
    ann.payload = data
    shake(None, None, None)


def _libp2p(data: bytes) -> None:
    for kind in (HopMessage, StopMessage, HolePunch, Identify, Envelope):
        try:
            parse(kind, data)
        except RemoteError:
            continue
    with contextlib.suppress(RemoteError):
        circuits.check_voucher(data, ANN.peer_id, BEN.peer_id)
    arrived = bytearray(data)
    while cut_line(arrived) is not None:
        pass
    identify.read(ANN.peer_id, data)


def _addresses(data: bytes) -> None:
    text = address_text(data)
    if text is not None:
        assert address_text(address_bytes(text)) == text
    parse_contact(data.decode("utf-8", "replace"))


# Descriptors.


def _descriptors(data: bytes) -> None:
    for decode in (
        decode_event,
        decode_request,
        decode_topic,
        decode_pointer,
        decode_listing,
        decode_marks,
        decode_subscription,
    ):
        try:
            read: Any = decode(data)
        except RemoteError:
            continue
        assert getattr(read, "block", data) == data


def _cbor(data: bytes) -> None:
    value = cbor.decode(data, size_max=BLOCK_BYTES_MAX)
    assert cbor.encode(value) == data


def _tickets(data: bytes) -> None:
    ticket = parse_ticket(data.decode("utf-8", "replace"))
    assert parse_ticket(ticket_text(ticket)) == ticket


def _filters(data: bytes) -> None:
    made = parse_received(data.decode("utf-8", "replace"), SCHEMA)
    again = parse_received(made.text, SCHEMA)
    assert again == made
    assert again.text == made.text


def _pages(data: bytes) -> None:
    for block in decode_page(data).blocks():
        decode_event(block)


# Of programs and files.

BODIES: Final = (
    api.NewTopic,
    api.EnsuredTopic,
    api.TopicUpdate,
    api.NewEvent,
    api.NewEvents,
    api.Follow,
    api.MovedName,
    api.WalkFrom,
    api.Join,
    api.MoreBootstrap,
    api.Alias,
    api.Done,
)


def _bodies(data: bytes) -> None:
    """A request's body as each kind, and what the operations make of it first."""
    for kind in BODIES:
        try:
            given: Any = msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        events = given.events if isinstance(given, api.NewEvents) else [given]
        for event in events:
            if isinstance(event, (api.NewEvent, api.BatchEvent)):
                _refused_or_done(partial(_payload_of, event))
        if isinstance(given, (api.NewTopic, api.EnsuredTopic)) and given.settings is not None:
            _refused_or_done(partial(api.settings_from, given.settings, TopicSettings()))


def _payload_of(event: api.NewEvent | api.BatchEvent) -> None:
    api.payload_from(event)
    for value in event.attributes.values():
        api.attribute_from(value)


def _refused_or_done(act: Callable[[], object]) -> None:
    try:
        act()
    except (LocalError, RemoteError):
        return


def _trace_lines(data: bytes) -> None:
    line = trace.decode_line(data)
    if not isinstance(line.record, trace.Unknown):
        written = trace.encode_line(line.envelope, line.record)
        assert trace.decode_line(written) == line


# Seeds.


def _vectors(*names: str) -> list[bytes]:
    found = [each for name in names for each in json.loads((VECTORS / name).read_text())]
    return [bytes.fromhex(each["block"]) for each in found if "block" in each]


@cache
def _golden_frames() -> tuple[bytes, ...]:
    from tests.unit.wire.test_codec import GOLDEN

    return tuple(codec.encode(message) for message, _ in GOLDEN)


def _handshake_seeds() -> list[bytes]:
    ann, ben = StaticKey(ANN), StaticKey(BEN)
    dialler, listener = Dialler(ann), Listener(ben)
    first = dialler.begin()
    second = listener.answer(first)
    third, *_ = dialler.finish(second)
    return [first, second, third, ann.payload]


def _yamux_seeds() -> list[bytes]:
    mux = Yamux(True)
    stream = mux.open()
    stream.send(b"hello" * 20)
    opened = mux.take()
    stream.close()
    return [opened, opened + mux.take(), bytes((0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7))]


def _texts(*texts: str) -> Callable[[], list[bytes]]:
    return lambda: [text.encode() for text in texts]


def _trace_seeds() -> list[bytes]:
    from tests.unit.model.test_trace import ENVELOPE, RECORDS

    return [trace.encode_line(ENVELOPE, record) for record in RECORDS]


def _json(values: Iterable[object]) -> list[bytes]:
    return [msgspec.json.encode(value) for value in values]


def _body_seeds() -> list[bytes]:
    return _json(
        (
            {"name": "weather", "settings": {"open": True, "retention": {"count": 5}}},
            {"payload": "aGk=", "encoding": "base64", "attributes": {"price": 1.5}},
            {"json": {"a": [1, None, "x"]}, "parents": [], "ack": "accepted"},
            {"events": [{"payload": "x"}, {"json": 1, "idempotency_key": "k"}]},
            {"index": 5, "subtopics": {}},
            {"start": "beginning", "below": True},
        )
    )


TARGETS: Final = {
    "messages": Target(_messages, lambda: list(_golden_frames())),
    "frames": Target(
        _frames, lambda: [write_frames(_golden_frames()[n : n + 3]) for n in range(0, 60, 3)]
    ),
    "hello": Target(
        _hello,
        lambda: [encode_hello(Hello("main", (1, 2), ("a",), addresses=("/ip4/1.2.3.4/tcp/5",)))],
    ),
    "yamux": Target(_yamux, _yamux_seeds),
    "noise": Target(_noise, lambda: [NoiseFraming(bytes(32), bytes(32)).seal(b"hello") * 2]),
    "handshake": Target(_handshake, _handshake_seeds),
    "libp2p": Target(_libp2p, lambda: [circuits.seal_voucher(ANN, BEN.peer_id, 1_900_000_000)]),
    "addresses": Target(
        _addresses, _texts("/ip4/127.0.0.1/tcp/4420", "/dns/a.example/tcp/1/p2p/x")
    ),
    "descriptors": Target(_descriptors, lambda: _vectors("golden.json", "rejected.json")),
    "cbor": Target(_cbor, lambda: _vectors("golden.json", "rejected.json")),
    "tickets": Target(
        _tickets,
        lambda: [t["ticket"].encode() for t in json.loads((VECTORS / "tickets.json").read_text())],
    ),
    "filters": Target(
        _filters,
        _texts(
            "price > 3 and count in (1, 2, 3)",
            "not (sensor starts with 'sensor-1') or live = true",
            "sensor matches '^a[bc]+$' and price <= 99.5",
            "payload.a.b = 'x'",
        ),
    ),
    "pages": Target(
        _pages, lambda: [encode_page([(1, 2, block) for block in _vectors("golden.json")])]
    ),
    "trace-lines": Target(_trace_lines, _trace_seeds),
    "bodies": Target(_bodies, _body_seeds),
}
