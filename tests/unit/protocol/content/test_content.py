"""Content on its own: which filters are refused, and what becomes of one without a member."""

import pytest

from pulsarcast.model.errors import Conflict, LocalError, NotFollowed
from pulsarcast.model.ids import Cid
from pulsarcast.protocol.content.content import FILTERS_MAX, START_S_MAX, Content
from pulsarcast.protocol.content.following import ContentTopic
from pulsarcast.protocol.effects import SetTimer
from pulsarcast.protocol.topic.versions import Versions
from tests.support.parts import Core
from tests.support.people import BOB, topic_of
from tests.unit.protocol.content.stage import TOPIC, WHERE


def content_of(core: Core) -> Content:
    topics: dict[Cid, ContentTopic] = {}
    return Content(
        core.context, core.dht, topics, core.numberings, core.descriptors, core.following
    )


def nothing() -> None:
    """The test does not look at it."""


def test_a_topic_that_is_not_routed_by_content_takes_no_filter() -> None:
    core = Core()
    with pytest.raises(LocalError):
        content_of(core).follow(Versions(topic_of(BOB)), 1, WHERE, nothing)
    assert core.turn.effects == []


def test_a_member_of_a_topic_takes_no_filter_on_it() -> None:
    core = Core()
    core.topic(TOPIC)
    with pytest.raises(Conflict):
        content_of(core).follow(Versions(TOPIC), 1, WHERE, nothing)


def test_the_filters_on_one_topic_are_bounded() -> None:
    core = Core()
    content = content_of(core)
    for sid in range(FILTERS_MAX):
        content.follow(Versions(TOPIC), sid, WHERE, nothing)
    with pytest.raises(LocalError):
        content.follow(Versions(TOPIC), FILTERS_MAX, WHERE, nothing)
    content.follow(Versions(TOPIC), 0, WHERE, nothing)


def test_a_filter_for_which_no_member_is_found_in_time_fails_once_and_is_forgotten() -> None:
    core = Core()
    content = content_of(core)
    heard: list[str] = []
    content.follow(
        Versions(TOPIC), 1, WHERE, lambda: heard.append("began"), lambda: heard.append("failed")
    )
    (timer,) = [each for each in core.wanted(SetTimer) if each.delay_s == START_S_MAX]
    core.turn.fired(timer.timer)
    assert heard == [], "the disk has yet to forget it"
    core.sync()
    assert heard == ["failed"]
    assert content.topics == {}
    with pytest.raises(NotFollowed):
        content.unfollow(TOPIC.cid, 1, nothing)
