"""Sub-topics: a subscription takes in all topics below the one that it names, and lets them go."""

from collections.abc import Callable, Mapping
from typing import cast

import pytest

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid
from pulsarcast.model.topic_types import AttributeRule
from pulsarcast.model.topics import META
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.following import below as below_module
from pulsarcast.protocol.inputs import Subscribe, SubscribeContent, Unsubscribe, UnsubscribeContent
from pulsarcast.protocol.topic.life import FollowReason
from pulsarcast.protocol.topic.topic import Topic
from tests.support.lab import Lab
from tests.support.people import unordered

AUTHOR, OTHER, READER = 0, 2, 5
SETTLE_S = 30.0
NOWHERE = Cid(bytes.fromhex("01711220") + b"\x07" * 32)


def followed(lab: Lab, index: int = READER) -> set[Cid]:
    """The topics that a node is a member of, but for meta topics and what it keeps for others."""
    node = lab.world.node(index)
    return {
        cid
        for cid, topic in node.topics.items()
        if not topic.is_meta and not node.following.is_kept(cid)
    }


def metas(lab: Lab, index: int = READER) -> set[Cid]:
    node = lab.world.node(index)
    return {cid for cid, topic in node.topics.items() if topic.is_meta}


def link(lab: Lab, topic: Cid, subtopics: Mapping[str, Cid], author: int = AUTHOR) -> None:
    """Have the author make a version with these sub-topics, and let it spread."""
    lab.update(author, topic, unordered(), subtopics=dict(subtopics))
    lab.run(SETTLE_S)


def subscribe(lab: Lab, topic: Cid, *, below: bool = True, from_start: bool = False) -> None:
    lab.subscribe([READER], topic, below=below, from_start=from_start)
    lab.run(SETTLE_S)


def tree(lab: Lab) -> tuple[Cid, Cid, Cid]:
    leaf = lab.create(AUTHOR, name="leaf")
    middle = lab.create(AUTHOR, name="middle", subtopics={"leaf": leaf})
    return lab.create(AUTHOR, name="top", subtopics={"middle": middle}), middle, leaf


def test_leaving_the_top_leaves_all_below_it() -> None:
    lab = Lab(8)
    top, middle, leaf = tree(lab)
    subscribe(lab, top)
    assert followed(lab) == {top, middle, leaf}
    lab.unsubscribe(READER, top)
    lab.run(SETTLE_S)
    assert not lab.world.node(READER).topics
    assert {each.topic for each in lab.records(trace.Unsubscribed, READER)} == {top, middle, leaf}


def test_a_topic_that_was_subscribed_by_itself_stays() -> None:
    for first in ("itself", "above"):
        lab = Lab(8)
        top, _middle, leaf = tree(lab)
        if first == "itself":
            subscribe(lab, leaf, below=False)
        subscribe(lab, top)
        if first == "above":
            subscribe(lab, leaf, below=False)
        lab.unsubscribe(READER, top)
        lab.run(SETTLE_S)
        assert followed(lab) == {leaf}, first
        event = lab.publish(AUTHOR, leaf)
        assert lab.delivered(READER, leaf) == [event]


@pytest.mark.slow
def test_a_topic_that_is_left_by_itself_stays_below() -> None:
    lab = Lab(8)
    top, middle, leaf = tree(lab)
    subscribe(lab, leaf, below=False)
    subscribe(lab, top)
    first = lab.publish(AUTHOR, leaf)
    lab.unsubscribe(READER, leaf)
    lab.run(SETTLE_S)
    assert followed(lab) == {top, middle, leaf}
    second = lab.publish(AUTHOR, leaf)
    assert lab.delivered(READER, leaf) == [first, second]
    lab.unsubscribe(READER, top)
    lab.run(SETTLE_S)
    assert not lab.world.node(READER).topics


def test_a_version_that_removes_a_sub_topic_ends_it_and_all_below() -> None:
    lab = Lab(8)
    top, middle, leaf = tree(lab)
    subscribe(lab, top)
    link(lab, top, {})
    assert followed(lab) == {top}
    link(lab, top, {"leaf": leaf})
    assert followed(lab) == {top, leaf}
    assert middle not in lab.world.node(READER).topics


@pytest.mark.slow
def test_versions_that_go_back_and_forth_end_as_the_last_one_says() -> None:
    lab = Lab(8)
    leaf = lab.create(AUTHOR, name="leaf")
    top = lab.create(AUTHOR, name="top", subtopics={"leaf": leaf})
    subscribe(lab, top)
    for round_ in range(5):
        lab.update(AUTHOR, top, unordered(), subtopics={})
        lab.run(0.3 * round_)
        lab.update(AUTHOR, top, unordered(), subtopics={"leaf": leaf})
        lab.run(0.3 * round_)
    lab.run(SETTLE_S)
    assert followed(lab) == {top, leaf}
    event = lab.publish(AUTHOR, leaf)
    assert lab.delivered(READER, leaf)[-1] == event
    link(lab, top, {})
    assert followed(lab) == {top}


