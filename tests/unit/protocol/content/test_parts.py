"""Each part of content routing, built alone."""

from collections.abc import Callable
from typing import cast

import pytest

from pulsarcast.model.filters import parse
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId, peer_key
from pulsarcast.protocol.content.following import TABLE, ContentTopic
from pulsarcast.protocol.content.homes import Homes
from pulsarcast.protocol.content.members import Members
from pulsarcast.protocol.content.messages import (
    CompareContent,
    ContentCompared,
    Installed,
    PlaceState,
    PlaceSubscription,
    PlaceTaken,
    ProbeEvent,
    Purpose,
    Stage,
)
from pulsarcast.protocol.content.probing import Probing
from pulsarcast.protocol.content.routing import Routing
from pulsarcast.protocol.content.rules import ContentRules
from pulsarcast.protocol.content.shape import Shape
from pulsarcast.protocol.content.shape_hints import ShapeHints
from pulsarcast.protocol.content.shape_queries import ShapeQueries
from pulsarcast.protocol.content.space import ROOT
from pulsarcast.protocol.content.spaces import Spaces
from pulsarcast.protocol.content.splitting import Splitting
from pulsarcast.protocol.content.trees import Trees
from pulsarcast.protocol.content.upkeep import Upkeep
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dht.mark_pages import MarkPages
from pulsarcast.protocol.effects import Persist
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.following.following import Following
from pulsarcast.protocol.store import PutState
from pulsarcast.protocol.topic.versions import Versions
from tests.support.people import ALICE, BOB, CAROL, peer
from tests.unit.protocol.content.bench import (
    Home,
    KnownPeers,
    KnownTopic,
    a_context,
    a_routing,
    put,
    sent,
)
from tests.unit.protocol.content.stage import SCHEMA, TOPIC, WHERE, event_at, held_of

OTHERS = tuple(peer(f"peer {number}") for number in range(8))


def test_routing_names_a_peer_only_where_it_is_closer_than_the_node() -> None:
    context = a_context()
    routing = Routing(context, cast(Kademlia, KnownPeers(*OTHERS)))
    nearest = OTHERS[0]
    assert routing.closer(peer_key(nearest)) == nearest
    assert routing.closer(peer_key(ALICE.peer_id)) is None


def test_a_question_that_the_node_can_answer_itself_is_answered_at_once() -> None:
    context, home, trees = a_context(), Home(), Trees()
    home.begin(TOPIC.topic, "price", ROOT).is_split = True
    queries = ShapeQueries(context, a_routing(context), trees, home.places, home)
    queries.ask(TOPIC.topic, "price", ROOT, on_behalf=2)
    assert home.learnt_of == [((TOPIC.topic, "price", 2), ROOT)]
    assert trees.shape(TOPIC.topic, "price").is_split(ROOT)


def test_a_node_whose_child_exists_is_held_and_has_split() -> None:
    context, home = a_context(), Home()
    hints = ShapeHints(context, a_routing(context), Trees(), home.places, home)
    hints.learnt((TOPIC.topic, "price", 2), 4)
    assert home.halved == [home.places[TOPIC.topic, "price", 2]]


def test_the_pieces_of_a_split_leaf_are_kept_until_their_homes_have_them() -> None:
    context, home = a_context(), Home()
    splitting = Splitting(context, Trees(), home)
    place = home.begin(TOPIC.topic, "price", ROOT)
    put(place, held_of(BOB))
    splitting.split(place, 1)
    (moved,) = home.routed
    assert moved.purpose is Purpose.TRANSFER
    assert len(place.kept) == 1
    taken = PlaceTaken(moved.topic, moved.attribute, moved.at, moved.token)
    splitting.taken(home.places, taken)
    assert not place.kept


