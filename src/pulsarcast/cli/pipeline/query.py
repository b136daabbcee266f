"""`pulsarcast pipeline query`: the events in an archive that match a filter."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulsarcast.cli.pipeline.archive import SETTINGS
from pulsarcast.cli.remote import chosen_target, refusals_told, which_daemon
from pulsarcast.cli.topics import attribute_rule
from pulsarcast.model import api

if TYPE_CHECKING:
    from pulsarcast.model.topic_types import AttributeRule


@click.command()
@click.argument("topic")
@click.argument("where", metavar="FILTER")
@click.option(
    "--archive",
    required=True,
    type=click.Path(exists=True, file_okay=False),
    help="Folder of the archive.",
)
@click.option(
    "--attribute",
    multiple=True,
    metavar="NAME=TYPE[:MIN:MAX]",
    help="Attribute of the topic's schema; without it, the schema of the archive or of the "
    "daemon. May be repeated.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Largest number of events to print.",
)
@click.option(
    "--master", help="URL of the Spark master; without it $SPARK_MASTER, or this machine."
)
@click.option("--json", "as_json", is_flag=True, help="Print events as lines of JSON.")
@which_daemon
def command(
    topic: str,
    where: str,
    archive: str,
    attribute: tuple[str, ...],
    limit: int,
    master: str | None,
    as_json: bool,
    home: Path,
    url: str | None,
    token: str | None,
    context: str | None,
) -> None:
    """Print the events of TOPIC in an archive that match FILTER, and their number.

    TOPIC is a content id, or a name in the archive. The command asks a daemon only if the archive
    does not hold the topic's schema, or holds the topic under another name.
    """
    from pulsarcast.model.filters import parse
    from pulsarcast.pipeline.archive.querying import query, schema_in, topic_in
    from pulsarcast.pipeline.session import LITTLE, session

    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with refusals_told():
        found = topic_in(archive, topic)
        schema = schema_in(archive, found) if found else None
        if attribute:
            schema = api.rules_from(map(attribute_rule, attribute))
        elif schema is None:
            target = chosen_target(home, url, token, context)
            found, schema = _ask_daemon(target, found or topic)
        wanted = parse(where, schema)
        with session("query", master=master, settings={**SETTINGS, **LITTLE}) as spark:
            rows = query(spark, archive, found or topic, wanted).cache()
            count = rows.count()
            shown = rows.limit(limit).collect()
    for row in shown:
        click.echo(_line(row, as_json=as_json))
    if not as_json:
        click.echo(f"{count:,} events match {wanted.text()}")
    elif count > len(shown):
        click.echo(f"{count:,} events match: --limit shows more than {len(shown):,}", err=True)


def _ask_daemon(target: Any, topic: str) -> tuple[str, tuple[AttributeRule, ...]]:
    """A topic's id and schema as a daemon knows them."""
    from pulsarcast.client import Client

    with Client(target.url, target.token) as client:
        found = client.topic(topic)
    return found.id, api.rules_from(found.settings.attributes or ())


def _line(row: Any, *, as_json: bool) -> str:
    attributes = {
        name: next(each for each in value if each is not None)
        for name, value in (row["attributes"] or {}).items()
    }
    payload = bytes(row["payload"])
    text, encoding = api.from_bytes(payload)
    if not as_json:
        shown = text if encoding == "utf-8" else f"{len(payload)} bytes, not text"
        shown = "".join(each if each.isprintable() else "�" for each in shown)
        return f"{row['offset']} {_readable(attributes)} {shown[:200]}"
    return json.dumps(
        {
            "offset": row["offset"],
            "id": row["event_id"],
            "name": row["name"],
            "attributes": _readable(attributes),
            "payload": text,
            "encoding": encoding,
        },
        ensure_ascii=False,
    )


def _readable(attributes: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {"base64": base64.b64encode(value).decode()}
        if isinstance(value, (bytes, bytearray))
        else value
        for name, value in attributes.items()
    }
