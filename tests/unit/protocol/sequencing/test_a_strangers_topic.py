"""A stranger names us as a sequencer of its own topic, and lies: that may cost no more than it."""

from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from pulsarcast.model.events import Position, Sequence, decode_event, publish_own
from pulsarcast.model.ids import CID_BYTES, Cid, PeerId, cid_of
from pulsarcast.model.topics import DeliveryOrder, TopicDescriptor, TopicSettings
from pulsarcast.protocol.effects import Persist, Send
from pulsarcast.protocol.inputs import MessageReceived, Now, Persisted
from pulsarcast.protocol.messages import EventMessage, Message
from pulsarcast.protocol.sequencing import registry
from pulsarcast.protocol.sequencing.configs import Config, Member, pack_config
from pulsarcast.protocol.sequencing.entries import NUMBER_MAX
from pulsarcast.protocol.sequencing.log import (
    ENTRY,
    SNAPSHOT,
    Entry,
    EntryKind,
    Log,
    Snapshot,
    read_log,
)
from pulsarcast.protocol.sequencing.messages import Append, Appended, RequestVote, Summon, Vote
from pulsarcast.protocol.sequencing.sequencer import Sequencer
from pulsarcast.protocol.store import PutState, StateRow
from pulsarcast.storage.memory import MemoryStore
from tests.support.people import (
    CREATED_US,
    MALLORY,
    event_of,
    meta_of,
    nonce,
    peer,
    topic_of,
    version_of,
)
from tests.support.solo import Parent, Solo

ME, HER = peer("victim"), MALLORY.peer_id
HER_STORE = b"mallory!"


def settings_of(*peers: PeerId) -> TopicSettings:
    return TopicSettings(order=DeliveryOrder.TOTAL, sequencers=peers)


TOPIC = topic_of(MALLORY, settings_of(ME, HER))
META = meta_of(MALLORY)
STRICT = version_of(
    TOPIC,
    replace(settings_of(ME, HER), payload_bytes_max=10),
    signer=MALLORY,
)
"""Another version, that allows small events only."""


class Mallory(Parent):
    """Author and fellow sequencer: she votes for us, and says that she has what we send."""

    def __init__(self) -> None:
        super().__init__("mallory", [TOPIC.block, META.block])

    def __call__(self, message: Message) -> list[Message]:
        match message:
            case RequestVote(topic, term, _, _, _, pre_vote):
                return [Vote(topic, term - pre_vote, HER_STORE, True, pre_vote)]
            case Append(topic, term, _, before, _, entries):
                matched = before + len(entries)
                return [Appended(topic, term, HER_STORE, True, matched, 1 << 20, ())]
            case _:
                return super().__call__(message)


def start(store: MemoryStore | None = None) -> Solo:
    solo = Solo(contacts=(HER,), store=store)
    solo.peers[HER] = Mallory()
    return solo.start()


def summoned() -> Solo:
    solo = start()
    solo.hear(HER, Summon(TOPIC.cid))
    return solo


def sequencer(solo: Solo) -> Sequencer:
    return solo.node.sequencer_registry.by_topic[TOPIC.cid].sequencer


def append(before: int, *entries: Entry, term: int = 5) -> Append:
    """She leads, and sends entries behind those of hers that we have."""
    before_term = term if before else 0
    return Append(TOPIC.cid, term, HER_STORE, before, before_term, entries, 0, 1, 0, None)


def members_entry(
    members: tuple[Member, ...],
    outgoing: tuple[Member, ...] = (),
    version: Cid | None = None,
) -> Entry:
    return Entry(5, 0, EntryKind.MEMBERS, pack_config(Config(members, outgoing, version)))


def both(solo: Solo) -> tuple[Member, ...]:
    return (Member(ME, sequencer(solo).state.store), Member(HER, HER_STORE))


def counted(version: TopicDescriptor, payload: bytes) -> Entry:
    """The first event of the order, under a version that allows it or not."""
    event = publish_own(
        MALLORY,
        topic=TOPIC.cid,
        version=version.cid,
        payload=payload,
        created=CREATED_US,
        nonce=nonce("counted"),
        sequence=Sequence(0, 1),
        parents=(),
        position=Position(5, 1),
    )
    return Entry(5, 1, EntryKind.EVENT, event.block)


