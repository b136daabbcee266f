"""The home of the node on this machine: its default, and the option `--home`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

VARIABLE = "PULSARCAST_HOME"


def default_home() -> Path:
    """The home of commands without `--home`.

    The client says the same (`client.connect`), but importing it takes longer than most commands.
    """
    return Path(os.environ.get(VARIABLE) or "~/.pulsarcast").expanduser()


def shown_home(home: Path) -> str:
    """The option that names this home; empty for the default one."""
    return "" if home == default_home() else f" --home {home}"


class _Folder(click.Path):
    """A folder; an empty text, as of an unset variable of a script, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("an empty text names no folder.", param, ctx)
        return super().convert(value, param, ctx)


def home_option(command: Any) -> Any:
    """`--home`, as a path."""
    return click.option(
        "--home",
        type=_Folder(path_type=Path, file_okay=False),
        default=default_home,
        show_default="~/.pulsarcast",
        help=f"Folder of the node. Also ${VARIABLE}.",
    )(command)