def test_a_sub_topic_of_two_trees_stays_until_both_are_left() -> None:
    lab = Lab(8)
    shared = lab.create(AUTHOR, name="shared")
    tops = [lab.create(AUTHOR, name=name, subtopics={"s": shared}) for name in ("one", "two")]
    for top in tops:
        subscribe(lab, top)
    lab.unsubscribe(READER, tops[0])
    lab.run(SETTLE_S)
    assert followed(lab) == {tops[1], shared}
    lab.unsubscribe(READER, tops[1])
    lab.run(SETTLE_S)
    assert not lab.world.node(READER).topics


def test_a_circle_holds_nothing_once_its_top_is_left() -> None:
    lab = Lab(8)
    a = lab.create(AUTHOR, name="a")
    b = lab.create(AUTHOR, name="b", subtopics={"a": a})
    link(lab, a, {"b": b, "itself": a})
    subscribe(lab, a)
    assert followed(lab) == {a, b}
    subscribe(lab, b)
    lab.unsubscribe(READER, a)
    lab.run(SETTLE_S)
    assert followed(lab) == {a, b}, "a is below b"
    lab.unsubscribe(READER, b)
    lab.run(SETTLE_S)
    assert not lab.world.node(READER).topics


def test_a_chain_is_followed_down_to_the_bound_and_the_rest_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(below_module, "DEPTH_MAX", 3)
    lab = Lab(8)
    chain = [lab.create(AUTHOR, name="end")]
    for depth in range(6):
        chain.insert(0, lab.create(AUTHOR, name=f"{depth}", subtopics={"next": chain[0]}))
    subscribe(lab, chain[0])
    assert followed(lab) == set(chain[:4])
    assert lab.world.node(READER).following.below.view(chain[0]).left_out == {chain[4]: "too deep"}


@pytest.mark.slow
def test_more_sub_topics_than_the_bound_are_named_and_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(below_module, "BELOW_MAX", 2)
    monkeypatch.setattr(below_module, "LEFT_OUT_MAX", 1)
    lab = Lab(8)
    subtopics = {f"{number}": lab.create(AUTHOR, name=f"{number}") for number in range(4)}
    top = lab.create(AUTHOR, name="top", subtopics=subtopics)
    subscribe(lab, top)
    kept = [cid for _, cid in sorted(subtopics.items())]
    assert followed(lab) == {top, *kept[:2]}
    view = lab.world.node(READER).following.below.view(top)
    assert (view.left_out, view.left_out_count) == ({kept[2]: "too many"}, 2)


def test_a_sub_topic_that_nobody_has_holds_up_no_other_and_is_found_later() -> None:
    lab = Lab(8)
    leaf = lab.create(AUTHOR, name="leaf")
    top = lab.create(AUTHOR, name="top", subtopics={"a": NOWHERE, "b": leaf})
    subscribe(lab, top)
    view = lab.world.node(READER).following.below.view(top)
    assert followed(lab) == {top, leaf}
    assert view.left_out == {NOWHERE: "not found"}
    assert (view.followed, view.joining) == (1, 0)


@pytest.mark.slow
def test_a_sub_topic_whose_descriptor_comes_late_is_taken_in() -> None:
    lab = Lab(8)
    leaf = lab.create(AUTHOR, name="leaf")
    top = lab.create(AUTHOR, name="top", subtopics={"leaf": leaf})
    descriptors = lab.world.node(READER).descriptors
    real = descriptors.dht

    class Blind:
        def find_block(self, cid: Cid, then: Callable[[bytes | None], None]) -> None:
            if cid == leaf:
                then(None)
            else:
                real.find_block(cid, then)

    descriptors.dht = cast(Kademlia, Blind())
    subscribe(lab, top)
    assert followed(lab) == {top}
    descriptors.dht = real
    lab.run(SETTLE_S)
    assert followed(lab) == {top, leaf}
    event = lab.publish(AUTHOR, leaf)
    assert lab.delivered(READER, leaf) == [event]


def test_a_topic_of_another_author_below_is_followed_and_its_versions_count() -> None:
    lab = Lab(8)
    foreign = lab.create(OTHER, name="foreign")
    leaf = lab.create(OTHER, name="leaf")
    top = lab.create(AUTHOR, name="top", subtopics={"foreign": foreign})
    subscribe(lab, top)
    assert followed(lab) == {top, foreign}
    link(lab, foreign, {"leaf": leaf}, author=OTHER)
    assert followed(lab) == {top, foreign, leaf}