def announce(solo: Solo, *versions: TopicDescriptor) -> None:
    """Tell it of versions, as the author does."""
    for number, version in enumerate(versions, 1):
        event = event_of(MALLORY, META, number, payload=version.block)
        solo.hear(HER, EventMessage(event.block, 1))
        assert version.cid in solo.topic(TOPIC.cid).versions.by_cid


def test_an_entry_that_a_later_version_forbids_does_not_keep_us_from_starting() -> None:
    solo = summoned()
    forbidden = counted(STRICT, bytes(100))
    solo.hear(HER, append(0, members_entry(both(solo)), forbidden))
    assert sequencer(solo).log.last_index == 2
    announce(solo, STRICT)
    again = start(solo.store)
    assert sequencer(again).log.last_index == 2
    again.advance(30.0)
    assert sequencer(again).state.leads


def test_an_entry_that_a_version_we_know_forbids_is_not_taken() -> None:
    solo = summoned()
    announce(solo, STRICT)
    forbidden = counted(STRICT, bytes(100))
    solo.hear(HER, append(0, members_entry(both(solo)), forbidden))
    assert sequencer(solo).log.last_index == 0
    assert "oversize" in solo.reasons()


def test_a_change_of_the_list_without_a_version_is_not_taken() -> None:
    solo = summoned()
    me, her = both(solo)
    solo.hear(HER, append(0, members_entry((me, her), outgoing=(me,))))
    assert sequencer(solo).log.last_index == 0
    assert "invalid_log" in solo.reasons()
    solo.advance(30.0)
    assert sequencer(solo).state.leads


def test_a_change_from_others_than_those_before_it_is_not_taken() -> None:
    solo = summoned()
    me, her = both(solo)
    unknown = cid_of(b"a version that nobody made")
    joint = members_entry((her,), outgoing=(me,), version=unknown)
    solo.hear(HER, append(0, joint), append(0, members_entry((me, her)), joint))
    assert sequencer(solo).log.last_index == 0
    assert solo.reasons() == ["invalid_log"] * 2
    solo.hear(HER, append(0, members_entry((me, her))), append(1, joint))
    assert sequencer(solo).log.last_index == 1
    solo.hear(HER, append(1, members_entry((her,), outgoing=(me, her), version=unknown)))
    assert sequencer(solo).log.last_index == 2
    solo.hear(HER, append(2, members_entry((her,), version=unknown)))
    assert sequencer(solo).log.last_index == 3


@pytest.mark.parametrize("field", ["index", "term", "position"])
def test_a_base_beyond_what_anyone_can_have_come_to_is_not_taken(field: str) -> None:
    solo = summoned()
    snapshot = replace(Snapshot(7, 5, 0, None, Config(both(solo))), **{field: NUMBER_MAX + 1})
    solo.hear(HER, Append(TOPIC.cid, 5, HER_STORE, 7, 5, (), 7, 1, 0, snapshot))
    assert solo.reasons() == ["invalid_log"]
    assert sequencer(solo).log.snapshot.index == 0


def test_who_knows_no_version_of_those_who_go_does_not_hand_over() -> None:
    solo = summoned()
    me, her = both(solo)
    flipped = version_of(TOPIC, settings_of(HER, ME), signer=MALLORY)
    announce(solo, flipped)
    config = Config((her, me), (me,), flipped.cid)
    snapshot = Snapshot(7, 5, 0, None, config)
    solo.hear(HER, Append(TOPIC.cid, 5, HER_STORE, 7, 5, (), 7, 1, 0, snapshot))
    assert sequencer(solo).log.config() == config
    solo.advance(30.0)
    assert sequencer(solo).state.leads
    assert solo.node.counts["handover_without_version"] > 0
    assert sequencer(solo).log.last_position == 0


def test_a_list_that_its_version_does_not_name_begins_no_change() -> None:
    """We knew nothing of the version when we took it, and cannot hand over in its name."""
    solo = summoned()
    me, _ = both(solo)
    flipped = version_of(TOPIC, settings_of(HER, ME), signer=MALLORY)
    newer = version_of(flipped, settings_of(ME, HER), signer=MALLORY)
    solo.hear(HER, append(0, members_entry((me,), version=flipped.cid)))
    announce(solo, flipped, newer)
    solo.advance(30.0)
    assert sequencer(solo).state.leads
    assert solo.node.counts["handover_without_version"] > 0
    assert not sequencer(solo).log.config().is_joint


