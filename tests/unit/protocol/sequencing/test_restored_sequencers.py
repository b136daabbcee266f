"""A sequencer whose disk was restored may have voted since: it is another member, for good."""

import pytest

from pulsarcast.model.topics import DeliveryOrder, TopicSettings
from pulsarcast.protocol.effects import Persist
from pulsarcast.protocol.inputs import Now, Start
from pulsarcast.protocol.sequencing.configs import Config, Member
from pulsarcast.protocol.sequencing.log import ENTRY, SNAPSHOT, Entry, EntryKind, Snapshot
from pulsarcast.protocol.sequencing.messages import Append, RequestVote, Summon, Vote
from pulsarcast.protocol.sequencing.sequencer import Sequencer
from pulsarcast.protocol.sequencing.state import STORE, VOTE
from pulsarcast.protocol.store import RESTORED, DropState, PutState
from pulsarcast.storage.memory import MemoryStore
from tests.support.people import ALICE, CREATED_US, meta_of, peer, topic_of
from tests.support.solo import Parent, Solo

ME, ANN = peer("victim"), ALICE.peer_id
SETTINGS = TopicSettings(order=DeliveryOrder.TOTAL, sequencers=(ME, ANN))
TOPIC = topic_of(ALICE, SETTINGS)
ANNS_STORE = b"anns own"
TABLES = (STORE, VOTE, SNAPSHOT, ENTRY)


def start(store: MemoryStore, *, seed: int = 2) -> Solo:
    parent = Parent("alice", [TOPIC.block, meta_of(ALICE).block])
    solo = Solo(contacts=(ANN,), store=store, seed=seed)
    solo.peers[ANN] = parent
    return solo.start()


def join_as_sequencer(store: MemoryStore) -> Sequencer:
    """Become a sequencer there."""
    solo = start(store)
    solo.hear(ANN, Summon(TOPIC.cid))
    return solo.node.sequencer_registry.by_topic[TOPIC.cid].sequencer


def first_life() -> tuple[MemoryStore, Sequencer]:
    """One that has a store, has come to a term, and has a log that does not begin at its start."""
    solo = start(MemoryStore(), seed=1)
    solo.hear(ANN, Summon(TOPIC.cid))
    sequencer = solo.node.sequencer_registry.by_topic[TOPIC.cid].sequencer
    members = (Member(ME, sequencer.state.store), Member(ANN, ANNS_STORE))
    snapshot = Snapshot(3, 6, 0, None, Config(members))
    nothing = Entry(7, 0, EntryKind.NOTHING, b"")
    solo.hear(
        ANN,
        Append(TOPIC.cid, 7, ANNS_STORE, 3, 6, (), 3, 1, 0, snapshot),
        Append(TOPIC.cid, 7, ANNS_STORE, 3, 6, (nothing,), 3, 1, 0),
    )
    assert {row.table for row in solo.store.rows()} >= set(TABLES)
    return solo.store, sequencer


def sequencer_state_alone(store: MemoryStore) -> MemoryStore:
    """A disk with the sequencer's state of a topic that it does not follow any more."""
    alone = MemoryStore()
    alone.apply([PutState(row) for row in store.rows() if row.table in TABLES])
    return alone


def test_a_sequencer_that_left_comes_back_with_its_store() -> None:
    """What the next test is compared with."""
    store, before = first_life()
    again = join_as_sequencer(sequencer_state_alone(store))
    assert (again.state.store, again.state.term, again.log.last_index) == (before.state.store, 7, 4)


def test_who_had_not_voted_in_its_term_may_still_vote_in_it_after_a_restart() -> None:
    store, before = first_life()
    assert before.state.voted_for is None
    again = start(store)
    again.hear(ANN, RequestVote(TOPIC.cid, 7, ANNS_STORE, 4, 7, False))
    (vote,) = again.sent_to(ANN, Vote)
    assert vote.granted


@pytest.mark.parametrize("lives", [0, 1, 2])
def test_a_restored_disk_never_gets_its_old_store_and_vote_back(lives: int) -> None:
    store, before = first_life()
    store = sequencer_state_alone(store)
    store.apply([PutState(RESTORED)])
    for _ in range(lives):
        start(store)
        assert RESTORED not in store.rows()
    again = join_as_sequencer(store)
    assert again.state.store != before.state.store
    assert (again.state.term, again.log.last_index) == (0, 0)


def test_a_restored_disk_says_so_until_the_new_store_is_on_it() -> None:
    store, _ = first_life()
    store.apply([PutState(RESTORED)])
    solo = Solo(store=store)
    begin = Start(store.rows(), store.marks(), store.logs(), ())
    effects = solo.node.handle(begin, Now(0.0, CREATED_US))
    writes = [write for each in effects if isinstance(each, Persist) for write in each.writes]
    drops = [write.table if isinstance(write, DropState) else "" for write in writes]
    puts = [write.row.table if isinstance(write, PutState) else "" for write in writes]
    assert drops.index(STORE) < puts.index(STORE) < drops.index(RESTORED.table)
