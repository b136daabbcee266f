"""`pulsarcast top`: topics, rates, tree neighbours and queues, as they are now."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from pulsarcast.cli.output import emit
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
@click.option("--interval", default=1.0, show_default=True, help="Seconds between two updates.")
@click.option("--count", type=click.IntRange(min=1), help="Exit after N updates.", metavar="N")
@remote
def top(client: Client, interval: float, count: int | None, as_json: bool) -> None:
    """Watch the topics, rates and peers of the node, until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    rates = Rates()
    console = Console()
    left = count
    try:
        with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
            while True:
                status, topics, peers = client.status(), client.topics(), client.peers()
                rates.see(time.monotonic(), counts(status, topics))
                if as_json:
                    emit({"status": status, "topics": topics, "rates": rates.now}, "", as_json=True)
                else:
                    live.update(
                        picture(status, topics, peers, rates, width=console.width), refresh=True
                    )
                if left is not None:
                    left -= 1
                    if not left:
                        return
                time.sleep(max(0.1, interval))
    except KeyboardInterrupt:
        return


def counts(status: StatusView, topics: list[FollowedView]) -> dict[str, int]:
    """What rates are made of."""
    return {
        "events": status.deliveries,
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
    for name in ("events", "messages in", "messages out", "bytes in", "bytes out", "commits"):
        rate = rates.now.get(name, 0.0)
        shown = f"{size(rate)}/s" if name.startswith("bytes") else f"{rate:,.1f}/s"
        speeds.add_row(
            Text(name, "dim"), Text(shown, justify="right"), Text(rates.line(name), "blue")
        )
    by_topic = _by_topic(topics, rates, is_wide=width >= WIDE)
    return Group(head, "", speeds, by_topic, _by_peer(peers))


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
            "address": peer.address,
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
