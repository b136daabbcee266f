"""Calls: one request to the API, what its token allows, and the operations that there are.

The list of operations is the only place that says what the API can do: routes and description
(`openapi`) are both made from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pulsarcast.model.api import Scope
from pulsarcast.model.errors import InsufficientScope, Malformed
from pulsarcast.model.filters.bounds import FILTER_BYTES_MAX
from pulsarcast.model.ids import Cid, cid_text

if TYPE_CHECKING:
    from pulsarcast.daemon.service import Service
    from pulsarcast.daemon.tokens import Token
    from pulsarcast.network.naming import Found

OCTETS: Final = "application/octet-stream"
STREAM: Final = "text/event-stream"
ANOTHER_LOG: Final = (
    "this is another log: the store was restored or copied, or the topic was left since"
)
PATIENCE_S: Final = 2.0
"""How long a publish waits for members that do not keep up, before its program is told to wait."""
INDEX_MAX: Final = (1 << 63) - 1

Index: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=INDEX_MAX)]
"""An event's place in a log, in a query."""
Where: TypeAlias = Annotated[str, msgspec.Meta(max_length=FILTER_BYTES_MAX)] | None
"""A filter on a topic's attributes, in a query."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One thing that the API can do."""

    method: str
    path: str
    name: str
    summary: str
    scope: Scope | None
    """What a token must allow; None: nothing, since it tells nobody anything."""
    handle: Callable[[Call], Awaitable[Response]]
    query: type | None = None
    body: type | None = None
    octets: bool = False
    """Whether the body may be the payload itself."""
    headers: tuple[tuple[str, str], ...] = ()
    answer: type | str | None = None
    """What comes back: a kind of JSON, another media type, or nothing."""
    status: int = 200
    errors: tuple[int, ...] = ()
    of_one_topic: bool = False


class Call:
    """One request, and whoever makes it."""

    def __init__(self, service: Service, request: Request, operation: Operation) -> None:
        self.service = service
        self.request = request
        self.operation = operation
        token: Token | None = request.scope.get("token")
        self._token = token
        if operation.scope is not None:
            assert token is not None, "the gate lets nobody through without one"
            if not token.may(operation.scope):
                raise InsufficientScope(f"this needs a token with the scope {operation.scope}")
            if token.topics is not None and not operation.of_one_topic:
                raise InsufficientScope("this needs a token for all topics")

    @property
    def token(self) -> Token:
        """What the caller showed."""
        assert self._token is not None
        return self._token

    def path(self, name: str) -> str:
        """A part of the path, as it was meant."""
        try:
            return unquote(self.request.path_params[name], errors="strict")
        except UnicodeDecodeError as error:
            raise Malformed("the path is not UTF-8") from error

    async def topic(self) -> Cid:
        """The topic that the path names, if the token is for it."""
        return (await self.found()).topic

    async def found(self) -> Found:
        """The topic that the path names, and what to know of its name."""
        return await self._allowed(self.path("topic"))

    def check_below(self, *, below: bool) -> None:
        """Refuse sub-topics to a token for some topics: their authors choose what is below."""
        if below and self.token.topics is not None:
            raise InsufficientScope("sub-topics need a token for all topics")

    async def allowed(self, text: str) -> Cid:
        """A topic by its content id, a name, an alias, or `author/name`, if the token is for it."""
        return (await self._allowed(text)).topic

    async def _allowed(self, text: str) -> Found:
        found = await self.service.insight.naming.find(text)
        topics = self.token.topics
        if topics is not None and cid_text(found.topic) not in topics:
            raise InsufficientScope("the token is for other topics")
        return found


async def resolve(service: Service, text: str) -> Cid:
    """The topic that a text stands for."""
    return (await service.insight.naming.find(text)).topic
