"""Aliases: names of the user's own for topics, kept in the home."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pulsarcast.daemon.local_names import NAMES_MAX, NameBook
from pulsarcast.model.errors import LocalError, NotFound
from pulsarcast.model.ids import parse_cid

_SHAPE: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")


class AliasBook(NameBook):
    """All aliases of a home."""

    file = "aliases.json"
    kinds = "aliases"

    @property
    def topics(self) -> dict[str, str]:
        """Every alias, and the topic's content id."""
        return self._ids

    def get(self, alias: str) -> str | None:
        """The content id that an alias stands for, if it is one."""
        return self._ids.get(alias)

    def set(self, alias: str, topic: str) -> None:
        """Let an alias stand for a topic."""
        self.check(alias)
        parse_cid(topic)
        self._write({**self._ids, alias: topic})

    def check(self, alias: str) -> None:
        """Refuse what `set` would refuse, before anything is done for it."""
        check_alias(alias)
        self._check_room(alias)

    def drop(self, alias: str) -> None:
        """Forget an alias."""
        if alias not in self._ids:
            raise NotFound(f"there is no alias {alias!r}")
        self._write({name: topic for name, topic in self._ids.items() if name != alias})


def free_alias(topics: Mapping[str, str], name: str, topic: str) -> str | None:
    """The alias that a topic gets by itself: its name; None where it has one, or that is taken."""
    if topic in topics.values() or name in topics:
        return None
    try:
        check_alias(name)
    except LocalError:
        return None
    return name if len(topics) < NAMES_MAX else None


def check_alias(alias: str) -> None:
    """Refuse what could be taken for a content id or an author's topic."""
    if not _SHAPE.fullmatch(alias) or alias.startswith("bafyrei"):
        raise LocalError(
            "an alias begins with a letter and has up to 64 letters, digits, dots, dashes and "
            f"underscores; it does not look like a content id: {alias!r}"
        )
