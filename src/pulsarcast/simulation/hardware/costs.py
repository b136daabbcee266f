"""Costs: the CPU seconds of what a node does, as measured on real ones."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import msgspec

from pulsarcast.model.errors import LocalError, in_words

MEASURED = "measured"
"""The name of the costs that come with the package."""


class Costs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a node's processor does, in CPU seconds; `turn_s` is once for all that has come."""

    turn_s: float
    """A process wakes, reads its sockets, and writes to them."""
    input_s: float
    """The core takes one input."""
    event_s: float
    """What an event costs on top: read, placed in its order, handed on."""
    message_s: float
    """A message is read, or written, and sealed."""
    byte_s: float
    """One byte of a message or an event: coded, sealed, copied."""
    sign_s: float
    verify_s: float
    commit_s: float
    """A commit, whatever is in it."""
    write_s: float
    """One row of a commit."""
    deliver_s: float
    """An event is handed to the application."""


def read_costs(name: str) -> Costs:
    """The costs of the package, by the name `measured`, or those in a file."""
    if name == MEASURED:
        text = resources.files(__package__).joinpath("measured.json").read_bytes()
    else:
        try:
            text = Path(name).read_bytes()
        except OSError as error:
            raise LocalError(f"costs {name}: {error}") from error
    try:
        return msgspec.json.decode(text, type=Costs)
    except msgspec.DecodeError as error:
        raise LocalError(f"costs {name}: {in_words(error)}") from error
