"""`pulsarcast top`: topics, rates, tree neighbours and queues, as they are now."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from pulsarcast.cli.output import Finite, emit
from pulsarcast.cli.remote import parent_of, remote, size
from pulsarcast.model.shown import label, short

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pulsarcast.client import Client
    from pulsarcast.model.api import FollowedView, PeerView, StatusView

BARS = "▁▂▃▄▅▆▇█"
HISTORY = 40
WIDE = 110
"""Characters of a line that hold all columns of a topic."""
WIDE_ONLY = ("order", "past")
WIDTHS_MAX = {"topic": 20, "parent": 12, "peer": 24}
KEYS = ("? explains the figures, q ends",)
HELP = (
    "published  events that programs published through this node, per second",
    "delivered  events that this node delivered to its readers, per second",
    "rate       events that came into the node's log of a topic, per second",
    "waiting    events that wait for others, and gaps that are being fetched",
    "behind     events that a reader has left to read",
    "q ends this, ? hides these lines",
)


@dataclass
class Rates:
    """How fast things go, from one look to the next."""

    seen_s: float = 0.0
    before: dict[str, int] = field(default_factory=dict)
    now: dict[str, float] = field(default_factory=dict)
    past: dict[str, list[float]] = field(default_factory=dict)

    def see(self, at_s: float, counts: dict[str, int]) -> None:
        """Take the counts of another look."""
        gap_s = at_s - self.seen_s
        if self.seen_s and gap_s > 0:
            for name, count in counts.items():
                rate = max(0, count - self.before.get(name, count)) / gap_s
                self.now[name] = rate
                self.past[name] = [*self.past.get(name, []), rate][-HISTORY:]
        self.seen_s, self.before = at_s, counts

    def line(self, name: str) -> str:
        """The last looks, as a small picture."""
        past = self.past.get(name, [])
        most = max(past, default=0.0) or 1.0
        return "".join(BARS[min(7, round(7 * rate / most))] for rate in past)


@click.command()
@click.option(
    "--interval",
    type=Finite(min=0.1, max=3600),
    default=1.0,
    show_default=True,
    help="Seconds between two updates.",
)
@click.option("--count", type=click.IntRange(min=1), help="Exit after N updates.", metavar="N")
@remote
def top(client: Client, interval: float, count: int | None, as_json: bool) -> None:
    """Watch the topics, rates and peers of the node, until q or Ctrl-C; ? explains the figures."""
    from rich.console import Console
    from rich.live import Live

    rates = Rates()
    console = Console()
    left = count
    explains = False
    try:
        with (
            Live(console=console, screen=console.is_terminal, auto_refresh=False) as live,
            keys() as pressed,
        ):
            while True:
                status, topics, peers = client.status(), client.topics(), client.peers()
                rates.see(time.monotonic(), counts(status, topics))
                if as_json:
                    emit({"status": status, "topics": topics, "rates": rates.now}, "", as_json=True)
                else:
                    foot = HELP if explains else KEYS if console.is_terminal else ()
                    shown = picture(status, topics, peers, rates, width=console.width, foot=foot)
                    live.update(shown, refresh=True)
                if left is not None:
                    left -= 1
                    if not left:
                        return
                key = pressed(interval)
                if key == "q":
                    return
                explains ^= key == "?"
    except KeyboardInterrupt:
        return


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """A function that waits so many seconds for a key of the terminal; empty where none came."""

    def waited(wait_s: float) -> str:
        time.sleep(wait_s)
        return ""

    if not sys.stdin.isatty():
        yield waited
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def pressed(wait_s: float) -> str:
        ready, _, _ = select.select([terminal], [], [], wait_s)
        return os.read(terminal, 1).decode("ascii", "replace") if ready else ""

    tty.setcbreak(terminal)
    try:
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def counts(status: StatusView, topics: list[FollowedView]) -> dict[str, int]:
    """What rates are made of."""
    return {
        "published": status.publications,
        "delivered": status.deliveries,
        "messages in": status.messages_in,
        "messages out": status.messages_out,
        "bytes in": status.bytes_in,
        "bytes out": status.bytes_out,
        "commits": status.commits,
        **{topic.id: topic.newest for topic in topics},
    }


def picture(
    status: StatusView,
    topics: list[FollowedView],
    peers: list[PeerView],
    rates: Rates,
    *,
    width: int,
    foot: Sequence[str] = (),
) -> RenderableType:
    """One look, for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    state = Text("ready", "green") if status.ready else Text("; ".join(status.reasons), "red")
    node = short(status.peer, status.peer_names)
    head = Text.assemble(
        ("pulsarcast ", "bold"), (node, "cyan"), "  ", state,
        f"  {status.peers} peers  {status.topics} topics  {status.readers_connected} readers  "
        f"store {size(status.store_bytes)}",
    )  # fmt: skip
    speeds = Table(box=None, show_header=False, padding=(0, 2))
    for name in (
        "published",
        "delivered",
        "messages in",
        "messages out",
        "bytes in",
        "bytes out",
        "commits",
    ):
        rate = rates.now.get(name, 0.0)
        shown = f"{size(rate)}/s" if name.startswith("bytes") else f"{rate:,.1f}/s"
        speeds.add_row(
            Text(name, "dim"), Text(shown, justify="right"), Text(rates.line(name), "blue")
        )
    by_topic = _by_topic(topics, rates, is_wide=width >= WIDE)
    lines = (Text(line, "dim") for line in foot)
    return Group(head, "", speeds, by_topic, _by_peer(peers), *lines)


