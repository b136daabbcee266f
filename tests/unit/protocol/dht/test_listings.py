"""Listings in the DHT: kept by the closest, found by anybody, replaced, and dropped in time."""

import pytest

from pulsarcast.model.errors import Rejection, RemoteError, Verdict
from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.model.keys import Key
from pulsarcast.model.listings import Listing, author_key, keys_of, sign_listing, term_key
from pulsarcast.model.topics import TopicDescriptor, TopicSettings
from pulsarcast.protocol.dht.listings import Listings
from pulsarcast.protocol.dht.showing import Showing
from pulsarcast.protocol.effects import Persist, Send
from pulsarcast.protocol.messages import FindListings, ListingsFound, Stored, StoreListings
from tests.support.people import ALICE, BOB, peer, topic_of, version_of
from tests.unit.protocol.dht.network import EPOCH_US, Network, Node
from tests.unit.protocol.dht.parts import Parts

DAY_US = 86_400_000_000
WEATHER = term_key("weather")
TOPIC = topic_of(ALICE, TopicSettings(description="In Lisbon", tags=("weather",)))


def listing_of(version: TopicDescriptor = TOPIC, *, days: float = 3) -> Listing:
    author = ALICE if version.author == ALICE.peer_id else BOB
    return sign_listing(author, version, EPOCH_US + int(days * DAY_US))


@pytest.fixture
def network() -> Network:
    return Network(20).start()


def put(network: Network, node: Node, key: Key, *listings: Listing) -> int:
    answers: list[int] = []
    node.do(lambda: node.dht.put_listings(key, listings, answers.append))
    network.run_until(lambda: bool(answers), seconds=60)
    network.run(1)
    assert len(answers) == 1
    return answers[0]


def find(network: Network, node: Node, *keys: Key) -> list[Cid]:
    answers: list[list[Listing]] = []
    node.do(lambda: node.dht.find_listings(keys, lambda found, _: answers.append(found)))
    network.run_until(lambda: bool(answers), seconds=60)
    assert len(answers) == 1
    return [listing.topic for listing in answers[0] if listing.is_listed]


def holds(node: Node) -> int:
    return len([row for row in node.disk.rows() if row.table == "listing"])


def test_a_listing_is_kept_by_the_closest_three_and_found_by_anybody(network: Network) -> None:
    assert put(network, network.nodes[0], WEATHER, listing_of()) == 3
    assert [holds(node) for node in network.closest(WEATHER)] == [1, 1, 1]
    for node in network.nodes:
        assert find(network, node, WEATHER) == [TOPIC.cid]
    assert find(network, network.nodes[0], term_key("sport")) == []
    assert find(network, network.nodes[0], term_key("sport"), WEATHER) == [TOPIC.cid]


def test_alone_a_node_keeps_and_finds_its_own() -> None:
    network = Network(1).start()
    assert put(network, network.nodes[0], WEATHER, listing_of()) == 1
    assert find(network, network.nodes[0], WEATHER) == [TOPIC.cid]


def test_many_authors_share_a_key(network: Network) -> None:
    other = topic_of(BOB, TopicSettings(tags=("weather",)))
    put(network, network.nodes[0], WEATHER, listing_of())
    put(network, network.nodes[1], WEATHER, listing_of(other))
    assert sorted(find(network, network.nodes[2], WEATHER)) == sorted([TOPIC.cid, other.cid])


def test_listings_survive_restarts_and_reach_new_keepers(network: Network) -> None:
    put(network, network.nodes[0], WEATHER, listing_of())
    first, second, third = network.closest(WEATHER)
    for node in (first, second, third):
        node.kill()
    network.run(1)
    third.start([network.nodes[0].contact, network.nodes[1].contact])
    network.run(120)
    assert [holds(node) for node in network.closest(WEATHER)] == [1, 1, 1]


def test_a_version_that_is_listed_no_longer_ends_the_listing_wherever_it_was(
    network: Network,
) -> None:
    author, reader = network.nodes[:2]
    ended = listing_of(version_of(TOPIC, TopicSettings(), signer=ALICE))
    keys = keys_of(TOPIC)
    for key in keys:
        put(network, author, key, listing_of())
    assert find(network, reader, *keys) == [TOPIC.cid]
    # One keeper does not hear of it.
    network.closest(WEATHER)[1].kill()
    for key in keys:
        put(network, author, key, ended)
    assert find(network, reader, *keys) == []
    # The older version is shown again by somebody who kept it.
    assert put(network, reader, WEATHER, listing_of()) == 0
    assert find(network, reader, WEATHER) == []


def test_a_word_that_a_newer_version_lacks_leads_nowhere(network: Network) -> None:
    newer = version_of(TOPIC, TopicSettings(description="In Porto"), signer=ALICE)
    put(network, network.nodes[0], term_key("lisbon"), listing_of())
    put(network, network.nodes[0], term_key("lisbon"), listing_of(newer))
    answers: list[list[Listing]] = []
    asker = network.nodes[1]
    asker.do(
        lambda: asker.dht.find_listings(
            [term_key("lisbon")], lambda found, _: answers.append(found)
        )
    )
    network.run_until(lambda: bool(answers), seconds=60)
    assert [listing.description for listing in answers[0]] == ["In Porto"]


