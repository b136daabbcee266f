"""Settings: flag over environment over file over default, and nothing unknown."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulsarcast.daemon.daemon import initialize
from pulsarcast.daemon.settings import (
    SETTINGS,
    config_text,
    host_and_port,
    load_settings,
    rooms,
)
from pulsarcast.model.errors import LocalError


def write(home: Path, text: str) -> None:
    (home / "config.toml").write_text(text)


def test_a_flag_goes_before_a_variable_before_the_file_before_the_default(tmp_path: Path) -> None:
    name, variable = "http.body_bytes_max", "PULSARCAST_HTTP_BODY_BYTES_MAX"
    settings = load_settings(tmp_path, {})
    assert settings.origin(name) == "default"
    write(tmp_path, "[http]\nbody_bytes_max = 1\n")
    settings = load_settings(tmp_path, {})
    assert (settings[name], settings.origin(name)) == (1, str(tmp_path / "config.toml"))
    settings = load_settings(tmp_path, {variable: "2"})
    assert (settings[name], settings.origin(name)) == (2, variable)
    settings = load_settings(tmp_path, {variable: "2"}, {name: 3})
    assert (settings[name], settings.origin(name)) == (3, "command line")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[http]\nadress = '127.0.0.1:1'\n", r"no setting 'http.adress' \(is it http.address\?\)"),
        ("address = 'x'\n", "stands outside"),
        ("[http]\naddress = 5\n", "must be a text"),
        ("[node]\nlisten = 'x'\n", "must be a list of texts"),
        ("[http]\nbehind_proxy = 1\n", "must be true or false"),
        ("[http]\nbody_bytes_max = true\n", "must be a number"),
        ("[http]\nbody_bytes_max = -1\n", "cannot be negative"),
        ("[http]\naddress = 'nowhere'\n", "must be HOST:PORT"),
        ("[http]\ntls_key = 'x'\n", "go together"),
        ("[log]\nlevel = 'loud'\n", "log levels are"),
        ("[log]\nrooms = ['network=loud']\n", "log levels are"),
        ("[trace]\nlevel = 'all'\n", "trace.level must be"),
        ("[http\n", "config.toml"),
    ],
)
def test_what_is_wrong_in_the_file_is_said(tmp_path: Path, text: str, complaint: str) -> None:
    write(tmp_path, text)
    with pytest.raises(LocalError, match=complaint):
        load_settings(tmp_path, {})


PEER = "12D3KooWPjceQrSwdWXPyLLeABRXmuqt69Rg3sBYbU1Nft9HyQ6X"


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("nonsense", "not an address of a peer"),
        ("/ip4/127.0.0.1/tcp/4420", "not an address of a peer"),
        ("/ip4/127.0.0.1/tcp/4420/p2p/", "not a peer id"),
        (f"/ip4/127.0.0.1/tcp/4420/p2p/{PEER[:-1]}", "not a peer id"),
        (f"/ip4/127.0.0.1/tpc/4420/p2p/{PEER}", "not an address such as"),
        (f"/ip4/127.0.0.256/tcp/4420/p2p/{PEER}", "not an address such as"),
        (f"/ip4/127.0.0.1/tcp/65536/p2p/{PEER}", "not an address such as"),
        (f"127.0.0.1:4420/p2p/{PEER}", "not an address such as"),
        (f"/dns/example..org/tcp/4420/p2p/{PEER}", "not a host name"),
    ],
)
def test_a_misspelt_peer_to_begin_with_is_found_before_the_start(
    tmp_path: Path, address: str, complaint: str
) -> None:
    good = f"/dns4/example.org/tcp/4420/p2p/{PEER}"
    variable = "PULSARCAST_NODE_BOOTSTRAP"
    assert load_settings(tmp_path, {variable: good})["node.bootstrap"] == [good]
    with pytest.raises(LocalError, match=f"{variable}: node.bootstrap: {complaint}"):
        load_settings(tmp_path, {variable: f"{good},{address}"})
    write(tmp_path, f"[node]\nbootstrap = ['{address}']\n")
    with pytest.raises(LocalError, match=f"config.toml: node.bootstrap: {complaint}"):
        load_settings(tmp_path, {})
    home = tmp_path / "home"
    with pytest.raises(LocalError, match=f"command line: node.bootstrap: {complaint}"):
        initialize(home, {"node.bootstrap": [address]})
    assert not home.exists()


def test_a_home_that_is_there_keeps_its_settings_and_others_are_refused(tmp_path: Path) -> None:
    home, values = tmp_path / "home", {"http.address": "127.0.0.1:8421"}
    peer = initialize(home, {**values})
    written = (home / "config.toml").read_text()
    assert initialize(home) == initialize(home, {**values}) == peer
    with pytest.raises(LocalError, match=r"something else of node\.listen: change it there"):
        initialize(home, {**values, "node.listen": ["/ip4/127.0.0.1/tcp/4421"]})
    assert (home / "config.toml").read_text() == written


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("PULSARCAST_HTTP_BEHIND_PROXY", "true", "http.behind_proxy", True),
        ("PULSARCAST_HTTP_BEHIND_PROXY", "0", "http.behind_proxy", False),
        ("PULSARCAST_HTTP_HOSTS", "a, b,", "http.hosts", ["a", "b"]),
        ("PULSARCAST_LOG_LEVEL", "debug", "log.level", "debug"),
    ],
)
def test_variables_say_every_kind_of_value(
    tmp_path: Path, variable: str, text: str, name: str, value: object
) -> None:
    assert load_settings(tmp_path, {variable: text})[name] == value


@pytest.mark.parametrize(
    ("variable", "text"),
    [("PULSARCAST_HTTP_BEHIND_PROXY", "perhaps"), ("PULSARCAST_HTTP_BODY_BYTES_MAX", "many")],
)
def test_a_variable_that_makes_no_sense_is_refused(
    tmp_path: Path, variable: str, text: str
) -> None:
    with pytest.raises(LocalError, match=variable):
        load_settings(tmp_path, {variable: text})


@pytest.mark.parametrize(
    "name", ["http.slow_reader_s", "http.connections_max", "http.body_bytes_max"]
)
def test_a_value_with_which_nobody_could_be_served_is_refused(tmp_path: Path, name: str) -> None:
    complaint = f"{name} must be 1 at least, not 0"
    variable = "PULSARCAST_" + name.replace(".", "_").upper()
    with pytest.raises(LocalError, match=f"{variable}: {complaint}"):
        load_settings(tmp_path, {variable: "0"})
    with pytest.raises(LocalError, match=f"the command line: {complaint}"):
        load_settings(tmp_path, {}, {name: 0})
    assert load_settings(tmp_path, {variable: "1"})[name] == 1
    # Elsewhere 0 has a meaning.
    assert load_settings(tmp_path, {}, {"storage.retention_days": 0})["storage.retention_days"] == 0


def test_a_misspelt_variable_is_refused_and_those_of_others_are_not(tmp_path: Path) -> None:
    complaint = (
        r"no setting of the variable PULSARCAST_STORAGE_RETENTIONDAYS "
        r"\(is it PULSARCAST_STORAGE_RETENTION_DAYS\?\)"
    )
    with pytest.raises(LocalError, match=complaint):
        load_settings(tmp_path, {"PULSARCAST_STORAGE_RETENTIONDAYS": "7"})
    with pytest.raises(LocalError, match="PULSARCAST_HTTP_"):
        load_settings(tmp_path, {"PULSARCAST_HTTP_": ""})
    others = (
        "HOME",
        "URL",
        "TOKEN",
        "CONTEXT",
        "EXAMPLES",
        "HOSTILE_INPUTS",
        "NODES",
        "SERVICE_HOST",
    )
    settings = load_settings(tmp_path, {f"PULSARCAST_{each}": "x" for each in others})
    assert {origin for _, _, origin in settings.items()} == {"default"}


@pytest.mark.parametrize("section", ["STORGE", "STORAGES", "STORE", "STRAGE"])
def test_a_variable_of_a_misspelt_section_is_refused(tmp_path: Path, section: str) -> None:
    complaint = (
        f"variable PULSARCAST_{section}_RETENTION_DAYS .is it PULSARCAST_STORAGE_RETENTION_DAYS"
    )
    with pytest.raises(LocalError, match=complaint):
        load_settings(tmp_path, {f"PULSARCAST_{section}_RETENTION_DAYS": "7"})


def test_no_variable_of_this_project_is_taken_for_a_misspelt_one(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    files = [
        path for name in ("src", "tests", "benchmarks") for path in (root / name).rglob("*.py")
    ]
    texts = [path.read_text() for path in files if path != Path(__file__)]
    named = {name for text in texts for name in re.findall(r"PULSARCAST_[A-Z_]*[A-Z]\b", text)}
    assert {"PULSARCAST_HOME", "PULSARCAST_TOKEN", "PULSARCAST_REWRITE_API"} <= named
    others = named - {setting.variable for setting in SETTINGS}
    load_settings(tmp_path, dict.fromkeys(others, "x"))


def test_the_file_that_init_writes_explains_everything_and_changes_nothing(tmp_path: Path) -> None:
    text = config_text({"node.listen": ["/ip4/10.0.0.1/tcp/1"]})
    write(tmp_path, text)
    settings = load_settings(tmp_path, {})
    assert [name for name, _, origin in settings.items() if origin != "default"] == ["node.listen"]
    for setting in SETTINGS:
        assert f"# {setting.help}\n" in text
    # Also with every comment sign taken away from its lines it is a file that we read.
    write(tmp_path, re.sub(r"(?m)^# (\w+ = )", r"\1", text))
    settings = load_settings(tmp_path, {})
    assert all(origin != "default" for _, _, origin in settings.items())


@example("\U0001f324\x7f")
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_whatever_text_init_writes_can_be_read(text: str) -> None:
    found = tomllib.loads(config_text({"node.network": text, "http.hosts": ["a", text]}))
    assert (found["node"]["network"], found["http"]["hosts"]) == (text, ["a", text])


def test_what_is_no_text_is_not_written_down(tmp_path: Path) -> None:
    """An argument of other bytes than UTF-8 comes with half of a character in it."""
    home = tmp_path / "home"
    with pytest.raises(LocalError, match="not UTF-8 text"):
        initialize(home, {"node.network": "\udcff"})
    assert not home.exists()


def test_levels_of_single_rooms(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {"PULSARCAST_LOG_ROOMS": "network=debug,daemon=error"})
    assert rooms(settings) == {"network": "debug", "daemon": "error"}


def test_addresses_are_taken_apart() -> None:
    assert host_and_port("[::1]:80") == ("::1", 80)
    assert host_and_port("127.0.0.1:0") == ("127.0.0.1", 0)
    for port in ("99999", "²", "٣", "-1", "", "9" * 5000):
        with pytest.raises(LocalError, match="must be HOST:PORT"):
            host_and_port(f"127.0.0.1:{port}")
