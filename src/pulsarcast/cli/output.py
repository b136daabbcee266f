"""The output of commands, for people and for programs.

Exit codes: 0 done, 1 refused or failed, 2 wrongly called, 3 no daemon answers, 4 not allowed,
5 not found, 130 ended by Ctrl-C.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import click
import msgspec

from pulsarcast.model.errors import LocalError, PulsarcastError

FAILED: Final = 1
UNREACHABLE: Final = 3
FORBIDDEN: Final = 4
UNKNOWN: Final = 5
INTERRUPTED: Final = 130
"""What a shell says of a process that SIGINT ended."""


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


class Failure(click.ClickException):
    """A command that failed, for the reason that it says."""

    exit_code = FAILED

    def show(self, file: Any = None) -> None:
        """Print the reason as `fail` does."""
        click.echo(f"pulsarcast: {self.format_message()}", file=file, err=file is None)


def yes_option(command: Any) -> Any:
    """`--yes`, for commands that call `confirm`."""
    return click.option("--yes", is_flag=True, help="Do not ask before something is lost.")(command)


def confirm(loss: str, *, yes: bool) -> None:
    """Say what will be lost, and go on only if `--yes` or the person at the terminal says so."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{loss}. No terminal is there to ask on: say --yes to go on.")
    if not click.confirm(f"{loss}. Go on?", err=True):
        fail("nothing was changed")


class Finite(click.FloatRange):
    """A number within bounds that is neither infinite nor NaN, which no comparison refuses."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def sentence(error: BaseException, extra: str = "all") -> str | None:
    """The sentence that tells a mistake or a misfortune; None for a defect of this program.

    A defect keeps its traceback: a report of it needs that.
    """
    match error:
        case BrokenPipeError():
            return None  # click ends quietly: the reader of the output has enough.
        case ModuleNotFoundError(name=name) if not _is_ours(name):
            return (
                f"{str(name).partition('.')[0]} is not installed: pip install 'pulsarcast[{extra}]'"
            )
        case PulsarcastError() | EOFError():
            return str(error)
        case OSError(filename=name, strerror=reason) if reason:
            where = "" if name is None else f"{os.fsdecode(name)}: "
            return f"{where}{reason}"
        case UnicodeError():
            return f"a text is not UTF-8: {error}"
    if type(error).__module__.partition(".")[0] in ("pyspark", "py4j"):
        return f"Spark: {str(error).strip().partition(chr(10))[0]}"
    return None


def _is_ours(module: str | None) -> bool:
    return module is None or module.partition(".")[0] == "pulsarcast"


@contextmanager
def errors_shown(failure: type[Failure] = Failure, extra: str = "all") -> Iterator[None]:
    """Show a mistake as a message with the exit code of `failure`, without a traceback.

    It raises an exception of click and does not exit: a program that calls a command sees it fail.
    """
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Exception as error:
        text = sentence(error, extra)
        if text is None:
            raise
        raise failure(text) from (None if isinstance(error, LocalError) else error)


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Say in one line how to install the extra that a command needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        if _is_ours(error.name):
            raise
        fail(sentence(error, extra) or "")
