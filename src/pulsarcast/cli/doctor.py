"""`pulsarcast doctor`: what is wrong with my node, and what to do about it."""

from __future__ import annotations

import ctypes
import ctypes.util
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import click

from pulsarcast.cli.operating import bootstrap_line
from pulsarcast.cli.output import FAILED, emit
from pulsarcast.cli.remote import remote
from pulsarcast.model.shown import reach_shown

if TYPE_CHECKING:
    from pulsarcast.client import Client
    from pulsarcast.model.api import BootstrapView, StatusView

AHEAD_S = 60
LOOKED_AT = 20
UNSYNCHRONIZED = 5
"""What adjtimex says of a clock that is not synchronized."""

Verdict: TypeAlias = Literal["good", "look", "bad"]
MARKS: dict[str, tuple[str, str]] = {"good": ("✓", "green"), "look": ("!", "yellow"),
                                     "bad": ("✗", "red")}  # fmt: skip


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    verdict: Verdict
    text: str


@click.command()
@remote
def doctor(client: Client, as_json: bool) -> None:
    """Look for problems of the node, and say how to solve them."""
    status = client.status()
    findings = [
        _state(status),
        _peers(status),
        *_bootstrap(status),
        _reach(status),
        *_relays(status),
        _disk(status),
        _key(click.get_current_context().params["home"], status.peer),
        _clock(),
        *_starved(client),
        _events(client),
    ]
    lines = []
    for finding in findings:
        mark, colour = MARKS[finding.verdict]
        lines.append(f"{click.style(mark, fg=colour)} {finding.what}: {finding.text}")
    emit([finding._asdict() for finding in findings], "\n".join(lines), as_json=as_json)
    if any(finding.verdict == "bad" for finding in findings):
        raise SystemExit(FAILED)


def _state(status: StatusView) -> Finding:
    if status.halted is not None:
        return Finding(
            "state", "bad", f"halted: {status.halted}; mend that, then start the daemon again"
        )
    if not status.ready:
        return Finding("state", "bad", "; ".join(status.reasons))
    return Finding("state", "good" if status.state == "ready" else "look", status.state)


def _peers(status: StatusView) -> Finding:
    if not status.peers:
        return Finding("peers", "bad", f"none is connected: {_how_to_find_peers(status)}")
    few = status.peers_known < 3
    text = f"{status.peers} connected, {status.peers_known} known"
    if few:
        return Finding("peers", "look", f"{text}: fewer than three cannot keep three replicas")
    return Finding("peers", "good", text)


def _how_to_find_peers(status: StatusView) -> str:
    named, remembered = len(status.bootstrap), status.peers_remembered
    if named:
        return f"the node goes on trying {named} bootstrap and {remembered} remembered peers"
    advice = "name one with `pulsarcast daemon --bootstrap ADDRESS`, or node.bootstrap"
    if remembered:
        return f"none of {remembered} remembered peers answers; start one of them, or {advice}"
    return advice


def _bootstrap(status: StatusView) -> list[Finding]:
    """Which of the peers that were named do not answer, and why."""
    what, named = "bootstrap", status.bootstrap
    silent = [each for each in named if each.state == "unreachable"]
    if not named:
        return []
    if not silent:
        return [Finding(what, "good", f"all {len(named)} answer")] if _all_answer(named) else []
    verdict: Verdict = "look" if status.peers else "bad"
    return [Finding(what, verdict, bootstrap_line(each, status.peer_names)) for each in silent]


def _all_answer(named: list[BootstrapView]) -> bool:
    return all(each.state in ("connected", "idle") for each in named)


def _reach(status: StatusView) -> Finding:
    """How others dial the node. One that nobody can dial works, over connections of its own."""
    reach = status.reach
    text = reach_shown(reach, status.peer_names, time.time_ns() // 1000)
    if not reach.advice:
        return Finding("reach", "good", text)
    verdict: Verdict = "look" if status.addresses else "bad"
    return Finding("reach", verdict, f"{text}; {reach.advice}")


def _relays(status: StatusView) -> list[Finding]:
    """Whether a node that needs relays has them: one may go down."""
    found = status.reach.relays
    if status.reach.kind == "private":
        return [
            Finding(
                "relays",
                "look",
                "no public peer keeps a place for the node: peers that cannot be dialled either "
                "do not reach it; name a public node with `pulsarcast daemon --bootstrap ADDRESS`",
            )
        ]
    if status.reach.kind != "relayed":
        return []
    if len(found) == 1:
        return [Finding("relays", "look", "one relay only: connections end when it goes down")]
    return [Finding("relays", "good", f"{len(found)} relays")]


def _disk(status: StatusView) -> Finding:
    used, most, free = status.store_bytes, status.disk_bytes_max, status.disk_free_bytes
    text = f"the store takes {used / 2**20:.0f} MiB, {free / 2**30:.1f} GiB are free"
    if used > 0.8 * most:
        return Finding("disk", "bad", f"{text}; storage.disk_bytes_max is nearly reached")
    if free < 1 << 30:
        return Finding("disk", "bad", f"{text}: less than one GiB")
    return Finding("disk", "good", text)


def _key(home: Path, peer: str) -> Finding:
    path = home / "key"
    try:
        mode = path.stat().st_mode & 0o777
        is_its = peer in path.read_text(encoding="ascii", errors="replace")
    except OSError:
        is_its = False
    if not is_its:
        return Finding("key", "good", "it is on another machine, or in another home")
    if mode & 0o077:
        return Finding("key", "bad", f"others can read {path}: chmod 600 it, if they have not")
    return Finding("key", "good", "nobody else can read it")


def _clock() -> Finding:
    """Whether the kernel says that somebody sets the clock. Safety never depends on it."""
    buffer = ctypes.create_string_buffer(512)
    try:
        libc = ctypes.CDLL(ctypes.util.find_library("c"))
        state = libc.adjtimex(buffer)
    except (OSError, AttributeError):
        state = -1
    if state == UNSYNCHRONIZED:
        return Finding(
            "clock", "look", "nobody sets it (no NTP): times in your events may be wrong for others"
        )
    if state < 0:
        return Finding("clock", "look", "the system does not say whether somebody sets it")
    return Finding("clock", "good", "it is set by somebody")


def _starved(client: Client) -> list[Finding]:
    """The topics whose events cannot arrive."""
    starved = [topic.name or topic.id for topic in client.topics() if topic.starved]
    if not starved:
        return []
    text = "no other member is connected: name a public peer with `pulsarcast daemon --bootstrap`"
    return [Finding("topics", "bad", f"starved: {', '.join(starved)}; {text}")]


def _events(client: Client) -> Finding:
    """Whether the newest events of others come from the future."""
    now_us = time.time_ns() // 1000
    ahead_us = 0
    for topic in client.topics():
        if topic.subscribed and topic.newest:
            start = max(1, topic.newest - LOOKED_AT + 1)
            for event in client.history(topic.id, start=start, limit=LOOKED_AT):
                ahead_us = max(ahead_us, event.created_us - now_us)
    if ahead_us > AHEAD_S * 1_000_000:
        return Finding(
            "events",
            "look",
            f"one says that it is {ahead_us // 1_000_000} s younger than now: your clock is late, "
            "or its author's is early",
        )
    return Finding("events", "good", "none comes from the future")