def test_the_neighbours_of_a_place_get_copies_of_it() -> None:
    context, home, trees = a_context(), Home(), Trees()
    routing = a_routing(context, *OTHERS)
    hints = ShapeHints(context, routing, trees, home.places, home)
    splitting = Splitting(context, trees, home)
    upkeep = Upkeep(context, routing, trees, home.places, hints, splitting)
    place = home.begin(TOPIC.topic, "price", ROOT)
    put(place, held_of(BOB))
    upkeep.touched(place)
    assert upkeep._flush_timer is not None
    context.turn.fired(upkeep._flush_timer)
    copies = sent(context, PlaceState)
    assert [to for to, _ in copies] == routing.around(place.key, context.parameters.replicas - 1)
    assert all(copy.purpose is Purpose.REPLICA and copy.held for _, copy in copies)


@pytest.mark.parametrize("who", [ALICE, CAROL])
def test_a_leaf_tells_a_subscriber_that_it_keeps_a_piece(who: Identity) -> None:
    taken: list[tuple[PeerId, int, int]] = []

    class Watched(ContentRules):
        def taken(self, subscriber: PeerId, sid: int, piece: int) -> None:
            taken.append((subscriber, sid, piece))

    context, home = a_context({ContentRules: Watched}), Home()
    spaces = cast(Spaces, KnownTopic())
    marks = cast(MarkPages, None)
    homes = Homes(context, a_routing(context), spaces, Trees(), marks, home)
    message = PlaceSubscription(TOPIC.topic, "price", ROOT, Stage.ASSURED, held_of(who), 9)
    homes.place(message, None)
    assert taken == [(who.peer_id, 1, 0)]
    assert homes.kept_count == 1
    told = [to for to, _ in home.answers] + [to for to, _ in sent(context, Installed)]
    assert told == [who.peer_id]


def test_an_event_goes_to_the_leaves_of_a_tree_that_is_known() -> None:
    probed: list[ProbeEvent] = []

    class Leaves:
        def probe(self, message: ProbeEvent, sender: PeerId | None) -> None:
            probed.append(message)

    context, trees = a_context(), Trees()
    told, shape = Shape(), trees.shape(TOPIC.topic, "price")
    for at in (1, 2, 4, 8, 16, 32):
        told.split(at)
    shape.merge(ROOT, told.to_bytes())
    probing = Probing(context, trees, cast(Homes, Leaves()))
    probing.publish(event_at(5.0), {"price": 0.05})
    (message,) = probed
    assert [target.at for target in message.targets] == shape.leaves(0.05)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_version_that_cannot_be_found_is_none(is_known: bool) -> None:
    class OneTopic:
        def get(self, topic: Cid) -> Versions | None:
            return Versions(TOPIC) if is_known else None

        def find(self, topic: Cid, then: Callable[[Versions | None], None]) -> None:
            then(None)

    found: list[Versions | None] = []
    spaces = Spaces(cast(Descriptors, OneTopic()), cast(Following, None))
    spaces.find(TOPIC.topic, TOPIC.cid, found.append)
    (versions,) = found
    assert (versions is not None) == is_known


def test_a_peer_that_is_no_member_says_so_to_a_subscriber() -> None:
    context = a_context()
    asked = CompareContent(3, TOPIC.topic, (WHERE,), 0, 0, 0, b"", (), True)
    Members(context).answer(BOB.peer_id, asked, None)
    ((to, answer),) = sent(context, ContentCompared)
    assert (to, answer.request, answer.log) == (BOB.peer_id, 3, 0)


def test_a_topics_filters_are_on_the_disk_once_it_has_its_start() -> None:
    context = a_context()
    spaces, dht = cast(Spaces, KnownTopic()), cast(Kademlia, KnownPeers())
    topic = ContentTopic(context, Versions(TOPIC), spaces, dht)
    topic.want(1, 2, parse(WHERE, SCHEMA))
    started: list[bool] = []
    topic.wait(1, lambda: started.append(True), lambda: started.append(False))
    topic.start({(BOB.peer_id, 7): 5})
    (written,) = [each for each in context.turn.effects if isinstance(each, Persist)]
    assert [row.row.table for row in written.writes if isinstance(row, PutState)] == [TABLE]
    assert not started
    context.turn.persisted(written.token)
    assert started == [True]
    assert topic.frontier.high(BOB.peer_id, 7) == 5