def _by_topic(topics: list[FollowedView], rates: Rates, *, is_wide: bool) -> RenderableType:
    """The busiest topics. In a table of peers their ids follow: a name will do here."""
    from rich.text import Text

    rows: list[dict[str, RenderableType]] = []
    for topic in sorted(topics, key=lambda topic: -rates.now.get(topic.id, 0.0))[:30]:
        children = ", ".join(label(each, topic.peer_names) for each in topic.children[:4])
        rows.append(
            {
                "topic": " ".join(topic.aliases) or topic.name,
                "order": topic.order,
                "events": f"{topic.newest:,}",
                "rate": f"{rates.now.get(topic.id, 0.0):,.1f}/s",
                "past": Text(rates.line(topic.id)[-16:], "blue"),
                "parent": parent_of(topic, label),
                "children": children or "none" if is_wide else str(len(topic.children)),
                "waiting": str(topic.held_back + topic.missing),
                "readers (behind)": " ".join(
                    f"{reader.name or '(unnamed)'} ({reader.behind})"
                    for reader in topic.readers
                    if not reader.name.startswith("~")
                ),
            }
        )
    headings = ("topic", "order", "events", "rate", "past", "parent", "children", "waiting",
                "readers (behind)")  # fmt: skip
    return _table([each for each in headings if is_wide or each not in WIDE_ONLY], rows)


def _by_peer(peers: list[PeerView]) -> RenderableType:
    rows: list[dict[str, RenderableType]] = [
        {
            "peer": short(peer.peer, {peer.peer: peer.name}),
            "address": peer.address.partition("/p2p/")[0] + (" (relay)" if peer.relay else ""),
            "dialled": "out" if peer.dialled else "in",
            "in": size(peer.bytes_in),
            "out": size(peer.bytes_out),
            "queued": size(peer.queued_bytes),
        }
        for peer in sorted(peers, key=lambda peer: -peer.queued_bytes)[:12]
    ]
    return _table(["peer", "address", "dialled", "in", "out", "queued"], rows)


def _table(headings: list[str], rows: list[dict[str, RenderableType]]) -> RenderableType:
    """Columns for a terminal. Those that give way where it is narrow are wrapped or cut."""
    from rich import box
    from rich.table import Table

    found = Table(box=box.SIMPLE_HEAD, expand=True, padding=(0, 1, 0, 0))
    for heading in headings:
        is_number = heading in ("events", "rate", "waiting", "in", "out", "queued")
        found.add_column(
            "" if heading == "past" else heading,
            justify="right" if is_number else "left",
            no_wrap=heading not in ("children", "readers (behind)", "address"),
            overflow="ellipsis",
            max_width=WIDTHS_MAX.get(heading),
        )
    for row in rows:
        found.add_row(*(row[heading] for heading in headings))
    return found
