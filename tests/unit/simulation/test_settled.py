"""The routing tables of a network in which all nodes have joined long ago."""

from random import Random

from pulsarcast.model.keys import Key, bucket_of, key_of
from pulsarcast.simulation.settled import tables

K = 20


def keys_of(count: int) -> list[Key]:
    return [key_of(b"%d" % index) for index in range(count)]


def test_every_node_knows_the_k_closest_and_no_bucket_is_too_full() -> None:
    keys, lacking = keys_of(300), 0
    known = tables(keys, K, Random(1))
    for index, (key, others) in enumerate(zip(keys, known, strict=True)):
        assert index not in others
        assert len(set(others)) == len(others)
        buckets = [bucket_of(key, keys[other]) for other in others]
        assert max(map(buckets.count, buckets)) <= K
        nearest = sorted(set(range(300)) - {index}, key=lambda other: key ^ keys[other])
        assert set(nearest[: K // 2]) <= set(others)
        lacking += len(set(nearest[:K]) - set(others))
    # Of two that are close to each other, one may have no room for the other.
    assert lacking < 0.3 * 300


def test_some_of_every_farther_bucket_are_known() -> None:
    keys = keys_of(300)
    for key, others in zip(keys, tables(keys, K, Random(1)), strict=True):
        for index in range(255, 251, -1):
            assert any(bucket_of(key, keys[other]) == index for other in others)


def test_the_farther_ones_are_heard_of_first_and_all_follows_from_chance() -> None:
    keys = keys_of(100)
    known = tables(keys, K, Random(1))
    for key, others in zip(keys, known, strict=True):
        buckets = [bucket_of(key, keys[other]) for other in others]
        assert buckets == sorted(buckets, reverse=True)
    assert known == tables(keys, K, Random(1))
    assert known != tables(keys, K, Random(2))


def test_a_network_of_few_nodes_is_one_in_which_all_know_all() -> None:
    keys = keys_of(5)
    assert [sorted(others) for others in tables(keys, K, Random(1))] == [
        [other for other in range(5) if other != index] for index in range(5)
    ]
    assert tables([], K, Random(1)) == []
    assert tables(keys[:1], K, Random(1)) == [[]]
