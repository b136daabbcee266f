"""Tokens: who may ask what of the daemon.

A token has scopes and may be for some topics only. The home keeps their hashes, in a file that the
daemon reads anew whenever it has changed, so that a token can be revoked while the daemon runs, or
while it does not. The operator's own token, for commands on the same machine, is in a file of its
own that nobody else can read.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from pulsarcast.model.api import SCOPES, Scope, TokenView
from pulsarcast.model.errors import LocalError, NotFound, Unavailable
from pulsarcast.storage.home import write_whole

TOKENS: Final = "tokens.json"
OPERATOR: Final = "token"
"""The file with the operator's own token."""
PREFIX: Final = "plsr_"
SECRET_BYTES: Final = 32
TOKENS_MAX: Final = 1000
NAME_MAX: Final = 100
TOKENS_UNREADABLE: Final = "the tokens cannot be read: the daemon's log says why"


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a token; not the token itself."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    topics: tuple[str, ...] | None = None
    created_us: int
    digest: str

    def may(self, scope: Scope) -> bool:
        """Whether it has this scope; who may administer may do everything."""
        return scope in self.scopes or "admin" in self.scopes

    def view(self, secret: str | None = None) -> TokenView:
        """The token for people."""
        return TokenView(
            id=self.id,
            name=self.name,
            scopes=list(self.scopes),
            topics=None if self.topics is None else list(self.topics),
            created_us=self.created_us,
            token=secret,
        )


class TokenBook:
    """All tokens of a home."""

    def __init__(self, home: Path) -> None:
        self._path = home / TOKENS
        self._seen: tuple[int, int] | None = None
        self._by_digest: dict[str, Token] = {}

    def find(self, secret: str) -> Token | None:
        """The token with this secret, unless it was revoked or never made."""
        return self._read().get(_digest(secret))

    def is_valid(self, token: Token) -> bool:
        """Whether a token has not been revoked since."""
        return token.digest in self._read()

    def list(self) -> list[Token]:
        """All tokens, in the order of their making."""
        return list(self._read().values())

    def make(
        self, name: str, scopes: Iterable[Scope], topics: Iterable[str] | None = None
    ) -> tuple[Token, str]:
        """Make a token; its secret is given out this once."""
        chosen = tuple(scope for scope in SCOPES if scope in set(scopes))
        if not chosen:
            raise LocalError(f"a token needs a scope: {', '.join(SCOPES)}")
        if not name or len(name) > NAME_MAX or not name.isprintable():
            raise LocalError(f"a token needs a name of 1 to {NAME_MAX} printable characters")
        for_topics = None if topics is None else tuple(topics)
        if for_topics is not None and "admin" in chosen:
            raise LocalError("a token with the scope admin is for all topics: give topics or admin")
        known = dict(self._read())
        if len(known) >= TOKENS_MAX:
            raise LocalError(f"there are {TOKENS_MAX} tokens already: revoke some")
        secret = PREFIX + base64.urlsafe_b64encode(os.urandom(SECRET_BYTES)).decode().rstrip("=")
        token = Token(
            id=os.urandom(4).hex(),
            name=name,
            scopes=chosen,
            topics=for_topics,
            created_us=time.time_ns() // 1000,
            digest=_digest(secret),
        )
        known[token.digest] = token
        self._write(known)
        return token, secret

    def revoke(self, token_id: str) -> Token:
        """Make a token worthless, at once."""
        known = dict(self._read())
        found = [token for token in known.values() if token.id == token_id]
        if not found:
            raise NotFound(f"there is no token {token_id!r}")
        del known[found[0].digest]
        self._write(known)
        return found[0]

    def _read(self) -> dict[str, Token]:
        try:
            status = self._path.stat()
            now = (status.st_mtime_ns, status.st_ino)
            if now != self._seen:
                tokens = msgspec.json.decode(self._path.read_bytes(), type=list[Token])
                self._by_digest = {token.digest: token for token in tokens}
                self._seen = now
        except FileNotFoundError:
            self._seen, self._by_digest = None, {}
        except (OSError, msgspec.DecodeError) as error:
            raise Unavailable(f"{self._path} cannot be read: {error}") from error
        return self._by_digest

    def _write(self, tokens: dict[str, Token]) -> None:
        write_whole(self._path, msgspec.json.encode(list(tokens.values())) + b"\n")
        self._seen = None


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def operator_token(home: Path, book: TokenBook) -> str:
    """The token of whoever owns the home; made where there is none."""
    path = home / OPERATOR
    try:
        secret = path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        secret = ""
    if not secret or book.find(secret) is None:
        _, secret = book.make("operator", ("admin",))
        write_whole(path, f"{secret}\n".encode())
    return secret
