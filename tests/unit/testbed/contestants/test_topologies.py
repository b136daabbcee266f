import pytest

from pulsarcast.testbed.contestants.topologies import random_graph, tree_neighbours


@pytest.mark.parametrize("size", [2, 5, 30, 100])
def test_a_random_graph_is_connected_and_has_no_double_edge(size: int) -> None:
    dialled = random_graph(size=size, dials=6, seed=1)
    edges = [(one, other) for one, others in enumerate(dialled) for other in others]
    assert len({frozenset(edge) for edge in edges}) == len(edges)
    reached, frontier = {0}, [0]
    while frontier:
        here = frontier.pop()
        near = {b for a, b in edges if a == here} | {a for a, b in edges if b == here}
        frontier += near - reached
        reached |= near
    assert reached == set(range(size))


def test_a_graph_is_as_dense_as_asked_for() -> None:
    degree = 2 * sum(map(len, random_graph(size=100, dials=6, seed=1))) / 100
    assert 11 < degree <= 12


@pytest.mark.parametrize("size", [1, 2, 9, 10, 30])
def test_parents_and_children_of_a_tree_agree(size: int) -> None:
    places = [
        tree_neighbours(index, size=size, fanout=8, seed=1, topic=b"t") for index in range(size)
    ]
    assert sum(parent is None for parent, _ in places) == 1
    assert sum(len(children) for _, children in places) == size - 1
    for index, (_, children) in enumerate(places):
        assert len(children) <= 8
        assert all(places[child][0] == index for child in children)


def test_topics_have_different_trees() -> None:
    roots = {
        next(
            index
            for index in range(30)
            if tree_neighbours(index, size=30, fanout=8, seed=1, topic=topic)[0] is None
        )
        for topic in (b"a", b"b", b"c", b"d")
    }
    assert len(roots) > 1
