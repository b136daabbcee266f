"""Discovery in a simulated network: a fresh node finds topics by word, tag and author in time."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.listings import AUTHOR_QUOTA, Listing, Search, search_for
from pulsarcast.model.topics import TopicSettings
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import Command, CreateTopic, FindTopics
from pulsarcast.simulation.links import Jittered, Links, Matrix
from pulsarcast.simulation.world import World

FOUND_S_MAX = 2.0
CITIES = ("lisbon", "porto", "madrid", "paris", "vienna", "oslo", "rome", "prague", "bern", "riga")


class Network:
    """Authors that list topics, and readers that come later and know one of them."""

    def __init__(self, authors: int, each: int, links: Links, *, seed: int = 1) -> None:
        self.world = World(seed, links=links)
        self.topics: dict[Cid, tuple[PeerId, str]] = {}
        for index in range(authors):
            self.world.add_node(contacts=[other for other in {0, index // 2} if other < index])
        self.world.run(30.0)
        self._left = authors * each
        for author in range(authors):
            for number in range(each):
                self.world.at(
                    30.0 + 0.3 * (author + number * authors), self._creating(author, number)
                )
        assert self.world.run_until(lambda: not self._left, self.world.now + 3600.0)
        self.world.run(self.world.now + 60.0)

    def _creating(self, author: int, number: int) -> Callable[[], None]:
        """Each author has a topic on ten cities; all have one tag, and each city has one more."""
        city = CITIES[number % len(CITIES)]
        settings = TopicSettings(
            description=f"Measured in {city} by station {author}", tags=("weather", f"in {city}")
        )

        def created(reply: Reply) -> None:
            assert reply.cid is not None, reply.refusal
            self.topics[reply.cid] = (self.world.peer(author), city)
            self._left -= 1

        def create() -> None:
            name = f"station {author}/{city}"
            self.world.command(author, lambda call: CreateTopic(call, name, settings), created)

        return create

    def newcomer(self) -> int:
        """A node that knows nobody but one bootstrap peer, once it has met it."""
        index = self.world.add_node(contacts=[0])
        assert self.world.run_until(
            lambda: not self.world.node(index).dht.is_joining, self.world.now + 30.0, 0.01
        )
        return index

    def find(self, index: int, search: Search, limit: int = 1000) -> tuple[list[Listing], float]:
        """What a node finds, and after how long."""
        began_s = self.world.now
        replies: list[tuple[Reply, float]] = []
        make: Callable[[int], Command] = lambda call: FindTopics(call, search, limit)  # noqa: E731
        self.world.command(index, make, lambda reply: replies.append((reply, self.world.now)))
        assert self.world.run_until(lambda: bool(replies), began_s + 60.0, 0.01)
        reply, ended_s = replies[0]
        return list(reply.listings), ended_s - began_s


def judge(network: Network) -> dict[str, float]:
    """Search as newcomers do, by every kind of search; returns how long each took."""
    authors = {author for author, _ in network.topics.values()}
    took_s: dict[str, float] = {}

    tagged, took_s["a tag of all"] = network.find(
        network.newcomer(), search_for("", ("weather",), None)
    )
    assert len({each.author for each in tagged}) == len(authors), "no author is hidden"

    of_city, took_s["a tag"] = network.find(
        network.newcomer(), search_for("", ("In Lisbon",), None)
    )
    wanted = {cid for cid, (_, city) in network.topics.items() if city == "lisbon"}
    assert {each.topic for each in of_city} == wanted

    by_word, took_s["a word"] = network.find(network.newcomer(), search_for("Lisbon", (), None))
    assert {each.topic for each in by_word} == wanted

    two, took_s["two words"] = network.find(network.newcomer(), search_for("station 7", (), None))
    assert {each.author for each in two} == {network.world.peer(7)}
    assert len(two) <= AUTHOR_QUOTA

    author = network.world.peer(3)
    theirs, took_s["an author"] = network.find(network.newcomer(), search_for("", (), author))
    assert {each.topic for each in theirs} == {
        cid for cid, (made_by, _) in network.topics.items() if made_by == author
    }
    assert max(took_s.values()) < FOUND_S_MAX, took_s
    return took_s


def test_a_newcomer_finds_topics_by_word_tag_and_author() -> None:
    judge(Network(10, 2, Jittered(0.05, 0.02)))


def test_topics_are_found_right_after_nodes_were_killed() -> None:
    """Of the three keepers of a key one is left at least, and dials of the dead fail at once."""
    network = Network(12, 1, Jittered(0.05, 0.02))
    for index in (5, 6):
        network.world.kill(index)
    listings, took_s = network.find(network.newcomer(), search_for("lisbon", (), None))
    assert {listing.topic for listing in listings} == set(network.topics)
    assert took_s < FOUND_S_MAX


@pytest.mark.slow
def test_a_newcomer_finds_among_1000_topics_of_100_authors_within_2_s(
    shared_data: Callable[[str], Path],
) -> None:
    """One-way latencies are half of the round trips between 490 hosts of PlanetLab."""
    matrix = shared_data("latency/planetlab-490-rtt-ms.tsv.gz")
    network = Network(100, 10, Matrix.read(matrix, seed=1))
    assert len(network.topics) == 1000
    took_s = judge(network)
    world = network.world
    kept = [world.node(index).footprint()["dht_listings"] for index in range(100)]
    stored = world.messages["StoreListings"]
    sys.stdout.write(
        f"{took_s} {stored} StoreListings, {max(kept)} listings kept at a node at most\n"
    )
