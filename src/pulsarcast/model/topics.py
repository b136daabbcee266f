"""Topics: creating them, adding versions, and checking events against their rules.

Thesis, 3.2 and 3.3; docs/spec/descriptors.md, Topic.

A topic is its first version's content id; trees, frontiers and history belong to that. Every
version names the one before, and the frontier up to which the one before stays valid. So rights
can change without rewriting events that were published under the old ones.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, cast

import msgspec

from pulsarcast.model.cbor import encode, opaque
from pulsarcast.model.errors import (
    LocalError,
    Rejection,
    RemoteError,
    SettingsDiffer,
    caller_to_blame,
)
from pulsarcast.model.events import Attribute, EventDescriptor
from pulsarcast.model.fields import NAME_BYTES_MAX, NONCE_BYTES, TIME_US_MAX, Fields, read_line
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import (
    CID_BYTES,
    Cid,
    PeerId,
    cid_text,
    parse_cid,
    parse_peer,
    peer_text,
)
from pulsarcast.model.topic_types import (
    ATTRIBUTE_TYPES,
    META,
    SEQUENCERS_MAX,
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
from pulsarcast.model.topic_wire import (
    TOPIC_BYTES_MAX,
    read_topic,
    topic_fields,
)
from pulsarcast.model.words import tags_of

__all__ = [
    "ATTRIBUTE_TYPES",
    "META",
    "TOPIC_BYTES_MAX",
    "AttributeRule",
    "DeliveryOrder",
    "Dissemination",
    "EventLinking",
    "Mark",
    "NamedMarks",
    "Retention",
    "TopicDescriptor",
    "TopicSettings",
    "check_attributes",
    "check_event",
    "check_name",
    "check_same",
    "check_succession",
    "create_meta_topic",
    "create_topic",
    "decode_topic",
    "next_version",
    "settled",
]

BEGAN_WITH_ONE: Final = "a topic that began with one sequencer never has several: make a new one"
"""Its events count in that one's own numbering, and several count together (decision 0024)."""
SEQUENCERS_PUBLISH: Final = (
    "in total order the sequencers publish, and other peers publish through them, with the same "
    "call: leave out publishers and open. To let a peer number events itself, name it in sequencers"
)
SHOWN_MAX: Final = 60
"""Characters of a value in a refusal: enough to recognize it, however long a peer made it."""

_NO_SUBTOPICS: Final[Mapping[str, Cid]] = MappingProxyType({})
_NO_NONCE: Final = bytes(NONCE_BYTES)


# Making


def create_topic(
    identity: Identity,
    name: str,
    settings: TopicSettings,
    *,
    created: int,
    meta: Cid | None,
    subtopics: Mapping[str, Cid] = _NO_SUBTOPICS,
    nonce: bytes = _NO_NONCE,
) -> TopicDescriptor:
    """Make a topic's first version.

    The meta topic comes first (thesis, algorithm 1) and carries a nonce, which makes the topic
    unique as well; a topic without one should bring its own.
    """
    fields = topic_fields(
        settled(settings, identity.peer_id),
        name=name,
        author=identity.peer_id,
        created=created,
        nonce=nonce,
        signer=identity.peer_id,
        subtopics=subtopics if meta is None else {**subtopics, META: meta},
    )
    return _sign_topic(identity, fields)


def create_meta_topic(
    identity: Identity,
    name: str,
    *,
    created: int,
    nonce: bytes,
    recovery_keys: tuple[PeerId, ...] = (),
) -> TopicDescriptor:
    """Make the meta topic of the topic with this name.

    The author announces versions there, and so may the holders of the topic's recovery keys.
    """
    settings = TopicSettings(
        publishers=tuple(dict.fromkeys((identity.peer_id, *recovery_keys))),
        request_to_publish=False,
    )
    fields = topic_fields(
        settings,
        name=f"{name}/{META}",
        author=identity.peer_id,
        created=created,
        nonce=nonce,
        signer=identity.peer_id,
        is_meta=True,
        subtopics=_NO_SUBTOPICS,
    )
    return _sign_topic(identity, fields)


def next_version(
    identity: Identity,
    previous: TopicDescriptor,
    settings: TopicSettings,
    *,
    created: int,
    valid_until: Iterable[Mark] | Cid,
    flushed: Iterable[Mark] | Cid = (),
    subtopics: Mapping[str, Cid] | None = None,
) -> TopicDescriptor:
    """Make the version after another, signed by the author or by one of the recovery keys.

    Sub-topics stay as they are unless others are given; the meta topic always stays.
    """
    linked = dict(previous.subtopics if subtopics is None else subtopics)
    if META in previous.subtopics:
        linked.setdefault(META, previous.subtopics[META])
    fields = topic_fields(
        settled(settings, previous.author),
        name=previous.name,
        author=previous.author,
        created=created,
        nonce=previous.nonce,
        signer=identity.peer_id,
        is_meta=previous.is_meta,
        number=previous.number + 1,
        first=previous.topic,
        parent=previous.cid,
        subtopics=linked,
        valid_until=valid_until,
        flushed=flushed,
    )
    made = _sign_topic(identity, fields)
    with caller_to_blame():
        check_succession(previous, made)
    return made


