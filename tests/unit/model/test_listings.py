"""Listings: what an author signs, where it belongs, and what a search makes of it."""

import pytest

from pulsarcast.model.cbor import decode, encode, opaque
from pulsarcast.model.errors import LocalError, Rejection, RemoteError
from pulsarcast.model.identity import Identity
from pulsarcast.model.listings import (
    AUTHOR_QUOTA,
    LISTING_BYTES_MAX,
    SEARCHED_MAX,
    TERMS_MAX,
    Listing,
    Search,
    author_key,
    decode_listing,
    keys_of,
    search_for,
    sign_listing,
    term_key,
)
from pulsarcast.model.topics import TopicSettings, create_meta_topic, decode_topic
from tests.support.people import ALICE, BOB, CREATED_US, topic_of, version_of

EXPIRES_US = CREATED_US + 1_000_000


def listing_of(
    author: Identity = ALICE,
    name: str = "lisbon/temperature",
    description: str = "Every minute, in degrees",
    tags: tuple[str, ...] = ("weather",),
) -> Listing:
    version = topic_of(author, TopicSettings(description=description, tags=tags), name=name)
    return sign_listing(author, version, EXPIRES_US)


def spoilt(**changes: object) -> bytes:
    """Alice's listing with other fields, signed by Alice; None leaves a field out."""
    fields = decode(listing_of().block, size_max=LISTING_BYTES_MAX)
    assert isinstance(fields, dict)
    del fields["s"]
    fields = {key: each for key, each in {**fields, **changes}.items() if each is not None}
    return encode({**fields, "s": opaque(ALICE.sign("listing", encode(fields)))})


def test_a_listing_says_what_its_topic_says() -> None:
    settings = TopicSettings(description="Every minute", tags=("Weather", "IoT"))
    topic = topic_of(ALICE, settings)
    listing = decode_listing(sign_listing(ALICE, topic, EXPIRES_US).block)
    assert (listing.author, listing.topic, listing.name) == (ALICE.peer_id, topic.cid, "news")
    assert (listing.description, listing.tags) == ("Every minute", ("iot", "weather"))
    assert (listing.number, listing.expires_us) == (0, EXPIRES_US)


def test_the_largest_topic_that_can_be_made_can_be_listed() -> None:
    tags = tuple(str(number) * 32 for number in range(8))
    made = listing_of(name="n" * 251, description="é" * 256, tags=tags)
    assert len(made.block) <= LISTING_BYTES_MAX
    assert decode_listing(made.block) == made


@pytest.mark.parametrize(
    "changes",
    [
        {"a": BOB.peer_id},
        {"m": "evil\x1b[2J"},
        {"m": None},
        {"m": "x" * 257},
        {"d": ""},
        {"d": "x" * 513},
        {"d": "line\nline"},
        {"d": "\x9b31m"},
        {"d": "right to left \u202e"},
        {"g": []},
        {"g": ["b", "a"]},
        {"g": ["a", "a"]},
        {"g": [f"{number:04}" for number in range(1000)]},
        {"g": ["x" * 33]},
        {"g": ["a\x07"]},
        {"e": None},
        {"e": -1},
        {"e": 1 << 62},
        {"i": -1},
        {"t": ALICE.peer_id},
        {"z": 1},
        {"encryption": {}},
    ],
    ids=str,
)
def test_a_listing_that_is_not_as_its_format_says_is_rejected(changes: dict[str, object]) -> None:
    with pytest.raises(RemoteError):
        decode_listing(spoilt(**changes))


def test_a_forged_signature_is_rejected() -> None:
    fields = decode(listing_of().block, size_max=LISTING_BYTES_MAX)
    assert isinstance(fields, dict)
    del fields["s"]
    for signature in (BOB.sign("listing", encode(fields)), ALICE.sign("topic", encode(fields))):
        with pytest.raises(RemoteError) as refused:
            decode_listing(encode({**fields, "s": opaque(signature)}))
        assert refused.value.code is Rejection.BAD_SIGNATURE


@pytest.mark.parametrize(
    "settings",
    [
        TopicSettings(description="x" * 513),
        TopicSettings(description="two\nlines"),
        TopicSettings(description="\x1b]0;title\x07"),
        TopicSettings(tags=("!",)),
        TopicSettings(tags=tuple(str(number) for number in range(1000))),
    ],
    ids=["long", "two lines", "an escape", "no word", "a thousand tags"],
)
def test_a_topic_that_could_not_be_listed_is_not_made(settings: TopicSettings) -> None:
    with pytest.raises(LocalError):
        topic_of(ALICE, settings)


