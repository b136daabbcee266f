"""Whole nodes whose topic has several sequencers: finding the leader, certificates, succession."""

from functools import partial

import pytest

from pulsarcast.model.certificates import make_certificate, sign_place
from pulsarcast.model.errors import Halted
from pulsarcast.model.events import Position, Sequence, publish_request
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, shared_numbering
from pulsarcast.model.requests import sign_request
from pulsarcast.model.topics import DeliveryOrder, TopicSettings
from pulsarcast.protocol.inputs import MessageReceived, Publish
from pulsarcast.protocol.messages import EventMessage, topic_of
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.sequencing import sequencer
from pulsarcast.protocol.sequencing.raft_member import RaftMember
from pulsarcast.protocol.store import Events, LoadNumbers
from tests.support.lab import Lab

NODES = 8
SEQUENCERS = (0, 1, 2)
AUTHOR, READER = 5, 6


def settings_of(lab: Lab, count: int) -> TopicSettings:
    peers = tuple(lab.peer(index) for index in range(count))
    return TopicSettings(order=DeliveryOrder.TOTAL, sequencers=peers)


def make_lab(count: int = 3, *, seed: int = 1) -> tuple[Lab, Cid]:
    """Some nodes, of which the first few order one topic; all of them subscribe."""
    lab = Lab(NODES, seed=seed, through_wire=True)
    topic = lab.create(AUTHOR, settings_of(lab, count))
    lab.subscribe(range(NODES), topic)
    lab.run(15.0)
    return lab, topic


def member(lab: Lab, index: int, topic: Cid) -> RaftMember:
    return lab.world.node(index).sequencer_registry.by_topic[topic]


def leader_of(lab: Lab, topic: Cid) -> int:
    living = [index for index in SEQUENCERS if lab.world.is_up(index)]
    leaders = [index for index in living if member(lab, index, topic).sequencer.state.leads]
    assert len(leaders) == 1, leaders
    return leaders[0]


def identity(lab: Lab, index: int) -> Identity:
    return lab.world.node(index).turn.identity


def test_sequencers_are_summoned_and_one_of_them_leads() -> None:
    lab, topic = make_lab()
    leader = leader_of(lab, topic)
    told = {member(lab, index, topic).sequencer.state.leader for index in SEQUENCERS}
    assert told == {lab.peer(leader)}


def test_everybodys_events_get_one_order_and_carry_their_certificates() -> None:
    lab, topic = make_lab()
    sent = [lab.publish(index, topic, b"from %d" % index) for index in (0, 1, 2, 5, 6, 7)]
    lab.run(10.0)
    for index in range(NODES):
        assert lab.delivered(index, topic) == sent
    ordered = [lab.event(cid) for cid in sent]
    assert [event.position.number for event in ordered if event.position] == [1, 2, 3, 4, 5, 6]
    assert {event.sequence.epoch for event in ordered} == {0}
    in_topic = [m for m in lab.messages(EventMessage) if topic_of(m) == topic]
    assert in_topic
    assert all(message.certificate for message in in_topic)


def test_a_successor_takes_over_and_the_order_goes_on() -> None:
    lab, topic = make_lab()
    first = lab.publish(AUTHOR, topic, b"before")
    leader = leader_of(lab, topic)
    lab.world.kill(leader)
    second = lab.publish(AUTHOR, topic, b"after")
    lab.run(10.0)
    one, other = lab.event(first), lab.event(second)
    assert one.position is not None
    assert other.position is not None
    assert other.position.number == one.position.number + 1
    assert other.position.term > one.position.term
    assert other.parents == (first,)
    assert lab.delivered(READER, topic) == [first, second]


def test_a_steady_stream_of_requests_finds_the_successor() -> None:
    """Every request to one that is gone fails anew; that must not put off all the others."""
    lab, topic = make_lab()
    lab.publish(AUTHOR, topic, b"before")
    lab.world.kill(leader_of(lab, topic))
    for number in range(100):
        lab.start(AUTHOR, partial(_publish, topic, b"%d" % number))
        lab.run(0.1)
    # One to two timeouts for an election, and a moment to find out who was elected.
    assert len(lab.delivered(READER, topic)) > 80


