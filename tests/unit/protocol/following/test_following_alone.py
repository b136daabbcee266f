"""Following on its own: what waits for the disk, and what a node that stops does not begin."""

from typing import Any, cast

import pytest

from pulsarcast.model.errors import NotFollowed
from pulsarcast.protocol.following.following import Following
from pulsarcast.protocol.store import PutState, StateRow
from pulsarcast.protocol.topic.life import FollowReason
from pulsarcast.protocol.topic.versions import Versions
from tests.support.parts import Core
from tests.support.people import ALICE, topic_of

TOPIC = topic_of(ALICE)


def following_of(core: Core) -> Following:
    return Following(
        core.context,
        core.dht,
        core.followed,
        core.descriptors,
        core.handing_in,
        core.renewal,
        cast("Any", core.owner),
    )


def test_the_root_of_a_topic_has_its_start_once_the_disk_knows() -> None:
    core = Core()
    following = following_of(core)
    started: list[bool] = []
    following.follow(
        Versions(TOPIC), FollowReason.AUTHOR, from_start=True, then=lambda: started.append(True)
    )
    assert core.owner.told == ["opened"]
    assert started == []
    row = StateRow("follow", TOPIC.cid, bytes([FollowReason.AUTHOR]))
    assert PutState(row) in core.sync()
    assert started == [True]


def test_a_keeper_is_not_remembered_by_the_disk() -> None:
    core = Core()
    following = following_of(core)
    following.follow(Versions(TOPIC), FollowReason.KEEPER, from_start=True)
    rows = [each.row.table for each in core.sync() if isinstance(each, PutState)]
    assert "follow" not in rows
    assert following.kept_count() == 1


def test_a_node_that_stops_follows_nothing_more() -> None:
    core = Core()
    following = following_of(core)
    stopped: list[bool] = []
    following.stop(lambda: stopped.append(True))
    following.follow(Versions(TOPIC), FollowReason.AUTHOR)
    assert stopped == [True]
    with pytest.raises(NotFollowed):
        following.member(TOPIC.cid)


def test_a_follow_during_the_leaving_waits_until_the_topic_is_forgotten() -> None:
    core = Core()
    following = following_of(core)
    following.follow(Versions(TOPIC), FollowReason.SUBSCRIBED, from_start=True)
    core.sync()
    before = following.member(TOPIC.cid)
    following.unfollow(before)
    following.follow(Versions(TOPIC), FollowReason.SUBSCRIBED, from_start=True)
    assert following.member(TOPIC.cid) is before
    core.owner.told.clear()
    while core.sync() or core.fire():
        if TOPIC.cid in following.topics and following.topics[TOPIC.cid] is not before:
            break
    assert following.member(TOPIC.cid) is not before
    assert core.owner.told.index("left") < core.owner.told.index("opened")
