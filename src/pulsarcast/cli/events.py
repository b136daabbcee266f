"""Commands about events: `publish`, `subscribe`, `history`, `fetch`, `walk`, `rebuild`."""

from __future__ import annotations

import os
import sys
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from pulsarcast.cli.output import emit, fail, plain
from pulsarcast.cli.remote import remote
from pulsarcast.model.errors import InvalidPayload, RemoteError
from pulsarcast.model.ids import peer_text
from pulsarcast.model.payloads import decode_json
from pulsarcast.model.shown import short, whole
from pulsarcast.model.topics import decode_topic

if TYPE_CHECKING:
    from pulsarcast.client import Client
    from pulsarcast.model.api import EventView, GapView

PREVIEW_MAX = 2000
LINE_MAX = 80
"""Characters of a JSON payload that are shown on one line."""
PAGE = 500
"""Events of a walk that are asked for at a time."""
GAPS = {
    "retention": "gone by the topic's retention",
    "not_found": "not found, no peer that was asked has it",
    "refused": "refused, the topic does not allow it",
    "branches": "left out, the walk has too many branches",
}
_WHERE = click.option(
    "--where",
    metavar="FILTER",
    help="Only events whose attributes match, such as 'price < 10 and symbol = \"IBM\"'.",
)


@click.command()
@click.argument("topic")
@click.argument("text", required=False)
@click.option(
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File to publish as one event.",
)
@click.option(
    "--stdin", "lines", is_flag=True, help="Publish each line of standard input as an event."
)
@click.option(
    "--json-payload",
    "json",
    is_flag=True,
    help="Publish as JSON, in its shortest form; refuse what is not JSON.",
)
@click.option("--name", default="", help="Name of the event.")
@click.option(
    "--attribute",
    multiple=True,
    metavar="NAME=VALUE",
    help="Attribute of the event. May be repeated.",
)
@click.option(
    "--parent",
    multiple=True,
    metavar="EVENT",
    help="Event to link to, in a topic whose linking is CUSTOM. May be repeated.",
)
@click.option(
    "--ack",
    type=click.Choice(("accepted", "replicated")),
    default="replicated",
    show_default=True,
    help="Acknowledgement to wait for: on this node's disk, or on the disks of other peers.",
)
@click.option(
    "--idempotency-key",
    metavar="KEY",
    help="Retries with the same key publish the event once.",
)
@remote
def publish(
    client: Client,
    topic: str,
    text: str | None,
    file: Path | None,
    lines: bool,
    json: bool,
    name: str,
    attribute: tuple[str, ...],
    parent: tuple[str, ...],
    ack: Any,
    idempotency_key: str | None,
    as_json: bool,
) -> None:
    """Publish TEXT, a file, or the lines of standard input (-)."""
    lines = lines or text == "-"
    if (text is not None) + (file is not None) + (lines and text != "-") != 1:
        raise click.UsageError("give one of TEXT, --file and --stdin")
    attributes = dict(_attribute(each) for each in attribute)
    if lines:
        for number, line in enumerate(sys.stdin.buffer, 1):
            done = client.publish(
                topic,
                **_payload(line.rstrip(b"\r\n"), f"line {number}" if json else None),
                name=name,
                attributes=attributes,
                parents=parent,
                ack=ack,
                idempotency_key=None if idempotency_key is None else f"{idempotency_key}/{number}",
            )
            emit(done, done.id, as_json=as_json)
        return
    # A command line is bytes, which need not be UTF-8: they are published as they are.
    payload = os.fsencode(text or "") if file is None else _bytes_of(file)
    done = client.publish(
        topic,
        **_payload(payload, (str(file) if file is not None else "TEXT") if json else None),
        name=name,
        attributes=attributes,
        parents=parent,
        ack=ack,
        idempotency_key=idempotency_key,
    )
    emit(done, f"{done.id}\n{_kept(done.replicas)}", as_json=as_json)


def _kept(replicas: int) -> str:
    """How many peers keep an event. The publisher is one of them, and need not be this node."""
    if replicas > 1:
        return f"{replicas} peers keep it"
    return "only its publisher keeps it so far"


def _payload(data: bytes, json_of: str | None) -> dict[str, Any]:
    """What to publish: bytes, or the JSON value that they are; `json_of` names them."""
    return {"payload": data} if json_of is None else {"json": decode_json(data, json_of)}


