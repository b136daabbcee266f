"""Where a query begins, and a batch ends: what startingOffsets and endingOffsets mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pulsarcast.model.api import LogView
from pulsarcast.model.errors import LocalError
from pulsarcast.pipeline.topics.logs import Found
from pulsarcast.pipeline.topics.offsets import Loss, label, retained
from pulsarcast.pipeline.topics.options import BELOW, EARLIEST, LATEST

Resolve = Callable[[str], str | None]
"""The content id of a topic by any of its names."""


def starting(
    found: Found, wanted: int | dict[str, int], resolve: Resolve
) -> tuple[dict[str, int], list[Loss]]:
    """The first index to read of each log, and what was asked for and is gone."""
    losses: list[Loss] = []
    indices: dict[str, int] = {}
    for topic, index in _by_topic("startingOffsets", found, wanted, resolve).items():
        log = found.logs[topic]
        indices[topic] = _index("startingOffsets", log, index)
        if indices[topic] < log.oldest:
            losses.append(retained(log, index))
            indices[topic] = log.oldest
    return indices, losses


def ending(found: Found, wanted: dict[str, int] | None, resolve: Resolve) -> dict[str, int]:
    """The index behind the last one to read of each log."""
    asked = _by_topic("endingOffsets", found, LATEST if wanted is None else wanted, resolve)
    return {
        topic: _index("endingOffsets", found.logs[topic], index) for topic, index in asked.items()
    }


def _index(option: str, log: LogView, index: int) -> int:
    if index == EARLIEST:
        return log.oldest
    if index == LATEST:
        return log.newest + 1
    if index > log.newest + 1:
        raise LocalError(
            f"{option}: {label(log)} has no index {index}: its newest event has {log.newest}. "
            f"Write {log.newest + 1} at most, or {LATEST} for the latest"
        )
    return index


def _by_topic(
    option: str, found: Found, wanted: int | Mapping[str, int], resolve: Resolve
) -> dict[str, int]:
    """The index that was asked for of each topic, whatever names were used for them."""
    if isinstance(wanted, int):
        return dict.fromkeys(found.logs, wanted)
    chosen: dict[str, int] = {}
    trees: dict[str, int] = {}
    for name, index in wanted.items():
        if name.endswith(BELOW) and name in found.covered:
            trees |= dict.fromkeys(found.covered[name], index)
            continue
        topic = name if name in found.logs else _covered(found, name) or resolve(name)
        if topic not in found.logs:
            raise LocalError(
                f"{option} names {name!r}, which is none of the topics that the query reads: "
                f"{', '.join(found.covered)}. Take it out, or add it to the option topics"
            )
        chosen[topic] = index
    chosen = {**trees, **chosen}
    missing = [label(log) for topic, log in found.logs.items() if topic not in chosen]
    if missing:
        raise LocalError(
            f"{option} leaves out {', '.join(missing)}: name every topic, with {LATEST} for the "
            f"latest and {EARLIEST} for the earliest"
        )
    return chosen


def _covered(found: Found, name: str) -> str | None:
    """An entry of `topics` as the user wrote it, with or without the topics below."""
    for entry in (name, name + BELOW):
        if entry in found.covered:
            return found.covered[entry][0]
    return None
