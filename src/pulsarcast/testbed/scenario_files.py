"""Scenario files: all that a run is, in TOML, so that it can be kept, sent to others and run again.

A file says what differs from the defaults, and what a command says goes before the file. A run
keeps a file that says everything: see `claims`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from pulsarcast.model.errors import LocalError, in_words
from pulsarcast.model.topic_types import SEQUENCERS_MAX
from pulsarcast.protocol.content.content import FILTERS_MAX
from pulsarcast.simulation.links import Matrix, read_rtt_s
from pulsarcast.testbed.options import RunOptions
from pulsarcast.testbed.proxies import Delay, parse_delay

FILE: Final = "scenario.toml"
SUFFIX: Final = ".toml"
_NONE: Final = "none"

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]


class Load(msgspec.Struct, kw_only=True):
    """What is published: a workload's file, or something made up."""

    workload: str | None = None
    limit: _Count | None = None
    events: _Count | None = None
    concurrency: _Count | None = None
    topics: _Count | None = None
    payload_bytes: _Count | None = None
    rate_per_s: _Seconds | None = None
    duration_s: _Seconds | None = None
    sample_s: _Seconds | None = None
    churn: bool | None = None
    kill: bool | None = None
    filters: Annotated[int, msgspec.Meta(ge=1, le=FILTERS_MAX)] | None = None
    sequencers: Annotated[int, msgspec.Meta(ge=1, le=SEQUENCERS_MAX)] | None = None


class Network(msgspec.Struct, kw_only=True):
    """How late what comes in arrives."""

    latency: str | None = None
    matrix: str | None = None
    """A file with round-trip times between real hosts: .tsv.gz in ms, or .csv.gz in µs."""
    simulated_latency_ms: Annotated[float, msgspec.Meta(ge=0)] | None = None


class Faults(msgspec.Struct, kw_only=True):
    """What goes wrong meanwhile, and for how long."""

    kinds: list[str] | None = None
    stopped_s: _Seconds | None = None
    full_s: _Seconds | None = None
    cut_s: _Seconds | None = None
    author_down_s: _Seconds | None = None
    every_s: _Seconds | None = None
    down_s: _Seconds | None = None
    election_timeout_s: _Seconds | None = None


class Scenario(msgspec.Struct, kw_only=True):
    """A scenario as it is written; None: as usual."""

    kind: str | None = None
    nodes: Annotated[int, msgspec.Meta(ge=2)] | None = None
    seed: int | None = None
    contestant: str | None = None
    order: Literal["none", "per-publisher", "causal", "total"] | None = None
    dissemination: Literal["tree", "cube"] | None = None
    ack: Literal["accepted", "replicated"] | None = None
    trace_level: Literal["none", "delivery", "rpc"] | None = None
    timeout_s: _Seconds | None = None
    memory_mib: _Count | None = None
    run_id: str | None = None
    keep_homes: bool | None = None
    load: Load = msgspec.field(default_factory=Load)
    network: Network = msgspec.field(default_factory=Network)
    faults: Faults = msgspec.field(default_factory=Faults)
    recorded: dict[str, Any] | None = None
    """Where it was written by a run: how that came about."""


_TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "load": Load,
    "network": Network,
    "faults": Faults,
}
# Keys that have another name among the options, which had theirs before there were files.
_OPTION_OF: Final = {
    "kind": "scenario",
    "limit": "events_max",
    "kill": "by_kill",
    "kinds": "faults",
    "simulated_latency_ms": "latency_ms",
}
_PATHS: Final = ("workload", "matrix")
# Which kinds look at an option; all of them at what is not here.
_USED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "dissemination": ("workload", "away", "mirror", "soak", "hot", "succession"),
    "trace_level": ("workload", "away", "soak", "hot", "succession", "quotes"),
    "workload": ("workload", "quotes"),
    **dict.fromkeys(
        ("events_max", "concurrency", "faults", "stopped_s", "full_s", "cut_s"), ("workload",)
    ),
    "events": ("workload", "away", "mirror", "hot", "quotes"),
    "topics": ("away", "soak", "mirror"),
    "payload_bytes": ("away", "soak", "hot", "succession"),
    "rate_per_s": ("away", "soak", "succession", "quotes"),
    "duration_s": ("soak", "succession"),
    **dict.fromkeys(("sample_s", "churn"), ("soak",)),
    "by_kill": ("away",),
    "filters": ("quotes",),
    **dict.fromkeys(("sequencers", "every_s", "down_s"), ("succession",)),
    "latency_ms": ("mirror",),
}
_FLAG_OF: Final = {
    "events_max": "limit",
    "payload_bytes": "payload",
    "rate_per_s": "rate",
    "by_kill": "kill",
}
RECORDED: Final = "recorded"


def options_for(source: str, *, out: Path, said: Mapping[str, Any] | None = None) -> RunOptions:
    """What is to be run: a file, or a kind by its name; what is `said` besides goes before it.

    `said` has the names of `RunOptions`, with values as a command has them: a latency is a text,
    and "none" is no trace.
    """
    is_file = source.endswith(SUFFIX)
    chosen: dict[str, Any] = read_scenario(Path(source)) if is_file else {"scenario": source}
    said = said or {}
    _refuse_without_use(chosen.get("scenario", RunOptions.scenario), said)
    for one, other in (("latency", "matrix"), ("matrix", "latency")):
        if said.get(one) is not None:
            chosen.pop(other, None)
    chosen.update(said)
    latency = chosen.pop("latency", None)
    if latency is not None:
        chosen["delay"] = parse_delay(latency)
    if chosen.get("trace_level") == _NONE:
        chosen["trace_level"] = None
    options = RunOptions(out=out, **chosen)
    if options.scenario == "workload" and options.workload and "events" in said:
        raise LocalError(
            "--events is for a load that is made up: --limit plays a file's first ones"
        )
    if options.matrix is None:
        return options
    if options.delay is not None:
        raise LocalError("a latency or a matrix: not both")
    return replace(options, delay=read_matrix(options.matrix, options.nodes, seed=options.seed))


