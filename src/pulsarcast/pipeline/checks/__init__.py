"""Checks: every promise, held against the traces of any number of runs (docs/guides/checking.md).

A history checker in the manner of Jepsen, by joins and windows alone: each file looks after one
family of promises, and each of its functions turns what the traces say into findings. The meanings
are the simulator's own (`pulsarcast.simulation.checkers`), and so are the counts.
"""

from pulsarcast.pipeline.checks.findings import COMMON, FINDINGS, KINDS
from pulsarcast.pipeline.checks.proof import attach_lines, first_of_each_kind
from pulsarcast.pipeline.checks.unknown import REASONS, UNKNOWN
from pulsarcast.pipeline.checks.verdict import Outcome, Verdict, judge

__all__ = [
    "COMMON",
    "FINDINGS",
    "KINDS",
    "REASONS",
    "UNKNOWN",
    "Outcome",
    "Verdict",
    "attach_lines",
    "first_of_each_kind",
    "judge",
]