@pytest.mark.slow
def test_a_meta_topic_below_is_not_taken_in() -> None:
    lab = Lab(8)
    other = lab.create(AUTHOR, name="other")
    meta = lab.topic(other).subtopics[META]
    top = lab.create(AUTHOR, name="top", subtopics={"x": meta})
    subscribe(lab, top)
    assert followed(lab) == {top}
    assert meta not in metas(lab)


def test_what_is_below_is_followed_again_after_a_restart_and_let_go_with_the_top() -> None:
    lab = Lab(8)
    top, middle, leaf = tree(lab)
    subscribe(lab, top)
    first = lab.publish(AUTHOR, leaf)
    lab.world.kill(READER)
    lab.run(5.0)
    missed = lab.publish(AUTHOR, leaf)
    lab.world.restart(READER)
    lab.run(SETTLE_S)
    assert followed(lab) == {top, middle, leaf}
    assert dict.fromkeys(lab.delivered(READER, leaf)) == {first: None, missed: None}
    lab.unsubscribe(READER, top)
    lab.run(SETTLE_S)
    assert not lab.world.node(READER).topics


@pytest.mark.slow
def test_a_version_that_came_while_the_node_was_away_takes_effect() -> None:
    lab = Lab(8)
    top, middle, leaf = tree(lab)
    subscribe(lab, top)
    lab.world.kill(READER)
    lab.run(5.0)
    lab.update(AUTHOR, top, unordered(), subtopics={"leaf": leaf})
    lab.world.restart(READER)
    lab.run(60.0)
    assert followed(lab) == {top, leaf}
    assert middle not in lab.world.node(READER).topics


@pytest.mark.parametrize(
    "after_s",
    [0.2, *(pytest.param(each, marks=pytest.mark.slow) for each in (0.02, 0.5, 1.0, 1.5, 2.5))],
)
def test_a_node_that_dies_while_it_joins_goes_on_joining_afterwards(after_s: float) -> None:
    lab = Lab(8, seed=3)
    subtopics = {f"{number}": lab.create(AUTHOR, name=f"{number}") for number in range(20)}
    middle = lab.create(AUTHOR, name="middle", subtopics=subtopics)
    top = lab.create(AUTHOR, name="top", subtopics={"middle": middle})
    lab.subscribe([READER], top, below=True)
    lab.run(after_s)
    lab.world.kill(READER)
    lab.run(1.0)
    lab.world.restart(READER)
    lab.run(SETTLE_S)
    assert followed(lab) == {top, middle, *subtopics.values()}
    lab.unsubscribe(READER, top)
    lab.run(SETTLE_S)
    assert not lab.world.node(READER).topics


@pytest.mark.parametrize(
    "after_s", [0.5, *(pytest.param(each, marks=pytest.mark.slow) for each in (0.05, 1.2))]
)
def test_a_node_that_leaves_while_it_joins_follows_nothing_afterwards(after_s: float) -> None:
    lab = Lab(8, seed=4)
    subtopics = {f"{number}": lab.create(AUTHOR, name=f"{number}") for number in range(20)}
    top = lab.create(AUTHOR, name="top", subtopics=subtopics)
    lab.start(READER, lambda call: Subscribe(call, top, below=True))
    lab.run(after_s)
    lab.unsubscribe(READER, top)
    lab.run(SETTLE_S)
    assert not lab.world.node(READER).topics
    assert not lab.world.node(READER).followed.lives


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0.05, 0.5, 1.1])
def test_a_node_that_stops_while_it_joins_goes_on_joining_afterwards(after_s: float) -> None:
    lab = Lab(8, seed=3)
    subtopics = {f"{number}": lab.create(AUTHOR, name=f"{number}") for number in range(40)}
    top = lab.create(AUTHOR, name="top", subtopics=subtopics)
    lab.subscribe([READER], top, below=True)
    lab.run(after_s)
    lab.world.stop(READER)
    lab.run(20.0)
    lab.world.restart(READER)
    lab.run(SETTLE_S)
    assert followed(lab) == {top, *subtopics.values()}


@pytest.mark.slow
def test_a_node_that_died_while_it_left_has_left_after_its_restart() -> None:
    for after_s in (0.0005, 0.002, 0.01, 0.05):
        lab = Lab(8)
        top, _middle, _leaf = tree(lab)
        subscribe(lab, top)
        lab.start(READER, lambda call, top=top: Unsubscribe(call, top))  # type: ignore[misc]
        lab.run(after_s)
        lab.world.kill(READER)
        lab.run(1.0)
        lab.world.restart(READER)
        lab.run(SETTLE_S)
        node = lab.world.node(READER)
        if top in node.topics:  # The disk had not heard of it: as if it had not been asked.
            lab.unsubscribe(READER, top)
            lab.run(SETTLE_S)
        assert not node.topics, after_s


