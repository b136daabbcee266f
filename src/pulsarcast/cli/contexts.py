"""`pulsarcast context`: daemons elsewhere, by a name of one's own."""

from __future__ import annotations

import click

from pulsarcast.cli.remote import refusals_told, table
from pulsarcast.cli.telling import needs_extra, tell


@click.group()
def context() -> None:
    """Daemons elsewhere, by name."""


@context.command("add")
@click.argument("name")
@click.option("--url", required=True)
@click.option("--token", help="Asked for where it is left out, so that it is in no history.")
def add(name: str, url: str, token: str | None) -> None:
    """Give a daemon a name, and keep its token (for you alone to read)."""
    with needs_extra("client"):
        from pulsarcast.client import Contexts
    with refusals_told():
        secret = token if token is not None else click.prompt("token", hide_input=True)
        Contexts.load().add(name, url, secret)
        click.echo(f"use it with: pulsarcast context use {name}, or --context {name}")


@context.command("list")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
def list_contexts(as_json: bool) -> None:
    """Every daemon that has a name."""
    with needs_extra("client"):
        from pulsarcast.client import Contexts
    with refusals_told():
        contexts = Contexts.load()
        named = {name: each.url for name, each in contexts.list().items()}
        rows = [("*" if name == contexts.current else "", name, url) for name, url in named.items()]
        tell(
            {"contexts": named, "current": contexts.current},
            table(rows, "", "NAME", "URL") or "no contexts: pulsarcast context add NAME --url URL",
            as_json=as_json,
        )


@context.command("use")
@click.argument("name", required=False)
@click.option("--none", "nobody", is_flag=True, help="Back to the node of this machine.")
def use(name: str | None, nobody: bool) -> None:
    """Mean this daemon from now on."""
    if (name is None) != nobody:
        raise click.UsageError("name a context, or --none")
    with needs_extra("client"):
        from pulsarcast.client import Contexts
    with refusals_told():
        Contexts.load().use(name)


@context.command("remove")
@click.argument("name")
def remove(name: str) -> None:
    """Forget a daemon's name and token."""
    with needs_extra("client"):
        from pulsarcast.client import Contexts
    with refusals_told():
        Contexts.load().remove(name)
