import gzip
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pulsarcast.simulation.links import Constant, Jittered, Matrix, read_rtt_s


def test_a_constant_link_is_always_the_same() -> None:
    links = Constant(0.05)
    assert links.latency_s(0, 1, Random(1)) == links.steady_s(0, 1) == 0.05


def test_jitter_stays_around_the_mean() -> None:
    rng, links = Random(1), Jittered(0.1, 0.02)
    drawn = [links.latency_s(0, 1, rng) for _ in range(2_000)]
    assert 0.08 <= min(drawn) < 0.081
    assert 0.119 < max(drawn) <= 0.12
    assert sum(drawn) / len(drawn) == pytest.approx(0.1, abs=0.001)
    assert links.steady_s(0, 1) is None


def test_jitter_never_lets_a_message_arrive_before_it_was_sent() -> None:
    rng, links = Random(1), Jittered(0.01, 0.05)
    assert min(links.latency_s(0, 1, rng) for _ in range(1_000)) >= 0.0


def test_no_jitter_is_a_steady_link() -> None:
    assert Jittered(0.1, 0.0).steady_s(0, 1) == 0.1


RTT_S = [[0.0, 0.2, 0.4], [0.2, 0.0, 0.6], [0.4, 0.6, 0.0]]


def test_a_matrix_gives_half_of_the_round_trip_between_the_hosts_of_two_nodes() -> None:
    links = Matrix(RTT_S, seed=3)
    for a in range(3):
        for b in range(3):
            if a != b:
                half_s = RTT_S[links.host(a)][links.host(b)] / 2
                assert links.latency_s(a, b, Random(1)) == links.steady_s(a, b) == half_s


def test_nodes_are_mapped_to_hosts_by_seed_and_share_them_only_when_they_must() -> None:
    assert sorted(Matrix(RTT_S, seed=1).host(node) for node in range(3)) == [0, 1, 2]
    assert len({tuple(Matrix(RTT_S, seed=s).host(n) for n in range(3)) for s in range(20)}) > 1
    crowded = Matrix(RTT_S, seed=1, local_s=0.001)
    assert crowded.host(0) == crowded.host(3)
    assert crowded.steady_s(0, 3) == 0.001


def test_jitter_of_a_matrix_is_a_share_of_the_latency() -> None:
    links, rng = Matrix(RTT_S, seed=3, jitter=0.1), Random(1)
    steady_s = Matrix(RTT_S, seed=3).latency_s(0, 1, rng)
    drawn = [links.latency_s(0, 1, rng) for _ in range(500)]
    assert links.steady_s(0, 1) is None
    assert steady_s * 0.9 <= min(drawn) < steady_s < max(drawn) <= steady_s * 1.1


@pytest.mark.parametrize(
    ("name", "text"), [("x-ms.tsv.gz", "0\t5\n7.5\t0\n"), ("x-us.csv.gz", "0,5000\n7500,0\n")]
)
def test_matrices_are_read_in_the_unit_of_their_format(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    rows = read_rtt_s(tmp_path / name)
    assert rows[0] == pytest.approx([0.0, 0.005])
    assert rows[1] == pytest.approx([0.0075, 0.0])


def test_a_matrix_that_is_not_square_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv.gz"
    path.write_bytes(gzip.compress(b"0\t1\n1\n"))
    with pytest.raises(AssertionError, match="not a square matrix"):
        read_rtt_s(path)


@pytest.mark.parametrize(
    ("name", "hosts", "mean_s"),
    [("planetlab-490-rtt-ms.tsv.gz", 490, 0.147), ("cities-222-rtt-us.csv.gz", 222, 0.151)],
)
def test_the_measured_matrices_are_what_their_description_says(
    shared_data: Callable[[str], Path], name: str, hosts: int, mean_s: float
) -> None:
    rows = read_rtt_s(shared_data(f"latency/{name}"))
    assert len(rows) == hosts
    cells = [rows[a][b] for a in range(hosts) for b in range(hosts) if a != b]
    assert sum(cells) / len(cells) == pytest.approx(mean_s, abs=0.001)
