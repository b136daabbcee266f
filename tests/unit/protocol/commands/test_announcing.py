"""Announcing: a version that its author made reaches the members and the DHT, whatever happens."""

import pytest

from pulsarcast.model.ids import Cid
from pulsarcast.model.topics import decode_topic
from pulsarcast.protocol.inputs import FetchBlock, UpdateTopic
from tests.support.lab import Lab
from tests.support.people import unordered

AUTHOR, MEMBER, LATER = range(3)
SIZE = 40
"""So many that the author is no replica of its own versions."""
CUT_S = 150.0
LONG_S = 120.0
"""By then a member in a topic where nothing happens has noticed that its parent was away."""


def cut_off() -> tuple[Lab, Cid]:
    """A topic with a member; its author is cut off from all others."""
    lab = Lab(SIZE, seed=3)
    topic = lab.create(AUTHOR)
    lab.subscribe([MEMBER], topic)
    lab.world.cut([{AUTHOR}, set(range(1, SIZE))])
    return lab, topic


def update(lab: Lab, topic: Cid, size: int) -> None:
    lab.start(AUTHOR, lambda call: UpdateTopic(call, topic, unordered(payload_bytes_max=size)))


def newest(lab: Lab, index: int, topic: Cid) -> int:
    return lab.world.node(index).topics[topic].descriptor.number


@pytest.mark.parametrize("killed_s", [0.0, 0.05, 5.0])
def test_a_version_made_just_before_a_crash_is_announced_after_the_restart(killed_s: float) -> None:
    lab, topic = cut_off()
    update(lab, topic, 100)
    lab.run(killed_s + 0.02)
    lab.world.kill(AUTHOR)
    lab.world.heal()
    lab.run(1.0)
    lab.world.restart(AUTHOR)
    lab.run(LONG_S)
    assert newest(lab, AUTHOR, topic) == 1
    assert newest(lab, MEMBER, topic) == 1


def test_versions_in_a_row_that_were_never_announced_can_be_judged_by_all() -> None:
    lab, topic = cut_off()
    for size in (100, 200):
        update(lab, topic, size)
        lab.run(0.1)
        lab.world.kill(AUTHOR)
        lab.run(1.0)
        lab.world.restart(AUTHOR)
        lab.run(1.0)
    lab.world.heal()
    lab.run(LONG_S)
    event = lab.publish(AUTHOR, topic)
    lab.run(5.0)
    assert lab.delivered(MEMBER, topic)[-1] == event
    lab.subscribe([LATER], topic)
    last = lab.publish(AUTHOR, topic)
    lab.run(30.0)
    assert lab.delivered(LATER, topic)[-1] == last, "it finds all versions in the DHT"


def test_a_version_that_no_peer_took_is_placed_again() -> None:
    lab, topic = cut_off()
    update(lab, topic, 100)
    lab.run(CUT_S)
    version = lab.world.node(AUTHOR).topics[topic].descriptor
    lab.world.heal()
    lab.run(LONG_S)
    found = lab.ask(LATER, lambda call: FetchBlock(call, version.cid))
    assert found.block is not None
    assert decode_topic(found.block) == version
