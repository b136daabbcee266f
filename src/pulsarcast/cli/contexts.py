"""`pulsarcast context`: names for daemons on other machines."""

from __future__ import annotations

import sys

import click

from pulsarcast.cli.output import confirm, emit, needs_extra, yes_option
from pulsarcast.cli.remote import refusals_told, table


@click.group()
def context() -> None:
    """Manage daemons on other machines by name."""


@context.command("add")
@click.argument("name")
@click.option("--url", required=True, help="URL of the HTTP API of the daemon.")
@click.option(
    "--token",
    help="Token of the daemon. Without it the command asks, so that no shell history holds it.",
)
@yes_option
def add(name: str, url: str, token: str | None, yes: bool) -> None:
    """Store a daemon's URL and token under NAME, in a file that only you can read."""
    with needs_extra("client"):
        from pulsarcast.client import Contexts
    if token is None and not sys.stdin.isatty():
        raise click.UsageError("no terminal is there to ask on: give --token")
    with refusals_told():
        contexts = Contexts.load()
        contexts.check(name, url, token)
        if name in contexts.list():
            confirm(_loss(name, contexts.get(name).url), yes=yes)
        secret = token if token is not None else click.prompt("token", hide_input=True)
        contexts.add(name, url, secret)
        click.echo(f"use it with: pulsarcast context use {name}, or --context {name}")


@context.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_contexts(as_json: bool) -> None:
    """List the named daemons."""
    with needs_extra("client"):
        from pulsarcast.client import Contexts
    with refusals_told():
        contexts = Contexts.load()
        named = {name: each.url for name, each in contexts.list().items()}
        rows = [("*" if name == contexts.current else "", name, url) for name, url in named.items()]
        emit(
            {"contexts": named, "current": contexts.current},
            table(rows, "", "NAME", "URL") or "no contexts: pulsarcast context add NAME --url URL",
            as_json=as_json,
        )


@context.command("use")
@click.argument("name", required=False)
@click.option("--none", "nobody", is_flag=True, help="Use the node of this machine again.")
def use(name: str | None, nobody: bool) -> None:
    """Make NAME the daemon of all further commands."""
    if (name is None) != nobody:
        raise click.UsageError("name a context, or --none")
    with needs_extra("client"):
        from pulsarcast.client import Contexts
    with refusals_told():
        Contexts.load().use(name)


@context.command("remove")
@click.argument("name")
@yes_option
def remove(name: str, yes: bool) -> None:
    """Delete a daemon's name and token."""
    with needs_extra("client"):
        from pulsarcast.client import Contexts
    with refusals_told():
        contexts = Contexts.load()
        confirm(_loss(name, contexts.get(name).url), yes=yes)
        contexts.remove(name)


def _loss(name: str, url: str) -> str:
    return f"The stored URL and token of the context {name} ({url}) are deleted"
