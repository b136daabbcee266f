"""One command for all of it: `pulsarcast …`."""

from pulsarcast.cli import fast_imports
from pulsarcast.cli.main import main

__all__ = ["main", "run"]


def run() -> None:
    """The program `pulsarcast`: `main`, as a process of its own."""
    fast_imports.own_the_process()
    main(prog_name="pulsarcast")
