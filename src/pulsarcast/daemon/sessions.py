"""Sessions of the page: a code that is good once becomes a cookie that may only read."""

from __future__ import annotations

import secrets
import time
from typing import Final

from pulsarcast.daemon.tokens import Token

CODE_S: Final = 60.0
SESSION_S: Final = 12 * 3600.0
SESSIONS_MAX: Final = 64


class Sessions:
    """Who looks at the page; in memory only, so that a restart ends all of them."""

    def __init__(self, peer: str) -> None:
        # A browser tells hosts apart, and not their ports: a page must not end that of another
        # daemon. Peer ids begin alike.
        self.cookie = f"pulsarcast-{peer[-8:]}"
        self._codes: dict[str, float] = {}
        self._tokens: dict[str, tuple[float, Token]] = {}

    def new_code(self) -> str:
        """A code to open the page with, once and soon."""
        self._tidy()
        code = secrets.token_urlsafe(24)
        self._codes[code] = time.monotonic() + CODE_S
        return code

    def redeem(self, code: str) -> str | None:
        """The cookie for a code, unless it was used before or is too old."""
        self._tidy()
        if self._codes.pop(code, None) is None:
            return None
        secret = secrets.token_urlsafe(32)
        token = Token(id="page", name="page", scopes=("read",), created_us=0, digest="")
        self._tokens[secret] = (time.monotonic() + SESSION_S, token)
        return secret

    def find(self, secret: str) -> Token | None:
        """Whose cookie this is."""
        self._tidy()
        found = self._tokens.get(secret)
        return None if found is None else found[1]

    def _tidy(self) -> None:
        now_s = time.monotonic()
        self._codes = {code: end_s for code, end_s in self._codes.items() if end_s > now_s}
        self._tokens = {key: each for key, each in self._tokens.items() if each[0] > now_s}
        for table in (self._codes, self._tokens):
            while len(table) > SESSIONS_MAX:
                del table[next(iter(table))]
