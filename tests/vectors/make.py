"""Write the vectors: descriptors by which any implementation can check its own reading and writing.

Golden vectors say which fields give which bytes. Rejected ones are blocks that nobody may take,
each with one thing wrong with it and, where that can be, a signature that is right. They change
only when the format does: `python -m tests.vectors.make` rewrites them, and the difference is
reviewed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pulsarcast.model.cbor import decode, encode, opaque
from pulsarcast.model.errors import RemoteError
from pulsarcast.model.events import (
    EventDescriptor,
    Position,
    Sequence,
    SignedRequest,
    decode_event,
    publish_own,
    publish_request,
    sign_request,
)
from pulsarcast.model.filters.domains import domain_of
from pulsarcast.model.identity import Identity, signed_bytes
from pulsarcast.model.ids import cid_of, cid_text, peer_id_of, peer_text
from pulsarcast.model.listings import Listing, decode_listing, sign_listing
from pulsarcast.model.mark_blocks import MarkIndex, MarkPage, decode_marks, make_mark_blocks
from pulsarcast.model.pointers import Pointer, decode_pointer, sign_pointer
from pulsarcast.model.readable import to_readable
from pulsarcast.model.tickets import Ticket, ticket_text
from pulsarcast.model.topics import (
    AttributeRule,
    DeliveryOrder,
    Dissemination,
    EventLinking,
    Mark,
    Retention,
    TopicDescriptor,
    TopicSettings,
    create_meta_topic,
    create_topic,
    decode_topic,
    next_version,
)
from pulsarcast.protocol.content.space import unit
from tests.vectors.edges import EMPTY, fits, with_mixed_point, with_neutral_point, with_order_added
from tests.vectors.edges import KEYS as EDGE_KEYS

FOLDER = Path(__file__).parent

ALICE = Identity.from_seed(bytes([1]) * 32)
BOB = Identity.from_seed(bytes([2]) * 32)
CREATED = 1_577_836_800_123_456  # 2020-01-01T00:00:00.123456Z
NONCE = bytes(range(16))
EPOCH = 0x1122334455667788

META = create_meta_topic(ALICE, "news", created=CREATED, nonce=NONCE)
OPEN = TopicSettings(order=DeliveryOrder.NONE, open=True)
TOPIC = create_topic(ALICE, "news", OPEN, created=CREATED, meta=META.cid)
TOTAL = create_topic(
    ALICE,
    "ledger",
    TopicSettings(
        requesters=(BOB.peer_id,),
        linking=EventLinking.CUSTOM,
        order=DeliveryOrder.TOTAL,
        dissemination=Dissemination.CUBE,
        root=BOB.peer_id,
        sequencers=(ALICE.peer_id, BOB.peer_id),
        recovery_keys=(BOB.peer_id,),
        retention=Retention(age_s=86_400, count=1_000, bytes=1 << 30),
        attributes=(
            AttributeRule("price", "float", 0, 99.5),
            AttributeRule("at", "timestamp"),
            AttributeRule("sensor", "str", "sensor-0000", "sensor-9999"),
        ),
        payload_bytes_max=4096,
        content_routing=True,
        extensions={"colour": "red"},
    ),
    created=CREATED,
    meta=META.cid,
    subtopics={"audit": cid_of(b"audit")},
    nonce=NONCE,
)
RESCUED = next_version(
    BOB,
    TOTAL,
    TOTAL.settings,
    created=CREATED + 1,
    valid_until=[Mark(BOB.peer_id, EPOCH, 7), Mark(ALICE.peer_id, EPOCH, 12)],
    flushed=[Mark(ALICE.peer_id, EPOCH, 3)],
)

MANY = [Mark(peer.peer_id, EPOCH + n, n) for peer in (ALICE, BOB) for n in (1, 2, 3)]
INDEX, *PAGES = make_mark_blocks(ALICE, MANY, created=CREATED + 1, page_marks=4)
CLOSED = next_version(
    ALICE,
    TOPIC,
    TopicSettings(order=DeliveryOrder.NONE),
    created=CREATED + 1,
    valid_until=cid_of(INDEX),
)

PLAIN = publish_own(
    ALICE,
    topic=TOPIC.topic,
    version=TOPIC.cid,
    payload=b"hello",
    created=CREATED,
    nonce=NONCE,
    sequence=Sequence(EPOCH, 1),
    parents=(),
)
FULL = publish_own(
    ALICE,
    topic=TOTAL.topic,
    version=RESCUED.cid,
    # A payload and an attribute that would be taken for links if they were not opaque.
    payload=PLAIN.cid,
    name="première",
    attributes={
        "price": 1.0,
        "count": -(1 << 63),
        "fine": True,
        "raw": b"\x01\x55\x00\x00",
        "s": "",
    },
    created=CREATED,
    nonce=NONCE,
    sequence=Sequence(EPOCH, 13),
    parents=(PLAIN.cid, cid_of(b"another")),
    position=Position(2, 40),
    after=(PLAIN.cid,),
    expires=CREATED + 60_000_000,
    extensions={"colour": [1, None, {"deep": 0.5}]},
)
REQUEST = sign_request(
    BOB,
    topic=TOPIC.topic,
    payload=b"please",
    created=CREATED,
    nonce=NONCE,
    sequence=Sequence(5, 9),
)
REQUESTED = publish_request(
    ALICE, REQUEST, version=TOPIC.cid, sequence=Sequence(EPOCH, 2), parents=(PLAIN.cid,)
)
AFTER_ALL = publish_request(
    BOB, REQUEST, version=TOPIC.cid, sequence=Sequence(0, 1), parents=(PLAIN.cid,)
)
TALK = create_topic(
    ALICE,
    "talk",
    TopicSettings(order=DeliveryOrder.CAUSAL, open=True),
    created=CREATED,
    meta=META.cid,
)
# A causal barrier with all three kinds of marks: our own numbering, an earlier one, another's.
BARRIER = sorted(
    [
        (cid_of(b"our last"), Mark(ALICE.peer_id, EPOCH, 3)),
        (cid_of(b"from before we lost our disk"), Mark(ALICE.peer_id, 5, 300)),
        (cid_of(b"what Bob said"), Mark(BOB.peer_id, 6, 1)),
    ]
)
HEADS, MARKS = [link for link, _ in BARRIER], [mark for _, mark in BARRIER]
CAUSAL = publish_own(
    ALICE,
    topic=TALK.topic,
    version=TALK.cid,
    payload=b"therefore",
    created=CREATED,
    nonce=NONCE,
    sequence=Sequence(EPOCH, 4),
    parents=HEADS,
    marks=MARKS,
)
MERGE = publish_own(
    ALICE,
    topic=TALK.topic,
    version=TALK.cid,
    payload=b"",
    created=CREATED,
    nonce=NONCE,
    sequence=Sequence(EPOCH, 4),
    parents=HEADS,
    marks=MARKS,
    is_merge=True,
)
AFTERWARDS = sign_request(
    BOB,
    topic=TALK.topic,
    payload=b"thereupon",
    created=CREATED,
    nonce=NONCE,
    sequence=Sequence(5, 9),
    after=(CAUSAL.cid,),
    marks=(Mark(ALICE.peer_id, EPOCH, 4),),
)
ANSWERED = publish_request(
    ALICE,
    AFTERWARDS,
    version=TALK.cid,
    sequence=Sequence(EPOCH, 5),
    parents=(CAUSAL.cid,),
    marks=(Mark(ALICE.peer_id, EPOCH, 4),),
)
LISTED = create_topic(
    ALICE,
    "lisbon/temperature",
    TopicSettings(description="Température à Lisbonne", tags=("Weather", "Air quality")),
    created=CREATED,
    meta=META.cid,
)
LISTING = sign_listing(ALICE, LISTED, CREATED + 259_200_000_000)
POINTER = sign_pointer(ALICE, "news", RESCUED.number, RESCUED.cid, topic=RESCUED.topic, moves=2)


def golden() -> list[dict[str, Any]]:
    """Descriptors that everyone must take, and make of the same fields."""
    return [
        _golden("the least that an event can hold", PLAIN),
        _golden("an event with everything in it", FULL),
        _golden("an event that Bob asked for and Alice published", REQUESTED),
        _golden("a request that its author published after all", AFTER_ALL),
        _golden("an event of causal order, and all that it follows", CAUSAL),
        _golden("a merge of causal order", MERGE),
        _golden("an event of causal order that Bob asked for", ANSWERED),
        _golden("a topic of causal order", TALK),
        _golden("a meta topic", META),
        _golden("a topic with the thesis' settings", TOPIC),
        _golden("a topic with every setting", TOTAL),
        _golden("a next version, signed by a recovery key", RESCUED),
        _golden("a next version that names marks by their index", CLOSED),
        _golden("a topic that is listed", LISTED),
        _golden("a pointer", POINTER),
        _golden("a listing", LISTING),
    ]


def _golden(
    what: str, made: EventDescriptor | TopicDescriptor | Pointer | Listing
) -> dict[str, Any]:
    readable = to_readable(made)
    vector: dict[str, Any] = {"what": what, "kind": readable["descriptor"]}
    if isinstance(made, EventDescriptor):
        vector["request_id"] = made.request_id.hex()
    vector["cid"] = cid_text(cid_of(made.block))
    vector["block"] = made.block.hex()
    vector["readable"] = readable
    return vector


def identities() -> list[dict[str, str]]:
    """The seeds that all vectors are signed with."""
    return [
        {"name": name, "seed": identity.seed.hex(), "peer": peer_text(identity.peer_id)}
        for name, identity in (("Alice", ALICE), ("Bob", BOB))
    ]


def requests() -> list[dict[str, str]]:
    """What travels to someone who may publish."""
    return [
        _request("what Bob asks for", REQUEST),
        _request("what Bob asks for after what he has seen", AFTERWARDS),
    ]


def _request(what: str, signed: SignedRequest) -> dict[str, str]:
    return {"what": what, "request_id": signed.request_id.hex(), "block": signed.block.hex()}


def marks() -> list[dict[str, Any]]:
    """The marks of a version's frontier: an index, and its pages."""
    index = decode_marks(INDEX)
    assert isinstance(index, MarkIndex)
    pages = [
        {"place": index.place(at).hex(), "page": cid_text(index.page(at))}
        for at in range(len(index))
    ]
    vectors: list[dict[str, Any]] = [
        {"what": "an index of marks", "block": INDEX.hex(), "pages": pages}
    ]
    for block in PAGES:
        page = decode_marks(block)
        assert isinstance(page, MarkPage)
        rows = [[peer_text(mark.publisher), mark.epoch, mark.number] for mark in page.marks()]
        vectors.append({"what": "a page of marks", "block": block.hex(), "marks": rows})
    return vectors


