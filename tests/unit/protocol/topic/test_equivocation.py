"""Two events with one number: how a member notices."""

import pytest

from pulsarcast.model.errors import RemoteError
from pulsarcast.protocol.effects import Load
from pulsarcast.protocol.inputs import MessageReceived, Now
from pulsarcast.protocol.messages import EventMessage
from pulsarcast.protocol.store import Block, LoadBlock, MarkState, PutState
from pulsarcast.protocol.topic.equivocation import CLAIMS_INTERVAL_S, Equivocation
from tests.support.people import ALICE, BOB, CREATED_US, EPOCH, MALLORY, event_of, meta_of, topic_of
from tests.support.solo import Parent, below
from tests.unit.protocol.topic.bench import Bench

TOPIC = topic_of(ALICE)


@pytest.mark.parametrize("number", [1, 4], ids=["the newest", "one beyond a gap"])
def test_what_comes_again_under_a_number_that_the_frontier_knows_asks_nothing_of_the_disk(
    number: int,
) -> None:
    solo = below(Parent("alice", [TOPIC.block, meta_of(ALICE).block]))
    solo.subscribe(TOPIC.cid)
    event = event_of(BOB, TOPIC, number)
    again = MessageReceived(MALLORY.peer_id, EventMessage(event.block, 1))
    solo.give(again)
    assert solo.cids() == [event.cid]
    effects = solo.node.handle(again, Now(solo.now_s, CREATED_US))
    assert not [effect for effect in effects if isinstance(effect, Load)]


def bench() -> tuple[Bench, Equivocation]:
    made = Bench(TOPIC)
    return made, Equivocation(made.state, made.members.overlay, made.owner)


def test_the_first_two_events_with_one_number_are_kept_as_proof_and_shown_to_their_publisher() -> (
    None
):
    made, equivocation = bench()
    held, *others = (event_of(MALLORY, TOPIC, payload=text) for text in (b"a", b"b", b"c"))
    made.frontier.add(MALLORY.peer_id, EPOCH, 1, held.cid)
    assert equivocation.knows(held, b"")
    for other in others:
        with pytest.raises(RemoteError, match="two events with one number"):
            equivocation.knows(other, b"")
    effects = made.effects()
    (load,) = [each for each in effects if isinstance(each, Load)]
    assert load.query == LoadBlock(held.cid)
    made.turn.loaded(load.token, Block(held.block))
    assert made.sent() == [
        (MALLORY.peer_id, EventMessage(each.block, 1)) for each in (held, others[0])
    ]
    made.turn.effects = effects
    (proof,) = made.sync()
    assert isinstance(proof, PutState)
    assert (proof.row.key, proof.row.value) == (held.cid, others[0].block)


def test_our_own_number_on_two_events_is_reported_each_time() -> None:
    made, equivocation = bench()
    held, *others = (event_of(BOB, TOPIC, payload=text) for text in (b"a", b"b", b"c"))
    made.frontier.add(BOB.peer_id, EPOCH, 1, held.cid)
    for other in others:
        with pytest.raises(RemoteError):
            equivocation.knows(other, b"")
    assert made.owner.twice == [other.cid for other in others]


def test_what_a_peer_claims_to_hold_instead_is_looked_at_now_and_then() -> None:
    made, equivocation = bench()
    held, other = (event_of(MALLORY, TOPIC, payload=text) for text in (b"a", b"b"))
    made.frontier.add(MALLORY.peer_id, EPOCH, 1, held.cid)
    same, claim = (MarkState(MALLORY.peer_id, EPOCH, 0, 1, event.cid) for event in (held, other))
    assert equivocation.claimed_otherwise([same]) is None
    assert equivocation.claimed_otherwise([same, claim]) == claim
    assert equivocation.claimed_otherwise([claim]) is None
    made.turn.now += CLAIMS_INTERVAL_S
    assert equivocation.claimed_otherwise([claim]) == claim
