"""The workload scenario: the thesis' evaluation, played again (thesis, 5)."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random

import zstandard

from pulsarcast.model.errors import LocalError
from pulsarcast.model.workload import Workload, parse_workload
from pulsarcast.simulation.faults import PLANS
from pulsarcast.simulation.options import Options
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.run import Progress, Run, no_progress
from pulsarcast.simulation.synthetic import EVENTS, make_workload
from pulsarcast.simulation.workload_driver import WorkloadDriver

SETUP_S_MAX = 3_600.0
LOAD_S_MAX = 200_000.0
"""Far more than any load takes: what does not end by then never will."""
SETTLE_S = 30.0


def run_workload(options: Options, *, progress: Progress = no_progress) -> Result:
    """Topics, subscriptions, events, settling; then the checkers."""
    if options.faults not in PLANS:
        raise LocalError(f"no fault plan {options.faults!r}; there are: {', '.join(PLANS)}")
    nodes = 100 if options.nodes is None else options.nodes
    workload = read_workload(options, nodes)
    run = Run(options, progress=progress)
    run.join(nodes)
    driver = WorkloadDriver(
        run.applications,
        workload,
        rng=run.world.stream("workload"),
        order=options.order,
        dissemination=options.dissemination,
        events_max=options.events,
    )
    run.expected_due = driver.expected_due()

    driver.create_topics()
    _play(run, driver, "create", SETUP_S_MAX)
    run.world.run(run.world.now + SETTLE_S)
    driver.subscribe()
    _play(run, driver, "subscribe", SETUP_S_MAX)
    run.world.run(run.world.now + SETTLE_S)

    run.measure_from_here()
    PLANS[options.faults](run.fleet, driver, run.world.stream("faults"))
    driver.publish()
    _play(run, driver, "publish", LOAD_S_MAX)
    run.settle()
    run.dropped = driver.dropped
    return run.result()


def _play(run: Run, driver: WorkloadDriver, act: str, s_max: float) -> None:
    def is_done() -> bool:
        if act == "publish":
            run.progress(act, driver.answered, driver.event_count)
        return driver.done(act)

    if not run.world.run_until(is_done, run.world.now + s_max, 1.0):
        run.observer.findings.add("stuck", f"{act} was not over after {s_max:.0f} s")


def read_workload(options: Options, nodes: int) -> Workload:
    """The workload's file, or one made up of the same shape."""
    if options.workload is None:
        rng = Random(f"workload/{options.seed}")
        return make_workload(rng, nodes=nodes, events=options.events or EVENTS)
    path = Path(options.workload)
    if not path.is_file():
        raise LocalError(f"no such workload: {path}")
    with path.open("rb") as raw:
        if path.suffix != ".zst":
            return parse_workload(raw)
        try:
            with zstandard.ZstdDecompressor().stream_reader(raw) as plain:
                return parse_workload(io.TextIOWrapper(plain, encoding="utf-8"))
        except (zstandard.ZstdError, UnicodeError) as error:
            raise LocalError(f"{path} is no workload: {error}") from error
