"""One command for all of it: `pulsarcast …`."""

from pulsarcast.cli.main import main

__all__ = ["main"]
