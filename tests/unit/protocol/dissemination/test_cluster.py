"""Clusters over 256-bit keys: trees that reach everyone once, whatever the ids and the views."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarcast.model.keys import KEY_BITS
from pulsarcast.protocol.dissemination.cluster import Clusters

Views = dict[int, Clusters[int]]


def clusters(centre: int, *, view_max: int = 1 << 20, bucket_max: int = 8) -> Clusters[int]:
    return Clusters(centre, lambda key: key, view_max=view_max, bucket_max=bucket_max)


def full_views(keys: list[int]) -> Views:
    views = {key: clusters(key) for key in keys}
    for view in views.values():
        for other in keys:
            view.add(other)
        assert len(view) == len(keys) - 1
    return views


def spread(views: Views, source: int) -> dict[int, int]:
    """How deep each member is in a publisher's tree; nobody may get an event twice."""
    depth = {source: 0}
    todo = [(source, KEY_BITS)]
    while todo:
        key, level = todo.pop()
        for child in views[key].children(level):
            assert child not in depth, "an event came twice"
            depth[child] = depth[key] + 1
            todo.append((child, views[child].bucket(key)))
    return depth


# Close together as well as far apart: most pairs of random keys differ in their first bits.
close = st.integers(0, 255)
keys = st.sets(close | st.integers(0, 2**KEY_BITS - 1), min_size=1, max_size=40).map(sorted)


@given(keys)
@settings(max_examples=60)
def test_with_full_views_every_publisher_reaches_each_member_once(members: list[int]) -> None:
    views = full_views(members)
    for source in members:
        assert set(spread(views, source)) == set(members)


@given(keys, st.integers(1, 3), st.integers(0, 1 << 32))
@settings(max_examples=60)
def test_any_one_member_per_bucket_is_enough(members: list[int], k: int, seed: int) -> None:
    """Whom a node keeps of a large bucket is chance; that it keeps somebody is all that counts."""
    rng = Random(seed)
    views = {key: clusters(key, view_max=0, bucket_max=k) for key in members}
    for view in views.values():
        for other in rng.sample(members, len(members)):
            view.add(other)
        fullest = max((len(kept) for _, kept in view.below(KEY_BITS)), default=0)
        assert fullest <= k
    for source in members:
        assert set(spread(views, source)) == set(members)


def test_a_thousand_members_are_as_deep_and_wide_as_the_design_says() -> None:
    """Design 2: depth 11 at most, 5.2 in the mean, fan-out 10, give or take the draw of keys."""
    rng = Random(1)
    members = [rng.getrandbits(KEY_BITS) for _ in range(1000)]
    views = full_views(members)
    depths: list[int] = []
    for source in members[:50]:
        depth = spread(views, source)
        assert len(depth) == 1000
        depths += [each for each in depth.values() if each]
    fanout = sum(len(view.children(KEY_BITS)) for view in views.values()) / len(views)
    assert max(depths) <= 12
    assert 4.9 < sum(depths) / len(depths) < 5.5
    assert 9.5 < fanout < 11.5


def test_the_next_in_the_order_takes_the_place_of_a_member_that_is_gone() -> None:
    view = clusters(0)
    for key in (4, 5, 6, 7):
        view.add(key)
    assert view.children(KEY_BITS) == [4]
    view.remove(4)
    assert view.children(KEY_BITS) == [5]
    view.remove(5)
    view.remove(5)
    assert view.children(KEY_BITS) == [6]
    assert len(view) == 2


def test_whoever_is_known_is_not_pushed_out_by_newcomers() -> None:
    view = clusters(0, view_max=2, bucket_max=2)
    assert view.add(1 << 255)
    assert view.add((1 << 255) + 1)
    assert not view.has_room((1 << 255) + 2), "its bucket is full, and so is the view"
    assert not view.add((1 << 255) + 2)
    assert view.add(1), "a bucket of its own"
    assert list(view) == [1 << 255, (1 << 255) + 1, 1]


def test_keys_made_ever_closer_to_ours_do_not_fill_memory() -> None:
    view = clusters(0, view_max=4, bucket_max=2)
    for bit in range(255, -1, -1):
        for offset in range(4):
            view.add((1 << bit) + offset % (1 << bit))
    assert len(view) == view.members_max == 64


def test_we_are_no_member_of_our_own_view() -> None:
    view = clusters(7)
    assert not view.add(7)
    assert view.add(8)
    assert not view.add(8), "nor is anybody twice"
    assert len(view) == 1


@given(keys, st.integers(0, 2**KEY_BITS - 1))
def test_the_nearest_and_the_closest_are_those_by_distance(members: list[int], key: int) -> None:
    centre, *others = members
    view = clusters(centre)
    for other in others:
        view.add(other)
    for count in (1, 4):
        assert view.nearest(count) == sorted(others, key=lambda other: other ^ centre)[:count]
        assert view.closest(key, count) == sorted(others, key=lambda other: other ^ key)[:count]
    assert view.lowest == min((view.bucket(other) for other in others), default=-1)
