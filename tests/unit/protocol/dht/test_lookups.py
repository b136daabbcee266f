"""The lookups of one node: how many run, which wait, and what a peer's bad answer costs."""

import pytest

from pulsarcast.model.errors import RemoteError
from pulsarcast.protocol.dht import lookups as lookups_module
from pulsarcast.protocol.dht.lookup import Lookup
from pulsarcast.protocol.dht.lookups import Lookups
from pulsarcast.protocol.messages import Contact, DhtMessage, FindPeers, Peers
from tests.support.people import peer
from tests.unit.protocol.dht.parts import Parts

BOB = peer("bob")


def test_a_lookup_beyond_the_bound_waits_and_runs_once_another_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookups_module, "LOOKUPS_MAX", 1)
    parts = Parts(BOB)
    lookups = Lookups(parts.context, parts.table, parts.calls)
    ended: list[int] = []
    for key in (1, 2):
        lookups.find_peers(key, lambda lookup: ended.append(lookup.key), count=3)
    assert parts.questions.asked() == [(BOB, FindPeers(0, 1, 6))]
    parts.questions.answer(Peers(0, ()))
    assert ended == [1]
    assert parts.questions.asked() == [(BOB, FindPeers(0, 2, 6))]


def test_a_lookup_fails_at_once_when_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups_module, "LOOKUPS_MAX", 1)
    monkeypatch.setattr(lookups_module, "WAITING_MAX", 1)
    parts = Parts(BOB)
    lookups = Lookups(parts.context, parts.table, parts.calls)
    ended: list[int] = []
    for key in (1, 2, 3):
        lookups.find_peers(key, lambda lookup: ended.append(lookup.key), count=3)
    assert ended == [3]
    assert len(lookups) == 2


def test_a_peer_that_failed_lately_is_asked_again_only_by_a_thorough_lookup() -> None:
    for thorough in (False, True):
        parts = Parts(BOB)
        failed = Contact(peer("failed"))
        parts.table.saw(failed, 0.0)
        parts.table.failed(failed, 0.0)
        lookups = Lookups(parts.context, parts.table, parts.calls)
        lookups.find_peers(1, _ignore, count=3, thorough=thorough)
        parts.questions.answer(Peers(0, (failed,)))
        assert bool(parts.questions.asked()) is thorough


def test_a_peer_with_a_false_answer_is_not_among_the_closest() -> None:
    parts = Parts(BOB)
    lookups = Lookups(parts.context, parts.table, parts.calls)
    found: list[list[Contact]] = []

    def judge(_: Contact, __: DhtMessage) -> bool:
        raise RemoteError("false")

    lookups.find(
        1, FindPeers(0, 1), lambda each: found.append(each.closest(3)), count=3, judge=judge
    )
    with pytest.raises(RemoteError):
        parts.questions.answer(Peers(0, ()))
    assert found == [[]]
    assert len(lookups) == 0


def _ignore(_: Lookup) -> None:
    """The test looks at the questions."""
