from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarcast.client.contexts import Context, Contexts, _File, _toml, contexts_path
from pulsarcast.model.errors import LocalError

SECRET = "plsr_secret"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def test_the_first_context_is_used(environment: dict[str, str]) -> None:
    contexts = Contexts.load(environment)
    contexts.add("here", "http://127.0.0.1:8420", SECRET)
    contexts.add("there", "https://there.example")
    again = Contexts.load(environment)
    assert again.current == "here"
    assert again.list() == {
        "here": Context("http://127.0.0.1:8420", SECRET),
        "there": Context("https://there.example"),
    }


def test_another_one_is_used_on_request(environment: dict[str, str]) -> None:
    contexts = Contexts.load(environment)
    contexts.add("here", "http://127.0.0.1:8420")
    contexts.add("there", "https://there.example")
    contexts.use("there")
    assert Contexts.load(environment).current == "there"
    contexts.remove("there")
    again = Contexts.load(environment)
    assert again.current is None
    assert list(again.list()) == ["here"]


def test_what_nobody_knows_is_named(environment: dict[str, str]) -> None:
    contexts = Contexts.load(environment)
    contexts.add("here", "http://127.0.0.1:8420", SECRET)
    for attempt in (contexts.get, contexts.use, contexts.remove):
        with pytest.raises(LocalError, match=r"no context 'her' \(there are: here\)"):
            attempt("her")


def test_the_file_is_for_its_owner_only(environment: dict[str, str]) -> None:
    contexts = Contexts.load(environment)
    contexts.add("here", "http://127.0.0.1:8420", SECRET)
    assert contexts.path.stat().st_mode & 0o777 == 0o600
    contexts.path.chmod(0o644)
    with pytest.raises(LocalError, match="can be read by others"):
        Contexts.load(environment)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "-a", "é", "a" * 65, "a\n"])
def test_odd_names_are_refused(environment: dict[str, str], name: str) -> None:
    with pytest.raises(LocalError, match="a context's name"):
        Contexts.load(environment).add(name, "http://127.0.0.1:8420")


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8420", "ftp://there.example", "http://a b", "http://a:x", "http://\x00"]
)
def test_what_is_no_address_of_a_daemon_is_not_kept(environment: dict[str, str], url: str) -> None:
    with pytest.raises(LocalError, match="the URL of a daemon looks like"):
        Contexts.load(environment).add("there", url)
    with pytest.raises(LocalError, match="takes no user") as refused:
        Contexts.load(environment).add("there", f"http://me:{SECRET}@there.example")
    assert SECRET not in str(refused.value)
    assert Contexts.load(environment).list() == {}


@pytest.mark.parametrize(
    "text",
    [f'token = "{SECRET}', f'contexts = "{SECRET}"', f"[contexts.a]\ntoken = '{SECRET}'\n", "\xff"],
)
def test_a_damaged_file_is_named_and_tells_no_secrets(
    environment: dict[str, str], text: str
) -> None:
    path = contexts_path(environment)
    path.parent.mkdir()
    path.write_bytes(text.encode("latin-1"))
    path.chmod(0o600)
    with pytest.raises(LocalError, match=r"contexts\.toml") as refused:
        Contexts.load(environment)
    assert SECRET not in str(refused.value)


def test_a_token_does_not_show() -> None:
    assert SECRET not in repr(Context("http://127.0.0.1:8420", SECRET))
    assert SECRET not in repr({"a": Context("http://127.0.0.1:8420", SECRET)})


def test_a_relative_folder_of_settings_is_ignored() -> None:
    assert contexts_path({"XDG_CONFIG_HOME": "config"}) == contexts_path({})
    assert contexts_path({}).is_absolute()


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(
    known=st.dictionaries(TEXTS, st.builds(Context, TEXTS, st.none() | TEXTS), max_size=3),
    current=st.none() | TEXTS,
)
def test_whatever_is_written_can_be_read(known: dict[str, Context], current: str | None) -> None:
    import tomllib

    import msgspec

    found = msgspec.convert(tomllib.loads(_toml(_File(current, known))), _File)
    assert (found.current, found.contexts) == (current, known)