def _refuse_without_use(kind: str, said: Mapping[str, Any]) -> None:
    """Whoever says what a scenario does not look at expects something of it."""
    names = [name for name in said if kind not in _USED_BY.get(name, (kind,))]
    is_known = any(kind in kinds for kinds in _USED_BY.values())
    if names and is_known:
        flags = ", ".join("--" + _FLAG_OF.get(name, name).replace("_", "-") for name in names)
        raise LocalError(f"{kind} has no use for {flags}")


def read_scenario(path: Path) -> dict[str, Any]:
    """The options that a file names; its own paths begin at its own folder."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LocalError(f"{path} cannot be read: {error}") from error
    _refuse_unknown(path, tables)
    try:
        scenario = msgspec.convert(tables, Scenario)
    except msgspec.ValidationError as error:
        raise LocalError(f"{path}: {in_words(error)}") from error
    options: dict[str, Any] = {}
    for table in (scenario, scenario.load, scenario.network, scenario.faults):
        for key, value in msgspec.structs.asdict(table).items():
            if value is not None and key not in (*_TABLES, RECORDED):
                options[_OPTION_OF.get(key, key)] = value
    for name in _PATHS:
        if name in options:
            options[name] = path.parent / options[name]
    _refuse_changed(path, (scenario.recorded or {}).get("files", {}))
    return options


def _refuse_unknown(path: Path, tables: Mapping[str, Any]) -> None:
    """Somebody who mistypes a key should not get a run without it."""
    _refuse_unknown_in(path, tables, Scenario, "")
    for name, table in _TABLES.items():
        inner = tables.get(name, {})
        if isinstance(inner, dict):
            _refuse_unknown_in(path, inner, table, name)


def _refuse_unknown_in(
    path: Path, given: Mapping[str, Any], table: type[msgspec.Struct], name: str
) -> None:
    known = table.__struct_fields__
    for key in given:
        if key in known:
            continue
        shown = f"{name}.{key}" if name else key
        place = next((where for where, inner in _places() if key in inner), None)
        if place is not None:
            advice = f"it belongs into [{place}]" if place else "it belongs above all tables"
        else:
            everything = [field for _, inner in _places() for field in inner]
            near = difflib.get_close_matches(key, known, 1, 0.5) or difflib.get_close_matches(
                key, everything, 1, 0.5
            )
            advice = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
        raise LocalError(f"{path}: no key {shown!r}: {advice}")


def _places() -> list[tuple[str, tuple[str, ...]]]:
    tables = [(name, table.__struct_fields__) for name, table in _TABLES.items()]
    return [("", Scenario.__struct_fields__), *tables]


def _refuse_changed(path: Path, digests: Mapping[str, str]) -> None:
    """A run can be had again only from the same files."""
    for name, digest in digests.items():
        file = path.parent / name
        if file.is_file() and digest_of(file) != digest:
            raise LocalError(f"{file} is not what it was when {path} was written")


def digest_of(path: Path) -> str:
    """What tells a file from another one."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_matrix(path: Path, nodes: int | None, *, seed: int) -> Delay:
    """Half of the round trips between hosts, which nodes stand for as they do in the simulator."""
    try:
        round_trips_s = read_rtt_s(path)
    except (OSError, EOFError, ValueError, AssertionError) as error:
        raise LocalError(f"{path} is no matrix of round-trip times: {error}") from error
    matrix, hosts = Matrix(round_trips_s, seed=seed), len(round_trips_s)
    size = hosts if nodes is None else min(nodes, hosts)
    return Delay(
        pairs_ms=[
            [round((matrix.steady_s(a, b) or 0.0) * 1000, 3) for b in range(size)]
            for a in range(size)
        ]
    )


# Writing.


def scenario_text(options: RunOptions, recorded: Mapping[str, Any]) -> str:
    """A file that says all of a run, and below how it came about."""
    lines: list[str] = []
    for name, fields in _places():
        lines += [f"\n[{name}]"] if name else []
        for key in fields:
            if key not in (*_TABLES, RECORDED):
                value = _written(key, options)
                lines += [] if value is None else [f"{key} = {_toml(value)}"]
    files = recorded.get("files", {})
    lines += [f"\n[{RECORDED}]"]
    lines += [f"{key} = {_toml(value)}" for key, value in recorded.items() if key != "files"]
    lines += [f"\n[{RECORDED}.files]"] if files else []
    lines += [f"{_toml(key)} = {_toml(value)}" for key, value in files.items()]
    return "\n".join(lines) + "\n"


def _written(key: str, options: RunOptions) -> Any:
    if key == "latency":
        return None if options.delay is None or options.matrix is not None else str(options.delay)
    value = getattr(options, _OPTION_OF.get(key, key))
    if key == "trace_level":
        return value or _NONE
    if key in _PATHS and value is not None:
        return str(value.resolve())
    return value


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    # JSON's way to write texts, numbers and truth is one of TOML's.
    return json.dumps(value, ensure_ascii=False)
