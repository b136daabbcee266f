"""Fault plans with names, for workloads: what goes wrong, and when in the course of the load."""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from pulsarcast.model.ids import Cid
from pulsarcast.simulation.fleet import Fleet
from pulsarcast.simulation.workload_driver import WorkloadDriver

MIDDLE = 0.5
RESTARTED_SHARE = 0.3
CHURNING_SHARE = 0.3
DOWN_S = 60.0

Plan: TypeAlias = Callable[[Fleet, WorkloadDriver, Random], None]


def _root_lost(fleet: Fleet, driver: WorkloadDriver, rng: Random) -> None:
    """The busiest topic's author is lost for good in the middle of the load."""
    driver.at_share(MIDDLE, lambda: fleet.lose(driver.busiest_author()))


def _root_restarted(fleet: Fleet, driver: WorkloadDriver, rng: Random) -> None:
    """The busiest topic's author is down for a minute in the middle of the load."""
    root = driver.busiest_author()
    driver.at_share(MIDDLE, lambda: fleet.kill(root, down_s=DOWN_S))


def _restarts(fleet: Fleet, driver: WorkloadDriver, rng: Random) -> None:
    """Thirty per cent of the nodes are killed at random times, and back after 5 to 30 seconds."""

    def plan(index: int, down_s: float) -> Callable[[], None]:
        return lambda: fleet.kill(index, down_s=down_s)

    for index in rng.sample(range(fleet.size), round(RESTARTED_SHARE * fleet.size)):
        driver.at_share(rng.uniform(0.02, 0.95), plan(index, rng.uniform(5.0, 30.0)))


def _partition(fleet: Fleet, driver: WorkloadDriver, rng: Random) -> None:
    """The network is parted into halves for a minute in the middle of the load."""
    nodes = list(range(fleet.size))
    rng.shuffle(nodes)
    half = fleet.size // 2

    def cut() -> None:
        fleet.cut([set(nodes[:half]), set(nodes[half:])])
        fleet.stage.after(DOWN_S, fleet.heal)

    driver.at_share(MIDDLE, cut)


def _churn(fleet: Fleet, driver: WorkloadDriver, rng: Random) -> None:
    """Thirty per cent of the subscriptions end at random times, and begin anew 5 to 30 s later."""

    def plan(index: int, topic: Cid, away_s: float) -> Callable[[], None]:
        def leave() -> None:
            driver.applications.unsubscribe(index, topic)
            fleet.stage.after(away_s, lambda: driver.applications.subscribe(index, topic))

        return leave

    subscriptions = driver.subscriptions()
    for pair in rng.sample(subscriptions, round(CHURNING_SHARE * len(subscriptions))):
        driver.at_share(rng.uniform(0.02, 0.95), plan(*pair, rng.uniform(5.0, 30.0)))


def _none(fleet: Fleet, driver: WorkloadDriver, rng: Random) -> None:
    """Nothing goes wrong."""


PLANS: dict[str, Plan] = {
    "none": _none,
    "root-lost": _root_lost,
    "root-restarted": _root_restarted,
    "restarts": _restarts,
    "partition": _partition,
    "churn": _churn,
}
