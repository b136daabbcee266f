"""Tokens: scopes, revoking, and files that give nothing away."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsarcast.daemon.aliases import AliasBook
from pulsarcast.daemon.sessions import Sessions
from pulsarcast.daemon.tokens import TokenBook, operator_token
from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import cid_of, cid_text

TOPIC = cid_text(cid_of(b"a topic"))


def test_a_token_is_found_by_its_secret_and_the_file_does_not_hold_that(tmp_path: Path) -> None:
    book = TokenBook(tmp_path)
    token, secret = book.make("reader", ["read"])
    assert book.find(secret) == token
    assert book.find(secret + "x") is None
    assert secret.encode() not in (tmp_path / "tokens.json").read_bytes()
    assert (tmp_path / "tokens.json").stat().st_mode & 0o777 == 0o600
    assert secret not in repr(token)


def test_a_token_that_another_process_revokes_is_worthless_at_once(tmp_path: Path) -> None:
    ours, theirs = TokenBook(tmp_path), TokenBook(tmp_path)
    token, secret = ours.make("reader", ["read"])
    assert theirs.find(secret) == token
    theirs.revoke(token.id)
    assert ours.find(secret) is None
    assert not ours.is_valid(token)
    with pytest.raises(LocalError, match="no token"):
        ours.revoke(token.id)


def test_who_may_administer_may_do_everything_and_others_only_what_they_have(
    tmp_path: Path,
) -> None:
    book = TokenBook(tmp_path)
    admin, _ = book.make("admin", ["admin"])
    reader, _ = book.make("reader", ["read"])
    assert admin.may("read")
    assert admin.may("publish")
    assert reader.may("read")
    assert not reader.may("publish")
    assert not reader.may("admin")


@pytest.mark.parametrize(
    ("name", "scopes", "topics", "complaint"),
    [
        ("", ["read"], None, "name"),
        ("a\nb", ["read"], None, "printable"),
        ("x", [], None, "scope"),
        ("x", ["admin"], [TOPIC], "is for all topics"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, name: str, scopes: list[str], topics: list[str] | None, complaint: str
) -> None:
    with pytest.raises(LocalError, match=complaint):
        TokenBook(tmp_path).make(name, scopes, topics)  # type: ignore[arg-type]


def test_the_operators_token_stays_the_same_until_it_is_revoked(tmp_path: Path) -> None:
    book = TokenBook(tmp_path)
    secret = operator_token(tmp_path, book)
    assert operator_token(tmp_path, book) == secret
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    found = book.find(secret)
    assert found is not None
    book.revoke(found.id)
    assert operator_token(tmp_path, book) != secret


def test_a_damaged_file_lets_nobody_in(tmp_path: Path) -> None:
    book = TokenBook(tmp_path)
    _, secret = book.make("reader", ["read"])
    (tmp_path / "tokens.json").write_text("[{}]")
    with pytest.raises(LocalError, match="cannot be read"):
        book.find(secret)


def test_a_code_opens_the_page_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions("12D3KooWPeer")
    code = sessions.new_code()
    secret = sessions.redeem(code)
    assert secret is not None
    assert sessions.redeem(code) is None
    token = sessions.find(secret)
    assert token is not None
    assert token.scopes == ("read",)
    late = sessions.new_code()
    import time

    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    assert sessions.redeem(late) is None
    monkeypatch.setattr(time, "monotonic", lambda: now + 13 * 3600)
    assert sessions.find(secret) is None


def test_aliases_are_kept_and_cannot_look_like_anything_else(tmp_path: Path) -> None:
    book = AliasBook(tmp_path)
    book.set("weather", TOPIC)
    assert AliasBook(tmp_path).topics == {"weather": TOPIC}
    for alias in ("", "a/b", TOPIC, "1st", "x" * 65, "a b"):
        with pytest.raises(LocalError, match="an alias begins"):
            book.set(alias, TOPIC)
    with pytest.raises(LocalError, match="content id"):
        book.set("other", "nonsense")
    book.drop("weather")
    with pytest.raises(LocalError, match="no alias"):
        book.drop("weather")
