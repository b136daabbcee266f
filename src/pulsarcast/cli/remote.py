"""What all commands that talk to a daemon have in common."""

from __future__ import annotations

import functools
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from pulsarcast.cli.fast_imports import import_http
from pulsarcast.cli.homes import home_option
from pulsarcast.cli.output import FORBIDDEN, UNKNOWN, UNREACHABLE, fail, needs_extra
from pulsarcast.model.errors import InvalidToken, LocalError, NotAllowed, NotFound
from pulsarcast.model.shown import short

if TYPE_CHECKING:
    from pulsarcast.client import Target
    from pulsarcast.model.api import FollowedView

WAIT_S_MAX = 30.0


def remote(command: Callable[..., None]) -> Any:
    """Add the options that say which daemon, and hand the command a client for it."""

    @functools.wraps(command)
    def connected(
        home: Path,
        url: str | None,
        token: str | None,
        context: str | None,
        wait: bool,
        **given: Any,
    ) -> None:
        with needs_extra("client"):
            import_http()
            from pulsarcast.client import Client
        if wait and (url is not None or context is not None):
            raise click.UsageError("--wait is for the daemon of a home: without --url, --context")
        if wait:
            wait_for(home)
        with refusals_told():
            target = chosen_target(home, url, token, context)
            with Client(target.url, target.token) as client:
                command(client, **given)

    decorated: Any = connected
    for option in (
        click.option(
            "--wait", is_flag=True, help="Wait until the daemon of this home has started."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        which_daemon,
    ):
        decorated = option(decorated)
    return decorated


def which_daemon(command: Any) -> Any:
    """Add the options that say which daemon: `chosen_target` knows what they mean."""
    for option in (
        click.option(
            "--context", metavar="NAME", help="Daemon that `context add` stored under NAME."
        ),
        click.option(
            "--token", metavar="TOKEN", help="Token for the HTTP API. Also $PULSARCAST_TOKEN."
        ),
        click.option("--url", metavar="URL", help="URL of a daemon. Also $PULSARCAST_URL."),
        home_option,
    ):
        command = option(command)
    return command


def chosen_target(home: Path, url: str | None, token: str | None, context: str | None) -> Target:
    """The daemon that the options of a command mean."""
    import_http()
    from pulsarcast.client import find_target

    return find_target(url, token, context=context, home=home if _is_named("home") else None)


def wait_for(home: Path) -> None:
    """Give a daemon that is being started some time."""
    deadline_s = time.monotonic() + WAIT_S_MAX
    while not answers(home) and time.monotonic() < deadline_s:
        time.sleep(0.05)


def answers(home: Path) -> bool:
    """Whether a daemon answers; one that was killed leaves its address behind."""
    try:
        place = urlsplit((home / "http").read_text(encoding="utf-8").strip())
        with socket.create_connection((place.hostname or "", place.port or 0), timeout=1):
            return True
    except (OSError, ValueError):
        return False


def _is_named(option: str) -> bool:
    """Whether an option was given on the command line."""
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


@contextmanager
def refusals_told() -> Iterator[None]:
    """Turn what a daemon refuses into a sentence and an exit code."""
    import_http()
    from pulsarcast.client import UnexpectedResponse, Unreachable

    try:
        yield
    except Unreachable as error:
        fail(error, UNREACHABLE)
    except (InvalidToken, NotAllowed) as error:
        fail(error, FORBIDDEN)
    except NotFound as error:
        fail(error, UNKNOWN)
    except (LocalError, UnexpectedResponse) as error:
        fail(error)


def parent_of(topic: FollowedView, show: Callable[[str, Mapping[str, str]], str] = short) -> str:
    """The node's parent in a topic's tree, short enough for a table."""
    if topic.filters:
        return "filters"
    if topic.starved:
        return "starved"
    if topic.is_root:
        return "root"
    return show(topic.parent, topic.peer_names) if topic.parent else "none"


def table(rows: Sequence[tuple[str, ...]], *headings: str) -> str:
    """Columns for people."""
    if not rows:
        return ""
    lines = [headings, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
