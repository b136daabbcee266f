"""Many seeds on all cores, and what they came to together."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence

import msgspec

from pulsarcast.simulation.options import Options
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.scenario import run_scenario

RUNS_PER_PROCESS = 50
"""A process is replaced now and then, so that a leak of one run does not grow over thousands."""


def run_seeds(options: Options, seeds: Sequence[int]) -> Iterator[Result]:
    """Run many seeds, one process a core; results come in the order of the seeds."""
    jobs = [_with_seed(options, seed) for seed in seeds]
    # Spawned, not forked: a fork would carry the parent's threads' locks along.
    context = multiprocessing.get_context("spawn")
    with context.Pool(os.cpu_count(), maxtasksperchild=RUNS_PER_PROCESS) as pool:
        yield from pool.imap(run_scenario, jobs)


RECOVERY_PATHS = {
    "rejoin": "a member lost its parent and found another",
    "hand_down": "a full parent handed a joiner to one of its children",
    "hand_over": "one who left handed its children over",
    "gap_filled": "missing events were fetched from a neighbour",
    "catch_up": "a member compared frontiers when it joined again",
    "lazy_difference": "a lazy neighbour held something else",
    "silent_parent": "a parent did not answer and was left",
    "cycle_broken": "a path showed a cycle, which was broken",
    "acting_root": "the closest live peer acted as root",
    "tree_merge": "an acting root found a closer one",
    "keeper": "a peer that is no subscriber kept a tree together",
    "visitor_offer": "an event was handed in from outside of the tree",
    "replica_handed_in": "a replica put an event into its own tree",
    "dht_repair": "replicas exchanged blocks",
    "dht_recovery": "a missing event came from the DHT",
    "outbox_retry": "a request was sent again",
    "outbox_resumed": "a request survived its author's restart",
    "request_repeated": "a publisher answered a request a second time",
    "request_deduplicated": "a request that two published was delivered once",
    "fell_behind": "a neighbour ran out of credit and compared frontiers",
    "parent_missing": "an event of causal order came before one that it follows",
    "merge": "heads that did not fit were merged",
    "retired_gap": "a gap was skipped because retention had dropped its events",
}
"""What random runs have to go through for their verdict to mean something."""
TREE_PATHS = (
    "rejoin",
    "hand_down",
    "hand_over",
    "lazy_difference",
    "silent_parent",
    "cycle_broken",
    "tree_merge",
)
"""Those that only trees have; runs with cubes have few of those."""
CUBE_PATHS = {
    "child_skipped": "a cube's member was lost, and the next of its bucket took its place",
    "cube_difference": "a member of a cube held something else",
    "cube_merge": "parts of a cube that did not know each other met",
    "silent_member": "a member of a cube did not answer and was left",
}
SEQUENCER_PATHS = {
    "election": "a sequencer stood for election",
    "stepped_down": "a leader did not hear from most of the others, and stepped back",
    "snapshot_installed": "a sequencer had missed more than the others' logs still held",
    "readmitted": "one that had lost its store was given its vote back",
}
"""The same of sequencers alone."""
SEQUENCED_PATHS = {
    **SEQUENCER_PATHS,
    "gap_filled": "missing events were fetched from a neighbour",
    "outbox_retry": "a request was sent again",
    "request_repeated": "a sequencer answered a request a second time",
}
"""The same of whole nodes with several sequencers."""
CONTENT_PATHS = {
    "content_split": "a leaf of a content tree was full, and split",
    "content_load_split": "a leaf had many events, and split",
    "content_hand_over": "a home handed over to a closer peer",
    "content_by_comparison": "a member sent what routing had missed",
    "content_probe_again": "an event went another way because its next hop was lost",
    "content_install_again": "nobody answered for a subscription, and it was sent again",
    "content_member_silent": "a member did not answer, and another was asked",
}
"""The same of subscriptions by content."""
REACH_PATHS = {
    "rejoin": "a member lost its parent and found another",
    "hand_down": "a full parent handed a joiner to one of its children",
    "gap_filled": "missing events were fetched from a neighbour",
    "keeper": "a peer that is no subscriber kept a tree together",
    "tree_merge": "an acting root found a closer one",
    "private_author": "an author that cannot be dialled was attached to another's tree",
    "kept_for_private": "a public peer that is not the author acted as root for it",
    "relayed_dial": "a node was dialled through a relay",
}
"""The same of nodes that cannot all be dialled."""
PATHS = {
    "random": RECOVERY_PATHS,
    "reach": REACH_PATHS,
    "sequencers": SEQUENCER_PATHS,
    "sequenced": SEQUENCED_PATHS,
    "random_content": CONTENT_PATHS,
}
SHARE_MIN = 0.05
RUNS_MIN = 200
"""Runs from which on shares are judged."""


class Summary:
    """What many seeds came to."""

    def __init__(self, kind: str = "random", dissemination: str = "tree") -> None:
        self.paths = dict(PATHS.get(kind, {}))
        """The ways of recovery that these runs should have taken, where chance breaks things."""
        if kind == "random" and dissemination == "cube":
            self.paths.update(CUBE_PATHS)
            for name in TREE_PATHS:
                self.paths.pop(name, None)
        self.runs = 0
        self.failed: list[Result] = []
        self.due = 0
        self.delivered = 0
        self.findings: dict[str, int] = {}
        self.used: dict[str, int] = {}
        """In how many runs each way of recovery was taken."""
        self.faults: dict[str, int] = {}
        self.cpu_s = 0.0

    def add(self, result: Result) -> None:
        """Take one run in."""
        self.runs += 1
        if not result.ok:
            self.failed.append(result)
        self.due += result.due
        self.delivered += result.delivered
        self.cpu_s += result.cpu_s
        for kind, count in result.findings.items():
            self.findings[kind] = self.findings.get(kind, 0) + count
        for name, count in result.counts.items():
            self.used[name] = self.used.get(name, 0) + (count > 0)
        for name in result.faults:
            self.faults[name] = self.faults.get(name, 0) + 1

    def _share(self, name: str) -> float:
        return round(self.used.get(name, 0) / max(1, self.runs), 4)

    def rare(self) -> list[str]:
        """The ways of recovery that too few runs took: seeds that avoid them prove little."""
        if self.runs < RUNS_MIN:
            return []
        return [name for name in self.paths if self._share(name) < SHARE_MIN]

    def to_dict(self) -> dict[str, object]:
        """For one line of JSON."""
        return {
            "runs": self.runs,
            "failed": len(self.failed),
            "due": self.due,
            "delivered": self.delivered,
            "findings": dict(sorted(self.findings.items())),
            "recovery_share": {name: self._share(name) for name in self.paths},
            "fault_share": {
                name: round(count / self.runs, 4) for name, count in sorted(self.faults.items())
            },
            "rare": self.rare(),
            "cpu_s": round(self.cpu_s, 1),
            "replay": [result.replay for result in self.failed],
        }


def _with_seed(options: Options, seed: int) -> Options:
    """The same run with another seed, and with a name and a folder of its own for its traces."""
    run_id = None if options.run_id is None else f"{options.run_id}-{seed}"
    chosen = msgspec.structs.replace(options, seed=seed, run_id=run_id)
    if options.trace is None:
        return chosen
    return msgspec.structs.replace(chosen, trace=f"{options.trace}/{chosen.name_of_run()}")
