"""`pulsarcast backup` and `pulsarcast restore`: a copy of a node's home, and the way back."""

from __future__ import annotations

import click

from pulsarcast.cli.output import errors_shown
from pulsarcast.model.ids import peer_text


@click.command()
@click.argument("home", type=click.Path())
@click.argument("target", type=click.Path())
def backup(home: str, target: str) -> None:
    """Copy HOME with its secret key into the new folder TARGET; the node may run meanwhile."""
    from pulsarcast.storage.backup import backup as back_up

    with errors_shown():
        identity = back_up(home, target)
    click.echo(f"backed up node {peer_text(identity.peer_id)}: its secret key is in there too")


@click.command()
@click.argument("source", metavar="BACKUP", type=click.Path())
@click.argument("home", type=click.Path())
def restore(source: str, home: str) -> None:
    """Create HOME, a new or empty folder, from a BACKUP."""
    from pulsarcast.storage.backup import restore as bring_back

    with errors_shown():
        identity = bring_back(source, home)
    click.echo(f"restored node {peer_text(identity.peer_id)}: see that no other copy of it runs")