def places() -> list[dict[str, Any]]:
    """Where texts lie in the domain of their attribute: all peers must agree."""
    domains = {"all texts": (None, None), "sensors": ("sensor-0000", "sensor-9999")}
    texts = {
        "all texts": (
            "",
            "0",
            "Ann",
            "a",
            "ab",
            "b",
            "sensor-1234",
            "ß",
            "Я",
            "日本",
            "\U0001f600",
        ),
        "sensors": ("sensor-0000", "sensor-1234", "sensor-5", "sensor-50", "sensor-9999"),
    }
    return [
        {"what": f"{text!r} among {name}", "min": low, "max": high, "text": text, "place": place}
        for name, (low, high) in domains.items()
        for text in texts[name]
        for place in (unit(domain_of(AttributeRule("name", "str", low, high)), text),)
    ]


def tickets() -> list[dict[str, Any]]:
    """Tickets to a topic, as texts."""
    address = "/ip4/192.0.2.1/tcp/4420"
    plain = Ticket("main", ALICE.peer_id, (address,), TOPIC.topic, ALICE.peer_id, "news")
    others = Ticket(
        "trial", BOB.peer_id, (address, "/dns/example.org/tcp/443"), TOPIC.topic, ALICE.peer_id
    )
    return [
        {
            "what": what,
            "ticket": ticket_text(ticket),
            "network": ticket.network,
            "peer": peer_text(ticket.peer),
            "addresses": list(ticket.addresses),
            "topic": cid_text(ticket.topic),
            "author": peer_text(ticket.author),
            "name": ticket.name,
        }
        for what, ticket in (
            ("the author's own", plain),
            ("of another peer, in another network, without a name", others),
        )
    ]


