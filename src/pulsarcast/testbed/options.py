"""What is to be run, and the form in which every scenario says what it came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from pulsarcast.protocol.parameters import Parameters
from pulsarcast.simulation.workload_driver import CONCURRENCY
from pulsarcast.testbed.proxies import Delay

TIMEOUT_S: Final = 7_200.0


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is to be run. None stands for whatever the scenario takes."""

    scenario: str = "workload"
    out: Path
    nodes: int | None = None
    seed: int = 1
    order: str = "none"
    dissemination: str = "tree"
    """How the events of its topics travel."""
    trace_level: str | None = "delivery"
    ack: str = "replicated"
    contestant: str = "ours"
    run_id: str | None = None
    keep_homes: bool = False
    timeout_s: float = TIMEOUT_S
    # A workload, and what goes wrong meanwhile.
    workload: Path | None = None
    """None: one of the thesis' shape is made up."""
    events_max: int | None = None
    concurrency: int = CONCURRENCY
    faults: Sequence[str] = ()
    stopped_s: float = 60.0
    full_s: float = 20.0
    cut_s: float = 20.0
    author_down_s: float = 20.0
    # Loads that are made up.
    events: int | None = None
    topics: int | None = None
    payload_bytes: int = 256
    rate_per_s: float = 20.0
    duration_s: float = 600.0
    sample_s: float = 5.0
    churn: bool = False
    filters: int = 10
    """Of each node, where quotes are replayed."""
    sequencers: int = 3
    every_s: float = 20.0
    """How often the acting sequencer is killed,"""
    down_s: float = 5.0
    """and how long it is down then."""
    election_timeout_s: float | None = None
    """Of all nodes; None: as usual."""
    by_kill: bool = False
    """Whether the subscriber that is away was killed, instead of stopped in good order."""
    latency_ms: float = 1.0
    """One way, in the simulated half of `mirror`: about what two processes take here."""
    # The network.
    delay: Delay | None = None
    """How late what comes in arrives; None: there are no proxies, unless a fault needs them."""
    matrix: Path | None = None
    """The file from which the delay was made, where it was: see `scenarios`."""
    # The machine.
    memory_mib: int | None = None
    """What a node may take before it is killed; None: as much as there is."""
    without_limits: bool = False
    """Whether to go on where there can be no limits."""

    def parameters(self) -> Parameters:
        """Those of the protocol, as usual but for what is chosen here."""
        usual = Parameters()
        if self.election_timeout_s is None:
            return usual
        # A leader must be heard several times before anyone misses it.
        share = usual.leader_heartbeat_s / usual.election_timeout_s
        return msgspec.structs.replace(
            usual,
            election_timeout_s=self.election_timeout_s,
            leader_heartbeat_s=share * self.election_timeout_s,
        )

    def name_of_run(self) -> str:
        """What the traces call this run."""
        differing = (
            "" if self.dissemination == "tree" else f"-{self.dissemination}",
            "" if self.sequencers == RunOptions.sequencers else f"-{self.sequencers}",
        )
        name = f"testbed-{self.scenario}-{self.order}{''.join(differing)}-{self.seed}"
        return self.run_id or name


class Outcome(msgspec.Struct, kw_only=True):
    """What a run came to, as far as all scenarios have it in common."""

    scenario: str
    nodes: int
    due: int
    """Deliveries of what was acknowledged, or got by anyone, to all who subscribed to it."""
    delivered: int
    lost: int
    duplicates: int
    strays: int
    """Deliveries of what nobody published."""
    ok: bool
    """Whether all was published and came, once, nothing else did, and no node fell.

    Only a fault excuses a node that refuses."""

    def to_json(self) -> str:
        """One line."""
        return msgspec.json.encode(self).decode()

    def to_text(self) -> str:
        """Some lines, for people."""
        fields = msgspec.structs.asdict(self)
        return "\n".join(f"{name:26} {shown(value)}" for name, value in fields.items())


def shown(value: object) -> object:
    """A figure as people read it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {shown(inner)}" for key, inner in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return value
