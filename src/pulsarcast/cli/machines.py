"""Commands that bring two machines together: `invite` and `join`."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pulsarcast.cli.events import print_events
from pulsarcast.cli.homes import shown_home
from pulsarcast.cli.node import run_daemon
from pulsarcast.cli.output import emit, fail, needs_extra, plain
from pulsarcast.cli.remote import (
    answers,
    chosen_target,
    refusals_told,
    remote,
    wait_for,
    which_daemon,
)
from pulsarcast.model.errors import Closed, LocalError
from pulsarcast.model.tickets import Ticket, parse_ticket

if TYPE_CHECKING:
    from pulsarcast.client import Client, Target
    from pulsarcast.daemon.daemon import Running
    from pulsarcast.model.api import TopicView

_LOOPBACK = ("/ip4/127.", "/ip6/::1/")


@click.command()
@click.argument("topic")
@remote
def invite(client: Client, topic: str, as_json: bool) -> None:
    """Print a ticket: with it, `pulsarcast join` on another machine follows TOPIC.

    A ticket holds no secret: it names this node, its addresses and the topic.
    """
    ticket = client.invite(topic)
    emit({"ticket": ticket}, ticket, as_json=as_json)
    if all(each.startswith(_LOOPBACK) for each in parse_ticket(ticket).addresses):
        click.echo(
            "this node has no address but those of this machine: the ticket is good here only",
            err=True,
        )


@click.command()
@click.argument("ticket", metavar="TICKET", nargs=-1, required=True)
@click.option("--alias", metavar="NAME", help="Alias of the topic here.  [default: its name]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--wait", is_flag=True, help="Wait until the daemon of this home has started.")
@which_daemon
def join(
    ticket: tuple[str, ...],
    alias: str | None,
    as_json: bool,
    wait: bool,
    home: Path,
    url: str | None,
    token: str | None,
    context: str | None,
) -> None:
    """Follow the topic of a TICKET that `pulsarcast invite` printed.

    If no daemon runs, this command is one: it creates the home if there is none, runs the node in
    the foreground, and prints the events of the topic until Ctrl-C.
    """
    with needs_extra("client"):
        from pulsarcast.client import Client
    whole = "".join(ticket)  # A letter's spaces and line breaks cut a ticket into pieces.
    with refusals_told():
        invited = parse_ticket(whole)
        if wait:
            wait_for(home)
        find = chosen_target if wait else _running
        target = find(home, url, token, context)
        if target is not None:
            with Client(target.url, target.token) as client:
                topic = client.join(whole, alias=alias)
                _tell(topic, as_json=as_json)
                if not as_json:
                    click.echo(f"its events: pulsarcast subscribe {_ref(topic)}{shown_home(home)}")
            return
    _run_here(home, invited, whole, alias, as_json=as_json)


def _running(home: Path, url: str | None, token: str | None, context: str | None) -> Target | None:
    """The daemon that is meant; None where it is that of a home, and does not run."""
    from pulsarcast.client import Unreachable

    try:
        target = chosen_target(home, url, token, context)
    except Unreachable:
        return None
    # One that was killed leaves its address behind.
    is_gone = target.origin.startswith("home ") and not answers(home)
    return None if is_gone else target


def _run_here(
    home: Path, invited: Ticket, ticket: str, alias: str | None, *, as_json: bool
) -> None:
    """Be the daemon of a home, and its first client: both live until Ctrl-C."""
    from pulsarcast.client import Client, Unreachable

    with needs_extra("daemon"):
        from pulsarcast.daemon.daemon import initialize
        from pulsarcast.daemon.settings import BY_NAME
    refused: list[LocalError] = []

    def follow(running: Running) -> None:
        with Client(home=running.home) as client, suppress(Unreachable):
            try:
                topic = client.join(ticket, alias=alias)
                _tell(topic, as_json=as_json)
                if os.isatty(1):
                    click.echo("this is the node now, and its events follow; Ctrl-C stops it")
                print_events(client, topic.id, start="beginning", as_json=as_json)
            except Closed:
                return  # It is told to end already.
            except LocalError as error:
                refused.append(error)
            except BrokenPipeError:
                pass  # The reader of the output has enough.
            os.kill(os.getpid(), signal.SIGTERM)

    def on_ready(running: Running) -> None:
        # A thread: the node must not wait for a client that waits for the node.
        threading.Thread(target=follow, args=(running,), daemon=True).start()

    default = BY_NAME["node.network"].default
    try:
        if not (home / "key").exists() and invited.network != default:
            initialize(home, {"node.network": invited.network})
    except LocalError as error:
        fail(error)
    run_daemon(home, {}, on_ready)
    if refused:
        fail(refused[0])


def _tell(topic: TopicView, *, as_json: bool) -> None:
    name = plain(topic.name)
    lines = [f"joined {name} of {topic.author}", f"topic  {topic.id}"]
    if topic.aliases:
        lines.append(f"alias  {', '.join(topic.aliases)}")
    else:
        lines.append(
            f"no alias: {name!r} is taken, or cannot be one; `join --alias NAME` gives one"
        )
    emit(topic, "\n".join(lines), as_json=as_json)


def _ref(topic: TopicView) -> str:
    return topic.aliases[0] if topic.aliases else topic.id
