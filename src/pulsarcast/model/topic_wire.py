"""The encoding of a topic's version as a block: writes and reads it.

docs/spec/descriptors.md, Topic.

Topics are rare and people look at them, so their keys are short words, while an event's are
letters. A field at its default is left out:
    v         version of the protocol (1)      name, author, created, nonce
    number    of the version                   first, parent    links, after version 0
    #         sub-topics by name               meta             true in a meta topic
    allow     allowed publishers               request          false: no request to publish
    ask       peers that may request           link             event linking
    order     delivery order                   travel           dissemination
    root      root of the tree                 sequencers, recovery
    keep      retention: age, count, bytes     payload          most bytes of a payload
    attributes  list of name, type, min, max   content          true: they route events
    about     description                      tags             ascending
    x         extensions
    until, flush    frontiers: [publisher, epoch, number], ascending; or a link to their index
    signer    where it is not the author       s                signature over all the rest
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, TypeVar

from pulsarcast.model.cbor import INT_MAX, decode, encode_part, opaque
from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.fields import (
    NONCE_BYTES,
    PROTOCOL_VERSION,
    Fields,
    check_version,
    read_extensions,
    read_int,
    read_line,
    read_list,
    read_map,
    read_name,
    read_opaque,
    read_peers,
    read_signature,
    read_time,
)
from pulsarcast.model.identity import verify_signature
from pulsarcast.model.ids import Cid, PeerId, check_cid, check_peer_id, cid_of
from pulsarcast.model.requests import PAYLOAD_BYTES_MAX
from pulsarcast.model.topic_types import (
    ATTRIBUTE_TYPES,
    AttributeRule,
    DeliveryOrder,
    Dissemination,
    EventLinking,
    Mark,
    NamedMarks,
    Retention,
    TopicDescriptor,
    TopicSettings,
)
from pulsarcast.model.words import DESCRIPTION_BYTES_MAX, TAG_BYTES_MAX, TAGS_MAX

# A new version travels as the payload of an event in the meta topic.
TOPIC_BYTES_MAX: Final = PAYLOAD_BYTES_MAX
ATTRIBUTE_RULES_MAX: Final = 64

_SETTING_KEYS = frozenset(
    ("allow", "request", "ask", "link", "order", "travel", "root", "sequencers", "recovery")
).union(("keep", "payload", "attributes", "content", "about", "tags", "x"))
_TOPIC_KEYS = _SETTING_KEYS.union(
    ("v", "name", "author", "created", "nonce", "number", "first", "parent", "#", "meta"),
    ("until", "flush", "signer", "s"),
)
_RETENTION_KEYS = frozenset(("age", "count", "bytes"))
_RULE_KEYS = frozenset(("name", "type", "min", "max"))

Choice = TypeVar("Choice", EventLinking, DeliveryOrder, Dissemination)


# Writing


def topic_fields(
    settings: TopicSettings,
    *,
    name: str,
    author: PeerId,
    created: int,
    nonce: bytes,
    signer: PeerId,
    is_meta: bool = False,
    number: int = 0,
    first: Cid | None = None,
    parent: Cid | None = None,
    subtopics: Mapping[str, Cid],
    valid_until: Iterable[Mark] | Cid = (),
    flushed: Iterable[Mark] | Cid = (),
) -> Fields:
    """A version's map, but for its signature."""
    optional: Fields = {
        "meta": is_meta,
        "number": number,
        "first": first,
        "parent": parent,
        "#": dict(subtopics),
        "until": _marks_field(valid_until),
        "flush": _marks_field(flushed),
        "signer": None if signer == author else signer,
    }
    return {
        "v": PROTOCOL_VERSION,
        "name": name,
        "author": author,
        "created": created,
        "nonce": opaque(nonce),
        **{key: value for key, value in optional.items() if value},
        **_settings_fields(settings),
    }


def _settings_fields(settings: TopicSettings) -> Fields:
    """The part of a topic's map that holds its settings."""
    fields: Fields = {}
    if not settings.open:
        fields["allow"] = list(settings.publishers)
    if not settings.request_to_publish:
        fields["request"] = False
    if settings.requesters is not None:
        fields["ask"] = list(settings.requesters)
    if settings.linking is not EventLinking.LAST_SEEN:
        fields["link"] = settings.linking.value
    if settings.order is not DeliveryOrder.NONE:
        fields["order"] = settings.order.value
    if settings.dissemination is not Dissemination.TREE:
        fields["travel"] = settings.dissemination.value
    if settings.root is not None:
        fields["root"] = settings.root
    if settings.sequencers:
        fields["sequencers"] = list(settings.sequencers)
    if settings.recovery_keys:
        fields["recovery"] = list(settings.recovery_keys)
    if keep := _retention_fields(settings.retention):
        fields["keep"] = keep
    if settings.attributes:
        fields["attributes"] = [_rule_fields(rule) for rule in settings.attributes]
    if settings.content_routing:
        fields["content"] = True
    if settings.payload_bytes_max != PAYLOAD_BYTES_MAX:
        fields["payload"] = settings.payload_bytes_max
    if settings.description:
        fields["about"] = settings.description
    if settings.tags:
        fields["tags"] = list(settings.tags)
    if settings.extensions:
        fields["x"] = dict(settings.extensions)
    return fields


