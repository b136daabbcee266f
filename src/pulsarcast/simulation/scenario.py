"""Scenarios: one way to run any of them, whatever becomes of it."""

from __future__ import annotations

import traceback

from pulsarcast.model.errors import LocalError
from pulsarcast.simulation.content.experiment import run_content
from pulsarcast.simulation.content.random_runs import run_random_content
from pulsarcast.simulation.loop import few_collections
from pulsarcast.simulation.options import Options
from pulsarcast.simulation.random_runs import run_random, run_reach, run_sequenced
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.run import Progress, no_progress
from pulsarcast.simulation.scenario_load import run_load
from pulsarcast.simulation.scenario_tree import run_tree
from pulsarcast.simulation.scenario_workload import run_workload
from pulsarcast.simulation.sequencers.run import run_sequencers

FRAMES_TOLD = 4


@few_collections()
def run_scenario(options: Options, *, progress: Progress = no_progress) -> Result:
    """Run one scenario; a node that breaks down is an objection like any other."""
    try:
        match options.kind:
            case "workload":
                return run_workload(options, progress=progress)
            case "tree":
                return run_tree(options, progress=progress)
            case "load":
                return run_load(options, progress=progress)
            case "random":
                return run_random(options, progress=progress)
            case "reach":
                return run_reach(options, progress=progress)
            case "sequenced":
                return run_sequenced(options, progress=progress)
            case "sequencers":
                return run_sequencers(options)
            case "content":
                return run_content(options, progress=progress)
            case "random_content":
                return run_random_content(options)
    except LocalError:
        raise
    except Exception as error:  # with many seeds, the others go on
        return Result(
            scenario=options.scenario,
            seed=options.seed,
            ok=False,
            findings={"crash": 1},
            details=[_tell(error)],
            replay=options.replay_command(),
        )


def _tell(error: Exception) -> str:
    """The error, and the last places it came through: what is above them is the simulator."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_TOLD:]
    ways = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames]
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"crash: {type(error).__name__}: {error} ({' > '.join(ways)}) {notes}"
