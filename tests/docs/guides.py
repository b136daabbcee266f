"""Guides as they are read: `console` blocks, taken apart and typed into one shell.

A line that begins with `$ ` is a command; one that ends in a backslash goes on in the next, and
`<<'EOF'` goes on to the line `EOF`. One that ends in `&` runs in the background. The lines that
follow are what it prints: each must appear, in order, after the command was typed, though more may
stand between them, and `…` stands for anything. `(exit 5)` says how the command ends; it is 0
where nothing is said.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.support.namespaces import Host

ROOT: Final = Path(__file__).parents[2]
BIN: Final = ROOT / ".venv/bin"
PORTS: Final = ("8420", "8421", "4420", "4421")
"""What guides use, as people would; a test takes free ones instead."""
NOT_RUN: Final = (
    "pip ", "python3 -m venv ", "sudo ", "docker ", "systemctl ", "journalctl ", "promtool ",
)  # fmt: skip
"""What would change the machine, or needs one of another kind."""
COMMAND_S_MAX: Final = 300.0
"""It only ends what hangs: on two busy cores a command with Spark has taken 100 s."""
PRINTED_S_MAX: Final = 60.0
"""How long what is printed in the background may take."""

_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_EXIT: Final = re.compile(r"\(exit (\d+)\)")
_HEREDOC: Final = re.compile(r"<<'EOF'")


@dataclass
class Step:
    """One command, and what a reader is told to expect of it."""

    command: str
    printed: list[str] = field(default_factory=list)
    exits: int = 0

    @property
    def is_run(self) -> bool:
        """Whether the test types it."""
        return not self.command.startswith(NOT_RUN)


def steps_of(text: str) -> list[Step]:
    """The commands of all `console` blocks, in order."""
    steps: list[Step] = []
    for block in _BLOCK.findall(text):
        lines = iter(block.splitlines())
        for line in lines:
            if line.startswith("$ "):
                steps.append(Step(_whole(line[2:], lines)))
            elif found := _EXIT.fullmatch(line.strip()):
                steps[-1].exits = int(found[1])
            elif line.strip() not in ("", "…"):
                steps[-1].printed.append(line.strip())
    return steps


def _whole(line: str, following: Iterable[str]) -> str:
    """A command with the lines that belong to it."""
    lines = iter(following)
    text = line
    while text.endswith("\\"):
        text += "\n" + next(lines)
    if _HEREDOC.search(line):
        for each in lines:
            text += "\n" + each
            if each == "EOF":
                break
    return text


def free_ports() -> dict[str, str]:
    """A free port for each that the guides name."""
    sockets = [socket.socket() for _ in PORTS]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return {name: str(each.getsockname()[1]) for name, each in zip(PORTS, sockets, strict=True)}
    finally:
        for each in sockets:
            each.close()


class Shell:
    """One bash, in a folder of its own, that ends with all that was started in it."""

    def __init__(
        self, folder: Path, bin_folder: Path = BIN, *, machine: Host | None = None, **more: str
    ) -> None:
        self.folder = folder
        self._transcript = folder.parent / f"{folder.name}.out"
        self._control = folder.parent / f"{folder.name}.steps"
        self._control.mkdir()
        self._count = 0
        self.command_s_max = COMMAND_S_MAX
        self.printed_s_max = PRINTED_S_MAX
        # A machine of its own has all ports free.
        self.ports = free_ports() if machine is None else dict(zip(PORTS, PORTS, strict=True))
        bash = ["bash", "--noprofile", "--norc"]
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PULSARCAST_", "XDG_", "VIRTUAL_ENV"))
        }
        path = f"{bin_folder}:{environment.get('PATH', '')}"
        self._output = self._transcript.open("wb")
        self._bash = subprocess.Popen(
            bash if machine is None else machine.inside(bash),
            cwd=folder,
            env={
                **environment,
                "PATH": path,
                "HOME": str(folder),
                "XDG_CONFIG_HOME": str(folder / ".config"),
                "COLUMNS": "160",
                "NO_COLOR": "1",
                **more,
            },
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def play(self, steps: Iterable[Step]) -> None:
        """Type every step that is to be run, and hold what comes against what was promised."""
        for step in steps:
            if step.is_run:
                self.type(step)

    def type(self, step: Step) -> float:
        """Type one command; how long it took, in seconds."""
        command = self._with_free_ports(step.command)
        began_at = self._size()
        began_s = time.monotonic()
        code = self._run(command)
        took_s = time.monotonic() - began_s
        assert code == step.exits, self._told(step, f"it ended with {code}", began_at)
        self._expect(step, began_at)
        return took_s

    def _run(self, command: str) -> int:
        self._count += 1
        script = self._control / f"{self._count}.sh"
        script.write_text(command + "\n", encoding="utf-8")
        done = self._control / f"{self._count}.done"
        typed = f". {script} </dev/null; echo $? >{done}.part; mv {done}.part {done}\n"
        assert self._bash.stdin is not None
        self._bash.stdin.write(typed.encode())
        self._bash.stdin.flush()
        deadline_s = time.monotonic() + self.command_s_max
        while not done.exists():
            assert self._bash.poll() is None, self._late("ends the shell", command)
            assert time.monotonic() < deadline_s, self._late("does not end", command)
            time.sleep(0.02)
        return int(done.read_text())

    def _expect(self, step: Step, began_at: int) -> None:
        deadline_s = time.monotonic() + self.printed_s_max
        wanted = [self._with_free_ports(line) for line in step.printed]
        while (missing := first_missing(wanted, self.text(began_at))) is not None:
            assert time.monotonic() < deadline_s, self._told(
                step, f"it did not print {missing!r}", began_at
            )
            time.sleep(0.05)

    def _told(self, step: Step, what: str, began_at: int) -> str:
        return f"$ {step.command}\n{what}. What came:\n{self.text(began_at)[-4000:]}"

    def _late(self, what: str, command: str) -> str:
        return f"$ {command}\nit {what}. What came:\n{self.text()[-4000:]}"

    def _with_free_ports(self, text: str) -> str:
        return re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: self.ports[found[1]], text)

    def _size(self) -> int:
        return self._transcript.stat().st_size

    def text(self, start: int = 0) -> str:
        """What was printed, from a place on."""
        return self._transcript.read_bytes()[start:].decode("utf-8", "replace")

    def close(self) -> None:
        """End the shell and everything that it started, first kindly."""
        for number, wait_s in ((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0)):
            with suppress(ProcessLookupError):
                os.killpg(self._bash.pid, number)
            if self._bash.stdin is not None and not self._bash.stdin.closed:
                with suppress(BrokenPipeError):
                    self._bash.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._bash.wait(wait_s)
            if self._is_over(wait_s):
                break
        self._bash.wait(5)
        self._output.close()

    def _is_over(self, wait_s: float) -> bool:
        """Whether nobody of the group is left, after a while."""
        deadline_s = time.monotonic() + wait_s
        while time.monotonic() < deadline_s:
            try:
                os.killpg(self._bash.pid, 0)
            except (ProcessLookupError, PermissionError):
                return True
            time.sleep(0.05)
        return False


def first_missing(wanted: Iterable[str], text: str) -> str | None:
    """The first line that did not come, or did not come in its turn."""
    lines = iter([_plain(line) for line in text.splitlines()])
    for each in wanted:
        pattern = re.compile(".*".join(map(re.escape, _plain(each).split("…"))))
        if not any(pattern.fullmatch(line) for line in lines):
            return each
    return None


def _plain(line: str) -> str:
    """A line without what only a screen shows; columns may be wider here or there."""
    return " ".join(line.split())


def sections(text: str) -> Mapping[str, str]:
    """A page by its headings of the second degree."""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
