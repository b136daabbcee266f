"""Spaces: one lookup for all that wait for a version, and a bound on those that wait."""

import pytest

from pulsarcast.protocol.content import spaces as spaces_module
from pulsarcast.protocol.content.spaces import Spaces
from pulsarcast.protocol.topic.versions import Versions
from tests.support.parts import Core
from tests.support.people import BOB, version_of
from tests.unit.protocol.content.stage import TOPIC

SECOND = version_of(TOPIC, signer=BOB)


def test_all_that_wait_for_a_version_share_one_lookup_and_get_it() -> None:
    core, found = Core(), list[Versions | None]()
    core.descriptors.keep(Versions(TOPIC))
    spaces = Spaces(core.descriptors, core.following)
    for _ in range(2):
        spaces.find(TOPIC.topic, SECOND.cid, found.append)
    assert core.network.found(SECOND.block) == SECOND.cid
    assert core.network.finding == []
    assert [each is not None and SECOND.cid in each.by_cid for each in found] == [True, True]


def test_only_what_must_wait_always_waits_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spaces_module, "WAITING_MAX", 1)
    core, found = Core(), list[Versions | None]()
    spaces = Spaces(core.descriptors, core.following)
    spaces.find(TOPIC.topic, TOPIC.cid, found.append)
    spaces.find(TOPIC.topic, TOPIC.cid, found.append)
    assert found == [None]
    spaces.find(TOPIC.topic, TOPIC.cid, found.append, always=True)
    assert found == [None]
    core.network.found(TOPIC.block)
    assert len(found) == 3
    assert None not in found[1:]
