"""Own listings: which topics a node lists, under which keys, and when it does so again."""

from pulsarcast.model.listings import AUTHOR_QUOTA, Listing, author_key, keys_of, term_key
from pulsarcast.model.topics import TopicDescriptor, TopicSettings
from pulsarcast.protocol.dht.expiry import listing_lifetime_us
from pulsarcast.protocol.following.own_listings import PLACING_MAX, START_S
from tests.support.parts import Core
from tests.support.people import ALICE, BOB, meta_of, topic_of, version_of

WEATHER = TopicSettings(description="In Lisbon", tags=("weather",))
Placed = dict[int, list[Listing]]


def placed(core: Core) -> Placed:
    """Everything that the node has placed since the last look, until nothing is left."""
    found: Placed = {}
    while core.network.listing:
        assert len(core.network.listing) <= PLACING_MAX
        key, listings, then = core.network.listing.pop(0)
        assert key not in found, "a key is placed once"
        found[key] = listings
        then(3)
    return found


def topics_in(found: Placed) -> set[bytes]:
    return {listing.topic for listings in found.values() for listing in listings}


def own(core: Core, settings: TopicSettings = WEATHER, name: str = "news") -> TopicDescriptor:
    topic = topic_of(ALICE, settings, name=name)
    core.topic(topic)
    return topic


def test_a_topic_is_listed_under_each_of_its_keys_and_signed_by_its_author() -> None:
    core = Core()
    topic = own(core)
    core.listings.changed(topic)
    found = placed(core)
    assert list(found) == list(keys_of(topic))
    for (listing,) in found.values():
        assert (listing.author, listing.topic) == (ALICE.peer_id, topic.cid)
        lifetime_us = listing_lifetime_us(core.context.parameters)
        assert listing.expires_us == core.turn.wall_us + lifetime_us


def test_nothing_else_is_ever_listed() -> None:
    core = Core()
    plain = own(core, TopicSettings(), "plain")
    core.topic(meta_of(ALICE))
    core.topic(topic_of(BOB, WEATHER, name="another's"))
    core.listings.start()
    assert core.fire() == []
    core.listings.changed(plain)
    core.listings.changed(version_of(plain, signer=ALICE), plain)
    core.listings.renew()
    assert placed(core) == {}


def test_after_a_restart_what_was_listed_is_listed_again() -> None:
    core = Core()
    topic = own(core)
    core.listings.start()
    assert core.fire() == [START_S]
    assert topics_in(placed(core)) == {topic.cid}


def test_a_renewed_listing_is_signed_anew_once_half_of_its_time_is_gone() -> None:
    core = Core()
    core.listings.changed(own(core))
    first = placed(core)
    core.listings.renew()
    assert placed(core) == first
    core.turn.wall_us += listing_lifetime_us(core.context.parameters) * 2 // 3
    core.listings.renew()
    second = placed(core)
    assert second.keys() == first.keys()
    assert all(second[key][0].is_newer(first[key][0]) for key in first)


def test_a_version_without_tags_replaces_the_listing_under_all_its_keys() -> None:
    core = Core()
    topic = own(core)
    core.listings.changed(topic)
    placed(core)
    ended = version_of(topic, TopicSettings(), signer=ALICE)
    core.listings.changed(ended, topic)
    found = placed(core)
    assert found.keys() == set(keys_of(topic))
    assert all(not listing.is_listed and listing.number == 1 for (listing,) in found.values())
    core.followed.members.clear()
    core.listings.renew()
    assert placed(core) == {}


def test_a_version_with_other_words_replaces_the_listing_under_those_it_lost() -> None:
    core = Core()
    topic = own(core)
    core.listings.changed(topic)
    placed(core)
    newer = version_of(topic, TopicSettings(description="In Porto"), signer=ALICE)
    core.listings.changed(newer, topic)
    found = placed(core)
    assert found.keys() == {*keys_of(topic), *keys_of(newer)}
    assert {listing.number for listings in found.values() for listing in listings} == {1}
    assert found[term_key("lisbon")] == found[term_key("porto")]


def test_an_author_asks_for_no_more_room_than_its_quota_and_lists_the_newest_topics() -> None:
    core = Core()
    topics = [own(core, name=f"topic {number}") for number in range(AUTHOR_QUOTA + 4)]
    core.listings.renew()
    found = placed(core)
    assert len(found[term_key("weather")]) == AUTHOR_QUOTA
    assert len(found[author_key(ALICE.peer_id)]) == len(topics)


def test_a_topic_that_the_node_left_is_listed_no_longer() -> None:
    core = Core()
    topic = own(core)
    core.listings.changed(topic)
    placed(core)
    del core.followed.members[topic.cid]
    core.listings.renew()
    assert placed(core) == {}
