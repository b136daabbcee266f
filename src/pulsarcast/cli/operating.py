"""Commands for operators of a node: `status`, `peers`, `name`, `token`, `open`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pulsarcast.cli.output import confirm, emit, fail, plain, yes_option
from pulsarcast.cli.remote import remote, size, table
from pulsarcast.model.api import SCOPES
from pulsarcast.model.shown import reach_shown, whole

if TYPE_CHECKING:
    from pulsarcast.client import Client
    from pulsarcast.model.api import BootstrapView, RelayingView, StatusView


@click.command()
@click.option(
    "--address",
    "only_address",
    is_flag=True,
    help="Print only the address that other peers can dial.",
)
@remote
def status(client: Client, only_address: bool, as_json: bool) -> None:
    """Show the state of the node: peers, topics, traffic, store."""
    now = client.status()
    if only_address:
        if not now.addresses and not as_json:
            fail("the node advertises no address: set node.listen or node.announce")
        emit(now.addresses, best_address(now), as_json=as_json)
        return
    kept = now.retention_default.age_s
    up_s = max(0, time.time_ns() // 1000 - now.started_us) // 1_000_000
    store = (
        f"{size(now.store_bytes)} of {size(now.disk_bytes_max)}, "
        f"{size(now.disk_free_bytes)} free on the disk"
    )
    days = "everything" if kept is None else f"{kept // 86_400} days"
    retention = f"topics made here keep {days}"
    events = (
        f"{now.publications} published, {now.deliveries} delivered, "
        f"{now.replicas_held} blocks kept for others"
    )
    topics = f"{now.topics}, {now.subscriptions} subscribed"
    if now.starved:
        topics += f", {now.starved} starved: no other member is connected"
    lines = [
        ("node", whole(now.peer, now.peer_names)),
        ("state", now.state),
        ("up", f"{up_s} s, start {now.incarnation}, version {now.version}"),
        ("addresses", " ".join(now.addresses) or "none"),
        ("peers", f"{now.peers} connected, {now.peers_known} known"),
        *(("bootstrap", bootstrap_line(each, now.peer_names)) for each in now.bootstrap),
        ("reach", reach_shown(now.reach, now.peer_names, time.time_ns() // 1000)),
        *relaying_line(now.relaying),
        ("topics", topics),
        ("events", events),
        ("messages", f"{now.messages_in} in, {now.messages_out} out"),
        ("traffic", f"{size(now.bytes_in)} in, {size(now.bytes_out)} out"),
        ("store", store),
        ("retention", retention),
        ("trace", now.trace or "off"),
        ("readers", f"{now.readers_connected} connected"),
        *(("tip", tip) for tip in now.tips),
    ]  # fmt: skip
    emit(now, "\n".join(f"{name:10} {value}" for name, value in lines), as_json=as_json)


def best_address(now: StatusView) -> str:
    """The address to give to a peer elsewhere; none where the node advertises none."""
    relayed = [each for each in now.addresses if "/p2p-circuit" in each]
    ways = relayed if relayed and now.reach.kind == "relayed" else now.addresses
    return "".join(ways[:1])


def relaying_line(relaying: RelayingView) -> list[tuple[str, str]]:
    """The line of `status` on what the node relays for others, if it ever did."""
    if not relaying.peers and not relaying.bytes:
        return []
    text = f"{relaying.peers} peers, {relaying.circuits} connections, "
    return [("relay for", f"{text}{size(relaying.bytes)} since the start")]


def bootstrap_line(each: BootstrapView, peer_names: Mapping[str, str]) -> str:
    """A bootstrap peer and its state, in words."""
    peer = whole(each.peer, peer_names)
    if each.since_us is None:
        return f"{peer} {each.state}"
    for_s = max(0, time.time_ns() // 1000 - each.since_us) // 1_000_000
    return f"{peer} does not answer, for {for_s} s: {each.reason}"


@click.command()
@remote
def peers(client: Client, as_json: bool) -> None:
    """List the peers that the node is connected to."""
    found = client.peers()
    rows = [
        (
            each.name,
            each.peer,
            each.address.partition("/p2p/")[0],
            "relay" if each.relay else "direct",
            "out" if each.dialled else "in",
            each.reach,
            size(each.bytes_in),
            size(each.bytes_out),
            size(each.queued_bytes),
        )
        for each in found
    ]
    text = table(rows, "NAME", "PEER", "ADDRESS", "WAY", "DIALLED", "REACH", "IN", "OUT", "QUEUED")
    emit(found, text or "no peers", as_json=as_json)


@click.command()
@click.argument("peer", required=False)
@click.argument("name", required=False)
@click.option("--drop", is_flag=True, help="Delete the name of PEER.")
@yes_option
@remote
def name(
    client: Client, peer: str | None, name: str | None, drop: bool, yes: bool, as_json: bool
) -> None:
    """Set or delete the NAME of a peer on this node, or list all names.

    Every command that takes a peer id takes the name, too. No other peer sees it.
    """
    if drop and (peer is None or name is not None):
        raise click.UsageError("--drop takes the peer alone")
    if peer is not None and name is None and not drop:
        raise click.UsageError("give a name, or --drop")
    for each, before in client.peer_names().items():
        if peer in (each, before) and name != before:
            confirm(f"The peer {each} is called {before} no longer", yes=yes)
    if peer is not None and drop:
        client.drop_peer_name(peer)
    elif peer is not None and name is not None:
        client.set_peer_name(peer, name)
    found = client.peer_names()
    rows = sorted((name, peer) for peer, name in found.items())
    emit(found, table(rows, "NAME", "PEER") or "no peer has a name", as_json=as_json)


@click.command("open")
@click.option("--print", "only_print", is_flag=True, help="Print the URL, and open no browser.")
@remote
def open_page(client: Client, only_print: bool, as_json: bool) -> None:
    """Open the node's page in a browser, by a URL that is valid once."""
    url = client.open_page()
    if only_print or as_json or click.launch(url) != 0:
        emit({"url": url}, url, as_json=as_json)