def _sign_topic(identity: Identity, fields: Fields) -> TopicDescriptor:
    """Seal a version."""
    fields["s"] = opaque(identity.sign("topic", encode(fields)))
    with caller_to_blame():
        made = read_topic(encode(fields), verify=False)
        _check_rules(made)
    return made


def settled(settings: TopicSettings, author: PeerId) -> TopicSettings:
    """Fill in the settings that follow from others, so that common choices stay short."""
    if settings.open and settings.publishers:
        raise LocalError("every peer may publish in an open topic: name no publishers, or close it")
    is_total = settings.order is DeliveryOrder.TOTAL
    sequencers = (settings.sequencers or (author,)) if is_total else settings.sequencers
    publishers = settings.publishers
    if not publishers and not settings.open:
        publishers = sequencers if is_total else (author,)
    if is_total and publishers != sequencers:
        raise LocalError(SEQUENCERS_PUBLISH)
    return msgspec.structs.replace(
        settings,
        root=None if settings.root == author else settings.root,
        sequencers=sequencers,
        publishers=publishers,
        tags=tags_of(settings.tags),
    )


def check_name(name: str) -> None:
    """Refuse a name for a new topic that would be taken for something else where it is written."""
    head, _, rest = name.partition("/")
    if name.rpartition("/")[2] == META:
        raise LocalError(f"a name that ends in {META} is a meta topic's: choose another")
    if _reads(parse_cid, head) or (rest and _reads(parse_peer, head)):
        raise LocalError("a name must not read as a content id or as author/name: choose another")