def test_a_listed_topic_has_a_name_that_a_terminal_only_shows() -> None:
    topic_of(ALICE, name="odd\x1bname")
    with pytest.raises(LocalError):
        topic_of(ALICE, TopicSettings(tags=("odd",)), name="odd\x1bname")


def test_a_meta_topic_is_never_listed() -> None:
    meta = create_meta_topic(ALICE, "news", created=CREATED_US, nonce=bytes(16))
    assert not meta.is_listed
    fields = decode(meta.block, size_max=1 << 20)
    assert isinstance(fields, dict)
    del fields["s"]
    fields["tags"] = ["weather"]
    with pytest.raises(RemoteError):
        decode_topic(encode({**fields, "s": opaque(ALICE.sign("topic", encode(fields)))}))


# Where it belongs.


def test_a_listing_belongs_under_its_author_its_tags_and_its_words() -> None:
    keys = keys_of(listing_of())
    terms = ("weather", "lisbon", "temperature", "every", "minute", "in", "degrees")
    assert set(keys) == {author_key(ALICE.peer_id), *map(term_key, terms)}


def test_a_topic_with_neither_description_nor_tag_belongs_nowhere_but_replaces() -> None:
    plain = sign_listing(ALICE, topic_of(ALICE), EXPIRES_US)
    assert not plain.is_listed
    assert keys_of(plain) == (author_key(ALICE.peer_id),)
    assert not Search(author=ALICE.peer_id).matches(plain)


def test_a_long_text_leads_to_a_topic_by_its_first_terms_only() -> None:
    wordy = listing_of(description=" ".join(f"w{number}" for number in range(100)))
    assert len(keys_of(wordy)) == 1 + TERMS_MAX
    assert term_key("weather") in keys_of(wordy)
    assert term_key("w99") not in keys_of(wordy)


def test_a_higher_version_replaces_a_lower_one_and_a_later_expiry_an_earlier() -> None:
    first = topic_of(ALICE, TopicSettings(tags=("weather",)))
    second = version_of(first, TopicSettings(), signer=ALICE)
    old, renewed, ended = (
        sign_listing(ALICE, version, expires_us)
        for version, expires_us in ((first, 5), (first, 9), (second, 7))
    )
    assert renewed.is_newer(old)
    assert not old.is_newer(renewed)
    assert not old.is_newer(old)
    assert ended.is_newer(renewed)
    assert not renewed.is_newer(ended)


# Searching.


def test_a_search_wants_all_words_and_all_tags() -> None:
    listing = listing_of(tags=("weather", "air-quality"))
    for words, tags in (
        ("Lisbon", ()),
        ("lisbon, DEGREES", ("weather",)),
        ("air quality", ()),
        ("air-quality", ()),
        ("", ("Air Quality", "weather")),
    ):
        assert search_for(words, tags, None).matches(listing), (words, tags)
    for words, tags in (("lisbon paris", ()), ("lisbon", ("iot",)), ("", ("lisbon",))):
        assert not search_for(words, tags, None).matches(listing), (words, tags)
    assert search_for("lisbon", (), ALICE.peer_id).matches(listing)
    assert not search_for("lisbon", (), BOB.peer_id).matches(listing)


def test_a_search_for_nothing_or_for_too_much_is_refused() -> None:
    for words in ("", " …", " ".join(f"w{number}" for number in range(SEARCHED_MAX + 1))):
        with pytest.raises(LocalError):
            search_for(words, (), None)


def test_an_author_with_a_hundred_topics_leaves_the_others_their_turns() -> None:
    many = [listing_of(ALICE, name=f"topic {number}") for number in range(100)]
    one = listing_of(BOB)
    search = search_for("", ("weather",), None)
    chosen, is_cut = search.choose([*many, one], 100)
    assert chosen[1] == one
    assert len(chosen) == AUTHOR_QUOTA + 1
    assert is_cut
    assert search.choose([*many, one], 1) == ([many[0]], True)
    assert search_for("", (), ALICE.peer_id).choose([*many, one], 100) == (many, False)
