from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarcast.model.cbor import decode, encode, opaque
from pulsarcast.model.errors import LocalError, RemoteError, Verdict
from pulsarcast.model.events import (
    Attribute,
    EventDescriptor,
    Position,
    Sequence,
    publish_request,
    sign_request,
)
from pulsarcast.model.fields import Fields
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import cid_of
from pulsarcast.model.topics import (
    META,
    TOPIC_BYTES_MAX,
    AttributeRule,
    DeliveryOrder,
    Dissemination,
    EventLinking,
    Mark,
    Retention,
    TopicDescriptor,
    TopicSettings,
    check_event,
    check_succession,
    create_meta_topic,
    create_topic,
    decode_topic,
    next_version,
)
from tests.support.people import unordered
from tests.unit.model.samples import (
    ALICE,
    BOB,
    CAROL,
    CREATED,
    NONCE,
    cids,
    marks,
    names,
    own_event,
    requested_event,
    topic,
    topic_settings,
)

LATER = CREATED + 1


def second(
    previous: TopicDescriptor, settings: TopicSettings | None = None, identity: Identity = ALICE
) -> TopicDescriptor:
    chosen = previous.settings if settings is None else settings
    return next_version(identity, previous, chosen, created=LATER, valid_until=())


def fields_of(version: TopicDescriptor) -> Fields:
    fields = decode(version.block, size_max=TOPIC_BYTES_MAX)
    assert isinstance(fields, dict)
    del fields["s"]
    return fields


def resigned(fields: Fields, identity: Identity = ALICE) -> bytes:
    return encode({**fields, "s": opaque(identity.sign("topic", encode(fields)))})


def rejection(block: bytes) -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        decode_topic(block)
    return caught.value


# Versions


@settings(max_examples=40)
@given(st.data())
def test_a_topic_and_its_next_version_survive_their_way(data: st.DataObject) -> None:
    first = create_topic(
        ALICE,
        data.draw(names),
        data.draw(topic_settings()),
        created=CREATED,
        meta=data.draw(st.none() | cids),
        subtopics=data.draw(st.dictionaries(names, cids, max_size=3)),
        nonce=NONCE,
    )
    assert decode_topic(first.block) == first
    assert first.topic == first.cid
    later = next_version(
        ALICE,
        first,
        data.draw(topic_settings(first)),
        created=LATER,
        valid_until=data.draw(marks),
        flushed=data.draw(marks),
    )
    assert decode_topic(later.block) == later
    assert later.topic == first.cid
    check_succession(first, later)


def test_the_defaults_are_the_thesis() -> None:
    made = topic()
    assert made.event_linking is EventLinking.LAST_SEEN
    assert made.request_to_publish
    assert made.may_publish(BOB.peer_id)
    assert made.root_peer == ALICE.peer_id
    assert META in made.subtopics


def test_only_its_author_publishes_in_a_meta_topic() -> None:
    meta = create_meta_topic(ALICE, "news", created=CREATED, nonce=NONCE)
    assert decode_topic(meta.block) == meta
    assert meta.is_meta
    assert meta.may_publish(ALICE.peer_id)
    assert not meta.may_publish(BOB.peer_id)
    assert not meta.may_request(BOB.peer_id)


def test_holders_of_recovery_keys_announce_in_a_meta_topic_too() -> None:
    meta = create_meta_topic(
        ALICE, "news", created=CREATED, nonce=NONCE, recovery_keys=(BOB.peer_id,)
    )
    assert decode_topic(meta.block) == meta
    assert meta.may_publish(ALICE.peer_id)
    assert meta.may_publish(BOB.peer_id)
    assert not meta.may_publish(CAROL.peer_id)


def test_two_topics_of_one_name_and_moment_differ_by_their_nonce() -> None:
    metas = [
        create_meta_topic(ALICE, "news", created=CREATED, nonce=bytes([n]) * 16) for n in (1, 2)
    ]
    topics = {
        create_topic(ALICE, "news", unordered(), created=CREATED, meta=meta.cid).cid
        for meta in metas
    }
    assert len(topics) == 2


