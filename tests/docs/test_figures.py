"""benchmarks/figures.toml: every page is there, every command is one that we have."""

from __future__ import annotations

import shlex
import tomllib
from typing import Any

import click
import pytest

from pulsarcast.cli.main import main
from tests.docs.guides import ROOT

FIGURES: dict[str, dict[str, Any]] = tomllib.loads(
    (ROOT / "benchmarks/figures.toml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_has_its_page_and_a_command_that_is_known(name: str) -> None:
    figure = FIGURES[name]
    assert (ROOT / figure["page"]).is_file()
    assert figure["cpu_min"] > 0
    program, *words = shlex.split(figure["command"])
    if program == "python":
        assert (ROOT / words[0]).is_file()
        return
    assert program == "pulsarcast"
    command: click.Command = main
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None
        command = found
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= known
    for word in words:
        if word.startswith("examples/"):
            assert (ROOT / word).is_file()