def _marks_field(marks: Iterable[Mark] | Cid) -> Cid | list[object]:
    """A frontier's wire form: sorted, so that one frontier has one encoding; or its index."""
    return marks if isinstance(marks, bytes) else [list(mark) for mark in sorted(marks)]


KEEPS_ALL: Final = Retention()
"""What most topics say of it: one object for all of them."""


def _retention_fields(retention: Retention) -> Fields:
    bounds = {"age": retention.age_s, "count": retention.count, "bytes": retention.bytes}
    return {name: bound for name, bound in bounds.items() if bound is not None}


def _rule_fields(rule: AttributeRule) -> Fields:
    fields: Fields = {"name": rule.name, "type": rule.type}
    if rule.min is not None:
        fields["min"] = rule.min
    if rule.max is not None:
        fields["max"] = rule.max
    return fields


# Reading


def read_topic(block: bytes, *, verify: bool) -> TopicDescriptor:
    """Read a version's block, and refuse any other shape; its settings are judged later."""
    value = decode(block, size_max=TOPIC_BYTES_MAX)
    check_version(value, "a topic")
    fields = read_map(value, _TOPIC_KEYS, "a topic")
    get = fields.get
    author = check_peer_id(get("author"))
    signer = check_peer_id(get("signer")) if "signer" in fields else author
    if "signer" in fields and signer == author:
        raise RemoteError(
            "a topic names its author as signer, which goes without saying",
            code=Rejection.NOT_CANONICAL,
        )
    signature = read_signature(fields.pop("s", None))
    if verify and not verify_signature(signer, "topic", encode_part(fields), signature):
        raise RemoteError("the topic's signature is wrong", code=Rejection.BAD_SIGNATURE)
    settings = _read_settings(fields)
    return TopicDescriptor(
        name=read_name(get("name"), "a topic's name"),
        author=author,
        number=read_int(get("number"), 1, INT_MAX, "number") if "number" in fields else 0,
        first=check_cid(get("first")) if "first" in fields else None,
        parent=check_cid(get("parent")) if "parent" in fields else None,
        subtopics=_read_subtopics(get("#")) if "#" in fields else {},
        created=read_time(get("created"), "created"),
        nonce=read_opaque(get("nonce"), NONCE_BYTES, "nonce"),
        is_meta=_read_flag(fields, "meta", default=False),
        valid_until=_read_marks(get("until"), "until") if "until" in fields else (),
        flushed=_read_marks(get("flush"), "flush") if "flush" in fields else (),
        signer=signer,
        signature=signature,
        cid=cid_of(block),
        block=block,
        **settings,
    )


def _read_settings(fields: Fields) -> dict[str, Any]:
    """A descriptor's settings, by its own names for them."""
    get = fields.get
    return {
        "allowed_publishers": read_peers(get("allow"), "allow") if "allow" in fields else None,
        "request_to_publish": _read_flag(fields, "request", default=True),
        "requesters": read_peers(get("ask"), "ask") if "ask" in fields else None,
        "event_linking": _read_choice(fields, "link", EventLinking.LAST_SEEN),
        "delivery_order": _read_choice(fields, "order", DeliveryOrder.NONE),
        "dissemination": _read_choice(fields, "travel", Dissemination.TREE),
        "root": check_peer_id(get("root")) if "root" in fields else None,
        "sequencers": _read_some_peers(fields, "sequencers"),
        "recovery_keys": _read_some_peers(fields, "recovery"),
        "retention": _read_retention(get("keep")) if "keep" in fields else KEEPS_ALL,
        "attributes": _read_rules(get("attributes")) if "attributes" in fields else (),
        "content_routing": _read_flag(fields, "content", default=False),
        "payload_bytes_max": _read_payload_max(fields),
        "description": read_description(get("about")) if "about" in fields else "",
        "tags": read_tags(get("tags")) if "tags" in fields else (),
        "extensions": read_extensions(get("x")) if "x" in fields else {},
    }


def _read_flag(fields: Fields, key: str, *, default: bool) -> bool:
    """A flag that is written only where it is not at its default."""
    if key not in fields:
        return default
    if fields[key] is not (not default):
        raise RemoteError(
            f"{key} may only be {not default}, or left out", code=Rejection.NOT_CANONICAL
        )
    return not default


