"""Options of a simulation: a scenario's file, with what the command line changed.

Whatever a run needs to be the same again is in here, so that the command that replays it can be
printed.
"""

from __future__ import annotations

import shlex
import tomllib
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec

from pulsarcast.model.errors import LocalError, in_words
from pulsarcast.simulation.hardware.costs import MEASURED, read_costs
from pulsarcast.simulation.hardware.machines import Hardware
from pulsarcast.simulation.links import Constant, Jittered, Links, Matrix

BYTES_IN_MBIT = 125_000


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One scenario, ready to run."""

    scenario: str = ""
    kind: Literal[
        "workload",
        "tree",
        "load",
        "random",
        "reach",
        "sequenced",
        "sequencers",
        "content",
        "random_content",
    ]
    about: str = ""
    seed: int = 1
    nodes: int | None = None
    """None: as many as the workload or the seed asks for."""
    order: Literal["none", "per-publisher", "causal", "total"] = "none"
    dissemination: Literal["tree", "cube"] = "tree"
    """How events travel; of a random run, whether some of its topics are cubes."""
    latency_ms: float = 50.0
    jitter_ms: float = 0.0
    latency_matrix: str | None = None
    faults: str = "none"
    workload: str | None = None
    """None: one of the same shape is made up (`synthetic`)."""
    subscribers: int | None = None
    settled: bool = False
    """Of a tree or cube: whether the nodes begin with the tables that joining would give them."""
    events: int | None = None
    subscriptions: int = 5
    """Of content: per node."""
    probing: Literal["multicast", "unicast"] = "multicast"
    """Of content: whether an event's targets with one next hop travel together."""
    cut_off: Literal["follows", "fixed", "none"] = "follows"
    """Of content: whether the cut-off line follows the subscriptions, stays, or is not there."""
    skew: float = 1.0
    """Of content: the share of every attribute's range that all events fall into."""
    follow_load: bool = False
    """Of content: whether leaves with many events split too, and not only those that are full."""
    churn: str | None = None
    """Of content: FILE:NAME of sessions that nodes follow."""
    without: str | None = None
    """A safeguard to be switched off (`sabotage`)."""
    trace: str | None = None
    """A folder for the traces of all nodes, and for the result."""
    trace_level: Literal["delivery", "rpc"] = "delivery"
    run_id: str | None = None
    """What every line of the traces calls this run; None: scenario and seed."""
    share_verification: bool = True
    through_wire: bool = False
    settle_s_max: float = 600.0
    costs: str | None = None
    """A file of what inputs cost a node's processor, or `measured`; None: nothing takes time."""
    cores: int | None = None
    """Cores that all nodes share; None: each has one of its own."""
    uplink_mbit: float | None = None
    """What leaves a node in a second; None: everything at once."""

    def links(self) -> Links:
        """The network that these options describe."""
        if self.latency_matrix is not None:
            path = Path(self.latency_matrix)
            if not path.is_file():
                raise LocalError(f"no such latency matrix: {path}")
            try:
                return Matrix.read(path, seed=self.seed)
            except (OSError, EOFError, ValueError, AssertionError) as error:
                raise LocalError(f"{path} is no matrix of round-trip times: {error}") from error
        if self.jitter_ms:
            return Jittered(self.latency_ms / 1000, self.jitter_ms / 1000)
        return Constant(self.latency_ms / 1000)

    def hardware(self) -> Hardware:
        """What the nodes run on."""
        costs = self.costs or (None if self.cores is None else MEASURED)
        return Hardware(
            None if costs is None else read_costs(costs),
            self.cores,
            None if self.uplink_mbit is None else self.uplink_mbit * BYTES_IN_MBIT,
        )

    def name_of_run(self) -> str:
        """What the run is called in its traces."""
        return self.run_id or f"{Path(self.scenario).stem}-{self.seed}"

    def replay_command(self) -> str:
        """The exact command that does the same again."""
        words = ["pulsarcast", "simulate", self.scenario, "--seed", str(self.seed)]
        usual = load(self.scenario)
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if field in ("scenario", "seed", "kind", "about") or value == getattr(usual, field):
                continue
            flag = "--" + field.replace("_", "-")
            if isinstance(value, bool):
                words.append(flag if value else "--no-" + flag[2:])
            else:
                words += [flag, str(value)]
        return shlex.join(words)


def names() -> list[str]:
    """The scenarios that come with the package."""
    folder = resources.files("pulsarcast.simulation").joinpath("scenarios")
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    )


def load(name: str) -> Options:
    """A scenario by its name, or from a file of one's own."""
    path = Path(name)
    if name.endswith(".toml") and path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise LocalError(f"scenario {name}: {error}") from error
    elif name in names():
        folder = resources.files("pulsarcast.simulation").joinpath("scenarios")
        text = folder.joinpath(f"{name}.toml").read_text(encoding="utf-8")
    else:
        raise LocalError(f"no scenario {name!r}; there are: {', '.join(names())}")
    try:
        return msgspec.convert({**tomllib.loads(text), "scenario": name}, Options)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise LocalError(f"scenario {name}: {in_words(error)}") from error
