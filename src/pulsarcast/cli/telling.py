"""How commands tell people and programs what came of them.

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


def tell(value: Any, text: str, *, as_json: bool) -> None:
    """An answer: as JSON on one line, or in words."""
    click.echo(msgspec.json.encode(value).decode() if as_json else text)


def complain(error: Exception | str, code: int = FAILED) -> NoReturn:
    """Say what is wrong, and end with a code."""
    click.echo(f"pulsarcast: {error}", err=True)
    sys.exit(code)


@contextmanager
def telling(failure: type[click.ClickException] = click.ClickException) -> Iterator[None]:
    """Let errors of the caller become a message and the code of `failure`, without a traceback.

    An exception of click's, not an exit: who calls a command from a program sees that it failed.
    """
    try:
        yield
    except LocalError as error:
        raise failure(str(error)) from None


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Say in one line how to install what a command needs and this environment lacks."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "pulsarcast":
            raise
        complain(f"this needs more: pip install 'pulsarcast[{extra}]' ({error.name} is missing)")
