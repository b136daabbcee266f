"""Attacks on the discovery of topics: floods, forgeries, replays, junk (docs/spec/discovery.md)."""

from collections.abc import Iterable

import pytest

from pulsarcast.model.cbor import decode, encode, opaque
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.model.listings import (
    AUTHOR_QUOTA,
    LISTING_BYTES_MAX,
    Listing,
    author_key,
    search_for,
    sign_listing,
    term_key,
)
from pulsarcast.model.topics import TopicSettings
from pulsarcast.protocol.dht.listings import FOUND_MAX
from pulsarcast.protocol.dht.shelf import KEPT_MAX
from pulsarcast.protocol.inputs import FindTopics
from pulsarcast.protocol.limits import FRAME_BYTES_MAX, LISTINGS_MAX
from pulsarcast.protocol.messages import (
    Contact,
    FindListings,
    FindPeers,
    ListingsFound,
    Message,
    Peers,
    Stored,
    StoreListings,
)
from tests.support.lab import Lab
from tests.support.people import ALICE, BOB, CREATED_US, MALLORY, identity, peer, topic_of
from tests.support.solo import Solo

WEATHER = term_key("weather")
TAGGED = TopicSettings(tags=("weather",))
DAY_US = 86_400_000_000


def listing_of(
    author: Identity,
    name: str = "news",
    *,
    tags: tuple[str, ...] = ("weather",),
    expires_us: int = CREATED_US + DAY_US,
) -> Listing:
    return sign_listing(author, topic_of(author, TopicSettings(tags=tags), name=name), expires_us)


def store(solo: Solo, key: int, listings: Iterable[Listing]) -> set[Cid]:
    """Have a stranger store listings at a node; returns what the node says it keeps."""
    blocks = [listing.block for listing in listings]
    kept: set[Cid] = set()
    for first in range(0, len(blocks), LISTINGS_MAX):
        solo.sent.clear()
        piece = tuple(blocks[first : first + LISTINGS_MAX])
        solo.hear(MALLORY.peer_id, StoreListings(2, key, piece))
        (answer,) = [each for each in solo.said(Stored) if each.request == 2]
        kept.update(answer.cids)
    return kept


def handed_out(solo: Solo, key: int) -> tuple[bytes, ...]:
    """The listings that a node hands out under a key."""
    solo.sent.clear()
    solo.hear(BOB.peer_id, FindListings(2, key))
    (answer,) = solo.said(ListingsFound)
    return answer.listings


def found(solo: Solo, words: str = "", tags: tuple[str, ...] = ("weather",)) -> list[PeerId]:
    """The authors of the topics that a node finds."""
    reply = solo.ask(lambda call: FindTopics(call, search_for(words, tags, None), 100))
    return [listing.author for listing in reply.listings]


def flood(count: int) -> None:
    """One author lists `count` topics under one tag, before and after an honest one lists one."""
    solo = Solo().start()
    mallorys = [listing_of(MALLORY, f"topic {number}") for number in range(count)]
    half = count // 2
    store(solo, WEATHER, mallorys[:half])
    honest = [listing_of(ALICE), listing_of(BOB)]
    assert store(solo, WEATHER, honest) == {cid_of(listing.block) for listing in honest}
    store(solo, WEATHER, mallorys[half:])
    blocks = handed_out(solo, WEATHER)
    assert len(blocks) == AUTHOR_QUOTA + len(honest)
    assert {listing.block for listing in honest} <= set(blocks[:3]), "authors take turns"
    assert {ALICE.peer_id, BOB.peer_id} <= set(found(solo))


def test_an_author_with_hundreds_of_entries_hides_nobody() -> None:
    flood(300)


@pytest.mark.slow
def test_an_author_with_a_hundred_thousand_entries_hides_nobody() -> None:
    flood(100_000)