def test_total_order_makes_the_author_the_sequencer_unless_told_otherwise() -> None:
    made = topic(TopicSettings(order=DeliveryOrder.TOTAL))
    assert made.sequencers == made.allowed_publishers == (ALICE.peer_id,)
    others = (BOB.peer_id, CAROL.peer_id)
    made = topic(TopicSettings(order=DeliveryOrder.TOTAL, sequencers=others))
    assert made.sequencers == made.allowed_publishers == others


def test_total_order_with_other_publishers_than_the_sequencers_is_the_callers_error() -> None:
    with pytest.raises(LocalError):
        topic(TopicSettings(order=DeliveryOrder.TOTAL, publishers=(BOB.peer_id,)))


def test_a_recovery_key_may_sign_the_next_version() -> None:
    first = topic(unordered(recovery_keys=(BOB.peer_id,)))
    rescued = second(first, identity=BOB)
    assert (rescued.signer, rescued.author) == (BOB.peer_id, ALICE.peer_id)
    check_succession(first, decode_topic(rescued.block))


def test_a_key_that_is_no_recovery_key_may_not() -> None:
    with pytest.raises(LocalError):
        second(topic(), identity=BOB)


def test_a_recovery_key_that_was_revoked_may_not() -> None:
    first = topic(unordered(recovery_keys=(BOB.peer_id,)))
    revoked = second(first, unordered())
    with pytest.raises(LocalError):
        second(revoked, unordered(), identity=BOB)


def test_a_later_version_adds_no_recovery_key() -> None:
    """The meta topic would let its holder announce nothing."""
    with pytest.raises(LocalError, match="named when a topic is created"):
        second(topic(), TopicSettings(recovery_keys=(BOB.peer_id,)))


def test_a_version_keeps_its_meta_topic_when_sub_topics_change() -> None:
    first = topic()
    other = cid_of(b"other")
    later = next_version(
        ALICE, first, first.settings, created=LATER, valid_until=(), subtopics={"other": other}
    )
    assert later.subtopics == {"other": other, META: first.subtopics[META]}


def test_a_root_is_written_only_where_it_is_not_the_author() -> None:
    assert topic(unordered(root=ALICE.peer_id)).root is None
    assert topic(unordered(root=BOB.peer_id)).root == BOB.peer_id