# What nobody may take


def rejected() -> list[dict[str, str]]:
    """Blocks with one thing wrong."""
    own, topic = _fields(PLAIN.block), _fields(TOPIC.block)
    requested, later = _fields(REQUESTED.block), _fields(RESCUED.block)
    said_twice = {
        **_with(own, "q", [EPOCH, 1]),
        "p": ALICE.peer_id,
        "a": opaque(ALICE.sign("request", encode({**own["r"], "q": [EPOCH, 1]}))),
    }
    spoilt = [
        ("an unknown field", {**own, "z": 1}),
        ("the reserved field encryption", {**own, "encryption": {}}),
        ("a newer major version", {**own, "v": 2}),
        ("a version that is none", {**own, "v": 0}),
        ("a number below one", {**own, "n": [EPOCH, 0]}),
        ("a negative epoch", {**own, "n": [-1, 1]}),
        ("a number that is a bool", {**own, "n": [EPOCH, True]}),
        ("a parent twice", {**own, "l": [TOPIC.cid, TOPIC.cid]}),
        ("too many parents", {**own, "l": [cid_of(bytes([n])) for n in range(65)]}),
        ("parents that are none and not left out", {**own, "l": []}),
        ("extensions that are none and not left out", {**own, "x": {}}),
        ("a topic version that goes without saying", {**own, "w": TOPIC.cid}),
        ("a publisher that goes without saying", said_twice),
        ("a request's sequence that goes without saying", _with(own, "q", [EPOCH, 1])),
        (
            "an author's signature where there is no other publisher",
            {**own, "a": opaque(bytes(64))},
        ),
        ("no author's signature where there is another publisher", _without(requested, "a")),
        ("what the author never said", _with(requested, "b", opaque(b"forged"))),
        ("a payload that is not opaque", _with(own, "b", b"\xffhello")),
        ("a payload that is a link", _with(own, "b", PLAIN.cid)),
        ("a nonce of another length", _with(own, "n", opaque(bytes(15)))),
        ("a time after the year 9999", _with(own, "c", 253_402_300_800_000_000)),
        ("a name that is empty and not left out", _with(own, "m", "")),
        ("a name of more than 256 bytes", _with(own, "m", "é" * 129)),
        ("an attribute that is a list", _with(own, "k", {"a": [1]})),
        ("a topic that is a peer", _with(own, "t", ALICE.peer_id)),
    ]
    spoilt += _spoilt_barriers()
    spoilt_topics = [
        ("an unknown field", {**topic, "z": 1}),
        ("the reserved field encryption", {**topic, "encryption": {}}),
        ("a newer major version", {**topic, "v": 2}),
        ("a default that is not left out", {**topic, "order": "none"}),
        ("an unknown delivery order", {**topic, "order": "sorted"}),
        ("total order without sequencers", {**topic, "order": "total"}),
        ("causal order linked by hand", {**topic, "order": "causal", "link": "CUSTOM"}),
        ("who may request, where nobody may", {**topic, "request": False, "ask": []}),
        ("a first version with one before it", {**topic, "parent": META.cid}),
        ("a meta topic in which everyone publishes", {**topic, "meta": True}),
        ("a meta topic that is listed", {**_fields(META.block), "tags": ["weather"]}),
        ("a description that is empty and not left out", {**topic, "about": ""}),
        ("a description of more than 512 bytes", {**topic, "about": "é" * 257}),
        ("a description of two lines", {**topic, "about": "one\ntwo"}),
        ("a description with a terminal's escape", {**topic, "about": "\x1b[2J"}),
        ("tags that are none and not left out", {**topic, "tags": []}),
        ("tags that do not ascend", {**topic, "tags": ["b", "a"]}),
        ("a tag twice", {**topic, "tags": ["a", "a"]}),
        ("a tag of more than 32 bytes", {**topic, "tags": ["x" * 33]}),
        ("more than 8 tags", {**topic, "tags": list("abcdefghi")}),
        ("a listed topic whose name has a control", {**topic, "name": "a\x07", "tags": ["a"]}),
        (
            "a frontier out of order",
            {**later, "until": later["until"][::-1], "signer": BOB.peer_id},
        ),
    ]
    return [
        *(_rejected("event", why, _sign("event", fields), decode_event) for why, fields in spoilt),
        *(
            _rejected("topic", why, _sign("topic", fields), decode_topic)
            for why, fields in spoilt_topics
        ),
        *(_rejected("event", why, block, decode_event) for why, block in _not_canonical()),
        *(_rejected("event", why, block, decode_event) for why, block in _badly_signed()),
        _rejected(
            "pointer", "another's signature", _sign("pointer", _bobs_pointer()), decode_pointer
        ),
        *(
            _rejected("listing", why, _sign("listing", fields), decode_listing)
            for why, fields in _spoilt_listings()
        ),
        *(
            _rejected("marks", why, _sign("marks", fields), decode_marks)
            for why, fields in _spoilt_marks()
        ),
    ]


