"""One command for all of it: `pulsarcast …`."""

from pulsarcast.cli import lean
from pulsarcast.cli.main import main

__all__ = ["main", "run"]


def run() -> None:
    """The program `pulsarcast`: `main`, as a process of its own."""
    lean.own_the_process()
    main(prog_name="pulsarcast")
