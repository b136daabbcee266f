"""Where the node of this machine lives, for commands that need to know."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

VARIABLE = "PULSARCAST_HOME"


def default_home() -> Path:
    """The home that is meant where none is named.

    The client says the same (`client.connect`), but importing it takes longer than most commands.
    """
    return Path(os.environ.get(VARIABLE) or "~/.pulsarcast").expanduser()


def shown_home(home: Path) -> str:
    """What a command needs to be told to mean this home; nothing for the usual one."""
    return "" if home == default_home() else f" --home {home}"


def home_option(command: Any) -> Any:
    """`--home`, as a path."""
    return click.option(
        "--home",
        type=click.Path(path_type=Path, file_okay=False),
        default=default_home,
        show_default="~/.pulsarcast",
        help=f"The node's folder, also ${VARIABLE}.",
    )(command)
