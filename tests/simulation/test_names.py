"""Names of one identity that two nodes change without knowing of each other, and their healing.

A backup runs beside its original, a cut lies between them, and both give the same name. Afterwards
every node resolves the name to the same topic, and both the author's nodes and the others see that
there was a clash.
"""

from collections.abc import Iterable

import pytest

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid
from pulsarcast.model.pointers import Resolution
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import CreateTopic, MoveName, Publish, Resolve
from pulsarcast.protocol.store import RESTORED, PutState
from tests.support.lab import Lab
from tests.support.people import unordered

SIZE = 10
AUTHOR = 4
HERE, THERE = [4, 1, 2, 3, 5], [0, 6, 7, 8, 9]
"""The author's first contacts are 0 and 2, so its backup finds the others on its side by them."""
HEALED_S = 180.0


def twins(lab: Lab) -> int:
    """Cut the network in two, with a backup of the author on the other side."""
    disk = lab.world.store(AUTHOR).copy()
    disk.apply([PutState(RESTORED)])
    lab.world.cut([HERE, [*THERE, SIZE]])
    lab.run(60.0)
    clone = lab.world.add_clone(AUTHOR, disk)
    assert clone == SIZE
    lab.run(30.0)
    return clone


def resolved(lab: Lab, index: int, name: str = "weather") -> Resolution:
    reply = lab.ask(index, lambda call: Resolve(call, lab.peer(AUTHOR), name))
    assert reply.resolution is not None, reply.refusal
    return reply.resolution


def move(lab: Lab, index: int, topic: Cid, name: str = "weather") -> Reply:
    reply = lab.ask(index, lambda call: MoveName(call, name, topic))
    assert reply.refusal is None, reply.refusal
    return reply


def clashes(lab: Lab, indices: Iterable[int]) -> set[int]:
    """The nodes that have said that a name clashes."""
    return {
        seen.node
        for seen in lab.seen
        if seen.node in indices and isinstance(seen.record, trace.NameChanged) and seen.record.clash
    }


def heal(lab: Lab) -> None:
    lab.world.heal()
    lab.run(HEALED_S)


def answers_of(lab: Lab, clone: int) -> list[Resolution]:
    """What every node says, the author itself once its double is gone.

    Two nodes with one key take each other's connections: one of them may reach no peer meanwhile.
    """
    others = [index for index in range(SIZE) if index != AUTHOR]
    answers = [resolved(lab, index) for index in (*others, clone)]
    lab.world.kill(clone)
    lab.run(HEALED_S)
    return [*answers, resolved(lab, AUTHOR)]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_name_moved_on_both_sides_of_a_cut_ends_with_one_topic_and_a_visible_clash(
    seed: int,
) -> None:
    lab = Lab(SIZE, seed=seed)
    first = lab.create(AUTHOR, name="weather")
    lab.create(AUTHOR, name="here")
    there = lab.create(AUTHOR, name="there")
    lab.subscribe([3, 8], first)
    clone = twins(lab)
    here = resolved(lab, AUTHOR, "here").topic
    move(lab, AUTHOR, here)
    move(lab, clone, there)
    assert resolved(lab, 2).pointer.topic == here
    assert resolved(lab, 7).pointer.topic == there
    heal(lab)
    answers = answers_of(lab, clone)
    assert {each.pointer.topic for each in answers} == {min(here, there)}
    assert {each.rival and each.rival.topic for each in answers} == {max(here, there)}
    assert clashes(lab, range(SIZE + 1)) >= {AUTHOR, 2, 7}
    assert [each.pointer.moves for each in answers] == [1] * (SIZE + 1)
    lab.publish(AUTHOR, first, b"still read", settle_s=60.0)
    assert len(lab.delivered(3, first)) == len(lab.delivered(8, first)) == 1