def test_an_author_that_fills_every_key_hides_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """An author that lists under every word gets its share of the room, and no more."""
    monkeypatch.setattr("pulsarcast.protocol.dht.shelf.KEPT_MAX", 60)
    solo = Solo().start()
    for number in range(30):
        word = f"w{number}"
        store(
            solo,
            term_key(word),
            [listing_of(MALLORY, f"topic {each}", tags=(word,)) for each in range(4)],
        )
    assert solo.node.footprint()["dht_listings"] == 15
    assert len(store(solo, WEATHER, [listing_of(ALICE)])) == 1
    assert solo.node.footprint()["dht_listings"] == 16
    assert found(solo) == [ALICE.peer_id]


def test_a_flood_of_new_identities_is_bounded_and_pushes_nobody_out() -> None:
    solo = Solo().start()
    store(solo, WEATHER, [listing_of(ALICE)])
    sybils = [listing_of(identity(f"sybil {number}")) for number in range(LISTINGS_MAX + 50)]
    store(solo, WEATHER, sybils)
    blocks = handed_out(solo, WEATHER)
    assert len(blocks) == LISTINGS_MAX
    assert listing_of(ALICE).block in blocks
    assert ALICE.peer_id in found(solo)


def forged(author: Identity, signer: Identity, **changes: object) -> bytes:
    """A listing in one peer's name, signed by another."""
    fields = decode(listing_of(author).block, size_max=LISTING_BYTES_MAX)
    assert isinstance(fields, dict)
    fields = {**fields, **changes}
    del fields["s"]
    return encode({**fields, "s": opaque(signer.sign("listing", encode(fields)))})


@pytest.mark.parametrize(
    "block",
    [
        forged(ALICE, MALLORY),
        forged(MALLORY, MALLORY, d="\x1b]0;owned\x07"),
        forged(MALLORY, MALLORY, m="\x1b[2J"),
        forged(MALLORY, MALLORY, d="x" * 100_000),
        forged(MALLORY, MALLORY, g=[f"{number:04}" for number in range(1000)]),
        b"junk",
    ],
    ids=["another's name", "an escape", "an escape in a name", "huge", "1,000 tags", "junk"],
)
def test_what_no_author_may_sign_is_neither_kept_nor_believed(block: bytes) -> None:
    solo = Solo().start()
    solo.hear(MALLORY.peer_id, StoreListings(2, WEATHER, (listing_of(ALICE).block, block)))
    (answer,) = solo.said(Stored)
    assert answer.cids == (cid_of(listing_of(ALICE).block),), "what is good beside it is kept"
    assert len(solo.reasons()) == 1
    assert handed_out(solo, WEATHER) == (listing_of(ALICE).block,)


@pytest.mark.parametrize("ahead_us", [0, -DAY_US, 5 * DAY_US, 10_000 * DAY_US])
def test_an_expired_or_far_future_listing_is_neither_kept_nor_shown(ahead_us: int) -> None:
    listing = listing_of(MALLORY, expires_us=CREATED_US + ahead_us)
    solo = Solo(contacts=(BOB.peer_id,))
    solo.peers[BOB.peer_id] = Holder([listing.block])
    solo.start()
    assert store(solo, WEATHER, [listing]) == set()
    assert found(solo) == []


def test_a_listing_is_kept_under_no_key_that_its_words_do_not_lead_to() -> None:
    """A stranger cannot put its topic under somebody else's word, nor under another author."""
    solo = Solo().start()
    for key in (term_key("news paper"), author_key(ALICE.peer_id), 0):
        assert store(solo, key, [listing_of(MALLORY)]) == set()
    assert solo.node.footprint()["dht_listings"] == 0


def test_a_replayed_old_version_does_not_bring_a_topic_back() -> None:
    lab = Lab(10, puppets=[9])
    topic = lab.create(0, TAGGED)
    lab.run(5)
    old = [each for each in lab.said if isinstance(each.message, StoreListings)]
    assert WEATHER in {each.message.key for each in old if isinstance(each.message, StoreListings)}
    search = search_for("", ("weather",), None)
    assert len(lab.ask(5, lambda call: FindTopics(call, search, 9)).listings) == 1
    lab.update(0, topic, TopicSettings())
    lab.run(5)
    assert lab.ask(5, lambda call: FindTopics(call, search, 9)).listings == ()
    for said in old:
        lab.say(9, said.receiver, said.message, settle_s=0.1)
    lab.run(60)
    assert lab.ask(5, lambda call: FindTopics(call, search, 9)).listings == ()