def test_those_of_a_version_that_lost_hand_over_in_its_name() -> None:
    """An author can make two versions of one number; the one in force may lose afterwards."""
    solo = summoned()
    me, her = both(solo)
    ours, hers = (
        [
            version_of(TOPIC, settings_of(*peers), signer=MALLORY, created=CREATED_US + later)
            for later in range(5)
        ]
        for peers in ((ME, HER), (HER, ME))
    )
    won = min(ours, key=lambda version: version.cid)
    lost = max(hers, key=lambda version: version.cid)
    assert won.cid < lost.cid
    newer = version_of(won, settings_of(ME, HER), signer=MALLORY)
    solo.hear(HER, append(0, members_entry((her, me), version=lost.cid)))
    announce(solo, lost, won, newer)
    solo.advance(30.0)
    last = sequencer(solo).log.event_at(1)
    assert last is not None
    handover = decode_event(last[1].body)
    assert (handover.version, handover.hands_over_to) == (lost.cid, newer.cid)


def test_a_lie_about_what_is_committed_lasts_until_a_restart() -> None:
    """Of what is committed there is nothing on a disk: the next leader is believed then."""
    solo = summoned()
    members, event = members_entry(both(solo)), counted(TOPIC, b"hers")
    solo.hear(HER, replace(append(0, members, event), committed=1 << 20))
    assert sequencer(solo).state.committed == 2, "no more than we have"
    instead = replace(append(1, Entry(6, 0, EntryKind.NOTHING, b"")), term=6)
    solo.hear(HER, instead)
    assert solo.reasons() == ["lost_entries"]
    again = start(solo.store)
    again.hear(HER, instead)
    assert not again.reasons()
    assert (sequencer(again).log.last_index, sequencer(again).log.last_term) == (2, 6)


def test_who_is_named_again_while_its_disk_still_writes_that_it_left_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solo = summoned()
    node = solo.node
    unsynced: list[Callable[[], None]] = []
    with monkeypatch.context() as slow:
        slow.setattr(node.turn, "persist", lambda *writes, then: unsynced.append(then))
        node.sequencer_registry.remove(TOPIC.cid)
    assert TOPIC.cid not in node.sequencer_registry.by_topic
    announce(solo, version_of(TOPIC, settings_of(ME, HER), signer=MALLORY))
    assert TOPIC.cid in node.sequencer_registry.by_topic
    (synced,) = unsynced
    synced()
    solo.advance(5.0)
    assert node.followed.is_followed(TOPIC.cid)
    assert TOPIC.cid in node.sequencer_registry.by_topic


