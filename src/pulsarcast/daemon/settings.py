"""Settings: what they are, where each value comes from, and the file that explains them.

A flag goes before an environment variable, that before the file, that before the default. Whatever
nobody knows is an error: a misspelt setting must not be a silent default.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from pulsarcast.model.api import PORT
from pulsarcast.model.errors import LocalError
from pulsarcast.network.addresses import parse_contact
from pulsarcast.network.multiaddrs import parse_address

CONFIG: Final = "config.toml"
PREFIX: Final = "PULSARCAST_"
ALIKE: Final = 0.8
"""What difflib says of two names that differ by a letter or two, and of no others here."""
PORT_MAX: Final = 65_535
LEVELS: Final = ("debug", "info", "warning", "error")

Value: TypeAlias = str | int | bool | list[str]


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that an operator may choose."""

    name: str
    default: Value
    help: str
    least: int = 0
    """Of a number; below it a daemon would be of no use."""

    @property
    def variable(self) -> str:
        """The environment variable of the same meaning."""
        return PREFIX + self.name.replace(".", "_").upper()


SETTINGS: Final = (
    Setting(
        "node.listen",
        ["/ip4/0.0.0.0/tcp/4420", "/ip6/::/tcp/4420"],
        "Addresses of this machine that other peers can dial; 0.0.0.0 and :: stand for all "
        "interfaces, port 0 for a free one.",
    ),
    Setting(
        "node.announce",
        [],
        "Addresses to advertise to other peers, if they differ from listen (NAT, containers).",
    ),
    Setting(
        "node.bootstrap",
        [],
        "Peers to join the network through, as /ip4/ADDRESS/tcp/PORT/p2p/PEER.",
    ),
    Setting("node.mdns", False, "Find nodes of the same local network, and be found (mDNS)."),
    Setting(
        "node.network", "main", "Name of the network; nodes of different networks do not connect."
    ),
    Setting(
        "http.address",
        f"127.0.0.1:{PORT}",
        "Address of the HTTP API. Any but loopback needs TLS, or http.behind_proxy.",
    ),
    Setting("http.tls_certificate", "", "File with the certificate (PEM), for HTTPS."),
    Setting("http.tls_key", "", "File with the key of the certificate."),
    Setting("http.behind_proxy", False, "A reverse proxy of yours terminates TLS."),
    Setting("http.hosts", [], "Host names that requests may use besides the address."),
    Setting("http.body_bytes_max", 2 << 20, "Largest body of a request.", least=1),
    Setting(
        "http.connections_max", 1000, "Largest number of open requests and subscriptions.", least=1
    ),
    Setting(
        "http.slow_reader_s",
        30,
        "Seconds after which a subscriber that reads nothing is disconnected. Its position is "
        "kept.",
        least=1,
    ),
    Setting(
        "storage.disk_bytes_max",
        20 << 30,
        "Size of the store, up to 2 GiB for other peers aside, beyond which the node refuses new "
        "topics and publications of its users.",
    ),
    Setting(
        "storage.free_bytes_min",
        256 << 20,
        "Free space on the disk below which the node refuses them too.",
    ),
    Setting(
        "storage.retention_days",
        0,
        "Retention, in days, of topics created here without one; 0 keeps everything.",
    ),
    Setting("log.level", "info", "Log level: debug, info, warning or error."),
    Setting(
        "log.rooms",
        [],
        "Log levels of single rooms, as network=debug; log messages name their room.",
    ),
    Setting("trace.level", "", "Trace level: delivery or rpc; empty for no trace."),
    Setting("trace.bytes_max", 1 << 30, "Size of all traces beyond which the oldest are deleted."),
)
BY_NAME: Final = {setting.name: setting for setting in SETTINGS}
VARIABLES: Final = tuple(setting.variable for setting in SETTINGS)


class Settings:
    """The values in force, and the origin of each."""

    def __init__(self, values: Mapping[str, Value], origins: Mapping[str, str]) -> None:
        self._values = dict(values)
        self._origins = dict(origins)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def origin(self, name: str) -> str:
        """Where the value comes from, in words."""
        return self._origins[name]

    def items(self) -> list[tuple[str, Value, str]]:
        """Name, value and origin of every setting."""
        return [(each.name, self[each.name], self.origin(each.name)) for each in SETTINGS]


def default_settings(values: Mapping[str, Value]) -> Settings:
    """Settings of a program that has no file of them: the defaults, but for these values."""
    defaults = {each.name: each.default for each in SETTINGS}
    origins = dict.fromkeys(defaults, "default") | dict.fromkeys(values, "the program")
    return Settings(defaults | dict(values), origins)


def load_settings(
    home: Path, environment: Mapping[str, str], flags: Mapping[str, Value] | None = None
) -> Settings:
    """The settings of a home; raises LocalError where something in them is wrong."""
    values: dict[str, Value] = {each.name: each.default for each in SETTINGS}
    origins = dict.fromkeys(values, "default")
    path = home / CONFIG
    for name, value in _read_file(path).items():
        values[name], origins[name] = _check(name, value, str(path)), str(path)
    _check_variables(environment)
    for setting in SETTINGS:
        text = environment.get(setting.variable)
        if text is not None:
            values[setting.name] = _parse(setting, text)
            origins[setting.name] = setting.variable
    for name, value in (flags or {}).items():
        values[name], origins[name] = _check(name, value, "the command line"), "command line"
    settings = Settings(values, origins)
    _check_together(settings)
    return settings