def test_one_that_returns_steps_back_and_catches_up() -> None:
    lab, topic = make_lab()
    lab.publish(AUTHOR, topic, b"before")
    old = leader_of(lab, topic)
    lab.world.kill(old)
    lab.publish(AUTHOR, topic, b"after")
    lab.world.restart(old)
    lab.run(20.0)
    assert leader_of(lab, topic) != old
    assert member(lab, old, topic).events.held() == 2
    third = lab.publish(old, topic, b"from the old leader")
    lab.run(5.0)
    assert lab.delivered(READER, topic)[-1] == third


def test_one_that_lost_its_store_votes_again_once_it_is_admitted() -> None:
    lab, topic = make_lab()
    lab.publish(AUTHOR, topic, b"before")
    victim = next(index for index in SEQUENCERS if index != leader_of(lab, topic))
    lab.world.kill(victim)
    lab.world.restart(victim, keep_disk=False)
    lab.run(2.0)
    lab.publish(AUTHOR, topic, b"meanwhile")
    lab.run(30.0)
    back = member(lab, victim, topic)
    assert back.sequencer.state.has_vote
    assert back.events.held() == 2
    assert lab.world.node(leader_of(lab, topic)).counts["readmitted"] == 1
    # Now the other one may be lost as well.
    lab.world.kill(leader_of(lab, topic))
    third = lab.publish(AUTHOR, topic, b"after")
    lab.run(5.0)
    assert lab.delivered(READER, topic)[-1] == third


def test_without_most_of_them_requests_wait_and_none_is_lost() -> None:
    lab, topic = make_lab()
    for index in (0, 1):
        lab.world.kill(index)
    replies = lab.start(AUTHOR, lambda call: Publish(call, topic, b"patience"))
    lab.run(60.0)
    assert not replies
    lab.world.restart(0)
    lab.run(40.0)
    assert replies[0].refusal is None
    assert lab.delivered(READER, topic) == [replies[0].cid]


def test_a_request_is_published_once_however_often_its_leader_changes() -> None:
    lab, topic = make_lab()
    replies = []
    for number in range(12):
        payload = b"request %d" % number
        replies.append(lab.start(AUTHOR, partial(_publish, topic, payload)))
        if number % 4 == 1:
            old = leader_of(lab, topic)
            lab.world.kill(old)
            lab.run(12.0)
            lab.world.restart(old)
        lab.run(0.3)
    lab.run(60.0)
    assert all(reply and reply[0].refusal is None for reply in replies)
    payloads = [event.payload for event in lab.log(READER, topic)]
    assert sorted(payloads) == sorted(b"request %d" % number for number in range(12))
    assert payloads == [b"request %d" % number for number in range(12)], "in the author's order"


def _publish(topic: Cid, payload: bytes, call: int) -> Publish:
    return Publish(call, topic, payload)


def certified(lab: Lab, topic: Cid, number: int, signers: tuple[int, ...]) -> EventMessage:
    """An event that never was in any log, with as many signatures as these nodes give."""
    author = identity(lab, AUTHOR)
    signed = sign_request(
        author,
        topic=topic,
        payload=b"a lie",
        created=1,
        nonce=bytes(16),
        sequence=Sequence(7, 1),
    )
    event = publish_request(
        identity(lab, signers[0]),
        signed,
        version=topic,
        sequence=Sequence(0, number),
        parents=(),
        position=Position(9, number),
    )
    assert event.position is not None
    signatures = {
        lab.peer(index): sign_place(identity(lab, index), topic, event.position, event.cid)
        for index in signers
    }
    sequencers = tuple(lab.peer(index) for index in SEQUENCERS)
    if len(signers) > 1:
        return EventMessage(event.block, 1, make_certificate(sequencers, signatures))
    return EventMessage(event.block, 1, bytes([signers[0]]) + signatures[sequencers[signers[0]]])


def receive(lab: Lab, index: int, message: EventMessage) -> None:
    """A message reaches a node from one of its sequencers."""
    process = lab.world._hosts[index].process
    assert process is not None
    process.take(MessageReceived(lab.peer(0), message))


@pytest.mark.parametrize("certificate", [b"", b"nothing", bytes(130), None])
def test_a_deposed_sequencer_convinces_nobody(certificate: bytes | None) -> None:
    lab, topic = make_lab()
    first = lab.publish(AUTHOR, topic, b"first")
    lie = certified(lab, topic, 2, (1,))
    if certificate is not None:
        lie = EventMessage(lie.block, 1, certificate)
    receive(lab, READER, lie)
    lab.run(10.0)
    assert lab.delivered(READER, topic) == [first]
    assert (lie.certificate == b"") != ("bad_certificate" in lab.reasons(READER))


