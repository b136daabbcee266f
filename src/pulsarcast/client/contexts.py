"""Contexts: daemons with names, in a file that only its owner can read.

current = "prod"

[contexts.prod]
url = "https://pulsarcast.example"
token = "plsr_…"
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from pulsarcast.model.errors import LocalError, in_words

CONTEXTS: Final = "pulsarcast/contexts.toml"
FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One daemon."""

    url: str
    token: str | None = None

    def __repr__(self) -> str:
        """The context without its token, which is secret."""
        return f"Context(url={self.url!r})"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    current: str | None = None
    contexts: dict[str, Context] = {}


class Contexts:
    """All contexts of a user, as the file has them; every change is written at once."""

    def __init__(self, path: Path, found: _File) -> None:
        self.path = path
        self._found = found

    @classmethod
    def load(cls, environment: Mapping[str, str] | None = None) -> Contexts:
        """The user's contexts; none where there is no file yet."""
        path = contexts_path(os.environ if environment is None else environment)
        try:
            if path.stat().st_mode & 0o077:
                raise LocalError(f"{path} can be read by others (chmod 600 it, if they have not)")
            tables = tomllib.loads(path.read_bytes().decode())
            found = msgspec.convert(tables, _File)
        except (FileNotFoundError, NotADirectoryError):
            found = _File()
        except OSError as error:
            raise LocalError(f"{path}: {error.strerror or error}") from error
        except msgspec.ValidationError as error:
            raise LocalError(f"{path}: {in_words(error)}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            # What such an error quotes may be part of a token.
            raise LocalError(f"{path} is damaged: it is not TOML; mend or delete it") from None
        return cls(path, found)

    @property
    def current(self) -> str | None:
        """The name of the context in use."""
        return self._found.current

    def list(self) -> dict[str, Context]:
        """Every context by its name."""
        return dict(self._found.contexts)

    def get(self, name: str) -> Context:
        """The context of a name."""
        found = self._found.contexts.get(name)
        if found is None:
            known = ", ".join(self._found.contexts) or "none yet"
            raise LocalError(
                f"there is no context {name!r} (there are: {known}): make it with "
                f"`pulsarcast context add NAME --url URL`"
            )
        return found

    def add(self, name: str, url: str, token: str | None = None) -> None:
        """Give a daemon a name, or another daemon the same; the first one is used from now on."""
        self.check(name, url, token)
        current = self.current or (name if not self._found.contexts else None)
        new = Context(check_url(url), token)
        self._write(_File(current, {**self._found.contexts, name: new}))

    def check(self, name: str, url: str, token: str | None = None) -> None:
        """Refuse what `add` would refuse."""
        if not _NAME.fullmatch(name):
            raise LocalError(
                "a context's name has 1 to 64 letters, digits, dashes and underscores, and begins "
                f"with a letter or digit: {name!r}"
            )
        check_url(url)
        check_token(token)

    def remove(self, name: str) -> None:
        """Forget a context; where it was in use, none is."""
        self.get(name)
        kept = {each: known for each, known in self._found.contexts.items() if each != name}
        self._write(_File(None if self.current == name else self.current, kept))

    def use(self, name: str | None) -> None:
        """Use a context from now on, or none."""
        if name is not None:
            self.get(name)
        self._write(_File(name, self._found.contexts))

    def _write(self, found: _File) -> None:
        try:
            self.path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            _write_whole(self.path, _toml(found).encode())
        except OSError as error:
            raise LocalError(f"{self.path}: {error.strerror or error}") from error
        self._found = found


def contexts_path(environment: Mapping[str, str]) -> Path:
    """Where the file is."""
    folder = environment.get("XDG_CONFIG_HOME", "")
    # The XDG specification: a path that is not absolute is to be ignored.
    base = Path(folder) if folder.startswith("/") else Path("~/.config").expanduser()
    return base / CONTEXTS


def check_token(token: str | None) -> None:
    """Refuse a token that no header could carry, without showing it."""
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise LocalError("a token has printable ASCII characters and no spaces")


def check_url(url: str) -> str:
    """A checked address; an error must not show what may be secret in it."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 (it complains when it is looked at)
    except ValueError:
        raise LocalError(
            "the URL of a daemon looks like http://127.0.0.1:8420: this one has no valid port"
        ) from None
    if "@" in parts.netloc:
        raise LocalError("the URL of a daemon takes no user or password: give a token")
    is_plain = not parts.query and not parts.fragment and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        raise LocalError(f"the URL of a daemon looks like http://127.0.0.1:8420, not {url!r}")
    return url.rstrip("/")


def _toml(found: _File) -> str:
    lines = ["# Daemons by name; `pulsarcast context` changes this file."]
    if found.current is not None:
        lines.append(f"current = {_quoted(found.current)}")
    for name, context in found.contexts.items():
        key = name if _NAME.fullmatch(name) else _quoted(name)
        lines += ["", f"[contexts.{key}]", f"url = {_quoted(context.url)}"]
        if context.token is not None:
            lines.append(f"token = {_quoted(context.token)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    # Text in JSON's quotes is TOML's as well, but for one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write_whole(path: Path, content: bytes) -> None:
    """Replace a file so that a crash leaves the old one or the new one; secret from the start.

    As a node's home has it (`storage/home.py`), which no client may import, and no room below both
    has a disk. Here no lock keeps others out, so each process writes under a name of its own.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    try:
        file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(file, "wb") as writer:
            writer.write(content)
            writer.flush()
            os.fsync(writer.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
