"""Which logs a query reads: the user's topics, found at one daemon and followed there.

Spark shows whatever we raise together with where it came from. So errors leave here as ours alone,
with words that say what to do: a chain of causes would end in a library that had the token at hand.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pulsarcast.client import Client, Target, Unreachable, find_target
from pulsarcast.client.errors import is_passing
from pulsarcast.client.following import Backoff
from pulsarcast.model.api import LogView
from pulsarcast.model.errors import (
    InvalidToken,
    LocalError,
    Malformed,
    NotAllowed,
    NotFollowed,
    NotFound,
    PulsarcastError,
)
from pulsarcast.model.topic_types import META
from pulsarcast.pipeline.topics.offsets import SourceError
from pulsarcast.pipeline.topics.options import BELOW, Connection, Entry, Secret

T = TypeVar("T")

PATIENCE_S: Final = 60.0
"""How long a running query waits for a daemon that is away: it may be restarting."""
ABSENT_S: Final = 60.0
"""How long a sub-topic that nobody could find is left alone."""

_log = logging.getLogger(__name__)


def find_daemon(connection: Connection) -> Target:
    """The daemon that the user means; looked up on the driver, and good for executors as well."""
    url, token, context, home = (
        connection.url, connection.token, connection.context, connection.home,
    )  # fmt: skip
    if home is not None and (url is not None or context is not None):
        raise LocalError("say where the daemon is with one of the options url, context and home")
    try:
        target = find_target(url, token, context=context, home=home)
    except PulsarcastError as error:
        raise LocalError(f"{error}. The options url, token, context and home say it, too") from None
    shown = None if target.token is None else Secret(target.token)
    return Target(target.url, shown, target.origin)


def patiently(call: Callable[[], T], *, patience_s: float, has_met: bool = True) -> T:
    """Ask again for a while where that may help; who was never there is not waited for."""
    backoff = Backoff(patience_s)
    while True:
        try:
            return call()
        except PulsarcastError as error:
            is_absent = isinstance(error, Unreachable) and error.is_absent
            if not is_passing(error) or (is_absent and not has_met):
                raise explained(error) from None
            delay_s = backoff.failed(time.monotonic())
            if delay_s is None:
                raise SourceError(
                    f"the daemon was away for {patience_s:.0f} s, and the query gave up: {error}. "
                    "Nothing is lost: start the query again once the daemon is back"
                ) from None
        time.sleep(delay_s)


def explained(error: PulsarcastError) -> PulsarcastError:
    """A refusal in words that help a user of Spark."""
    if isinstance(error, (SourceError, Unreachable)):
        return error
    if isinstance(error, (InvalidToken, NotAllowed)):
        return SourceError(
            f"the daemon refuses the token: {error}. Give one that may read these topics, "
            "with the option token or tokenFile (`pulsarcast token create` makes one)"
        )
    return SourceError(str(error))


@dataclass(slots=True)
class Found:
    """The logs that are meant, by the topics' content ids, in one order."""

    logs: dict[str, LogView]
    covered: dict[str, list[str]]
    """Which topics each entry of `topics` stands for."""


@dataclass(slots=True)
class _Search:
    """One walk over the topics."""

    client: Client
    from_start: bool
    logs: dict[str, LogView] = field(default_factory=dict)


class TopicLogs:
    """The logs of the user's topics, looked at again and again."""

    def __init__(self, target: Target, entries: tuple[Entry, ...]) -> None:
        self._target = target
        self._entries = entries
        self._client: Client | None = None
        self._ids: dict[str, str] = {}
        """What names stand for: looked up once, since `author/name` asks the whole network."""
        self._absent: dict[str, float] = {}
        """Sub-topics that nobody could find, and when to look again."""

    def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def find(self, *, from_start: bool, is_strict: bool, has_met: bool) -> Found:
        """How the logs are now; a topic that the node does not follow, it follows from here on.

        Where one is strict, a sub-topic that cannot be found is an error.
        """
        return patiently(
            lambda: self._find(from_start, is_strict), patience_s=PATIENCE_S, has_met=has_met
        )

    def resolve(self, ref: str) -> str | None:
        """The content id that a reference stands for, if there is such a topic."""

        def ask() -> str | None:
            try:
                return self._connected().topic(ref).id
            except (Malformed, NotFound):
                return None

        return patiently(ask, patience_s=PATIENCE_S)

    def log_of(self, topic: str) -> LogView | None:
        """The log of a topic that need not be one of the user's; None if the node has none."""

        def ask() -> LogView | None:
            try:
                return self._connected().log(topic)
            except NotFound:
                return None

        return patiently(ask, patience_s=PATIENCE_S)

    def _connected(self) -> Client:
        if self._client is None:
            self._client = Client(self._target.url, self._target.token)
        return self._client

    def _find(self, from_start: bool, is_strict: bool) -> Found:
        search = _Search(self._connected(), from_start)
        covered: dict[str, list[str]] = {}
        for entry in self._entries:
            top = self._look_up(search, entry)
            self._ids[entry.ref] = top.topic
            names = covered.setdefault(str(entry), [top.topic])
            todo = [top] if entry.is_tree else []
            while todo:
                for name, below in todo.pop().subtopics.items():
                    # New versions are announced in the meta topic: nobody's data.
                    if name == META or below in names:
                        continue
                    view = self._look_below(search, below, is_strict=is_strict)
                    if view is not None:
                        names.append(view.topic)
                        todo.append(view)
        return Found(dict(sorted(search.logs.items())), covered)

    def _look_up(self, search: _Search, entry: Entry) -> LogView:
        try:
            return self._look(search, self._ids.get(entry.ref, entry.ref))
        except NotFound as error:
            advice = "check the option topics: it takes content ids, aliases and author/name"
            raise _named(error, f"topic {entry.ref}", advice) from None

    def _look_below(self, search: _Search, topic: str, *, is_strict: bool) -> LogView | None:
        now_s = time.monotonic()
        if self._absent.get(topic, now_s) > now_s:
            return None
        try:
            return self._look(search, topic)
        except NotFound as error:
            if is_strict:
                advice = f"try again, or name the topics that you need instead of {BELOW}"
                raise _named(error, f"sub-topic {topic}", advice) from None
            self._absent[topic] = now_s + ABSENT_S
            _log.warning("sub-topic %s is left out for now: %s", topic, error)
            return None

    def _look(self, search: _Search, ref: str) -> LogView:
        known = search.logs.get(ref)
        if known is not None:
            return known
        view = self._follow(search, ref)
        search.logs[view.topic] = view
        return view

    def _follow(self, search: _Search, ref: str) -> LogView:
        try:
            return search.client.log(ref)
        except NotFollowed:
            pass
        search.client.follow(ref, start="beginning" if search.from_start else "now")
        _log.warning("the node follows topic %s from now on, because a query reads it", ref)
        return search.client.log(ref)


def _named(error: NotFound, what: str, advice: str) -> NotFound:
    """The same refusal, with the topic that it is about and what to do."""
    return type(error)(f"{what}: {error}; {advice}")
