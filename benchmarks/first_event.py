"""Seconds from `pip install` to the first event on another machine, step by step.

    python -m benchmarks.first_event [--ready]

Makes a virtual environment and installs the clone into it, as the guide "Two machines" says. Then
two machines of one local network (network namespaces; root and `ip`) with fresh homes and defaults:
a daemon, a topic and `invite` on one, `join` on the other, an event. With `--ready` the program of
this environment is taken, and nothing is installed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.support.namespaces import Host, Lab

ROOT: Final = Path(__file__).parents[1]
WAIT_S_MAX: Final = 120.0


class Watch:
    """Prints what each step took."""

    def __init__(self) -> None:
        self._began_s = self._last_s = time.monotonic()

    def lap(self, what: str) -> None:
        """A step is over."""
        now_s = time.monotonic()
        print(f"{now_s - self._last_s:7.1f} s  {what}")
        self._last_s = now_s

    def end(self) -> None:
        """All steps are over."""
        print(f"{time.monotonic() - self._began_s:7.1f} s  in all")


def install(folder: Path, watch: Watch) -> str:
    """The program `pulsarcast` of a new environment."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    watch.lap("python3 -m venv")
    subprocess.run(
        [folder / "bin/pip", "install", "-q", f"{ROOT}[daemon]", "-c", ROOT / "constraints.txt"],
        check=True,
    )
    watch.lap("pip install")
    return str(folder / "bin/pulsarcast")


def play(program: str, folder: Path, watch: Watch) -> None:
    """From two machines without a home to an event on the second."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def words(name: str, *said: str) -> list[str]:
        return [program, *said, "--home", str(folder / name)]

    def run(host: Host, *said: str) -> str:
        return host.run(words("ann", *said), env=environment).stdout.strip()

    with Lab() as lab:
        lan = lab.switch("lan")
        ann, ben = lab.host("ann"), lab.host("ben")
        ann.plug(lan, "10.1.0.1/16")
        ben.plug(lan, "10.1.0.2/16")
        watch.lap("two machines, made")
        ann.start(words("ann", "daemon"), folder / "ann.log", env=environment)
        run(ann, "topic", "create", "weather", "--alias", "weather", "--wait")
        watch.lap("daemon, topic create")
        ticket = run(ann, "invite", "weather")
        watch.lap("invite")
        log = folder / "ben.log"
        ben.start(words("ben", "join", ticket), log, env=environment)
        wait_for(log, "joined weather")
        watch.lap("join")
        run(ann, "publish", "weather", "sunny")
        wait_for(log, "sunny")
        watch.lap("publish; the event is printed on the other machine")


def wait_for(log: Path, text: str) -> None:
    """Wait until a program prints something."""
    deadline_s = time.monotonic() + WAIT_S_MAX
    while text not in log.read_text(encoding="utf-8"):
        if time.monotonic() > deadline_s:
            sys.exit(f"no {text!r} in time: {log.read_text(encoding='utf-8')[-2000:]}")
        time.sleep(0.02)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ready", action="store_true", help="install nothing")
    ready = parser.parse_args().ready
    with tempfile.TemporaryDirectory() as scratch:
        folder, watch = Path(scratch), Watch()
        program = (
            str(Path(sys.executable).with_name("pulsarcast"))
            if ready
            else install(folder / "venv", watch)
        )
        play(program, folder, watch)
        watch.end()


if __name__ == "__main__":
    main()
