"""What a user may say to the source, read and checked before anything else happens.

Spark hands options over as text and does not mind their case. A word that we do not know is an
error: what is misspelled would otherwise be ignored in silence.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pulsarcast.model.errors import LocalError

EARLIEST: Final = -2
LATEST: Final = -1
"""What Kafka's users write for the two ends."""
RECORDS_PER_PARTITION: Final = 50_000
BELOW: Final = "/*"
"""At the end of an entry: the topic, and all topics below it."""

CONNECTION: Final = ("url", "token", "tokenFile", "context", "home")
READING: Final = (
    "topics",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "includeBlocks",
    "where",
)


class Secret(str):
    """A text that never shows itself where objects are printed: in logs, errors and tracebacks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the daemon is, as far as the user said it; `client.connect` finds the rest."""

    url: str | None = None
    token: Secret | None = field(default=None, repr=False)
    context: str | None = None
    home: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One of `topics`: a topic, or with all below it."""

    ref: str
    is_tree: bool

    def __str__(self) -> str:
        return self.ref + BELOW if self.is_tree else self.ref


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """All that concerns reading."""

    connection: Connection
    topics: tuple[Entry, ...]
    starting: int | dict[str, int] | None = None
    """`EARLIEST`, `LATEST`, or an index for each topic; None: as befits a batch or a stream."""
    ending: dict[str, int] | None = None
    """An index for each topic; None: the latest."""
    offsets_per_trigger_max: int | None = None
    partitions_min: int | None = None
    records_per_partition_max: int = RECORDS_PER_PARTITION
    fail_on_data_loss: bool = True
    headers: bool = False
    blocks: bool = False
    where: str | None = None
    """A filter on the topics' attributes."""


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """What the user said, or a LocalError that says what to write instead."""
    options = {key.lower(): value for key, value in given.items()}
    check_known(options, (*CONNECTION, *READING))
    return ReadOptions(
        connection=read_connection(options),
        topics=_read_topics(options.get("topics", "")),
        starting=_read_starting(options.get("startingoffsets")),
        ending=_read_ending(options.get("endingoffsets")),
        offsets_per_trigger_max=_read_count(options, "maxOffsetsPerTrigger"),
        partitions_min=_read_count(options, "minPartitions"),
        records_per_partition_max=(
            _read_count(options, "maxRecordsPerPartition") or RECORDS_PER_PARTITION
        ),
        fail_on_data_loss=_read_bool(options, "failOnDataLoss", default=True),
        headers=_read_bool(options, "includeHeaders", default=False),
        blocks=_read_bool(options, "includeBlocks", default=False),
        where=options.get("where"),
    )


def check_known(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Refuse a word that we do not know, and name the one that was probably meant."""
    spelled = {name.lower(): name for name in known}
    for key in options:
        if key.lower() in spelled:
            continue
        if key.lower() == "path":
            raise LocalError(
                "format pulsarcast has no path: write .option('topics', 'weather').load()"
            )
        near = difflib.get_close_matches(key.lower(), spelled, 1, 0.5)
        meant = f"did you mean {spelled[near[0]]}? All are" if near else "all that there are:"
        raise LocalError(f"there is no option {key}: {meant} {', '.join(known)}")


def read_connection(options: Mapping[str, str]) -> Connection:
    """Where the daemon is, from options in lower case; a sink is told in the same words."""
    token, file = options.get("token"), options.get("tokenfile")
    if token is not None and file is not None:
        raise LocalError("give a token or a tokenFile, not both")
    if file is not None:
        try:
            token = Path(file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise LocalError(
                f"tokenFile {file}: {why}. It is read on the driver's machine, and holds the token"
            ) from None
    return Connection(
        url=options.get("url") or None,
        token=Secret(token) if token else None,
        context=options.get("context") or None,
        home=options.get("home") or None,
    )


def _read_topics(text: str) -> tuple[Entry, ...]:
    entries: dict[Entry, None] = {}
    for part in text.split(","):
        name = part.strip()
        if not name:
            continue
        ref = name.removesuffix(BELOW)
        if not ref or ref.endswith("*"):
            raise LocalError(
                f"topics: {name!r} names no topic. Write a content id, an alias or author/name, "
                f"with {BELOW} behind it for all topics below it as well"
            )
        entries[Entry(ref, is_tree=name.endswith(BELOW))] = None
    if not entries:
        raise LocalError("say which topics to read: .option('topics', 'weather,12D3KooW.../news')")
    return tuple(entries)


def _read_starting(text: str | None) -> int | dict[str, int] | None:
    if text is None:
        return None
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    return _read_indices("startingOffsets", "earliest, latest", text) if named is None else named


def _read_ending(text: str | None) -> dict[str, int] | None:
    if text is None or text.strip().lower() == "latest":
        return None
    found = _read_indices("endingOffsets", "latest", text)
    if EARLIEST in found.values():
        raise LocalError(
            f"endingOffsets: nothing ends at the earliest ({EARLIEST}); write the index behind the "
            f"last event, or {LATEST} for the latest"
        )
    return found


def _read_indices(option: str, words: str, text: str) -> dict[str, int]:
    """An index for each topic, as JSON."""
    shape = f'{option} is {words}, or JSON such as {{"weather": 120, "news": {LATEST}}}'
    try:
        found = json.loads(text)
    except ValueError:
        raise LocalError(f"{shape}; this is neither: {text!r}") from None
    if not isinstance(found, dict) or not found:
        raise LocalError(f"{shape}, with an index for each topic")
    for topic, index in found.items():
        if type(index) is not int or index < EARLIEST or index == 0:
            raise LocalError(
                f"{option}: {topic!r} has {json.dumps(index)}; an index is counted from 1, "
                f"{LATEST} is the latest and {EARLIEST} the earliest"
            )
    return found


def _read_count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise LocalError(f"{name} is a whole number from 1 on, not {text!r}")
    return count


def _read_bool(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise LocalError(f"{name} is true or false, not {text!r}")
    return text.strip().lower() == "true"
