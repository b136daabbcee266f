"""Aliases: names of the user's own for topics, kept in the home."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from pulsarcast.model.errors import LocalError, NotFound
from pulsarcast.model.ids import parse_cid
from pulsarcast.storage.home import write_whole

ALIASES: Final = "aliases.json"
ALIASES_MAX: Final = 10_000
_SHAPE: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")


class AliasBook:
    """All aliases of a home; read once, written whole."""

    def __init__(self, home: Path) -> None:
        self._path = home / ALIASES
        self._topics: dict[str, str] = {}
        try:
            self._topics = msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            raise LocalError(f"{self._path} cannot be read: {error}") from error

    @property
    def topics(self) -> dict[str, str]:
        """Every alias, and the topic's content id."""
        return self._topics

    def set(self, alias: str, topic: str) -> None:
        """Let an alias stand for a topic."""
        self.check(alias)
        parse_cid(topic)
        self._write({**self._topics, alias: topic})

    def check(self, alias: str) -> None:
        """Refuse what `set` would refuse, before anything is done for it."""
        check_alias(alias)
        if alias not in self._topics and len(self._topics) >= ALIASES_MAX:
            raise LocalError(f"there are {ALIASES_MAX} aliases already: drop some")

    def drop(self, alias: str) -> None:
        """Forget an alias."""
        if alias not in self._topics:
            raise NotFound(f"there is no alias {alias!r}")
        self._write({name: topic for name, topic in self._topics.items() if name != alias})

    def _write(self, topics: dict[str, str]) -> None:
        write_whole(self._path, msgspec.json.encode(topics) + b"\n")
        self._topics = topics


def check_alias(alias: str) -> None:
    """Refuse what could be taken for a content id or an author's topic."""
    if not _SHAPE.fullmatch(alias) or alias.startswith("bafyrei"):
        raise LocalError(
            "an alias begins with a letter and has up to 64 letters, digits, dots, dashes and "
            "underscores; it does not look like a content id"
        )
