"""Sequencers within whole nodes: what Raft promises of their logs (its figure 3).

`simulation/sequencers` looks at them after every step, and at nothing else. Here, at the end of a
run of whole nodes, their logs are held against each other once more.
"""

from collections.abc import Iterable, Mapping

from pulsarcast.model.ids import Cid
from pulsarcast.protocol.sequencing.log import Entry
from pulsarcast.protocol.sequencing.state import SequencerState
from pulsarcast.simulation.findings import Findings


def check_sequencers(
    groups: Mapping[Cid, Iterable[tuple[int, SequencerState]]], findings: Findings
) -> None:
    """Log matching and state machine safety, for the sequencers of every topic."""
    for group in groups.values():
        entries: dict[tuple[int, int], tuple[int | None, Entry]] = {}
        committed: dict[int, Entry] = {}
        for node, state in group:
            log = state.log
            for index, entry in log:
                here = (log.term_at(index - 1), entry)
                if entries.setdefault((index, entry.term), here) != here:
                    findings.add("log_matching", f"node {node}, index {index}, term {entry.term}")
                if index <= state.committed and committed.setdefault(index, entry) != entry:
                    findings.add("state_machine", f"node {node} committed another at {index}")