@pytest.mark.slow
def test_only_so_many_sub_topics_are_joined_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(below_module, "AT_ONCE", 4)
    lab = Lab(8)
    subtopics = {f"{number}": lab.create(AUTHOR, name=f"{number}") for number in range(20)}
    top = lab.create(AUTHOR, name="top", subtopics=subtopics)
    lab.subscribe([READER], top, below=True)
    at_once: list[int] = []
    node = lab.world.node(READER)
    while len(followed(lab)) < 21 or node.following.below.view(top).joining:
        joining = [life for life in node.followed.lives.values() if not life.is_waiting]
        at_once.append(
            sum(
                life.stage.value == "joining" and FollowReason.SUBTOPIC in life.reasons
                for life in joining
            )
        )
        lab.run(0.005)
        assert len(at_once) < 20_000
    assert max(at_once) <= 4


@pytest.mark.slow
def test_a_join_that_hangs_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(below_module, "AT_ONCE", 1)
    lab = Lab(8)
    stuck, leaf = (lab.create(AUTHOR, name=name) for name in ("stuck", "leaf"))
    top = lab.create(AUTHOR, name="top", subtopics={"a": stuck, "b": leaf})
    real = Topic.open

    def open_(topic: Topic, *, from_start: bool = False) -> None:
        if topic.id != stuck:
            real(topic, from_start=from_start)

    lab.subscribe([READER], top, below=True)
    monkeypatch.setattr(Topic, "open", open_)
    lab.run(SETTLE_S)
    assert leaf in followed(lab)
    assert lab.world.node(READER).following.below.view(top).joining == 1


@pytest.mark.slow
def test_a_sub_topic_that_is_read_by_filters_is_taken_in_once_they_end() -> None:
    lab = Lab(8)
    rules = (AttributeRule("price", "int", 0, 100),)
    settings = unordered(attributes=rules, content_routing=True)
    leaf = lab.create(AUTHOR, settings, name="leaf")
    top = lab.create(AUTHOR, name="top", subtopics={"leaf": leaf})
    lab.subscribe([1, OTHER], leaf)
    asked = lab.ask(READER, lambda call: SubscribeContent(call, leaf, "price < 10", 1))
    assert asked.refusal is None, asked.refusal
    subscribe(lab, top)
    assert followed(lab) == {top}
    view = lab.world.node(READER).following.below.view(top)
    assert view.left_out == {leaf: "read by filters"}
    lab.ask(READER, lambda call: UnsubscribeContent(call, leaf, 1))
    lab.run(SETTLE_S)
    assert followed(lab) == {top, leaf}


def test_a_sub_topic_that_is_added_later_is_read_from_its_start() -> None:
    lab = Lab(8)
    top = lab.create(AUTHOR, name="top")
    subscribe(lab, top)
    leaf = lab.create(AUTHOR, name="leaf")
    before = lab.publish(AUTHOR, leaf)
    link(lab, top, {"leaf": leaf})
    assert lab.delivered(READER, leaf) == [before]


@pytest.mark.slow
def test_a_subscription_begins_now_or_at_the_start_of_every_topic_below() -> None:
    for from_start in (False, True):
        lab = Lab(8)
        top, _middle, leaf = tree(lab)
        before = lab.publish(AUTHOR, leaf)
        subscribe(lab, top, from_start=from_start)
        after = lab.publish(AUTHOR, leaf)
        assert lab.delivered(READER, leaf) == ([before] if from_start else []) + [after]


@pytest.mark.slow
def test_an_author_that_leaves_what_is_below_stays_the_root_of_its_topics() -> None:
    lab = Lab(8)
    top, middle, leaf = tree(lab)
    lab.subscribe([AUTHOR], top, below=True)
    lab.run(SETTLE_S)
    first = lab.publish(AUTHOR, leaf)
    lab.unsubscribe(AUTHOR, top)
    lab.run(SETTLE_S)
    lab.publish(AUTHOR, leaf)
    assert lab.delivered(AUTHOR, leaf) == [first]
    assert followed(lab, AUTHOR) == {top, middle, leaf}


@pytest.mark.slow
def test_the_meta_topics_of_what_was_left_are_left() -> None:
    lab = Lab(8)
    top, _middle, _leaf = tree(lab)
    subscribe(lab, top)
    assert len(metas(lab)) == 3
    link(lab, top, {})
    assert metas(lab) == {lab.topic(top).subtopics[META]}