def spoil(version: TopicDescriptor, **changes: object) -> TopicDescriptor:
    return decode_topic(resigned({**fields_of(version), **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 2},
        {"parent": cid_of(b"another")},
        {"first": cid_of(b"another")},
        {"name": "another"},
        {"root": BOB.peer_id},
        {"#": {META: cid_of(b"another")}},
        {"order": "per-publisher"},
        {"travel": "cube"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_is_no_successor_is_rejected(changes: dict[str, object]) -> None:
    first = topic()
    with pytest.raises(RemoteError):
        check_succession(first, spoil(second(first), **changes))


@pytest.mark.parametrize("before", DeliveryOrder)
@pytest.mark.parametrize("after", DeliveryOrder)
def test_the_delivery_order_never_changes(before: DeliveryOrder, after: DeliveryOrder) -> None:
    """Members hear of a version at different moments: they would order one event differently."""
    first = topic(TopicSettings(order=before))
    changed = TopicSettings(order=after)
    if after is before:
        assert second(first, changed).delivery_order is before
    else:
        with pytest.raises(LocalError, match="never change"):
            second(first, changed)


def test_the_dissemination_never_changes() -> None:
    first = topic(unordered(dissemination=Dissemination.CUBE))
    with pytest.raises(LocalError, match="never change"):
        second(first, unordered(dissemination=Dissemination.TREE))


def test_another_author_is_no_successor() -> None:
    first = topic()
    fields = {**fields_of(second(first)), "author": BOB.peer_id}
    with pytest.raises(RemoteError, match="author"):
        check_succession(first, decode_topic(resigned(fields, BOB)))


def test_a_topic_does_not_become_or_cease_to_be_a_meta_topic() -> None:
    meta = create_meta_topic(ALICE, "news", created=CREATED, nonce=NONCE)
    ceased = fields_of(second(meta))
    del ceased["meta"]
    plain = create_topic(ALICE, "news", meta.settings, created=CREATED, meta=None, nonce=NONCE)
    became = {**fields_of(second(plain)), "meta": True}
    for first, changed in ((meta, ceased), (plain, became)):
        with pytest.raises(RemoteError, match="a topic is a meta topic always or never"):
            check_succession(first, decode_topic(resigned(changed)))


# Wire form


def test_a_topic_that_someone_else_signed_is_rejected() -> None:
    assert "signature" in str(rejection(resigned(fields_of(topic()), BOB)))


def test_an_unknown_major_version_is_ignored() -> None:
    fields = {**fields_of(topic()), "v": 2}
    assert rejection(resigned(fields)).verdict is Verdict.IGNORE


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("unknown", 1),
        ("encryption", {}),
        ("name", ""),
        ("name", "n" * 257),
        ("number", 0),
        ("number", 1),
        ("first", cid_of(b"")),
        ("meta", False),
        ("meta", True),
        ("request", True),
        ("request", 0),
        ("ask", [ALICE.peer_id, ALICE.peer_id]),
        ("link", "LAST_SEEN"),
        ("link", "last_seen"),
        ("order", "none"),
        ("order", "total"),
        ("order", ["total"]),
        ("travel", "tree"),
        ("root", ALICE.peer_id),
        ("signer", ALICE.peer_id),
        ("sequencers", []),
        ("recovery", []),
        ("recovery", [b"\0"]),
        ("keep", {}),
        ("keep", {"age": -1}),
        ("keep", {"years": 1}),
        ("payload", 1 << 20),
        ("payload", (1 << 20) + 1),
        ("attributes", []),
        ("attributes", [{"name": "a", "type": "int"}, {"name": "a", "type": "str"}]),
        ("attributes", [{"name": "a", "type": "decimal"}]),
        ("attributes", [{"name": "a", "type": ["int"]}]),
        ("attributes", [{"name": "a", "type": "int", "min": 2, "max": 1}]),
        ("attributes", [{"name": "a", "type": "int", "min": 1.5}]),
        ("attributes", [{"name": "a", "type": "float", "min": True}]),
        ("attributes", [{"name": "a", "type": "str", "min": 1}]),
        ("#", {}),
        ("#", {"": cid_of(b"")}),
        ("#", {"a": b"\0"}),
        ("x", {}),
        ("until", [[ALICE.peer_id, 1, 1]]),
        ("until", []),
        ("flush", [[ALICE.peer_id, 1, 1]]),
        ("nonce", b"\0short"),
        ("created", "2020-01-01"),
    ],
)
def test_a_first_version_of_another_shape_is_rejected(key: str, value: object) -> None:
    assert rejection(resigned({**fields_of(topic()), key: value})).verdict is Verdict.REJECT


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("ask", [ALICE.peer_id, ALICE.peer_id], "ask repeats a peer"),
        ("#", {}, "# is not a map with something in it"),
    ],
)
def test_a_rejection_names_the_field(key: str, value: object, reason: str) -> None:
    assert str(rejection(resigned({**fields_of(topic()), key: value}))) == reason


@pytest.mark.parametrize(
    "until",
    [
        [[ALICE.peer_id, 1, 0]],
        [[ALICE.peer_id, 1]],
        [[ALICE.peer_id, 1, 1], [ALICE.peer_id, 1, 2]],
        [[ALICE.peer_id, 2, 1], [ALICE.peer_id, 1, 1]],
        [1],
    ],
)
def test_a_frontier_of_another_shape_is_rejected(until: list[object]) -> None:
    fields = {**fields_of(second(topic())), "until": until}
    assert rejection(resigned(fields)).verdict is Verdict.REJECT


def test_a_frontier_is_written_in_one_order() -> None:
    first = topic()
    ends = [Mark(peer, 1, 1) for peer in (ALICE.peer_id, BOB.peer_id, CAROL.peer_id)]
    versions = {
        next_version(ALICE, first, first.settings, created=LATER, valid_until=order).cid
        for order in (ends, ends[::-1])
    }
    assert len(versions) == 1


def test_a_first_version_signed_by_another_key_is_rejected() -> None:
    fields = {**fields_of(topic()), "signer": BOB.peer_id}
    assert "signed by its author" in str(rejection(resigned(fields, BOB)))


# Events


def refusal(version: TopicDescriptor, **event: object) -> str:
    made = own_event(version.topic, version=version.cid, **event)  # type: ignore[arg-type]
    with pytest.raises(RemoteError) as caught:
        check_event(version, made)
    return str(caught.value)


