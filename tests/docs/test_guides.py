"""Everything that the guides tell people to type works, and prints what they say."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.docs.guides import NOT_RUN, ROOT, Shell, Step, first_missing, sections, steps_of

GUIDES = (
    "first-topic", "ordering", "history", "access", "operating", "troubleshooting", "http", "spark",
    "archive", "filters", "erasing", "shared-log",
)  # fmt: skip
SLOW = ("shared-log", "spark", "archive")
"""Guides that only the slow run follows: half a minute of commands or more each."""
README = sections((ROOT / "README.md").read_text(encoding="utf-8"))
OWN_PORTS = Step(
    "export PULSARCAST_HTTP_ADDRESS=127.0.0.1:8420 PULSARCAST_NODE_LISTEN=/ip4/127.0.0.1/tcp/4420"
)
"""The README takes the default ports, which another program of this machine may have."""


def quick_start() -> list[Step]:
    return [OWN_PORTS, *steps_of(README["Install and try"] + README["HTTP"])]


def steps_of_guide(name: str) -> list[Step]:
    return steps_of((ROOT / f"docs/guides/{name}.md").read_text(encoding="utf-8"))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    folder = tmp_path / "here"
    folder.mkdir()
    # What a guide takes out of a clone is where it would be.
    for name in ("deploy", "constraints.txt"):
        (folder / name).symlink_to(ROOT / name)
    return Shell(folder)


@pytest.mark.timeout(900)
def test_the_quick_start_of_the_readme_works(shell: Shell) -> None:
    steps = quick_start()
    assert len(steps) >= 6
    with shell:
        shell.play(steps)
        # Typed once more, with the daemon still there: one topic, and the reader goes on.
        shell.play(step for step in steps if not step.command.endswith("&"))
        shell.type(Step("pulsarcast topic readers weather", ["dashboard  2     0       no"]))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in GUIDES],
)
def test_a_guide_works(name: str, shell: Shell) -> None:
    steps = steps_of_guide(name)
    assert len(steps) >= 3
    with shell:
        shell.play(steps)


def test_only_what_needs_another_machine_is_not_typed() -> None:
    """The list of what is left out is the whole of it: nothing else escapes."""
    left_out = {
        step.command
        for steps in (quick_start(), *(steps_of_guide(name) for name in GUIDES))
        for step in steps
        if not step.is_run
    }
    assert left_out, "the list would be of no use"
    assert all(command.startswith(NOT_RUN) for command in left_out)
    for prefix in NOT_RUN:
        assert any(command.startswith(prefix) for command in left_out), f"no guide has {prefix!r}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_quick_start_works_in_a_new_environment(tmp_path: Path) -> None:
    """Line by line, from a copy of the clone, as somebody does who has nothing yet."""
    clone = tmp_path / "clone"
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, check=True,
    ).stdout.split(b"\0")  # fmt: skip
    for name in filter(None, tracked):
        source = ROOT / name.decode()
        if source.is_file():
            target = clone / name.decode()
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    began_s = time.monotonic()
    with Shell(clone, Path("/usr/bin")) as shell:
        shell.command_s_max = 600
        for step in quick_start():
            took_s = shell.type(step)
            print(f"{took_s:7.1f} s  {step.command.splitlines()[0]}")  # noqa: T201
        print(f"{time.monotonic() - began_s:7.1f} s  in all")  # noqa: T201


# The reading of guides itself.


def test_a_block_is_taken_apart_into_commands_and_what_they_print() -> None:
    text = (
        "```console\n$ one \\\n    more &\nfirst…\n\n$ two\n(exit 5)\n```\n"
        "```python\n$ no\n```\n```console\n$ cat > x <<'EOF'\n$ not a command\nEOF\n$ three\n```\n"
    )
    steps = steps_of(text)
    assert [step.command for step in steps] == [
        "one \\\n    more &",
        "two",
        "cat > x <<'EOF'\n$ not a command\nEOF",
        "three",
    ]
    assert steps[0].printed == ["first…"]
    assert steps[1].exits == 5


def test_a_line_that_does_not_come_or_comes_too_early_is_missed() -> None:
    assert first_missing(["a", "b"], "a\nx\nb\n") is None
    assert first_missing(["a", "b"], "b\na\n") == "b"
    assert first_missing(["made node … in ann"], "made node 12D3 in ann\n") is None
    assert first_missing(["made node … in ann"], "made node 12D3 in ann and more\n") is not None


def test_a_step_that_ends_otherwise_than_told_is_a_failure(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    with Shell(folder) as shell:
        shell.type(Step("cd / && NAME=kept"))
        shell.type(Step('echo "$PWD $NAME"', ["/ kept"]))
        shell.type(Step("false", exits=1))
        with pytest.raises(AssertionError, match="it ended with 1"):
            shell.type(Step("false"))
        shell.type(Step("(sleep 0.3; echo late) &", ["late"]))
        shell.printed_s_max = 0.2
        with pytest.raises(AssertionError, match="it did not print 'never'"):
            shell.type(Step("echo always", ["never"]))


def test_whatever_a_shell_started_ends_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    with Shell(folder) as shell:
        shell.type(Step("sleep 600 & echo $! > pid"))
        pid = int((folder / "pid").read_text())
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()
