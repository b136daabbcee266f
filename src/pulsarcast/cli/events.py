"""Commands about events: `publish`, `subscribe`, `history`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from pulsarcast.cli.remote import remote, short
from pulsarcast.cli.telling import tell

if TYPE_CHECKING:
    from pulsarcast.client import Client
    from pulsarcast.model.api import EventView

PREVIEW_MAX = 2000
_WHERE = click.option(
    "--where",
    metavar="FILTER",
    help="Only events whose attributes match, such as 'price < 10 and symbol = \"IBM\"'.",
)


@click.command()
@click.argument("topic")
@click.argument("text", required=False)
@click.option("--file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--stdin", "lines", is_flag=True, help="One event for each line of the input.")
@click.option("--name", default="", help="What the event is called.")
@click.option("--attribute", multiple=True, metavar="NAME=VALUE", help="What is said about it.")
@click.option("--ack", type=click.Choice(("accepted", "replicated")), default="replicated")
@click.option("--key", help="Published once, however often it is tried under this key.")
@remote
def publish(
    client: Client,
    topic: str,
    text: str | None,
    file: Path | None,
    lines: bool,
    name: str,
    attribute: tuple[str, ...],
    ack: Any,
    key: str | None,
    as_json: bool,
) -> None:
    """Publish TEXT, a file, or lines of the input (-)."""
    lines = lines or text == "-"
    if (text is not None) + (file is not None) + (lines and text != "-") != 1:
        raise click.UsageError("give one of TEXT, --file and --stdin")
    attributes = dict(_attribute(each) for each in attribute)
    if lines:
        for number, line in enumerate(sys.stdin.buffer, 1):
            done = client.publish(
                topic,
                line.rstrip(b"\r\n"),
                name=name,
                attributes=attributes,
                ack=ack,
                idempotency_key=None if key is None else f"{key}/{number}",
            )
            tell(done, done.id, as_json=as_json)
        return
    # A command line is bytes, which need not be UTF-8: they are published as they are.
    payload = file.read_bytes() if file is not None else os.fsencode(text or "")
    done = client.publish(
        topic, payload, name=name, attributes=attributes, ack=ack, idempotency_key=key
    )
    kept = f"{done.replicas} {'peer keeps' if done.replicas == 1 else 'peers keep'} it"
    tell(done, f"{done.id}\n{kept}", as_json=as_json)


def _attribute(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.UsageError(f"--attribute wants NAME=VALUE, not {text!r}")
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return name, value
    return name, found if isinstance(found, (bool, int, float, str)) else value


@click.command()
@click.argument("topic")
@click.option(
    "--from",
    "start",
    default="now",
    metavar="PLACE",
    show_default=True,
    help="now, beginning, an index, or an event's id.",
)
@click.option("--name", default="", help="Go on where this name stopped.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many events.")
@_WHERE
@remote
def subscribe(
    client: Client,
    topic: str,
    start: str,
    name: str,
    count: int | None,
    where: str | None,
    as_json: bool,
) -> None:
    """Print events as they come, until Ctrl-C."""  # fmt: skip
    left = count
    try:
        with client.subscribe(topic, name, start=start, patience_s=None, where=where) as events:
            for event in events:
                _print(event, as_json=as_json)
                if left is not None:
                    left -= 1
                    if not left:
                        events.acknowledge(event.index)
                        return
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # Whoever read us has enough; Python must not complain of it at the end.
        sys.stderr.close()
        return


@click.command()
@click.argument("topic")
@click.option("--start", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--limit", type=click.IntRange(min=1), help="How many at most.")
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
    """Print what the node keeps of a topic."""
    for event in client.history(topic, start=start, limit=limit, where=where):
        _print(event, as_json=as_json)


def _print(event: EventView, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(event))
        return
    again = " (again)" if event.redelivery else ""
    text = event.payload if event.encoding == "utf-8" else f"{len(event.data)} bytes, not text"
    if sys.stdout.isatty():
        # What strangers wrote must not move our cursor.
        text = "".join(each if each.isprintable() or each == "\n" else "�" for each in text)
        text = text[:PREVIEW_MAX]
        head = click.style(f"{event.index} {short(event.author)}{again}", dim=True)
        click.echo(f"{head} {text}")
    else:
        click.echo(text)