def _reads(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except LocalError:
        return False
    return True


def check_same(
    topic: TopicDescriptor,
    settings: TopicSettings,
    compared: Iterable[str],
    subtopics: Mapping[str, Cid] = _NO_SUBTOPICS,
) -> None:
    """Refuse settings that differ from a topic's, and say which do, with both values."""
    there, asked = topic.settings, settled(settings, topic.author)
    differing = [
        f"{field} is {_shown(getattr(there, field))}, not {_shown(getattr(asked, field))}"
        for field in compared
        if getattr(there, field) != getattr(asked, field)
    ]
    below = {name: cid for name, cid in topic.subtopics.items() if name != META}
    if subtopics and subtopics != below:
        differing.append(f"subtopics is {_shown(below)}, not {_shown(subtopics)}")
    if differing:
        raise SettingsDiffer(
            f"the topic {topic.name!r} is there with other settings: {'; '.join(differing)}. "
            "Ask for the ones that it has, or make a new version",
            topic=cid_text(topic.topic),
        )


def _shown(value: object) -> str:
    """A setting's value for people: ids as texts."""
    match value:
        case enum.Enum():
            return str(value.value)
        case bytes():
            return cid_text(Cid(value)) if len(value) == CID_BYTES else peer_text(PeerId(value))
        case tuple():
            return "[" + ", ".join(map(_shown, value)) + "]"
        case Mapping():
            return "{" + ", ".join(f"{key}: {_shown(each)}" for key, each in value.items()) + "}"
        case msgspec.Struct():
            fields = msgspec.structs.asdict(value).items()
            return _shown({key: each for key, each in fields if each is not None})
        case None:
            return "none"
        case _:
            return repr(value) if isinstance(value, str) else str(value).lower()


# Reading


def decode_topic(block: bytes) -> TopicDescriptor:
    """Read a version and verify all that can be judged from its bytes alone.

    Whether a signer other than the author had the right to sign is for `check_succession` to say.
    """
    topic = read_topic(block, verify=True)
    _check_rules(topic)
    return topic


def _check_rules(topic: TopicDescriptor) -> None:
    """Refuse settings that contradict each other."""
    _check_place(topic)
    if topic.root == topic.author:
        raise RemoteError(
            "a topic names its author as root, which goes without saying",
            code=Rejection.NOT_CANONICAL,
        )
    if topic.allowed_publishers == ():
        raise RemoteError("a topic in which no peer may publish", code=Rejection.INVALID_TOPIC)
    if topic.requesters is not None and not topic.request_to_publish:
        raise RemoteError(
            "a topic names requesters, and takes no requests: give one or the other",
            code=Rejection.INVALID_TOPIC,
        )
    sequenced = bool(topic.sequencers) and topic.allowed_publishers == topic.sequencers
    if topic.delivery_order is DeliveryOrder.TOTAL and not sequenced:
        raise RemoteError(
            "in total order the sequencers publish, and no one else", code=Rejection.INVALID_TOPIC
        )
    linked = topic.event_linking is EventLinking.LAST_SEEN
    if topic.delivery_order is DeliveryOrder.CAUSAL and not linked:
        raise RemoteError(
            "in causal order events are linked by what was delivered, not by hand",
            code=Rejection.INVALID_TOPIC,
        )
    if len(topic.sequencers) > SEQUENCERS_MAX:
        raise RemoteError(f"more than {SEQUENCERS_MAX} sequencers", code=Rejection.INVALID_TOPIC)
    if topic.is_meta:
        first, *_ = topic.allowed_publishers or (None,)
        if first != topic.author or topic.request_to_publish:
            raise RemoteError(
                "its author and named peers alone publish in a meta topic",
                code=Rejection.INVALID_TOPIC,
            )
        if META in topic.subtopics:
            raise RemoteError("a meta topic has no meta topic", code=Rejection.INVALID_TOPIC)
        if topic.is_listed:
            raise RemoteError("a meta topic is not listed", code=Rejection.INVALID_TOPIC)
    if topic.is_listed:
        read_line(topic.name, NAME_BYTES_MAX, "a listed topic's name")


def _check_place(topic: TopicDescriptor) -> None:
    """Refuse a version that is first and has one before it, or later and has none."""
    if topic.number > 0:
        if topic.first is None or topic.parent is None:
            raise RemoteError(
                "a later version names neither the first nor the one before",
                code=Rejection.INVALID_TOPIC,
            )
        return
    if topic.first is not None or topic.parent is not None:
        raise RemoteError("a first version names one before it", code=Rejection.INVALID_TOPIC)
    if topic.valid_until or topic.flushed:
        raise RemoteError("a first version ends what nobody began", code=Rejection.INVALID_TOPIC)
    if topic.signer != topic.author:
        raise RemoteError("a first version is signed by its author", code=Rejection.INVALID_TOPIC)


def check_succession(previous: TopicDescriptor, candidate: TopicDescriptor) -> None:
    """Refuse a version that is not a rightful successor of another."""
    if candidate.number != previous.number + 1 or candidate.parent != previous.cid:
        raise RemoteError(
            "not the version after the one it is compared with", code=Rejection.INVALID_SUCCESSION
        )
    if candidate.first != previous.topic:
        raise RemoteError("a version of another topic", code=Rejection.INVALID_SUCCESSION)
    if candidate.author != previous.author:
        raise RemoteError("a topic's author never changes", code=Rejection.INVALID_SUCCESSION)
    if candidate.signer != previous.author and candidate.signer not in previous.recovery_keys:
        raise RemoteError(
            "a version signed by neither the author nor a recovery key", code=Rejection.NOT_ALLOWED
        )
    if not set(candidate.recovery_keys) <= set(previous.recovery_keys):
        raise RemoteError(
            "recovery keys are named when a topic is created: a version may only drop some",
            code=Rejection.INVALID_SUCCESSION,
        )
    if candidate.name != previous.name or candidate.root != previous.root:
        raise RemoteError("a topic's name and root never change", code=Rejection.INVALID_SUCCESSION)
    if (candidate.delivery_order, candidate.dissemination) != (
        previous.delivery_order,
        previous.dissemination,
    ):
        # Members change versions at different moments: they must agree on these throughout.
        raise RemoteError(
            "the order and the dissemination of a topic never change: create another topic",
            code=Rejection.INVALID_SUCCESSION,
        )
    if previous.number == 0 and candidate.is_sequenced and not previous.is_sequenced:
        raise RemoteError(BEGAN_WITH_ONE, code=Rejection.INVALID_SUCCESSION)
    if candidate.is_meta != previous.is_meta:
        raise RemoteError(
            "a topic is a meta topic always or never", code=Rejection.INVALID_SUCCESSION
        )
    if candidate.subtopics.get(META) != previous.subtopics.get(META):
        raise RemoteError("a topic's meta topic never changes", code=Rejection.INVALID_SUCCESSION)


# Judging events


def check_event(topic_version: TopicDescriptor, event: EventDescriptor) -> None:
    """Refuse an event that the version it was published under does not allow."""
    if event.version != topic_version.cid or event.topic != topic_version.topic:
        raise RemoteError(
            "an event of another topic, or of another version of it", code=Rejection.WRONG_TOPIC
        )
    if not topic_version.may_publish(event.publisher):
        raise RemoteError("published by a peer that may not publish", code=Rejection.NOT_ALLOWED)
    by_request = event.author != event.publisher and event.author not in topic_version.sequencers
    if by_request and not topic_version.may_request(event.author):
        raise RemoteError(
            "published for a peer that may not request it", code=Rejection.NOT_ALLOWED
        )
    if len(event.payload) > topic_version.payload_bytes_max:
        raise RemoteError("a payload larger than the topic allows", code=Rejection.OVERSIZE)
    _check_links(topic_version, event)
    check_attributes(topic_version.attributes, event.request.attributes)


def _check_links(topic: TopicDescriptor, event: EventDescriptor) -> None:
    """Parents and position, as the topic's order asks for them."""
    single = topic.event_linking is EventLinking.LAST_SEEN
    if single and topic.delivery_order is not DeliveryOrder.CAUSAL and len(event.parents) > 1:
        raise RemoteError(
            "more than one parent, where the last seen is the only one",
            code=Rejection.INVALID_EVENT,
        )
    if (event.position is not None) != (topic.delivery_order is DeliveryOrder.TOTAL):
        raise RemoteError(
            "a position belongs to total order, and to no other", code=Rejection.INVALID_EVENT
        )
    if topic.delivery_order is DeliveryOrder.CAUSAL:
        if len(event.marks) != len(event.parents):
            raise RemoteError(
                "in causal order every parent has its mark", code=Rejection.INVALID_EVENT
            )
        if len(event.request.marks) != len(event.request.after):
            raise RemoteError(
                "in causal order everything a request is after has its mark",
                code=Rejection.INVALID_EVENT,
            )
    elif event.marks or event.request.marks or event.is_merge:
        raise RemoteError(
            "marks and merges belong to causal order, and to no other", code=Rejection.INVALID_EVENT
        )
    # A later version with one sequencer may be of a topic that began with several.
    is_known = topic.is_sequenced or topic.number == 0
    if event.position is not None and is_known and event.is_ordered != topic.is_sequenced:
        raise RemoteError(
            "several sequencers count together, and one by itself", code=Rejection.INVALID_EVENT
        )
    if event.hands_over_to is not None and not event.is_ordered:
        raise RemoteError(
            "a handover where one sequencer counts by itself", code=Rejection.INVALID_EVENT
        )


def check_attributes(rules: tuple[AttributeRule, ...], attributes: Mapping[str, Attribute]) -> None:
    """Check attributes against the schema: each is named there, of its type and in bounds.

    An attribute may be missing; filters that ask for it do not match then. Without a schema, every
    attribute is allowed.
    """
    if not rules:
        return
    by_name = {rule.name: rule for rule in rules}
    for name, value in attributes.items():
        if name not in by_name:
            known = ", ".join(map(_quoted, by_name))
            raise RemoteError(
                f"the topic's schema has no attribute {_quoted(name)}: it has {known}",
                code=Rejection.INVALID_ATTRIBUTES,
            )
        if not _fits(by_name[name], value):
            raise RemoteError(
                f"by the topic's schema {_quoted(name)} {_demand(by_name[name])}, "
                f"not {_quoted(value)}",
                code=Rejection.INVALID_ATTRIBUTES,
            )


def _quoted(value: object) -> str:
    """A value in a sentence: a peer may have sent one of any length."""
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def _demand(rule: AttributeRule) -> str:
    """The type and the bounds of an attribute, in words."""
    bounds = [
        f"{word} {_quoted(bound)}"
        for word, bound in (("from", rule.min), ("to", rule.max))
        if bound is not None
    ]
    return " ".join((f"must be of type {rule.type}", *bounds))


def _fits(rule: AttributeRule, value: Attribute) -> bool:
    """Whether an attribute's value is of its rule's type and within its bounds."""
    if rule.type == "str":
        return isinstance(value, str) and _is_within(rule, value)
    if isinstance(value, bool) or rule.type == "bool":
        return rule.type == "bool" and isinstance(value, bool)
    if not isinstance(value, int) and not (rule.type == "float" and isinstance(value, float)):
        return False
    if rule.type == "timestamp" and not 0 <= value <= TIME_US_MAX:
        return False
    return _is_within(rule, value)


def _is_within(rule: AttributeRule, value: float | str) -> bool:
    """Whether a value of the rule's type is within its bounds; texts compare by code point."""
    low, high = cast("float | None", rule.min), cast("float | None", rule.max)
    number = cast("float", value)
    return (low is None or low <= number) and (high is None or number <= high)