def _spoilt_barriers() -> list[tuple[str, dict[str, Any]]]:
    """Events of causal order whose parents and marks do not fit, and merges that are none."""
    fields, merge = _fields(CAUSAL.block), _fields(MERGE.block)
    marks = fields["d"]
    at = {len(mark): place for place, mark in enumerate(marks)}

    def changed(place: int, mark: list[object]) -> dict[str, Any]:
        return {**fields, "d": [*marks[:place], mark, *marks[place + 1 :]]}

    return [
        ("fewer marks than parents", {**fields, "d": marks[:-1]}),
        ("marks without parents", _without(fields, "l")),
        ("marks that are none and not left out", {**fields, "d": []}),
        ("a mark without a number", changed(0, [])),
        ("a mark of four", changed(0, [ALICE.peer_id, 1, 1, 1])),
        ("a mark whose number is below one", changed(at[1], [0])),
        ("a mark whose epoch is negative", changed(at[2], [-1, 300])),
        ("a mark whose publisher is none", changed(at[3], [b"Bob", 6, 1])),
        ("parents with marks that do not ascend", {**fields, "l": fields["l"][::-1]}),
        ("an event that follows itself", changed(at[1], [4])),
        ("a mark's epoch that goes without saying", changed(at[2], [EPOCH, 2])),
        ("a mark's publisher that goes without saying", changed(at[3], [ALICE.peer_id, 6, 1])),
        ("two parents of one numbering", changed(at[2], [2])),
        ("the mark of a merge that is not 1", {**merge, "g": 0}),
        ("the mark of a merge that is a bool", {**merge, "g": True}),
        ("a merge with a payload", _with(merge, "b", opaque(b"hello"))),
        ("a merge with a name", _with(merge, "m", "hello")),
        ("a merge of nothing", _without(_without(merge, "d"), "l")),
        ("a request's mark in short form", _with(_fields(ANSWERED.block), "d", [[4]])),
        ("a request's marks without what it is after", _unasked(_fields(ANSWERED.block))),
    ]


