from __future__ import annotations

from pathlib import Path

import pytest

from pulsarcast.cli import homes
from pulsarcast.client import (
    AsyncClient,
    Client,
    Contexts,
    Target,
    Unreachable,
    connect,
    find_target,
)
from pulsarcast.model.errors import LocalError

SECRET = "plsr_secret"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "http").write_text("http://127.0.0.1:8421\n")
    (home / "token").write_text("home-token\n")
    return {"PULSARCAST_HOME": str(home), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def test_the_home_is_asked_last(environment: dict[str, str]) -> None:
    target = find_target(environment=environment)
    assert (target.url, target.token) == ("http://127.0.0.1:8421", "home-token")


def test_a_context_in_use_goes_before_the_home(environment: dict[str, str]) -> None:
    contexts = Contexts.load(environment)
    contexts.add("prod", "https://prod.example", "prod-token")
    target = find_target(environment=environment)
    assert (target.url, target.token) == ("https://prod.example", "prod-token")
    contexts.use(None)
    assert find_target(environment=environment).token == "home-token"
    assert find_target(context="prod", environment=environment).token == "prod-token"


def test_the_environment_goes_before_a_context(environment: dict[str, str]) -> None:
    Contexts.load(environment).add("prod", "https://prod.example", "prod-token")
    environment |= {"PULSARCAST_URL": "http://localhost:1", "PULSARCAST_TOKEN": "its"}
    target = find_target(environment=environment)
    assert (target.url, target.token) == ("http://localhost:1", "its")


def test_what_the_caller_says_goes_first(environment: dict[str, str]) -> None:
    environment |= {"PULSARCAST_URL": "http://localhost:1", "PULSARCAST_TOKEN": "its"}
    target = find_target("http://localhost:2", "mine", environment=environment)
    assert (target.url, target.token) == ("http://localhost:2", "mine")
    assert find_target(token="mine", environment=environment).url == "http://localhost:1"


def test_a_token_is_not_sent_to_another_daemon(environment: dict[str, str]) -> None:
    assert find_target("http://evil.example", environment=environment).token is None
    environment |= {"PULSARCAST_URL": "http://localhost:1", "PULSARCAST_TOKEN": "its"}
    assert find_target("http://evil.example", environment=environment).token is None
    assert find_target("http://localhost:1/", environment=environment).token == "its"
    Contexts.load(environment).add("open", "https://open.example")
    assert find_target(context="open", environment=environment).token is None


def test_a_token_of_the_environment_alone_is_for_whatever_is_meant(
    environment: dict[str, str],
) -> None:
    environment["PULSARCAST_TOKEN"] = "its"
    assert find_target(environment=environment).token == "its"
    assert find_target("https://named.example", environment=environment).token == "its"


def test_the_caller_may_name_the_home(environment: dict[str, str], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "http").write_text("http://127.0.0.1:8422\n")
    assert find_target(home=other, environment=environment).url == "http://127.0.0.1:8422"


def test_a_home_that_is_named_goes_before_all_that_is_set_up(
    environment: dict[str, str], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "http").write_text("http://127.0.0.1:8422\n")
    Contexts.load(environment).add("prod", "https://prod.example", "prod-token")
    environment["PULSARCAST_TOKEN"] = "its"
    assert find_target(home=other, environment=environment).token == "its"
    environment["PULSARCAST_URL"] = "http://localhost:1"
    found = find_target(home=str(other), environment=environment)
    assert (found.url, found.token) == ("http://127.0.0.1:8422", None), "that one is another's"
    (other / "token").write_text("other-token\n")
    assert find_target(home=other, environment=environment).token == "other-token"
    assert find_target(home=other, token="mine", environment=environment).token == "mine"


def test_one_daemon_is_named_in_one_way(environment: dict[str, str]) -> None:
    with pytest.raises(LocalError, match="not both"):
        find_target("http://localhost:1", context="prod", environment=environment)


def test_a_home_without_a_daemon_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="start one with `pulsarcast daemon"):
        find_target(environment={"PULSARCAST_HOME": str(tmp_path), "XDG_CONFIG_HOME": "/nowhere"})


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8420",
        "ftp://host",
        "http://",
        "http://host:port",
        "http://host/?a=b",
        "http://a b",
    ],
)
def test_what_is_no_url_of_a_daemon_is_refused(url: str) -> None:
    with pytest.raises(LocalError, match="looks like"):
        find_target(url, environment={})


def test_secrets_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULSARCAST_URL", raising=False)
    assert SECRET not in repr(Target("http://localhost:1", SECRET))
    with pytest.raises(LocalError) as refused:
        find_target(f"http://user:{SECRET}@localhost:1", environment={})
    assert SECRET not in str(refused.value)
    with pytest.raises(LocalError) as refused:
        find_target("http://localhost:1", f"{SECRET}\n", environment={})
    assert SECRET not in str(refused.value)
    with Client("http://127.0.0.1:9", SECRET) as client:
        assert SECRET not in repr(client)
        with pytest.raises(
            Unreachable, match=r"no daemon answers at http://127\.0\.0\.1:9"
        ) as gone:
            client.status()
        assert SECRET not in str(gone.value)
    assert SECRET not in repr(AsyncClient("http://127.0.0.1:9", SECRET))


@pytest.mark.parametrize("home", ["~/elsewhere", "/some/where", ""])
def test_a_command_and_the_client_mean_the_same_home(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSARCAST_HOME", home)
    assert homes.default_home() == connect.default_home()
    assert "~" not in str(homes.default_home())