def test_an_event_that_the_topic_allows_is_taken() -> None:
    made = topic()
    check_event(made, own_event(made.topic))
    check_event(made, own_event(made.topic, identity=BOB))
    check_event(made, requested_event(made.topic))


def test_rights_are_judged_by_the_version_that_an_event_names() -> None:
    first = topic()
    later = second(first, unordered(publishers=(ALICE.peer_id,)))
    check_event(first, own_event(first.topic, identity=BOB))
    assert "may not publish" in refusal(later, identity=BOB)
    with pytest.raises(RemoteError, match="version"):
        check_event(later, own_event(first.topic, identity=BOB))


def test_an_event_of_another_topic_is_rejected() -> None:
    with pytest.raises(RemoteError, match="another topic"):
        check_event(topic(), own_event(topic(name="other").topic))


def test_a_topic_that_takes_no_requests_rejects_requested_events() -> None:
    made = topic(unordered(request_to_publish=False))
    with pytest.raises(RemoteError, match="may not request"):
        check_event(made, requested_event(made.topic))


def test_the_whitelist_of_requesters_is_about_the_author_not_the_publisher() -> None:
    # The original tested the wrong peer.
    made = topic(unordered(requesters=(BOB.peer_id,)))
    check_event(made, requested_event(made.topic))
    made = topic(unordered(requesters=(ALICE.peer_id,)))
    with pytest.raises(RemoteError, match="may not request"):
        check_event(made, requested_event(made.topic))


def test_only_its_author_publishes_in_a_topic_that_says_nothing_of_publishers() -> None:
    """Thesis, 4.1.3.1; in the original, passing any option opened the topic to every peer."""
    for chosen in (TopicSettings(), TopicSettings(payload_bytes_max=10)):
        made = topic(chosen)
        assert made.allowed_publishers == (ALICE.peer_id,)
        assert made.delivery_order is DeliveryOrder.PER_PUBLISHER
        check_event(made, own_event(made.topic, identity=ALICE))
        check_event(made, requested_event(made.topic))
        assert "may not publish" in refusal(made, identity=BOB)


def test_the_next_version_of_a_topic_that_says_nothing_of_publishers_is_its_authors_too() -> None:
    first = topic(TopicSettings(recovery_keys=(BOB.peer_id,)))
    for chosen in (TopicSettings(), first.settings):
        later = second(first, chosen, identity=BOB)
        assert later.allowed_publishers == (ALICE.peer_id,), "not the recovery key's"


def test_an_open_topic_stays_open_until_a_version_closes_it() -> None:
    first = topic(TopicSettings(open=True))
    kept = second(first, first.settings)
    closed = second(first, TopicSettings())
    assert (kept.allowed_publishers, closed.allowed_publishers) == (None, (ALICE.peer_id,))


def test_an_open_topic_names_no_publishers() -> None:
    with pytest.raises(LocalError, match="name no publishers"):
        topic(TopicSettings(open=True, publishers=(BOB.peer_id,)))


@pytest.mark.parametrize(
    "more",
    [
        {"open": True},
        {"publishers": (BOB.peer_id,)},
        {"publishers": (ALICE.peer_id, BOB.peer_id)},
        {"publishers": (ALICE.peer_id,), "sequencers": (BOB.peer_id,)},
    ],
)
def test_a_second_publisher_in_total_order_is_told_how_to_publish(more: dict[str, Any]) -> None:
    with pytest.raises(LocalError) as refused:
        topic(TopicSettings(order=DeliveryOrder.TOTAL, **more))
    for advice in ("through them, with the same call", "leave out publishers and open"):
        assert advice in str(refused.value)
    assert "sequencers" in str(refused.value).rpartition("name it in ")[2]


def test_publishers_that_are_the_sequencers_are_taken() -> None:
    both = (ALICE.peer_id, BOB.peer_id)
    for chosen in (
        TopicSettings(order=DeliveryOrder.TOTAL, publishers=both, sequencers=both),
        TopicSettings(order=DeliveryOrder.TOTAL, publishers=both[:1]),
    ):
        assert topic(chosen).allowed_publishers == topic(chosen).sequencers


def test_a_topic_in_which_no_peer_may_publish_is_rejected() -> None:
    with pytest.raises(RemoteError, match="no peer may publish"):
        spoil(topic(), allow=[])