@pytest.mark.parametrize(("seed", "owner"), [(0, AUTHOR), (1, SIZE)])
def test_an_author_settles_a_clash_by_moving_the_name_again(seed: int, owner: int) -> None:
    lab = Lab(SIZE, seed=seed)
    clone = twins(lab)
    topics = {lab.create(index, name="weather"): index for index in (AUTHOR, clone)}
    heal(lab)
    assert {resolved(lab, index).pointer.topic for index in (2, 7)} == {min(topics)}
    lost = max(topics)
    assert topics[lost] == owner
    # While both live, they take each other's connections, and either may reach no peer.
    lab.world.kill(AUTHOR + clone - owner)
    lab.run(30.0)
    move(lab, owner, lost)
    lab.run(1.0)
    answers = [resolved(lab, index) for index in {*range(SIZE), owner} - {AUTHOR + clone - owner}]
    assert {(each.pointer.topic, each.rival) for each in answers} == {(lost, None)}
    assert lab.world.node(owner).names.notable() == []


def test_versions_made_on_both_sides_of_a_cut_end_with_one_at_every_node() -> None:
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR, name="weather")
    lab.subscribe([3, 8], topic)
    clone = twins(lab)
    lab.update(AUTHOR, topic, unordered(payload_bytes_max=100))
    for size in (200, 300):
        lab.update(clone, topic, unordered(payload_bytes_max=size))
    heal(lab)
    answers = answers_of(lab, clone)
    assert {(each.pointer.topic, each.pointer.number) for each in answers} == {(topic, 2)}
    assert len({each.pointer.cid for each in answers}) == 1
    lab.run(30.0)
    for index in (AUTHOR, 3, 8):
        assert lab.world.node(index).topics[topic].descriptor.payload_bytes_max == 300


def test_equal_numbers_of_versions_on_both_sides_are_shown_as_a_clash() -> None:
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR, name="weather")
    clone = twins(lab)
    lab.update(AUTHOR, topic, unordered(payload_bytes_max=100))
    lab.update(clone, topic, unordered(payload_bytes_max=200))
    heal(lab)
    answers = answers_of(lab, clone)
    assert len({(each.pointer.cid, each.rival and each.rival.cid) for each in answers}) == 1
    (rival,) = {each.rival for each in answers}
    assert rival is not None
    assert clashes(lab, [AUTHOR, 2, 7]) == {AUTHOR, 2, 7}
    lab.run(30.0)
    assert lab.world.node(AUTHOR).topics[topic].descriptor.cid == answers[0].pointer.cid


def test_a_reader_of_a_name_that_moved_goes_on_with_what_it_reads_also_after_a_restart() -> None:
    lab = Lab(SIZE)
    old = lab.create(AUTHOR, name="weather")
    new = lab.create(AUTHOR, name="weather 2")
    assert resolved(lab, 3).topic == old
    assert resolved(lab, 5).topic == old
    lab.subscribe([3], old)
    move(lab, AUTHOR, new)
    lab.run(1.0)
    reader, other = resolved(lab, 3), resolved(lab, 5)
    assert (reader.topic, reader.pointer.topic) == (old, new)
    assert (other.topic, other.reading) == (new, None)
    said = [
        (seen.node, seen.record.topic, seen.record.other)
        for seen in lab.seen
        if isinstance(seen.record, trace.NameChanged)
    ]
    assert said == [(AUTHOR, new, old), (3, new, old), (5, new, old)]
    lab.world.kill(3)
    lab.world.restart(3)
    lab.run(20.0)
    assert resolved(lab, 3).topic == old
    event = lab.publish(AUTHOR, old)
    assert event in lab.delivered(3, old)
    lab.unsubscribe(3, old)
    lab.run(5.0)
    assert resolved(lab, 3).topic == new


def test_a_node_with_a_new_store_finds_the_names_of_its_key_in_the_network() -> None:
    lab = Lab(SIZE)
    topic = lab.create(AUTHOR, name="weather")
    lab.update(AUTHOR, topic, unordered(payload_bytes_max=100))
    lab.world.kill(AUTHOR)
    lab.world.restart(AUTHOR, keep_disk=False)
    lab.run(20.0)
    refused = lab.ask(AUTHOR, lambda call: CreateTopic(call, "weather", unordered()))
    assert refused.refusal is not None
    assert refused.refusal.code == "name_in_use"
    ensured = lab.ask(AUTHOR, lambda call: CreateTopic(call, "weather", unordered(), ensure=()))
    assert ensured.cid == topic
    assert lab.world.node(AUTHOR).topics[topic].descriptor.number == 1
    reply = lab.ask(AUTHOR, lambda call: Publish(call, topic, b"again"))
    assert reply.refusal is None
