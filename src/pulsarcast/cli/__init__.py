"""One command for all of it: `pulsarcast …`."""

import os
import sys

from pulsarcast.cli import fast_imports
from pulsarcast.cli.main import main

__all__ = ["main", "run"]


def run() -> None:
    """The program `pulsarcast`: `main`, as a process of its own."""
    _open_closed_streams()
    fast_imports.own_the_process()
    main(prog_name="pulsarcast")


def _open_closed_streams() -> None:
    """Let a stream that the caller closed be an empty one: Python has None in its place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nothing, mode, encoding="utf-8", closefd=False))