def _bytes_of(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        fail(f"{file}: {error.strerror}")


def _attribute(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.UsageError(f"--attribute takes NAME=VALUE, not {text!r}")
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return name, value
    return name, found if isinstance(found, (bool, int, float, str)) else value


@click.command()
@click.argument("topic")
@click.option(
    "--start",
    default="now",
    metavar="START",
    show_default=True,
    help="First event: now, beginning, an index, or an event's id.",
)
@click.option(
    "--name",
    default="",
    help="Name of the reader, which continues behind its last acknowledged event.",
)
@click.option("--count", type=click.IntRange(min=1), help="Exit after N events.", metavar="N")
@_WHERE
@click.option(
    "--below",
    is_flag=True,
    help="Include all sub-topics, and those that later versions add.",
)
@remote
def subscribe(
    client: Client,
    topic: str,
    start: str,
    name: str,
    count: int | None,
    where: str | None,
    below: bool,
    as_json: bool,
) -> None:
    """Print the events of TOPIC as they arrive, until Ctrl-C."""  # fmt: skip
    try:
        print_events(
            client, topic, name, start=start, count=count, where=where, below=below, as_json=as_json
        )
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # The reader of our output has enough: Python must not complain at the end.
        sys.stderr.close()
        return


def print_events(
    client: Client,
    topic: str,
    name: str = "",
    *,
    start: str,
    count: int | None = None,
    where: str | None = None,
    below: bool = False,
    as_json: bool,
) -> None:
    """Print events of a topic as they arrive: all, or the first ones."""
    left = count
    with client.subscribe(
        topic, name, start=start, patience_s=None, where=where, below=below
    ) as events:
        for event in events:
            _print(event, as_json=as_json, topic=event.topic if below else "")
            if left is not None:
                left -= 1
                if not left:
                    events.acknowledge()
                    return


@click.command()
@click.argument("topic")
@click.option(
    "--start",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Index of the first event.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Print at most N events.", metavar="N")
@_WHERE
@remote
def history(
    client: Client,
    topic: str,
    start: int,
    limit: int | None,
    where: str | None,
    as_json: bool,
) -> None:
    """Print the events of TOPIC that the node has stored."""
    for event in client.history(topic, start=start, limit=limit, where=where):
        _print(event, as_json=as_json)


_TOPIC = click.option(
    "--topic",
    help="Topic of the event. Its members are asked for an event that is older than 30 days.",
)


@click.command()
@click.argument("event")
@_TOPIC
@remote
def fetch(client: Client, event: str, topic: str | None, as_json: bool) -> None:
    """Print the event with the content id EVENT, of any topic."""
    _print(client.fetch(event, topic=topic), as_json=as_json)


@click.command()
@click.argument("event")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="Print at most N events.",
)
@click.option(
    "--forward", is_flag=True, help="Print the events after EVENT in the node's log instead."
)
@_TOPIC
@remote
def walk(
    client: Client, event: str, limit: int, forward: bool, topic: str | None, as_json: bool
) -> None:
    """Print EVENT and the events before it, newest first, of any topic.

    Missing events are reported on standard error, with the reason.
    """
    left, cursor = limit, ""
    while left:
        size = min(left, PAGE)
        page = client.walk(event, limit=size, cursor=cursor, forward=forward, topic=topic)
        for each in page.events:
            _print(each, as_json=as_json)
        for gap in page.gaps:
            _print_gap(gap, as_json=as_json)
        left, cursor = left - len(page.events), page.cursor
        if not cursor:
            return


@click.command()
@click.argument("event")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Print the last N events up to EVENT.",
)
@_TOPIC
@remote
def rebuild(client: Client, event: str, limit: int, topic: str | None, as_json: bool) -> None:
    """Print the history of a topic up to EVENT, oldest first.

    No event comes before one that it follows. Missing events are reported on standard error.
    """
    found = client.rebuild(event, limit=limit, topic=topic)
    for gap in found.gaps:
        _print_gap(gap, as_json=as_json)
    for each in found.events:
        _print(each, as_json=as_json)


def _print_gap(gap: GapView, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(gap), err=True)
        return
    by = short(gap.publisher, gap.peer_names)
    which = f"event {gap.id}" if gap.id else f"{gap.count} events of {by}"
    numbers = f", numbers {gap.first} to {gap.last}" if gap.last else ""
    click.echo(f"missing: {which}{numbers}: {GAPS[gap.reason]}", err=True)


def _print(event: EventView, *, as_json: bool, topic: str = "") -> None:
    if as_json:
        click.echo(msgspec.json.encode(event))
        return
    again = " (again)" if event.redelivery else ""
    try:
        text = event.text()
    except InvalidPayload:
        text = _bytes_text(event)
    if sys.stdout.isatty():
        # What strangers wrote must not move our cursor.
        text = plain(_readable(text)[:PREVIEW_MAX], allowed="\n")
        where = f"{short(topic)} " if topic else ""
        place = event.index or short(event.id)
        by = short(event.author, event.peer_names)
        head = click.style(f"{where}{place} {by}{again}", dim=True)
        click.echo(f"{head} {text}")
    else:
        click.echo(text)


def _readable(text: str) -> str:
    """A JSON object or list with spaces, on lines of its own if it is long; other text as it is."""
    if not text.startswith(("{", "[")) or len(text) > PREVIEW_MAX:
        return text
    try:
        value = decode_json(text.encode())
    except InvalidPayload:
        return text
    line = dumps(value, ensure_ascii=False)
    return line if len(line) <= LINE_MAX else "\n" + dumps(value, ensure_ascii=False, indent=2)


def _bytes_text(event: EventView) -> str:
    """What a payload is that is no text; in a meta topic, a version."""
    data = event.payload
    try:
        version = decode_topic(data)
    except RemoteError:
        return f"{len(data)} bytes, not text"
    signer = whole(peer_text(version.signer), event.peer_names)
    return f"version {version.number} of {version.name}, signed by {signer}"
