"""Commands of the node on this machine: `init`, `daemon`, `config`, `id`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from pulsarcast.cli.homes import home_option, shown_home
from pulsarcast.cli.telling import complain, needs_extra, tell
from pulsarcast.model.errors import LocalError

if TYPE_CHECKING:
    from pulsarcast.daemon.daemon import Running
    from pulsarcast.daemon.settings import Settings, Value


def _flags(values: dict[str, Any]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if value not in (None, ())}


def setting_options(command: Any) -> Any:
    """The flags that go before settings of the file."""
    for option in (
        click.option("--listen", multiple=True, metavar="ADDRESS", help="Where nodes can dial us."),
        click.option("--announce", multiple=True, metavar="ADDRESS", help="Where we say so."),
        click.option("--bootstrap", multiple=True, metavar="PEER", help="A peer to begin with."),
        click.option("--http", metavar="HOST:PORT", help="Where programs reach us."),
        click.option("--behind-proxy", is_flag=True, default=None, help="A proxy does TLS for us."),
        click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error."),
        click.option("--trace", metavar="LEVEL", help="Write down what the node does."),
    ):
        command = option(command)
    return command


def _chosen(
    listen: tuple[str, ...],
    announce: tuple[str, ...],
    bootstrap: tuple[str, ...],
    http: str | None,
    behind_proxy: bool | None,
    log_level: str | None,
    trace: str | None,
) -> dict[str, Value]:
    return _flags(
        {
            "node.listen": list(listen) or None,
            "node.announce": list(announce) or None,
            "node.bootstrap": list(bootstrap) or None,
            "http.address": http,
            "http.behind_proxy": behind_proxy,
            "log.level": log_level,
            "trace.level": trace,
        }
    )


@click.command()
@home_option
@click.option("--listen", multiple=True, metavar="ADDRESS", help="Written into config.toml.")
@click.option("--bootstrap", multiple=True, metavar="PEER", help="Written into config.toml.")
@click.option("--http", metavar="HOST:PORT", help="Written into config.toml.")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
def init(
    home: Path,
    listen: tuple[str, ...],
    bootstrap: tuple[str, ...],
    http: str | None,
    as_json: bool,
) -> None:
    """Make a home for a node: its key, its settings, and your token.

    Of a home that is there nothing is changed: settings that differ are refused.
    """
    with needs_extra("daemon"):
        from pulsarcast.daemon.daemon import initialize
        from pulsarcast.daemon.settings import CONFIG
    is_new = not (home / "key").exists()
    values = _chosen(listen, (), bootstrap, http, None, None, None)
    try:
        peer = initialize(home, values)
    except LocalError as error:
        complain(error)
    text = (
        f"{'made' if is_new else 'there is already'} node {peer} in {home}\n"
        f"settings: {home / CONFIG}\n"
        f"start it: pulsarcast daemon{shown_home(home)}"
    )
    tell({"peer": peer, "home": str(home), "new": is_new}, text, as_json=as_json)


@click.command()
@home_option
@setting_options
def daemon(home: Path, **given: Any) -> None:
    """Run the node of a home in the foreground; a home that is not there yet is made."""
    with needs_extra("daemon"):
        import trio

        from pulsarcast.daemon import logs
        from pulsarcast.daemon.daemon import initialize, run
        from pulsarcast.daemon.settings import load_settings
    try:
        settings = load_settings(home, os.environ, _chosen(**given))
        logs.set_up(settings)
        if not (home / "key").exists():
            initialize(home)
        trio.run(lambda: run(home, settings, on_ready=lambda it: _greet(it, settings)))
    except LocalError as error:
        complain(_with_advice(error, home))
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _greet(running: Running, settings: Settings) -> None:
    """Say on a terminal what somebody who has just started might want to do next."""
    if not os.isatty(1):
        return
    home = shown_home(running.home)
    click.echo(f"\nnode      {running.peer}\nprograms  {running.url}")
    click.echo(
        f"\nTry, in another terminal:\n  pulsarcast topic create weather --alias weather{home}"
    )
    click.echo(f"  pulsarcast subscribe weather{home}\n  pulsarcast publish weather sunny{home}")
    if running.addresses:
        port = int(running.url.rpartition(":")[2]) + 1
        second = running.home.with_name(f"{running.home.name}-2")
        click.echo(
            "\nA second node on this machine:\n"
            f"  pulsarcast daemon --home {second} --listen /ip4/127.0.0.1/tcp/0 "
            f"--http 127.0.0.1:{port} \\\n    --bootstrap {running.addresses[0]}"
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
    """Settings of the node on this machine."""


@config.command("show")
@home_option
@setting_options
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
def show_config(home: Path, as_json: bool, **given: Any) -> None:
    """Every setting, its value, and where that comes from."""
    from pulsarcast.daemon.settings import load_settings

    try:
        settings = load_settings(home, os.environ, _chosen(**given))
    except LocalError as error:
        complain(error)
    rows = settings.items()
    width = max(len(name) for name, _, _ in rows)
    text = "\n".join(f"{name:{width}}  {value!r}  ({origin})" for name, value, origin in rows)
    tell({name: {"value": value, "from": origin} for name, value, origin in rows}, text,
         as_json=as_json)  # fmt: skip


@config.command("path")
@home_option
def config_path(home: Path) -> None:
    """Where config.toml is."""
    from pulsarcast.daemon.settings import CONFIG

    click.echo(home / CONFIG)


@click.command("id")
@home_option
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
def show_id(home: Path, as_json: bool) -> None:
    """The peer id of the node on this machine; it need not run."""
    from pulsarcast.model.ids import peer_text
    from pulsarcast.storage.home import read_key

    try:
        peer = peer_text(read_key(home).peer_id)
    except LocalError as error:
        _advise_init(error, home)
    tell({"peer": peer}, peer, as_json=as_json)


def _advise_init(error: LocalError, home: Path) -> NoReturn:
    advice = f": make a node with `pulsarcast init{shown_home(home)}`"
    complain(LocalError(f"{error}{'' if (home / 'key').exists() else advice}"))
