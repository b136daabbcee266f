"""Costs: with them simulated nodes need as much processor time as real ones under load."""

import msgspec
import pytest

from pulsarcast.simulation.loads import Load, Outcome
from pulsarcast.testbed import costs, loaded

ALONE_MS, FULL_MS = 2.0, 1.0


def came(cpu_ms: float) -> Outcome:
    return Outcome(
        offered=0,
        accepted=0,
        refused=0,
        due=0,
        arrived=0,
        goodput_per_s=0.0,
        p50_s=None,
        p99_s=None,
        accepting_p99_s=None,
        cpu_ms_per_delivery=cpu_ms,
        counts={},
    )


def test_simulated_nodes_need_what_real_ones_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "play", lambda load: came(ALONE_MS if load.rate else FULL_MS))
    monkeypatch.setattr(costs, "ROUNDS", 2)
    seen: list[int] = []
    measured, compared = costs.measure_costs(1.0, progress=lambda _, done, __: seen.append(done))
    assert min(msgspec.structs.astuple(measured)) >= 0.0
    assert measured.verify_s > measured.sign_s > 0.0
    assert measured.commit_s > 0.0
    assert [each.real for each in compared] == [ALONE_MS, FULL_MS]
    for each in compared:
        assert each.simulated == pytest.approx(each.real, rel=0.25)
    assert seen == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("rate", [0.0, 20.0])
def test_real_nodes_under_a_load(
    rate: float, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("nodes"))
    outcome = loaded.play(Load(2, 1, "tree", 256, 1.0, rate, 2))
    assert outcome.accepted > 2
    assert outcome.arrived == outcome.due
    assert outcome.cpu_ms_per_delivery > 0