def test_a_payload_beyond_the_topics_limit_is_rejected() -> None:
    made = topic(unordered(payload_bytes_max=4))
    check_event(made, own_event(made.topic, payload=b"1234"))
    assert "payload" in refusal(made, payload=b"12345")


def test_only_causal_topics_have_events_of_many_parents_where_the_last_seen_is_linked() -> None:
    two = (cid_of(b"1"), cid_of(b"2"))
    assert "parent" in refusal(topic(), parents=two)
    by_hand = topic(unordered(linking=EventLinking.CUSTOM))
    check_event(by_hand, own_event(by_hand.topic, parents=two))
    causal = topic(TopicSettings(open=True, order=DeliveryOrder.CAUSAL))
    linked = tuple(sorted(two))
    marks = (Mark(BOB.peer_id, 1, 1), Mark(CAROL.peer_id, 1, 1))
    check_event(causal, own_event(causal.topic, parents=linked, marks=marks))


def test_marks_and_merges_belong_to_causal_order() -> None:
    causal = topic(TopicSettings(open=True, order=DeliveryOrder.CAUSAL))
    one, mark = (cid_of(b"1"),), (Mark(BOB.peer_id, 1, 1),)
    assert "mark" in refusal(causal, parents=one)
    merge = own_event(causal.topic, parents=one, marks=mark, payload=b"", is_merge=True)
    check_event(causal, merge)
    assert "marks and merges" in refusal(topic(), parents=one, marks=mark)


def test_a_request_of_causal_order_has_marks_for_what_it_is_after() -> None:
    causal = topic(TopicSettings(open=True, order=DeliveryOrder.CAUSAL))

    def published(*seen: Mark) -> EventDescriptor:
        signed = sign_request(
            BOB,
            topic=causal.topic,
            payload=b"",
            created=CREATED,
            nonce=NONCE,
            sequence=Sequence(1, 1),
            after=(cid_of(b"1"),),
            marks=seen,
        )
        return publish_request(
            ALICE, signed, version=causal.cid, sequence=Sequence(1, 1), parents=()
        )

    check_event(causal, published(Mark(BOB.peer_id, 1, 1)))
    with pytest.raises(RemoteError, match="mark"):
        check_event(causal, published())


def test_a_position_belongs_to_total_order() -> None:
    total = topic(TopicSettings(order=DeliveryOrder.TOTAL))
    check_event(total, own_event(total.topic, position=Position(1, 1)))
    assert "position" in refusal(total)
    assert "position" in refusal(topic(), position=Position(1, 1))


RULES = (
    AttributeRule("price", "float", 0, 10.5),
    AttributeRule("size", "int", 1, None),
    AttributeRule("symbol", "str"),
    AttributeRule("open", "bool"),
    AttributeRule("at", "timestamp"),
    AttributeRule("sensor", "str", "s-0", "s-9"),
)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"price": 10.5, "size": 1, "symbol": "", "open": False, "at": 0},
        {"price": 10},
        {"size": 1 << 62},
        {"sensor": "s-0"},
        {"sensor": "s-9"},
        {"sensor": "s-5 and more"},
    ],
)
def test_attributes_that_fit_the_schema_are_taken(attributes: dict[str, Attribute]) -> None:
    made = topic(unordered(attributes=RULES))
    check_event(made, own_event(made.topic, attributes=attributes))


@pytest.mark.parametrize(
    "attributes",
    [
        {"price": 10.6},
        {"price": -1},
        {"price": True},
        {"price": "1"},
        {"size": 0},
        {"size": 1.0},
        {"size": True},
        {"symbol": 1},
        {"symbol": b"x"},
        {"open": 1},
        {"at": -1},
        {"at": 1 << 62},
        {"at": 1.0},
        {"undeclared": 1},
        {"sensor": "s-"},
        {"sensor": "s-9a"},
        {"sensor": "S-5"},
        {"sensor": 5},
    ],
)
def test_attributes_that_do_not_fit_the_schema_are_rejected(
    attributes: dict[str, Attribute],
) -> None:
    assert "schema" in refusal(topic(unordered(attributes=RULES)), attributes=attributes)


def test_settings_that_say_nothing_ask_for_nothing() -> None:
    settings = unordered()
    assert settings.extensions == {}
    assert (settings.attributes, settings.sequencers, settings.retention) == ((), (), Retention())