def test_of_too_many_dismissals_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of topics may name us and then others; what we remember of it has an end."""
    monkeypatch.setattr(registry, "CHECKED_MAX", 1)
    other = topic_of(MALLORY, settings_of(ME, HER), name="other")
    mallory = Parent("mallory", [TOPIC.block, META.block, other.block])
    solo = Solo(contacts=(HER,))
    solo.peers[HER] = mallory
    solo.start().hear(HER, Summon(TOPIC.cid), Summon(other.cid))
    assert list(solo.node.sequencer_registry.by_topic) == [TOPIC.cid, other.cid]
    for topic in (TOPIC.cid, other.cid):
        solo.node.sequencer_registry.remove(topic)
    assert not solo.node.sequencer_registry.by_topic
    solo.hear(HER, Summon(TOPIC.cid), Summon(other.cid))
    assert list(solo.node.sequencer_registry.by_topic) == [TOPIC.cid]


def log_on_disk(solo: Solo) -> Log:
    """What a restart would find."""
    rows = solo.store.rows()
    kept = {
        int.from_bytes(row.key[CID_BYTES:], "big"): row.value for row in rows if row.table == ENTRY
    }
    snapshot = next((row.value for row in rows if row.table == SNAPSHOT), None)
    return read_log(kept, snapshot)


def any_append(rng: Random, solo: Solo, events: list[bytes]) -> Append:
    """What she might make up: some of it fits, most of it contradicts what she said before."""
    log = sequencer(solo).log
    before = rng.choice((log.last_index, rng.randint(0, log.last_index + 1)))
    before_term = log.term_at(before)
    term = max(5, sequencer(solo).state.term) + (rng.random() < 0.2)
    entry_term = max(5, before_term or 0)
    position = log.position_at(before) if before_term is not None else rng.randint(0, 5)
    position += rng.random() < 0.1
    entries = []
    for _ in range(rng.randint(0, 4)):
        kind = rng.choice((EntryKind.EVENT, EntryKind.EVENT, EntryKind.NOTHING, EntryKind.MEMBERS))
        position += (kind is EntryKind.EVENT) + (rng.random() < 0.05)
        body = b""
        if kind is EntryKind.EVENT:
            body = rng.choice(events) if rng.random() < 0.95 else b"nothing that is one"
        elif kind is EntryKind.MEMBERS:
            body = pack_config(Config(both(solo)[rng.random() < 0.1 :]))
        entry_term = rng.randint(min(entry_term, term), term)
        entries.append(Entry(entry_term, position, kind, body))
    snapshot = None
    if rng.random() < 0.1:
        entries = []
        snapshot = Snapshot(
            rng.randint(0, 12), rng.randint(4, term), position, None, Config(both(solo))
        )
    committed = rng.randint(0, log.last_index) if rng.random() < 0.2 else 0
    return Append(
        TOPIC.cid,
        term,
        HER_STORE,
        before,
        before_term or 0,
        tuple(entries),
        committed,
        certify=1,
        settled=0,
        snapshot=snapshot,
    )


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_refused_our_log_is_what_our_disk_has(seed: int) -> None:
    """Else a restart would find a log with a hole, and forget what we said that we have."""
    rng = Random(seed)
    solo = summoned()
    events = [
        event_of(MALLORY, TOPIC, at, epoch=0, position=Position(5, at)).block for at in range(1, 9)
    ]
    taken, refused = 0, 0
    for _ in range(60):
        was, heard = list(sequencer(solo).log), len(solo.reasons())
        solo.hear(HER, any_append(rng, solo, events))
        log, found = sequencer(solo).log, log_on_disk(solo)
        assert (list(found), found.snapshot) == (list(log), log.snapshot)
        taken += list(log) != was
        refused += len(solo.reasons()) > heard
    assert taken > 3
    assert refused > 3


def test_a_sequencer_that_comes_back_says_nothing_that_its_disk_does_not_have_yet() -> None:
    """It had left with an entry on its way to the disk, and told its leader to have it."""
    solo = summoned()
    now = Now(solo.now_s, CREATED_US)
    entry = members_entry(both(solo))
    written = solo.node.handle(MessageReceived(HER, append(0, entry)), now)
    (syncing,) = [each.token for each in written if isinstance(each, Persist) and each.writes][-1:]
    solo.node.sequencer_registry.close(TOPIC.cid)
    solo.node.sequencer_registry.open(solo.topic(TOPIC.cid))
    effects = solo.node.handle(MessageReceived(HER, append(1)), now)
    assert not [each for each in effects if isinstance(each, Send)]
    tokens = [syncing, *(each.token for each in effects if isinstance(each, Persist))]
    synced = [each for token in tokens for each in solo.node.handle(Persisted(token), now)]
    (answer,) = [each.message for each in synced if isinstance(each, Send)]
    assert isinstance(answer, Appended)
    assert (answer.agreed, answer.matched) == (True, 1)


def test_a_version_that_does_not_name_the_node_is_not_kept_on_the_disk() -> None:
    """Its topic is in memory only: after a restart nothing would ever drop it."""
    other = topic_of(MALLORY, settings_of(HER, peer("carol")), name="other")
    newer = version_of(other, settings_of(peer("carol"), HER), signer=MALLORY)
    solo = Solo(contacts=(HER,))
    solo.peers[HER] = Parent("mallory", [other.block, newer.block])
    solo.start().hear(HER, Summon(other.cid, newer.cid))
    solo.advance(10.0)
    versions = solo.node.descriptors.get(other.cid)
    assert versions is not None
    assert newer.cid in versions.by_cid
    assert not [row for row in solo.store.rows() if row.table == "topic"]


def test_a_version_whose_first_is_not_on_the_disk_is_dropped_from_it() -> None:
    store = MemoryStore()
    store.apply([PutState(StateRow("topic", STRICT.cid, STRICT.block))])
    start(store)
    assert not [row for row in store.rows() if row.table == "topic"]
