"""The guide "Two machines", typed word for word on two machines of one local network.

Its prompts name the machine. `pulsarcast1…` in a command stands for the ticket that was printed.
`join` stays in a terminal of its own, until Ctrl-C before the next daemon of the machine.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.docs.guides import NOT_RUN, ROOT, Shell, Step, steps_of
from tests.support.namespaces import Lab

GUIDE = ROOT / "docs/guides/two-machines.md"
MACHINES = ("ann", "ben")


def steps() -> list[tuple[str, Step]]:
    """Every command of the guide, and the machine that it is typed on."""
    text = re.sub(r"^(\w+)\$ ", r"$ @\1 ", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = []
    for step in steps_of(text):
        machine, _, command = step.command.removeprefix("@").partition(" ")
        found.append((machine, replace(step, command=command)))
    return found


def test_every_command_is_typed_on_one_of_the_machines() -> None:
    assert {machine for machine, _ in steps()} == set(MACHINES)
    assert [step.command for _, step in steps() if not step.is_run] == [
        step.command for _, step in steps() if step.command.startswith(NOT_RUN)
    ]


@pytest.mark.timeout(300)
def test_the_guide_works_on_two_machines(tmp_path: Path) -> None:
    with Lab() as lab:
        lan = lab.switch("lan")
        shells: dict[str, Shell] = {}
        try:
            for number, name in enumerate(MACHINES, 10):
                host = lab.host(name)
                host.plug(lan, f"192.168.1.{number}/24")
                folder = tmp_path / name
                folder.mkdir()
                shells[name] = Shell(folder, machine=host)
            _play(shells)
        finally:
            for shell in shells.values():
                shell.close()


def _play(shells: dict[str, Shell]) -> None:
    ticket = ""
    joined: set[str] = set()
    for machine, step in steps():
        if not step.is_run:
            continue
        shell = shells[machine]
        command = step.command.replace("pulsarcast1…", ticket)
        if command.startswith("pulsarcast join"):
            command += " &"
            joined.add(machine)
        elif command.startswith("pulsarcast daemon") and machine in joined:
            joined.remove(machine)
            shell.type(Step("kill %1 && wait %1"))
        shell.type(replace(step, command=command))
        if step.command.startswith("pulsarcast invite"):
            (ticket,) = re.findall(r"^pulsarcast1\w+$", shell.text(), re.MULTILINE)
