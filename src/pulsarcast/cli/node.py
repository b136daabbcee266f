"""Commands of the node on this machine: `init`, `daemon`, `config`, `id`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from pulsarcast.cli.homes import home_option, shown_home
from pulsarcast.cli.output import emit, fail, needs_extra
from pulsarcast.model.errors import LocalError

if TYPE_CHECKING:
    from pulsarcast.daemon.daemon import Running
    from pulsarcast.daemon.settings import Value


def _flags(values: dict[str, Any]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if value not in (None, ())}


def setting_options(command: Any) -> Any:
    """The options that override settings of config.toml."""
    for option in (
        click.option(
            "--listen",
            multiple=True,
            metavar="ADDRESS",
            help="Address that other peers can dial. May be repeated.",
        ),
        click.option(
            "--announce",
            multiple=True,
            metavar="ADDRESS",
            help="Address to advertise to other peers. May be repeated.",
        ),
        click.option(
            "--bootstrap",
            multiple=True,
            metavar="PEER",
            help="Address of a peer to join the network through. May be repeated.",
        ),
        click.option(
            "--mdns/--no-mdns",
            default=None,
            help="Find nodes of the same local network, and be found.",
        ),
        click.option("--http", metavar="HOST:PORT", help="Address of the HTTP API."),
        click.option(
            "--behind-proxy", is_flag=True, default=None, help="A reverse proxy terminates TLS."
        ),
        click.option(
            "--log-level", metavar="LEVEL", help="Log level: debug, info, warning or error."
        ),
        click.option("--trace-level", metavar="LEVEL", help="Trace level: delivery or rpc."),
    ):
        command = option(command)
    return command


def _chosen(
    listen: tuple[str, ...],
    announce: tuple[str, ...],
    bootstrap: tuple[str, ...],
    mdns: bool | None,
    http: str | None,
    behind_proxy: bool | None,
    log_level: str | None,
    trace_level: str | None,
) -> dict[str, Value]:
    return _flags(
        {
            "node.listen": list(listen) or None,
            "node.announce": list(announce) or None,
            "node.bootstrap": list(bootstrap) or None,
            "node.mdns": mdns,
            "http.address": http,
            "http.behind_proxy": behind_proxy,
            "log.level": log_level,
            "trace.level": trace_level,
        }
    )


@click.command()
@home_option
@click.option(
    "--listen",
    multiple=True,
    metavar="ADDRESS",
    help="Address that other peers can dial, for config.toml. May be repeated.",
)
@click.option(
    "--bootstrap",
    multiple=True,
    metavar="PEER",
    help="Address of a peer to join the network through, for config.toml. May be repeated.",
)
@click.option("--http", metavar="HOST:PORT", help="Address of the HTTP API, for config.toml.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def init(
    home: Path,
    listen: tuple[str, ...],
    bootstrap: tuple[str, ...],
    http: str | None,
    as_json: bool,
) -> None:
    """Create a node's home: its key, its settings, and your token.

    A home that exists is not changed: the command refuses settings that differ from it.
    """
    with needs_extra("daemon"):
        from pulsarcast.daemon.daemon import initialize
        from pulsarcast.daemon.settings import CONFIG
    is_new = not (home / "key").exists()
    values = _chosen(listen, (), bootstrap, None, http, None, None, None)
    try:
        peer = initialize(home, values)
    except LocalError as error:
        fail(_with_advice(error, home))
    text = (
        f"{'made' if is_new else 'there is already'} node {peer} in {home}\n"
        f"settings: {home / CONFIG}\n"
        f"start it: pulsarcast daemon{shown_home(home)}"
    )
    emit({"peer": peer, "home": str(home), "new": is_new}, text, as_json=as_json)


@click.command()
@home_option
@setting_options
def daemon(home: Path, **given: Any) -> None:
    """Run a node in the foreground; create its home if there is none."""
    run_daemon(home, _chosen(**given), _greet)


def run_daemon(home: Path, flags: dict[str, Value], on_ready: Callable[[Running], None]) -> None:
    """Be a daemon until a signal ends it; a refusal ends the program."""
    with needs_extra("daemon"):
        import trio

        from pulsarcast.daemon import logs
        from pulsarcast.daemon.daemon import initialize, run
        from pulsarcast.daemon.settings import load_settings
        from pulsarcast.network.collecting import collect_seldom
    try:
        settings = load_settings(home, os.environ, flags)
        logs.set_up(settings)
        if not (home / "key").exists():
            initialize(home)
        collect_seldom()
        trio.run(lambda: run(home, settings, on_ready=on_ready))
    except LocalError as error:
        fail(_with_advice(error, home))
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _greet(running: Running) -> None:
    """Suggest the next commands to a new user, if this is a terminal."""
    if not os.isatty(1):
        return
    home = shown_home(running.home)
    click.echo(f"\nnode      {running.peer}\nprograms  {running.url}")
    click.echo(f"\nTry, in another terminal:\n  pulsarcast topic ensure weather{home}")
    click.echo(f"  pulsarcast subscribe weather{home}\n  pulsarcast publish weather sunny{home}")
    click.echo(f"\nOn another machine, with what `pulsarcast invite weather{home}` prints:")
    click.echo("  pulsarcast join TICKET")
    if running.addresses:
        second = running.home.with_name(f"{running.home.name}-2")
        click.echo(
            "\nA second node on this machine:\n"
            f"  pulsarcast daemon --home {second} \\\n    --bootstrap {running.addresses[0]}"
        )
    click.echo("\nCtrl-C stops it.\n")


def _with_advice(error: LocalError, home: Path) -> LocalError:
    from pulsarcast.network.host import AddressInUseError
    from pulsarcast.storage.home import HomeInUseError

    if isinstance(error, AddressInUseError):
        return LocalError(
            f"{error}\nTake another port for nodes: pulsarcast daemon{shown_home(home)} "
            "--listen /ip4/127.0.0.1/tcp/0"
        )
    if isinstance(error, HomeInUseError):
        return LocalError(f"{error}\nA second node needs a home of its own: --home FOLDER")
    return error


@click.group()
def config() -> None:
    """Show the settings of the node on this machine."""


@config.command("show")
@home_option
@setting_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show_config(home: Path, as_json: bool, **given: Any) -> None:
    """Print every setting, its value and the origin of the value."""
    from pulsarcast.daemon.settings import load_settings

    try:
        settings = load_settings(home, os.environ, _chosen(**given))
    except LocalError as error:
        fail(error)
    rows = settings.items()
    width = max(len(name) for name, _, _ in rows)
    text = "\n".join(f"{name:{width}}  {value!r}  ({origin})" for name, value, origin in rows)
    emit({name: {"value": value, "from": origin} for name, value, origin in rows}, text,
         as_json=as_json)  # fmt: skip


@config.command("path")
@home_option
def config_path(home: Path) -> None:
    """Print the path of config.toml."""
    from pulsarcast.daemon.settings import CONFIG

    click.echo(home / CONFIG)


@click.command("id")
@home_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show_id(home: Path, as_json: bool) -> None:
    """Print the peer id of the node on this machine, which need not run."""
    from pulsarcast.model.ids import peer_text
    from pulsarcast.storage.home import read_key

    try:
        peer = peer_text(read_key(home).peer_id)
    except LocalError as error:
        _advise_init(error, home)
    emit({"peer": peer}, peer, as_json=as_json)


def _advise_init(error: LocalError, home: Path) -> NoReturn:
    advice = f": make a node with `pulsarcast init{shown_home(home)}`"
    fail(LocalError(f"{error}{'' if (home / 'key').exists() else advice}"))