def test_a_listing_is_dropped_when_its_time_is_up(network: Network) -> None:
    put(network, network.nodes[0], WEATHER, listing_of(days=0.001))
    network.run(100)
    assert find(network, network.nodes[1], WEATHER) == []
    network.run(60)
    assert sum(holds(node) for node in network.nodes) == 0


# One keeper alone.


def listings_of(parts: Parts) -> Listings:
    showing = Showing(parts.context, parts.table, parts.calls, parts.lookups)
    return Listings(parts.context, parts.table, parts.lookups, showing)


def stored(parts: Parts, kept: Listings, key: Key, *listings: Listing) -> tuple[Cid, ...]:
    """Which of the listings a keeper says it keeps."""
    blocks = tuple(listing.block for listing in listings)
    kept.receive(peer("carol"), StoreListings(4, key, blocks))
    effects = parts.effects()
    for each in effects:
        if isinstance(each, Persist):
            parts.turn.persisted(each.token)
    effects += parts.effects()
    (answer,) = [each.message for each in effects if isinstance(each, Send)]
    assert isinstance(answer, Stored)
    return answer.cids


def test_a_listing_is_kept_under_its_own_keys_alone() -> None:
    parts = Parts()
    kept = listings_of(parts)
    listing = listing_of()
    assert stored(parts, kept, term_key("sport"), listing) == ()
    for key in keys_of(listing):
        assert stored(parts, kept, key, listing) == (cid_of(listing.block),)
    assert len(kept) == len(keys_of(listing))


def test_an_unlisted_topic_is_kept_nowhere_unless_it_replaces() -> None:
    parts = Parts()
    kept = listings_of(parts)
    ended = listing_of(version_of(TOPIC, TopicSettings(), signer=ALICE))
    assert stored(parts, kept, WEATHER, ended) == ()
    assert stored(parts, kept, author_key(ALICE.peer_id), ended) == ()
    stored(parts, kept, WEATHER, listing_of())
    assert stored(parts, kept, WEATHER, ended) == (cid_of(ended.block),)
    assert stored(parts, kept, WEATHER, listing_of()) == (), "an old version is not taken again"
    assert stored(parts, kept, WEATHER, ended) == (cid_of(ended.block),)


def test_a_listing_that_the_disk_leaves_out_is_not_confirmed_and_not_kept() -> None:
    parts = Parts()
    kept = listings_of(parts)
    known = listing_of(topic_of(BOB, TopicSettings(tags=("weather",))))
    new, carol = listing_of(), peer("carol")
    assert stored(parts, kept, WEATHER, known) == (cid_of(known.block),)
    kept.receive(carol, StoreListings(4, WEATHER, (new.block, known.block)))
    kept.receive(carol, StoreListings(6, WEATHER, (new.block,)))
    parts.refuse()
    assert parts.sent() == [
        (carol, Stored(4, (cid_of(known.block),))),
        (carol, Stored(6, ())),
    ]
    assert stored(parts, kept, WEATHER, new) == (cid_of(new.block),)


@pytest.mark.parametrize("days", [0, -1, 4.1, 30, 365_000])
def test_a_listing_out_of_its_time_is_not_kept(days: float) -> None:
    parts = Parts()
    kept = listings_of(parts)
    with pytest.raises(RemoteError) as refused:
        stored(parts, kept, WEATHER, listing_of(days=days))
    assert refused.value.code is Rejection.EXPIRED
    assert refused.value.verdict is Verdict.IGNORE
    assert len(kept) == 0


def test_what_is_over_is_not_handed_out_before_it_is_dropped() -> None:
    parts = Parts()
    kept = listings_of(parts)
    stored(parts, kept, WEATHER, listing_of())
    kept.answer(peer("carol"), FindListings(6, WEATHER))
    assert parts.sent() == [(peer("carol"), ListingsFound(6, (listing_of().block,), False, ()))]
    parts.turn.wall_us += 3 * DAY_US
    kept.answer(peer("carol"), FindListings(8, WEATHER))
    assert parts.sent() == [(peer("carol"), ListingsFound(8, (), False, ()))]
    assert len(kept) == 1
    kept.tend()
    assert len(kept) == 0


def test_all_that_is_kept_is_shown_to_other_keepers_a_piece_at_a_time() -> None:
    carol = peer("carol")
    parts = Parts(carol)
    kept = listings_of(parts)
    for key in keys_of(TOPIC):
        stored(parts, kept, key, listing_of())
    for _ in range(2 * len(keys_of(TOPIC))):
        kept.tend()
    shown = [each for _, each in parts.questions.asked() if isinstance(each, StoreListings)]
    assert [each.key for each in shown] == [*keys_of(TOPIC)] * 2