def _unasked(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "r": _without(fields["r"], "f")}


def _not_canonical() -> list[tuple[str, bytes]]:
    """The plain event, written in ways that some decoders take for the same."""
    block = PLAIN.block
    assert block.count(b"\x61v\x01") == 1
    assert block[0] == 0xA4
    return [
        ("an integer that is not minimal", block.replace(b"\x61v\x01", b"\x61v\x18\x01")),
        (
            "a float that should be an integer",
            block.replace(b"\x61v\x01", b"\x61v\xfa\x3f\x80\x00\x00"),
        ),
        ("a map whose length is not minimal", b"\xb8\x04" + block[1:]),
        ("a map of indefinite length", b"\xbf" + block[1:] + b"\xff"),
        ("a key twice", b"\xa5" + block[1:] + b"\x61v\x01"),
        ("something after the end", block + b"\x00"),
        ("an end before the end", block[:-1]),
        ("nesting without end", b"\x81" * 100 + b"\x80"),
        ("a list longer than the universe", b"\x9b" + b"\xff" * 8),
        ("nothing", b""),
    ]


def _badly_signed() -> list[tuple[str, bytes]]:
    """The plain event, with signatures that some libraries take."""
    fields = _fields(PLAIN.block)
    said = signed_bytes("event", encode(fields))
    edges = {
        "a signature with the group's order added": with_order_added(PLAIN.signature),
        "a signature with a neutral point": with_neutral_point(ALICE, said),
        "a signature with a point of mixed order": with_mixed_point(ALICE, said),
    }
    return [
        ("another's signature", encode({**fields, "s": opaque(BOB.sign("event", encode(fields)))})),
        (
            "a signature as another kind",
            encode({**fields, "s": opaque(ALICE.sign("topic", encode(fields)))}),
        ),
        ("no signature", encode(fields)),
        *((why, encode({**fields, "s": opaque(signature)})) for why, signature in edges.items()),
        *((f"signed under {why}", _signed_by_nobody(key)) for why, key in EDGE_KEYS.items()),
    ]


