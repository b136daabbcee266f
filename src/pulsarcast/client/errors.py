"""What can go wrong between a program and its daemon, besides a refusal.

What the daemon refuses raises the same type as the library does (`pulsarcast.model.errors`).
"""

from __future__ import annotations

from typing import Final

from pulsarcast.model.errors import LocalError, PulsarcastError

PASSING: Final = (429, 502, 503, 504)
"""Answers of a proxy before the daemon that may be others in a moment."""


class UnexpectedResponse(PulsarcastError):  # noqa: N818 (it reads as what it is)
    """The answer is none that a daemon of this version gives: a proxy's, or another program's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type[UnexpectedResponse], tuple[int, str]]:
        """Pickle by what it was made of."""
        return UnexpectedResponse, (self.status, str(self))


class Unreachable(PulsarcastError):  # noqa: N818 (it reads as what it is)
    """No daemon answers, or the connection to it broke."""

    def __init__(self, message: str, *, is_absent: bool = False) -> None:
        super().__init__(message)
        self.is_absent = is_absent
        """Whether no daemon was there at all."""


def is_passing(error: PulsarcastError) -> bool:
    """Whether the same request may do better a little later."""
    if isinstance(error, LocalError):
        return error.retryable
    if isinstance(error, UnexpectedResponse):
        return error.status in PASSING
    return isinstance(error, Unreachable)


def after_s_of(error: PulsarcastError) -> float:
    """When the daemon wants to be asked again, where it says so; else 0."""
    return error.after_s if isinstance(error, LocalError) else 0.0
