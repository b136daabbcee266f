"""Groups of commands that are imported when they are called, and what all commands share.

Every mistake that a command does not tell itself becomes one sentence here, and never a traceback.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from pulsarcast.cli.output import INTERRUPTED, errors_shown


class LazyGroup(click.Group):
    """Sub-commands that are imported when they are needed.

    `lazy` says of each where it is and what it does in a line: `--help` must not import them.
    """

    def __init__(
        self, *given: Any, lazy: Mapping[str, tuple[str, str]], extra: str, **more: Any
    ) -> None:
        super().__init__(*given, **more)
        self._lazy = lazy
        self._extra = extra

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which a new user needs them."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one."""
        found = self._lazy.get(cmd_name)
        if found is None:
            return None
        module, _, name = found[0].partition(":")
        command: click.Command = getattr(import_module(f"pulsarcast.cli.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, or the one whose name reads like it."""
        name = args[0]
        if name not in self._lazy and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command {name!r}.{self._advice(name)}")
        return super().resolve_command(ctx, args)

    def _advice(self, name: str) -> str:
        from difflib import get_close_matches

        close = get_close_matches(name.lower(), self._lazy)
        close += [each for each in self._lazy if each.startswith(name) and each not in close]
        return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List them without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._lazy.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was called."""
        try:
            with errors_shown(extra=self._extra):
                return super().invoke(ctx)
        except click.BadParameter as error:
            # click says "not a valid integer range" of a text that is no integer.
            error.message = re.sub(r"a valid (integer|float) range", r"a valid \1", error.message)  # type: ignore[misc]
            raise
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