class Holder:
    """A scripted peer that hands out what it is given, under every key."""

    def __init__(self, blocks: Iterable[bytes], contacts: tuple[Contact, ...] = ()) -> None:
        self.blocks = tuple(blocks)
        self.contacts = contacts
        self.asked = 0

    def __call__(self, message: Message) -> list[Message]:
        match message:
            case FindPeers(request, _):
                return [Peers(request, self.contacts)]
            case FindListings(request, _):
                self.asked += 1
                return [ListingsFound(request, self.blocks, False, self.contacts)]
            case _:
                return []


def test_a_holder_that_returns_junk_is_passed_over() -> None:
    solo = Solo(contacts=(MALLORY.peer_id, BOB.peer_id))
    good = listing_of(ALICE)
    solo.peers[MALLORY.peer_id] = Holder([good.block, forged(BOB, MALLORY)])
    solo.peers[BOB.peer_id] = Holder([good.block])
    solo.start()
    assert found(solo) == [ALICE.peer_id]
    assert "bad_signature" in solo.reasons()


def test_listings_of_another_word_are_not_shown() -> None:
    solo = Solo(contacts=(MALLORY.peer_id,))
    solo.peers[MALLORY.peer_id] = Holder([listing_of(MALLORY, tags=("spam",)).block])
    solo.start()
    assert found(solo) == []


def test_listings_that_one_peer_makes_up_come_behind_those_that_several_keep() -> None:
    honest, liar = (peer("one"), peer("two"), peer("three")), MALLORY.peer_id
    solo = Solo(contacts=(liar, *honest))
    invented = [listing_of(identity(f"sybil {number}")).block for number in range(LISTINGS_MAX)]
    solo.peers[liar] = Holder(invented)
    for each in honest:
        solo.peers[each] = Holder([listing_of(ALICE).block])
    solo.start()
    assert found(solo)[0] == ALICE.peer_id


def test_a_listing_that_one_peer_repeats_comes_behind_one_that_several_keep() -> None:
    honest, liar = (peer("one"), peer("two"), peer("three")), MALLORY.peer_id
    solo = Solo(contacts=(liar, *honest))
    solo.peers[liar] = Holder([listing_of(identity("sybil")).block] * 64)
    for each in honest:
        solo.peers[each] = Holder([listing_of(ALICE).block])
    solo.start()
    assert found(solo)[0] == ALICE.peer_id


def test_holders_without_end_are_heard_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulsarcast.protocol.dht.listings.FOUND_MAX", 60)
    liars = [identity(f"liar {number}") for number in range(15)]
    contacts = tuple(Contact(liar.peer_id) for liar in liars)
    solo = Solo(contacts=[liar.peer_id for liar in liars[:3]])
    holders = []
    for place, liar in enumerate(liars):
        blocks = [listing_of(identity(f"{place}/{number}")).block for number in range(20)]
        holder = Holder(blocks, contacts)
        holders.append(holder)
        solo.peers[liar.peer_id] = holder
    solo.start()
    reply = solo.ask(lambda call: FindTopics(call, search_for("weather", (), None), 1000))
    assert 60 <= len(reply.listings) < 120
    assert reply.cut
    assert sum(holder.asked for holder in holders) < 8


def test_a_topic_without_description_and_tags_is_listed_nowhere() -> None:
    """The rule that private topics will rest on: nothing of it is ever in a listing."""
    lab = Lab(8)
    lab.create(0, name="plain")
    listed = lab.create(0, TAGGED, name="listed")
    lab.run(120)
    topics = {
        decode(block, size_max=LISTING_BYTES_MAX)["t"]  # type: ignore[index]
        for message in lab.messages(StoreListings)
        for block in message.listings
    }
    assert topics == {listed}


def test_one_answer_has_room_for_all_that_a_key_has() -> None:
    assert LISTINGS_MAX * LISTING_BYTES_MAX < FRAME_BYTES_MAX
    assert LISTINGS_MAX < FOUND_MAX < KEPT_MAX