def test_two_certificates_for_one_position_stop_the_topic() -> None:
    lab, topic = make_lab()
    first = lab.publish(AUTHOR, topic, b"first")
    lab.publish(AUTHOR, topic, b"second")
    receive(lab, READER, certified(lab, topic, 1, (0, 1)))
    lab.run(10.0)
    assert "two_certificates" in lab.reasons(READER)
    for index in range(NODES):
        assert lab.world.node(index).topics[topic].halted is not None
    reply = lab.ask(READER, lambda call: Publish(call, topic, b"third"))
    assert reply.refusal is not None
    assert reply.refusal.code == Halted.code
    assert "two events are certified for position 1" in reply.refusal.message
    rows = {row.table: row for row in lab.world.store(READER).rows()}
    assert rows["proof"].key == first
    lab.world.kill(READER)
    lab.world.restart(READER)
    lab.run(5.0)
    assert lab.world.node(READER).topics[topic].halted is not None


def test_certificates_rest_beside_their_events_and_are_handed_on() -> None:
    lab, topic = make_lab()
    sent = [lab.publish(AUTHOR, topic, b"%d" % number) for number in range(3)]
    answer = lab.world.store(READER).answer(
        LoadNumbers(topic, shared_numbering(topic), 0, 1, 9, 1 << 20)
    )
    assert isinstance(answer, Events)
    assert [event.cid for _, event in answer.events] == sent
    assert all(answer.certificates)
    # A latecomer gets both by history.
    lab.unsubscribe(7, topic)
    lab.run(10.0)
    lab.subscribe([7], topic, from_start=True)
    lab.run(20.0)
    assert lab.delivered(7, topic)[-3:] == sent


def test_a_leader_remembers_no_author_whose_requests_are_in_its_history() -> None:
    """There may be any number of authors, and of epochs, for as long as it leads."""
    lab, topic = make_lab()
    leader = leader_of(lab, topic)
    for index in (3, 4, 5, 6):
        lab.publish(index, topic, b"from %d" % index)
        lab.publish(index, topic, b"again from %d" % index)
    lab.run(10.0)
    leading = member(lab, leader, topic)
    assert leading.events.held() == 8
    assert (len(leading.proposals), len(leading.queue)) == (0, 0)


def test_what_is_kept_for_those_who_lag_is_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And one that comes back later than that gets the snapshot, and the events as members do."""
    monkeypatch.setattr(sequencer, "KEPT_BYTES_MAX", 64 << 10)
    lab, topic = make_lab()
    leader = leader_of(lab, topic)
    late = next(index for index in SEQUENCERS if index != leader)
    lab.world.kill(late)
    sent = []
    for _ in range(30):
        sent.append(lab.publish(AUTHOR, topic, bytes(8 << 10)))
        lab.run(1.0)
    lab.run(10.0)
    for index in SEQUENCERS:
        if index != late:
            log = member(lab, index, topic).sequencer.log
            assert log.snapshot.index > 0
            assert log.bytes_after(log.snapshot.index) < 2 * (64 << 10) + (16 << 10)
    lab.world.restart(late)
    lab.run(30.0)
    assert lab.delivered(late, topic) == sent
    log = member(lab, late, topic).sequencer.log
    assert log.last_index == member(lab, leader, topic).sequencer.log.last_index


def test_a_log_whose_events_are_in_most_histories_never_rests_at_twice_what_it_keeps() -> None:
    kept = 4
    lab = Lab(3, parameters=Parameters(sequencer_log=kept))
    topic = lab.create(0, settings_of(lab, 3))
    lab.subscribe(range(3), topic)
    lab.run(15.0)
    lengths = set()
    for _ in range(12):
        lab.publish(0, topic, settle_s=5.0)
        lengths.add(len(member(lab, leader_of(lab, topic), topic).sequencer.log))
    assert max(lengths) == 2 * kept - 1


def test_a_node_is_a_sequencer_of_so_many_topics_and_no_more() -> None:
    lab, topic = make_lab()
    registry = lab.world.node(0).sequencer_registry
    assert list(registry.by_topic) == [topic]
    registry.summoned(Cid(bytes(36)))
    lab.run(20.0)
    assert list(registry.by_topic) == [topic]
