"""Topic descriptors: one lookup for all that ask, and a cache that keeps what is in use."""

import pytest

from pulsarcast.protocol.following import descriptors as descriptors_module
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.store import DropState
from pulsarcast.protocol.topic.versions import Versions
from tests.support.parts import Core
from tests.support.people import ALICE, BOB, event_of, topic_of, version_of

TOPIC = topic_of(BOB)
OLD, OTHER, NEW = (topic_of(BOB, name=name) for name in ("old", "other", "new"))


def descriptors_of(core: Core) -> Descriptors:
    return Descriptors(core.context, core.dht, core.outbox, core.outside)


def test_all_that_look_for_a_topic_share_one_lookup() -> None:
    core = Core()
    descriptors = descriptors_of(core)
    found: list[Versions | None] = []
    descriptors.find(TOPIC.cid, found.append)
    descriptors.find(TOPIC.cid, found.append)
    assert core.network.found(TOPIC.block) == TOPIC.cid
    assert core.network.finding == []
    assert [each is descriptors.get(TOPIC.cid) for each in found] == [True, True]


def test_a_block_of_another_topic_is_as_good_as_none() -> None:
    core = Core()
    descriptors = descriptors_of(core)
    found: list[Versions | None] = []
    descriptors.find(TOPIC.cid, found.append)
    core.network.found(OTHER.block)
    assert found == [None]
    assert len(descriptors) == 0


def test_a_full_cache_forgets_the_oldest_topic_that_is_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descriptors_module, "CACHED_MAX", 1)
    core = Core()
    descriptors = descriptors_of(core)
    descriptors.follow(Versions(TOPIC))
    for each in (OLD, NEW):
        descriptors.keep(Versions(each))
    core.sync()
    descriptors.trim()
    assert core.sync() == [DropState("topic", OLD.cid)]
    assert [descriptors.get(each.cid) is None for each in (TOPIC, OLD, NEW)] == [False, True, False]


def test_a_topic_with_an_own_event_that_no_member_has_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descriptors_module, "CACHED_MAX", 1)
    core = Core()
    descriptors = descriptors_of(core)
    for each in (OLD, NEW):
        descriptors.keep(Versions(each))
    core.outside.offer(event_of(ALICE, OLD), BOB.peer_id, own=True)
    descriptors.trim()
    assert descriptors.get(OLD.cid) is not None
    assert descriptors.get(NEW.cid) is None


def test_the_walk_back_to_a_known_version_stops_at_another_topic() -> None:
    core = Core()
    descriptors = descriptors_of(core)
    descriptors.keep(Versions(TOPIC))
    second = version_of(TOPIC, signer=BOB)
    third = version_of(second, signer=BOB)
    found: list[int] = []
    descriptors.find_version(TOPIC.cid, third.cid, lambda some: found.append(len(some)))
    core.network.found(third.block)
    assert core.network.found(second.block) == second.cid
    descriptors.find_version(TOPIC.cid, third.cid, lambda some: found.append(len(some)))
    core.network.found(OTHER.block)
    assert found == [2, 0]
