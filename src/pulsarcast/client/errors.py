"""What can go wrong between a program and its daemon: it says no, or it cannot be reached."""

from __future__ import annotations

from typing import Final

from pulsarcast.model.errors import PulsarcastError

PASSING: Final = (502, 503, 504)
"""Answers of a daemon, or of a proxy before it, that may be others in a moment."""


class ApiError(PulsarcastError):
    """The daemon said no. `code` is for programs and never changes; the message is for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type[ApiError], tuple[int, str, str]]:
        """Pickle by what it was made of."""
        return ApiError, (self.status, self.code, self.message)


class Unreachable(PulsarcastError):  # noqa: N818 (it reads as what it is)
    """No daemon answers, or the connection to it broke."""

    def __init__(self, message: str, *, is_absent: bool = False) -> None:
        super().__init__(message)
        self.is_absent = is_absent
        """Whether nobody was there at all."""


def is_passing(error: PulsarcastError) -> bool:
    """Whether the same request may do better a little later."""
    if isinstance(error, ApiError):
        return error.status in PASSING and error.code != "halted"
    return isinstance(error, Unreachable)
