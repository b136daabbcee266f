"""A workload made by plain Python, after the words of the guide: no code of ours, no Spark."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard


@dataclass
class Oracle:
    """What a workload has to be."""

    lines: int = 0
    taken: int = 0
    deleted: int = 0
    repeated: int = 0
    events: list[tuple[Any, ...]] = field(default_factory=list)
    """internal_id, node, created_utc, id, author, topic, ups, downs, controversiality, body."""
    users: list[str] = field(default_factory=list)
    topics: dict[str, int] = field(default_factory=dict)
    """Its creator, in the order of first sight."""
    subscriptions: dict[tuple[int, str], int] = field(default_factory=dict)
    """The first event of each, in that order."""

    @property
    def deliveries_due(self) -> int:
        """Events of a topic times its subscribers."""
        subscribers: dict[str, int] = {}
        for _, topic in self.subscriptions:
            subscribers[topic] = subscribers.get(topic, 0) + 1
        return sum(subscribers[event[5]] for event in self.events)


def read_dump(path: Path) -> list[dict[str, Any]]:
    """The comments of a dump without broken lines."""
    raw = path.read_bytes()
    match path.suffix:
        case ".bz2":
            raw = bz2.decompress(raw)
        case ".gz":
            raw = gzip.decompress(raw)
        case ".zst":
            decoder = zstandard.ZstdDecompressor(max_window_size=2**31)
            raw = decoder.stream_reader(io.BytesIO(raw), read_across_frames=True).read()
    return [json.loads(line) for line in raw.split(b"\n") if line]


def make(
    comments: Iterable[dict[str, Any]],
    *,
    nodes: int,
    seed: int,
    first: int | None = None,
    sample: int | None = None,
    redraw: bool = False,
) -> Oracle:
    """Make a workload of comments that stand in the order of files and lines."""

    def ticket(purpose: str, text: str) -> int:
        digest = hashlib.sha256(f"{seed}/{purpose}/{text}".encode()).digest()
        return int.from_bytes(digest[:8], "big")

    made = Oracle()
    ordered = sorted(
        comments, key=lambda comment: (int(comment["created_utc"]), int(comment["id"], 36))
    )
    made.lines = len(ordered)
    if first is not None:
        ordered = ordered[:first]
    if sample is not None:
        chosen = sorted(range(len(ordered)), key=lambda i: (ticket("sample", ordered[i]["id"]), i))
        ordered = [ordered[i] for i in sorted(chosen[:sample])]
    made.taken = len(ordered)
    seen: set[tuple[int, int]] = set()
    node_of: dict[str, int] = {}
    for comment in ordered:
        author, topic = comment["author"], comment["subreddit"]
        key = (int(comment["created_utc"]), int(comment["id"], 36))
        if author == "[deleted]":
            made.deleted += 1
            continue
        if key in seen:
            made.repeated += 1
            continue
        seen.add(key)
        if author not in node_of and len(node_of) < nodes:
            node_of[author] = len(node_of) + 1
        if author in node_of:
            node = node_of[author]
        elif redraw:
            node = 1 + ticket("comment", comment["id"]) % nodes
        else:
            node = 1 + ticket("author", author) % nodes
        if topic not in made.topics:
            made.topics[topic] = 1 + ticket("topic", topic) % len(node_of)
        internal_id = len(made.events)
        made.subscriptions.setdefault((node, topic), internal_id)
        event = (
            internal_id,
            node,
            key[0],
            comment["id"],
            author,
            topic,
            comment["ups"],
            comment.get("downs", 0),
            comment["controversiality"],
            comment["body"],
        )
        made.events.append(event)
    made.users = list(node_of)
    return made
