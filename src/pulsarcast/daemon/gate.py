"""The gate: what every request passes before anything is done for it.

It must be meant for us (a page elsewhere must not use a name that leads here), must not come from
a page of somebody else, must not be one too many, and must carry a token unless it asks for our
health. What is refused here costs next to nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pulsarcast.daemon.answers import problem
from pulsarcast.daemon.sessions import Sessions
from pulsarcast.daemon.tokens import TOKENS_UNREADABLE, Token, TokenBook
from pulsarcast.model.errors import (
    Busy,
    InvalidToken,
    LocalError,
    Misdirected,
    NotAllowed,
    Unavailable,
)

OPEN_PATHS: Final = frozenset(("/", "/page.css", "/page.js", "/v1/health", "/v1/health/ready"))
"""What needs no token; the page has nothing in it that is not in this program."""
METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "WEBSOCKET"))
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
USUAL_PORTS: Final = ("80", "443")
"""Clients leave these out of `Host`."""

_log = logging.getLogger(__name__)


class Gate:
    """Looks at every request first."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: TokenBook,
        sessions: Sessions,
        connections_max: int,
        counter: Any,
        seconds: Any,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._sessions = sessions
        self._connections_max = connections_max
        self._counter = counter
        self._seconds = seconds
        self._hosts: frozenset[str] = frozenset()
        self._complaint = ""
        self.connections = 0

    def admit(self, address: str, hosts: Iterable[str]) -> None:
        """Say under which names we may be reached, once we know our port."""
        own, _, port = address.rpartition(":")
        names = {address, *(f"{each}:{port}" for each in LOOPBACK)}
        if port in USUAL_PORTS:
            names |= {own, *LOOPBACK}
        for name in hosts:
            names |= {name.lower(), f"{name.lower()}:{port}"}
        self._hosts = frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        began_s = time.monotonic()
        status = 500

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "websocket.accept":
                status = 101
            await send(message)

        self.connections += 1
        try:
            await self._pass(scope, receive, counted)
        finally:
            self.connections -= 1
            route = scope.get("route_name", "none")
            method = scope.get("method", "WEBSOCKET")
            # A stranger may invent methods; meters must not grow with them.
            label = method if method in METHODS else "OTHER"
            self._counter.labels(route, label, str(status)).inc()
            if not scope.get("is_stream"):
                self._seconds.labels(route).observe(time.monotonic() - began_s)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Names of topics may hold a slash, which a decoded path no longer tells from ours.
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        scope["path"] = raw.partition(b"?")[0].decode("latin-1")
        headers = Headers(scope=scope)
        try:
            if self.connections > self._connections_max:
                raise Busy("too many requests and subscriptions at a time: try again later")
            self._check_host(headers)
            scope["token"] = self._identify(headers, scope)
            if scope["token"] is not None:
                scope["token_shown"]()
        except Unavailable as error:
            self._complain(str(error))
            await problem(Unavailable(TOKENS_UNREADABLE))(scope, receive, send)
            return
        except LocalError as error:
            await problem(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _complain(self, complaint: str) -> None:
        """Tell the log, once and not for every request."""
        if complaint != self._complaint:
            self._complaint = complaint
            _log.error("%s", complaint)

    def _check_host(self, headers: Headers) -> None:
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            raise Misdirected("this name is not ours: see http.hosts in the settings")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host:
            raise NotAllowed("a web page of another origin may not use the daemon")

    def _identify(self, headers: Headers, scope: Scope) -> Token | None:
        if scope["path"] in OPEN_PATHS:
            return None
        kind, _, secret = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            token = self._tokens.find(secret.strip())
            self._complaint = ""  # They can be read.
        else:
            token = self._by_cookie(headers, scope)
        if token is None:
            if kind:
                raise InvalidToken("the token is unknown, or was revoked: give another")
            raise InvalidToken(
                "a token is missing: give --token or $PULSARCAST_TOKEN, or send the header "
                "Authorization: Bearer TOKEN"
            )
        return token

    def _by_cookie(self, headers: Headers, scope: Scope) -> Token | None:
        """The page's own session: for reading only, and never from another page."""
        if scope.get("method") != "GET" or not _is_same_site(headers):
            return None
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(self._sessions.cookie)
        except CookieError:
            return None
        return None if morsel is None else self._sessions.find(morsel.value)


def _is_same_site(headers: Headers) -> bool:
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")
