"""`python -m pulsarcast`: the command, where its script is not on the path."""

from pulsarcast.cli import run

run()