def _read_file(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LocalError(f"{path}: {error}") from error
    found: dict[str, object] = {}
    for section, table in tables.items():
        if not isinstance(table, dict):
            raise LocalError(f"{path}: {section!r} stands outside of any section")
        for key, value in table.items():
            found[f"{section}.{key}"] = value
    return found


def _check_variables(environment: Mapping[str, str]) -> None:
    """Refuse a misspelt one; what neither begins nor reads like ours is somebody else's."""
    sections = tuple({f"{PREFIX}{name.partition('.')[0].upper()}_" for name in BY_NAME})
    for variable in environment:
        if variable not in VARIABLES and (
            variable.startswith(sections) or _reads_like_ours(variable)
        ):
            closest = _closest(variable, VARIABLES)
            raise LocalError(f"there is no setting of the variable {variable}{closest}")


def _reads_like_ours(variable: str) -> bool:
    """Whether it is one of our variables but for a letter or two: its section may be misspelt."""
    if not variable.startswith(PREFIX):
        return False
    import difflib  # noqa: PLC0415 (as below)

    names = [each.removeprefix(PREFIX) for each in VARIABLES]
    return bool(difflib.get_close_matches(variable.removeprefix(PREFIX), names, 1, ALIKE))


def _check(name: str, value: object, where: str) -> Value:
    setting = BY_NAME.get(name)
    if setting is None:
        raise LocalError(f"{where}: there is no setting {name!r}{_closest(name, BY_NAME)}")
    default = setting.default
    if isinstance(default, list):
        fits = isinstance(value, list) and all(isinstance(each, str) for each in value)
    else:
        fits = type(value) is type(default)
    if not fits:
        raise LocalError(f"{where}: {name} must be {_kind(default)}, not {value!r}")
    if isinstance(value, int) and value < 0:
        raise LocalError(f"{where}: {name} cannot be negative")
    if isinstance(value, int) and value < setting.least:
        raise LocalError(f"{where}: {name} must be {setting.least} at least, not {value}")
    return value  # type: ignore[return-value] # its type is the default's


def _parse(setting: Setting, text: str) -> Value:
    default = setting.default
    if isinstance(default, bool):
        if text.lower() in ("1", "true", "yes"):
            return True
        if text.lower() in ("0", "false", "no", ""):
            return False
        raise LocalError(f"{setting.variable} must be true or false, not {text!r}")
    if isinstance(default, int):
        try:
            return _check(setting.name, int(text), setting.variable)
        except ValueError:
            raise LocalError(f"{setting.variable} must be a number, not {text!r}") from None
    if isinstance(default, list):
        return [each.strip() for each in text.split(",") if each.strip()]
    return text


def _check_together(settings: Settings) -> None:
    if bool(settings["http.tls_certificate"]) != bool(settings["http.tls_key"]):
        raise LocalError("http.tls_certificate and http.tls_key go together")
    if settings["trace.level"] not in ("", "delivery", "rpc"):
        level = settings["trace.level"]
        raise LocalError(f"trace.level must be delivery, rpc or empty, not {level!r}")
    for level in (settings["log.level"], *rooms(settings).values()):
        if level not in LEVELS:
            raise LocalError(f"log levels are {', '.join(LEVELS)}: not {level!r}")
    host_and_port(settings["http.address"])
    _check_addresses(settings)


def _check_addresses(settings: Settings) -> None:
    """A misspelt address is no peer that is away for a while: nobody would ever answer there."""
    for name, parse in (
        ("node.listen", _parse_own),
        ("node.announce", _parse_own),
        ("node.bootstrap", parse_contact),
    ):
        for text in settings[name]:
            try:
                parse(text)
            except LocalError as error:
                raise LocalError(f"{settings.origin(name)}: {name}: {error}") from error


def _parse_own(text: str) -> None:
    parse_address(text, None)


def rooms(settings: Settings) -> dict[str, str]:
    """The level of each room that has one of its own."""
    pairs = [text.partition("=") for text in settings["log.rooms"]]
    return {room: level for room, _, level in pairs}


def host_and_port(address: str) -> tuple[str, int]:
    """`127.0.0.1:8420` or `[::1]:8420`, taken apart."""
    host, separator, port = address.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= 5
    is_open = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not separator or not is_number or is_open or int(port) > PORT_MAX:
        raise LocalError(
            f"http.address must be HOST:PORT, with a port up to {PORT_MAX}, not {address!r}"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def _kind(default: Value) -> str:
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, int):
        return "a number"
    return "a list of texts" if isinstance(default, list) else "a text"


def _closest(name: str, known: Iterable[str]) -> str:
    import difflib  # noqa: PLC0415 (only to be kind to whoever mistyped)

    close = difflib.get_close_matches(name, known, 1)
    return f" (is it {close[0]}?)" if close else ""


def config_text(values: Mapping[str, Value] | None = None) -> str:
    """A config.toml with everything in it, explained, and commented out where it is the default."""
    chosen = values or {}
    lines = [
        "# Settings of a Pulsarcast node. A flag of `pulsarcast daemon` goes before a variable of",
        "# the environment (PULSARCAST_SECTION_KEY), and that before this file.",
        "# `pulsarcast config show` tells which values are in force, and why.",
    ]
    section = ""
    for setting in SETTINGS:
        where, _, key = setting.name.partition(".")
        if where != section:
            section = where
            lines += ["", f"[{section}]"]
        lines.append(f"# {setting.help}")
        value = chosen.get(setting.name, setting.default)
        comment = "" if setting.name in chosen else "# "
        lines.append(f"{comment}{key} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: Value) -> str:
    # JSON's texts, lists, numbers and truth values are TOML's as well, but for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