def _read_choice(fields: Fields, key: str, default: Choice) -> Choice:
    """One of an enumeration's values, written only where it is not the default."""
    if key not in fields:
        return default
    for choice in type(default):
        if choice.value == fields[key] and choice is not default:
            return choice
    raise RemoteError(
        f"{key} is not one that we know, or should have been left out", code=Rejection.NOT_CANONICAL
    )


def _read_some_peers(fields: Fields, key: str) -> tuple[PeerId, ...]:
    """A list of peers that is left out when empty."""
    if key not in fields:
        return ()
    peers = read_peers(fields[key], key)
    if not peers:
        raise RemoteError(
            f"{key} is empty and should have been left out", code=Rejection.NOT_CANONICAL
        )
    return peers


def _read_subtopics(value: object) -> dict[str, Cid]:
    if not isinstance(value, dict) or not value:
        raise RemoteError("# is not a map with something in it")
    return {read_name(name, "a sub-topic's name"): check_cid(value[name]) for name in value}


def _read_retention(value: object) -> Retention:
    fields = read_map(value, _RETENTION_KEYS, "keep")
    if not fields:
        raise RemoteError(
            "keep is empty and should have been left out", code=Rejection.NOT_CANONICAL
        )
    bounds = {name: read_int(bound, 0, INT_MAX, name) for name, bound in fields.items()}
    return Retention(bounds.get("age"), bounds.get("count"), bounds.get("bytes"))


def _read_payload_max(fields: Fields) -> int:
    """The payload's bound; if written it is below the default, which is the highest value."""
    if "payload" not in fields:
        return PAYLOAD_BYTES_MAX
    return read_int(fields["payload"], 0, PAYLOAD_BYTES_MAX - 1, "payload")


def _read_rules(value: object) -> tuple[AttributeRule, ...]:
    rules = tuple(_read_rule(rule) for rule in read_list(value, ATTRIBUTE_RULES_MAX, "attributes"))
    names = Counter(rule.name for rule in rules)
    for name, count in names.items():
        if count > 1:
            raise RemoteError(
                f"the schema has the attribute {name!r} {count} times", code=Rejection.INVALID_TOPIC
            )
    return rules


def _read_rule(value: object) -> AttributeRule:
    fields = read_map(value, _RULE_KEYS, "an attribute's rule")
    name = read_name(fields.get("name"), "an attribute's name")
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in ATTRIBUTE_TYPES:
        raise RemoteError("an attribute of unknown type")
    low = _read_bound(fields["min"], kind) if "min" in fields else None
    high = _read_bound(fields["max"], kind) if "max" in fields else None
    if low is not None and high is not None and low > high:  # type: ignore[operator]
        raise RemoteError(
            f"the attribute {name!r} allows no value: min is {low!r}, max is {high!r}",
            code=Rejection.INVALID_TOPIC,
        )
    return AttributeRule(name, kind, low, high)


def _read_bound(value: object, kind: str) -> int | float | str:
    if kind in ("int", "timestamp") and type(value) is int:
        return value
    if kind == "str" and isinstance(value, str):
        return read_name(value, "an attribute's bound")
    if kind == "float" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise RemoteError(f"a bound that an attribute of type {kind} cannot have")


def read_description(value: object) -> str:
    """A description, of a topic or in its listing."""
    return read_line(value, DESCRIPTION_BYTES_MAX, "a description")


def read_tags(value: object) -> tuple[str, ...]:
    """Tags, of a topic or in its listing: ascending, each at most once."""
    tags = tuple(
        read_line(tag, TAG_BYTES_MAX, "a tag") for tag in read_list(value, TAGS_MAX, "tags")
    )
    if any(before >= after for before, after in pairwise(tags)):
        raise RemoteError("tags is not in ascending order", code=Rejection.NOT_CANONICAL)
    return tags


def _read_marks(value: object, what: str) -> NamedMarks:
    """A frontier, ascending, with each publisher's epoch at most once; or its index."""
    if isinstance(value, bytes):
        return check_cid(value)
    if not isinstance(value, list) or not value:
        raise RemoteError(f"{what} is not a list with something in it")
    marks = tuple(_read_mark(mark) for mark in value)
    places = [mark[:2] for mark in marks]
    if any(before >= after for before, after in pairwise(places)):
        raise RemoteError(f"{what} is not in ascending order", code=Rejection.NOT_CANONICAL)
    return marks


def _read_mark(value: object) -> Mark:
    if not isinstance(value, list) or len(value) != 3:
        raise RemoteError("a mark is not a list of three")
    publisher, epoch, number = value
    return Mark(
        check_peer_id(publisher),
        read_int(epoch, 0, INT_MAX, "epoch"),
        read_int(number, 1, INT_MAX, "number"),
    )
