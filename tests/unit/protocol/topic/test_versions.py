"""Versions of a topic, and the rights that each of them gives (design 5)."""

from itertools import permutations

import msgspec
import pytest

from pulsarcast.model.errors import RemoteError, Verdict
from pulsarcast.model.ids import Cid, PeerId, cid_of, cid_text
from pulsarcast.model.topics import Mark, TopicDescriptor
from pulsarcast.protocol.topic import versions as versions_module
from pulsarcast.protocol.topic.versions import Versions, valid_until
from tests.support.people import (
    ALICE,
    BOB,
    CAROL,
    CREATED_US,
    EPOCH,
    MALLORY,
    event_of,
    topic_of,
    unordered,
    version_of,
)

OPEN = topic_of(ALICE)
ONLY_ALICE = unordered(publishers=(ALICE.peer_id,))


class Marks:
    """The frontiers that were read, by index."""

    def __init__(self, **known: int) -> None:
        self.known = known

    def number(self, index: Cid, numbering: tuple[PeerId, int]) -> int | None:
        assert numbering == (BOB.peer_id, EPOCH)
        return self.known.get(cid_text(index))


NO_MARKS = Marks()
INDEX = cid_of(b"index")


def chain_of(*later: TopicDescriptor) -> Versions:
    versions = Versions(OPEN)
    for version in later:
        assert versions.add(version)
    return versions


def test_the_newest_version_is_the_current_one_and_the_topic_stays_the_same() -> None:
    second = version_of(OPEN, ONLY_ALICE, signer=ALICE)
    third = version_of(second, signer=ALICE)
    versions = chain_of(second, third)
    assert versions.current is third
    assert third.topic == OPEN.cid
    assert versions.all() == [OPEN, second, third]


def test_a_version_that_is_known_is_no_news() -> None:
    second = version_of(OPEN, ONLY_ALICE, signer=ALICE)
    versions = chain_of(second)
    assert versions.add(second) is False


def test_a_version_whose_parent_is_unknown_is_not_the_senders_fault() -> None:
    second = version_of(OPEN, signer=ALICE)
    third = version_of(second, signer=ALICE)
    versions = Versions(OPEN)
    assert not versions.knows_parent_of(third)
    with pytest.raises(RemoteError) as refused:
        versions.add(third)
    assert refused.value.verdict is Verdict.IGNORE
    assert versions.current is OPEN


def test_a_version_of_another_topic_is_refused() -> None:
    other = topic_of(ALICE, name="sports")
    versions = Versions(OPEN)
    with pytest.raises(RemoteError):
        versions.add(version_of(other, signer=ALICE))
    assert versions.current is OPEN


def test_of_two_versions_with_one_number_the_lower_cid_wins_whichever_came_first() -> None:
    twins = [version_of(OPEN, signer=ALICE, created=CREATED_US + n) for n in range(3)]
    lowest = min(twins, key=lambda version: version.cid)
    for order in permutations(twins):
        versions = chain_of(*order)
        assert versions.current is lowest
        assert set(versions.all()) == {OPEN, *twins}, "all are kept, as proof"


def test_the_branch_with_the_highest_number_wins_as_the_pointer_to_it_does() -> None:
    """Of branches of one length the lower CID of their last versions wins."""
    twins = sorted(
        (version_of(OPEN, signer=ALICE, created=CREATED_US + n) for n in range(2)),
        key=lambda version: version.cid,
    )
    follower = version_of(twins[1], signer=ALICE)
    versions = chain_of(twins[1], follower)
    assert versions.current is follower
    versions.add(twins[0])
    assert versions.current is follower
    others = [version_of(twins[0], signer=ALICE, created=CREATED_US + n) for n in range(2, 4)]
    for other in others:
        versions.add(other)
    assert versions.current is min(follower, *others, key=lambda version: version.cid)


def test_a_recovery_key_may_sign_the_next_version_and_a_stranger_may_not() -> None:
    first = topic_of(ALICE, unordered(recovery_keys=(CAROL.peer_id,)))
    versions = Versions(first)
    rescued = version_of(first, unordered(), signer=CAROL)
    assert versions.add(rescued)
    with pytest.raises(Exception, match="neither the author nor a recovery key"):
        version_of(rescued, signer=CAROL)


def test_an_event_is_judged_by_the_version_that_it_names() -> None:
    second = version_of(OPEN, ONLY_ALICE, signer=ALICE)
    versions = chain_of(second)
    versions.judge(event_of(ALICE, second), NO_MARKS)
    with pytest.raises(RemoteError) as refused:
        versions.judge(event_of(BOB, second), NO_MARKS)
    assert refused.value.verdict is Verdict.REJECT