@click.group()
def token() -> None:
    """Manage the tokens for the HTTP API of the node."""


@token.command("create")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    default=("read",),
    show_default=True,
    help="Permission of the token. May be repeated.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="Topic that the token is valid for; without it, all topics. May be repeated.",
)
@remote
def create_token(
    client: Client, name: str, scopes: tuple[Any, ...], topics: tuple[str, ...], as_json: bool
) -> None:
    """Create a token and print it; it cannot be printed again."""  # fmt: skip
    made = client.create_token(name, list(scopes), topics=list(topics) or None)
    emit(made, f"{made.token}\nrevoke it with: pulsarcast token revoke {made.id}",
         as_json=as_json)  # fmt: skip


@token.command("list")
@remote
def list_tokens(client: Client, as_json: bool) -> None:
    """List all valid tokens."""
    found = client.tokens()
    rows = [
        (each.id, each.name, ",".join(each.scopes),
         "all" if each.topics is None else " ".join(each.topics))
        for each in found
    ]  # fmt: skip
    emit(found, table(rows, "ID", "NAME", "SCOPES", "TOPICS"), as_json=as_json)


@token.command("revoke")
@click.argument("token_id")
@yes_option
@remote
def revoke_token(client: Client, token_id: str, yes: bool, as_json: bool) -> None:
    """Revoke the token with the id TOKEN_ID, which `token list` shows, at once."""
    for each in client.tokens():
        if each.id == token_id:
            what = f"{token_id} ({plain(each.name)}, {', '.join(each.scopes)})"
            confirm(f"Programs with the token {what} are refused from now on", yes=yes)
    client.revoke_token(token_id)
    emit({"revoked": token_id}, "revoked", as_json=as_json)
