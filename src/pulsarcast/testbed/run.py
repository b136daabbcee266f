"""Scenarios by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from pulsarcast.model.errors import LocalError
from pulsarcast.testbed.options import Outcome, RunOptions
from pulsarcast.testbed.scenarios.away import run_away
from pulsarcast.testbed.scenarios.compare import Progress, no_progress
from pulsarcast.testbed.scenarios.hot import run_hot
from pulsarcast.testbed.scenarios.mirror import run_mirror
from pulsarcast.testbed.scenarios.quotes import run_quotes
from pulsarcast.testbed.scenarios.soak import run_soak
from pulsarcast.testbed.scenarios.succession import run_succession
from pulsarcast.testbed.scenarios.workload import run_workload

SCENARIOS: Final[Mapping[str, Callable[..., Outcome]]] = MappingProxyType(
    {
        "workload": run_workload,
        "away": run_away,
        "mirror": run_mirror,
        "soak": run_soak,
        "hot": run_hot,
        "succession": run_succession,
        "quotes": run_quotes,
    }
)


def run_scenario(options: RunOptions, *, progress: Progress = no_progress) -> Outcome:
    """Run a scenario by its name."""
    scenario = SCENARIOS.get(options.scenario)
    if scenario is None:
        raise LocalError(f"no scenario {options.scenario!r}; there are: {', '.join(SCENARIOS)}")
    return scenario(options, progress=progress)
