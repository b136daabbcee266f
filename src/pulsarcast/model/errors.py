"""Errors in two voices: what our caller did wrong, and what a peer did wrong (design, 5).

The third voice is `assert`, for invariants of our own that broke.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager


class Verdict(enum.Enum):
    """What a receiver thinks of what it was sent, and so of the sender."""

    IGNORE = "ignore"  # of no use to us, yet not the sender's fault
    REJECT = "reject"  # the sender should have known better


class PulsarcastError(Exception):
    """The base of every error that this project raises on purpose."""


class LocalError(PulsarcastError):
    """The caller asked for what is not allowed."""


class RemoteError(PulsarcastError):
    """A peer sent what is not allowed; the driver turns it into a verdict and a trace."""

    def __init__(self, reason: str, verdict: Verdict = Verdict.REJECT) -> None:
        super().__init__(reason)
        self.reason = reason
        self.verdict = verdict


@contextmanager
def caller_to_blame() -> Iterator[None]:
    """Turn a RemoteError into a LocalError, where our own caller made what a check refused.

    Whatever we make passes the very checks that peers will apply, so each rule is written once.
    """
    try:
        yield
    except RemoteError as error:
        raise LocalError(error.reason) from error
