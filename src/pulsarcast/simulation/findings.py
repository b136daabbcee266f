"""Findings: what a checker objects to, counted by kind, with the first few told in words.

A run of 1.7 million deliveries can go wrong 1.7 million times. Counts are exact; of the details
only the first of each kind are kept, which is what a person reads anyway.
"""

from collections import Counter

from msgspec import Struct

DETAILS_MAX = 20
"""Details kept per kind: enough to see a pattern, few enough to read."""


class Finding(Struct, frozen=True):
    """One objection: its kind, for counting, and what happened, for people."""

    kind: str
    detail: str


class Findings:
    """All objections of a run."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.details: list[Finding] = []

    def add(self, kind: str, detail: str, *, count: int = 1) -> None:
        """Object: `count` times the same thing, told once."""
        told = self.counts[kind]
        self.counts[kind] += count
        if told < DETAILS_MAX:
            self.details.append(Finding(kind, detail))

    def count(self, *kinds: str) -> int:
        """How often any of these kinds was found."""
        return sum(self.counts[kind] for kind in kinds)

    def by_kind(self) -> dict[str, int]:
        """Counts by kind, in the order of their names."""
        return {kind: self.counts[kind] for kind in sorted(self.counts)}

    def __bool__(self) -> bool:
        """Whether anything was found at all."""
        return bool(self.counts)
