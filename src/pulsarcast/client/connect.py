"""Where a daemon is, and the token that it asks for.

The caller's choice goes first: an address, a context, or the home of a daemon on this
machine, which says in the files `http` and `token` how to reach it. Then PULSARCAST_URL and
PULSARCAST_TOKEN; then the context in use (`contexts`); then the usual home. A token is only sent
where it belongs: one that was found beside an address goes to that address.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pulsarcast.client.contexts import Contexts, check_token, check_url
from pulsarcast.client.errors import Unreachable
from pulsarcast.model.errors import LocalError

URL: Final = "PULSARCAST_URL"
TOKEN: Final = "PULSARCAST_TOKEN"
HOME: Final = "PULSARCAST_HOME"
HOME_DEFAULT: Final = "~/.pulsarcast"
ADDRESS_FILE: Final = "http"
TOKEN_FILE: Final = "token"


@dataclass(frozen=True, slots=True)
class Target:
    """A daemon, and what opens its door."""

    url: str
    token: str | None = field(default=None, repr=False)
    origin: str = ""
    """The source of the address, in words."""


def find_target(
    url: str | None = None,
    token: str | None = None,
    *,
    context: str | None = None,
    home: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Target:
    """The daemon that is meant; raises LocalError, or Unreachable where there is none."""
    variables = os.environ if environment is None else environment
    if url is not None and context is not None:
        raise LocalError("give the URL of a daemon or a context, not both")
    target = _find(url, context, home, variables)
    chosen = target.token if token is None else token
    check_token(chosen)
    return Target(check_url(target.url), chosen or None, target.origin)


def _find(
    url: str | None, context: str | None, home: str | Path | None, variables: Mapping[str, str]
) -> Target:
    its_url, its_token = variables.get(URL) or None, variables.get(TOKEN) or None
    if url is not None:
        is_its = its_url is None or its_url.rstrip("/") == url.rstrip("/")
        return Target(url, its_token if is_its else None, "the caller")
    if context is not None:
        return _of_context(Contexts.load(variables), context)
    if home is not None:
        found = _of_home(Path(home).expanduser())
        return Target(found.url, found.token or (None if its_url else its_token), found.origin)
    if its_url is not None:
        return Target(its_url, its_token, URL)
    contexts = Contexts.load(variables)
    if contexts.current is not None:
        found = _of_context(contexts, contexts.current)
    else:
        found = _of_home(default_home(variables))
    return Target(found.url, its_token or found.token, found.origin)


def default_home(environment: Mapping[str, str] | None = None) -> Path:
    """The home that is meant where none is named."""
    variables = os.environ if environment is None else environment
    return Path(variables.get(HOME) or HOME_DEFAULT).expanduser()


def _of_context(contexts: Contexts, name: str) -> Target:
    found = contexts.get(name)
    return Target(found.url, found.token, f"context {name}")


def _of_home(home: Path) -> Target:
    url = _read(home / ADDRESS_FILE)
    if url is None:
        chosen = "" if home == default_home() else f" --home {home}"
        raise Unreachable(
            f"no daemon runs in {home}: start one with `pulsarcast daemon{chosen}`, "
            f"or say where one is with {URL} and {TOKEN}"
        )
    return Target(url, _read(home / TOKEN_FILE), f"home {home}")


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "replace").strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror or error}") from error
