"""Listings: signed, expiring records by which topics are found by word, tag and author.

docs/spec/discovery.md; thesis, 6.2.

A topic's author signs one for each listed topic. The DHT keeps it under one key for each term,
which are the topic's tags and words, and under one key for the author. A version that is not listed
any more has a listing without description and tags, which replaces the one before.

On the wire: v (protocol version, 1), a author, t topic, m name, i number of the version, d
description and g tags (left out when empty), e expiry in µs since the Unix epoch, s signature.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Final

import msgspec

from pulsarcast.model.cbor import INT_MAX, decode, encode, encode_part, opaque
from pulsarcast.model.errors import LocalError, Rejection, RemoteError, caller_to_blame
from pulsarcast.model.fields import (
    NAME_BYTES_MAX,
    PROTOCOL_VERSION,
    Fields,
    check_version,
    read_int,
    read_line,
    read_map,
    read_signature,
    read_time,
)
from pulsarcast.model.identity import Identity, signed_bytes, verify_signature
from pulsarcast.model.ids import Cid, PeerId, check_cid, check_peer_id
from pulsarcast.model.keys import Key, key_of
from pulsarcast.model.topic_types import TopicDescriptor
from pulsarcast.model.topic_wire import read_description, read_tags
from pulsarcast.model.words import TAG_BYTES_MAX, tags_of, words_of

LISTING_BYTES_MAX: Final = 1536
"""Bounds a listing: the longest name, description and tags together take 1.2 KB."""
TERMS_MAX: Final = 24
"""Bounds the terms under which a topic can be looked up: each costs its author a lookup a day."""
SEARCHED_MAX: Final = 8
"""Bounds the terms of one search: each costs a lookup."""
AUTHOR_QUOTA: Final = 8
"""Listings of one author that a peer keeps under one term, and that a search shows."""

# The same listing is kept under many terms, and comes from several peers.
_KNOWN: Final = 1 << 12
_LISTING_KEYS = frozenset("vatmidges")


class Listing(msgspec.Struct, frozen=True):
    """An author's statement of what one of its topics is about."""

    author: PeerId
    topic: Cid
    name: str
    number: int  # of the topic's version: a higher one replaces lower ones
    description: str
    tags: tuple[str, ...]
    expires_us: int
    signature: bytes
    block: bytes

    @property
    def is_listed(self) -> bool:
        """Whether the topic is to be shown; one that is not only replaces an older listing."""
        return bool(self.description or self.tags)

    def is_newer(self, than: Listing) -> bool:
        """Whether this replaces another one of the same author and topic."""
        return (self.number, self.expires_us) > (than.number, than.expires_us)

    def __hash__(self) -> int:
        """Hash by the signed bytes."""
        return hash(self.block)


def sign_listing(identity: Identity, version: TopicDescriptor, expires_us: int) -> Listing:
    """State, as a topic's author, what its newest version is about."""
    fields: Fields = {
        "v": PROTOCOL_VERSION,
        "a": identity.peer_id,
        "t": version.topic,
        "m": version.name,
        "i": version.number,
        "e": expires_us,
    }
    if version.description:
        fields["d"] = version.description
    if version.tags:
        fields["g"] = list(version.tags)
    fields["s"] = opaque(identity.sign("listing", encode(fields)))
    with caller_to_blame():
        return _read_listing(encode(fields), verify=False)


@lru_cache(maxsize=_KNOWN)
def decode_listing(block: bytes) -> Listing:
    """Read and verify a listing; whether it is in its time is for its reader to say."""
    return _read_listing(block, verify=True)


def _read_listing(block: bytes, *, verify: bool) -> Listing:
    value = decode(block, size_max=LISTING_BYTES_MAX)
    check_version(value, "a listing")
    fields = read_map(value, _LISTING_KEYS, "a listing")
    author = check_peer_id(fields.get("a"))
    topic = check_cid(fields.get("t"))
    name = read_line(fields.get("m"), NAME_BYTES_MAX, "a listed topic's name")
    number = read_int(fields.get("i"), 0, INT_MAX, "number")
    description = read_description(fields["d"]) if "d" in fields else ""
    tags = read_tags(fields["g"]) if "g" in fields else ()
    expires_us = read_time(fields.get("e"), "expires")
    signature = read_signature(fields.pop("s", None))
    if verify and not verify_signature(author, "listing", encode_part(fields), signature):
        raise RemoteError("the listing's signature is wrong", code=Rejection.BAD_SIGNATURE)
    return Listing(author, topic, name, number, description, tags, expires_us, signature, block)


# Keys


def term_key(term: str) -> Key:
    """The key under which listings with this word or tag are kept."""
    return key_of(signed_bytes("term", term.encode()))


def author_key(author: PeerId) -> Key:
    """The key under which an author's listings are kept."""
    return key_of(signed_bytes("author", author))


@lru_cache(maxsize=_KNOWN)
def keys_of(listed: Listing | TopicDescriptor) -> tuple[Key, ...]:
    """The keys under which a listing belongs: its author's, and those of its first terms."""
    terms = (*listed.tags, *words_of(_text_of(listed)))
    first = islice(dict.fromkeys(terms), TERMS_MAX) if listed.is_listed else ()
    return (author_key(listed.author), *map(term_key, first))


def _text_of(listed: Listing | TopicDescriptor) -> str:
    """All that a listing says, what leads to it first."""
    return " ".join((*listed.tags, listed.name, listed.description))


# Searching


class Search(msgspec.Struct, frozen=True):
    """A search for topics: with all of these words and tags, of this author."""

    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    author: PeerId | None = None

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys to look up."""
        by_author = () if self.author is None else (author_key(self.author),)
        return (*by_author, *map(term_key, dict.fromkeys((*self.tags, *self.words))))

    def matches(self, listing: Listing) -> bool:
        """Whether a listing is what is searched for."""
        if not listing.is_listed or self.author not in (None, listing.author):
            return False
        has_tags = set(self.tags) <= set(listing.tags)
        return has_tags and set(self.words) <= {*listing.tags, *words_of(_text_of(listing))}

    def choose(self, found: Iterable[Listing], limit: int) -> tuple[list[Listing], bool]:
        """Up to `limit` of the listings found that match, and whether some are left out.

        The authors take turns, in the order in which they come, and each has a quota unless the
        search is for its topics.
        """
        quota = AUTHOR_QUOTA if self.author is None else limit
        by_author: dict[PeerId, list[Listing]] = {}
        for listing in found:
            if self.matches(listing):
                by_author.setdefault(listing.author, []).append(listing)
        turns = max(map(len, by_author.values()), default=0)
        in_turn = [
            theirs[turn]
            for turn in range(min(turns, quota))
            for theirs in by_author.values()
            if turn < len(theirs)
        ]
        return in_turn[:limit], len(in_turn) > limit or turns > quota


def search_for(words: str, tags: Iterable[str], author: PeerId | None) -> Search:
    """A search as it is typed; raises LocalError where it has nothing to look for, or too much."""
    search = Search(tuple(dict.fromkeys(words_of(words))), tags_of(tags), author)
    if not search.keys:
        raise LocalError(
            "give words, a tag or an author to search for: a word has letters and digits, at most "
            f"{TAG_BYTES_MAX} bytes of them"
        )
    if len(search.words) + len(search.tags) > SEARCHED_MAX:
        raise LocalError(f"a search has at most {SEARCHED_MAX} words and tags")
    return search