def test_a_right_that_was_given_later_does_not_reach_back() -> None:
    first = topic_of(ALICE, ONLY_ALICE)
    versions = Versions(first)
    wider = msgspec.structs.replace(first.settings, open=True, publishers=())
    second = version_of(first, wider, signer=ALICE)
    versions.add(second)
    versions.judge(event_of(BOB, second), NO_MARKS)
    with pytest.raises(RemoteError):
        versions.judge(event_of(BOB, first), NO_MARKS)


def test_what_was_published_before_a_right_was_taken_stays_valid_and_the_rest_is_ignored() -> None:
    until = (Mark(BOB.peer_id, EPOCH, 2),)
    versions = chain_of(version_of(OPEN, ONLY_ALICE, signer=ALICE, until=until))
    for number in (1, 2):
        versions.judge(event_of(BOB, OPEN, number), NO_MARKS)
    with pytest.raises(RemoteError, match="revoked") as refused:
        versions.judge(event_of(BOB, OPEN, 3), NO_MARKS)
    assert refused.value.verdict is Verdict.IGNORE
    with pytest.raises(RemoteError, match="revoked"):
        versions.judge(event_of(BOB, OPEN, 1, epoch=EPOCH + 1), NO_MARKS)


def test_an_old_version_binds_no_one_who_still_may() -> None:
    """The deviation that decision 0003 is about: Alice may go on under the version she knows."""
    versions = chain_of(version_of(OPEN, ONLY_ALICE, signer=ALICE))
    versions.judge(event_of(ALICE, OPEN, 99), NO_MARKS)


def test_a_right_taken_and_given_again_stays_taken_for_the_time_between() -> None:
    second = version_of(OPEN, ONLY_ALICE, signer=ALICE)
    third = version_of(second, unordered(), signer=ALICE)
    versions = chain_of(second, third)
    versions.judge(event_of(BOB, third, 1), NO_MARKS)
    with pytest.raises(RemoteError, match="revoked"):
        versions.judge(event_of(BOB, OPEN, 1), NO_MARKS)


def test_marks_that_a_version_names_by_an_index_have_to_be_found() -> None:
    version = version_of(OPEN, ONLY_ALICE, signer=ALICE, until=INDEX)
    versions = chain_of(version)
    assert versions.judge(event_of(BOB, OPEN, 2), NO_MARKS) == [INDEX]
    found = Marks(**{cid_text(INDEX): 2})
    assert versions.judge(event_of(BOB, OPEN, 2), found) == []
    with pytest.raises(RemoteError, match="revoked"):
        versions.judge(event_of(BOB, OPEN, 3), found)
    assert versions.judge(event_of(ALICE, OPEN, 99), NO_MARKS) == [], "she still may"


def test_only_the_version_that_takes_a_right_away_says_how_far_it_went() -> None:
    """Those after it need not name the marks again."""
    second = version_of(OPEN, ONLY_ALICE, signer=ALICE, until=(Mark(BOB.peer_id, EPOCH, 2),))
    third = version_of(second, signer=ALICE)
    versions = chain_of(second, third)
    assert versions.judge(event_of(BOB, OPEN, 2), NO_MARKS) == []
    with pytest.raises(RemoteError, match="revoked"):
        versions.judge(event_of(BOB, OPEN, 3), NO_MARKS)
    held = [Mark(ALICE.peer_id, EPOCH, 7), Mark(BOB.peer_id, EPOCH, 2)]
    assert valid_until(held, OPEN, second.settings) == held[1:]
    assert valid_until(held, second, third.settings) == []
    assert valid_until(held, second, OPEN.settings) == []


def test_an_event_under_a_version_that_lost_is_ignored() -> None:
    twins = [version_of(OPEN, signer=ALICE, created=CREATED_US + n) for n in range(2)]
    versions = chain_of(*twins)
    loser = max(twins, key=lambda version: version.cid)
    with pytest.raises(RemoteError, match="lost") as refused:
        versions.judge(event_of(BOB, loser), NO_MARKS)
    assert refused.value.verdict is Verdict.IGNORE


def test_there_are_only_so_many_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions_module, "VERSIONS_MAX", 3)
    versions = Versions(OPEN)
    for number in range(5):
        twin = version_of(OPEN, signer=ALICE, created=CREATED_US + number)
        if number < 2:
            assert versions.add(twin)
        else:
            with pytest.raises(RemoteError) as refused:
                versions.add(twin)
            assert refused.value.verdict is Verdict.IGNORE
    assert len(versions.all()) == 3


def test_an_event_of_another_topic_is_refused() -> None:
    other = topic_of(MALLORY, name="sports")
    with pytest.raises(RemoteError):
        Versions(OPEN).judge(event_of(MALLORY, OPEN, topic_cid=other.cid), NO_MARKS)
