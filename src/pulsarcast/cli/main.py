"""The command `pulsarcast`: its sub-commands, and how errors of the caller are told."""

import click

from pulsarcast import __version__
from pulsarcast.cli.home import backup, restore
from pulsarcast.cli.pipeline import pipeline
from pulsarcast.cli.simulate import simulate
from pulsarcast.cli.testbed import testbed


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pulsarcast")
def main() -> None:
    """Publish/subscribe with no broker."""


main.add_command(simulate)
main.add_command(pipeline)
main.add_command(backup)
main.add_command(restore)
main.add_command(testbed)
