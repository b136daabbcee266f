"""The output of commands, for people and for programs.

Exit codes: 0 done, 1 refused or failed, 2 wrongly called, 3 no daemon answers, 4 not allowed,
5 not found.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import click
import msgspec

from pulsarcast.model.errors import LocalError

FAILED: Final = 1
UNREACHABLE: Final = 3
FORBIDDEN: Final = 4
UNKNOWN: Final = 5


def emit(value: Any, text: str, *, as_json: bool) -> None:
    """Print a result: as JSON on one line, or as text."""
    click.echo(msgspec.json.encode(value).decode() if as_json else text)


def plain(text: str, allowed: str = "") -> str:
    """A text of somebody else, without what a terminal would obey; `allowed` signs stay."""
    return "".join(each if each.isprintable() or each in allowed else "\ufffd" for each in text)


def fail(error: Exception | str, code: int = FAILED) -> NoReturn:
    """Print an error, and exit with a code."""
    click.echo(f"pulsarcast: {error}", err=True)
    sys.exit(code)


@contextmanager
def errors_shown(failure: type[click.ClickException] = click.ClickException) -> Iterator[None]:
    """Show a LocalError as a message with the exit code of `failure`, without a traceback.

    It raises click's exception and does not exit: a program that calls a command sees it fail.
    """
    try:
        yield
    except LocalError as error:
        raise failure(str(error)) from None


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Say in one line how to install the extra that a command needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "pulsarcast":
            raise
        fail(f"{error.name} is not installed: pip install 'pulsarcast[{extra}]'")