def _signed_by_nobody(key: bytes) -> bytes:
    """The plain event under a key that nobody has, with a signature that fits without one."""
    fields = _with(_fields(PLAIN.block), "a", peer_id_of(key))
    for number in range(1000):
        fields = _with(fields, "n", opaque(number.to_bytes(16)))
        if fits(key, signed_bytes("event", encode(fields))):
            return encode({**fields, "s": opaque(EMPTY)})
    raise AssertionError("one in eight fits")


def _bobs_pointer() -> dict[str, Any]:
    """A pointer that names Bob as its author; Alice signs it."""
    return {**_fields(POINTER.block), "a": BOB.peer_id}


def _spoilt_listings() -> list[tuple[str, dict[str, Any]]]:
    fields = _fields(LISTING.block)
    return [
        ("another's signature", {**fields, "a": BOB.peer_id}),
        ("no expiry", _without(fields, "e")),
        ("a name with a terminal's escape", {**fields, "m": "\x1b[2J"}),
        ("tags that do not ascend", {**fields, "g": fields["g"][::-1]}),
        ("the reserved field encryption", {**fields, "encryption": {}}),
    ]


def _spoilt_marks() -> list[tuple[str, dict[str, Any]]]:
    page = _fields(PAGES[0])
    rows = page["marks"][1:]
    return [
        ("rows that do not ascend", {**page, "marks": opaque(rows[48:96] + rows[:48])}),
        ("a mark without a number", {**page, "marks": opaque(rows[:40] + bytes(8))}),
        ("half a row", {**page, "marks": opaque(rows[:24])}),
        ("no rows", {**page, "marks": opaque(b"")}),
        ("marks and pages", {**page, "pages": page["marks"]}),
        ("a signer that is no peer", {**page, "signer": META.cid}),
    ]


def _fields(block: bytes) -> dict[str, Any]:
    """A block's map without its signature."""
    fields = decode(block, size_max=1 << 20)
    assert isinstance(fields, dict)
    return _without(fields, "s")


def _with(fields: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    """An event's map with one field of its request changed."""
    return {**fields, "r": {**fields["r"], key: value}}


def _without(fields: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != key}


def _sign(kind: str, fields: dict[str, Any]) -> bytes:
    """A block that its signer signed: Bob where he is named, else Alice."""
    signer = BOB if fields.get("signer") == BOB.peer_id else ALICE
    return encode({**fields, "s": opaque(signer.sign(kind, encode(fields)))})


def _rejected(
    kind: str, what: str, block: bytes, read: Callable[[bytes], object]
) -> dict[str, str]:
    try:
        read(block)
    except RemoteError as error:
        return {
            "what": what,
            "kind": kind,
            "verdict": error.verdict.value,
            "reason": error.code.value,
            "block": block.hex(),
        }
    raise AssertionError(f"taken: {what}")


FILES: dict[str, Callable[[], object]] = {
    "identities.json": identities,
    "golden.json": golden,
    "requests.json": requests,
    "marks.json": marks,
    "places.json": places,
    "tickets.json": tickets,
    "rejected.json": rejected,
}


def render(name: str) -> str:
    """A file's text, as it should be on disk."""
    return json.dumps(FILES[name](), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    for file_name in FILES:
        (FOLDER / file_name).write_text(render(file_name), encoding="utf-8")
