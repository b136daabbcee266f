"""What the guide shows of `pulsarcast simulate` is what it prints.

Run as a program, this writes the present output into the guide.
"""

import re
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from pulsarcast.cli import main

ROOT = Path(__file__).parents[2]
PAGE = "docs/guides/simulating.md"
SHOWN = re.compile(
    r"(?<=```console\n)\$ (pulsarcast simulate [^\n]*)\n([\w.]+, seed .+?)(?=```)", re.DOTALL
)
SCENARIO = re.compile(r"```toml\n(kind = .+?)```", re.DOTALL)
LABEL, WIDTH = 16, 100
MEASURED = ("  simulated", "  memory")
"""Lines that are about the machine."""


def shown() -> list[tuple[str, str]]:
    """Each command, and what the guide says that it prints."""
    found: list[tuple[str, str]] = SHOWN.findall((ROOT / PAGE).read_text(encoding="utf-8"))
    return found


def printed(command: str, folder: Path) -> str:
    """What a command prints, wrapped and cut as in the guide."""
    words = command.partition(" | ")[0].split()[1:]
    for text in SCENARIO.findall((ROOT / PAGE).read_text(encoding="utf-8")):
        (folder / "small.toml").write_text(text, encoding="utf-8")
    words = [str(folder / word) if word.endswith(".toml") else word for word in words]
    output = CliRunner().invoke(main, words).output.replace(f"{folder}/", "")
    lines = output.splitlines()
    if head := re.search(r"\| head -(\d+)", command):
        lines = lines[: int(head[1])]
    return "".join(f"{line}\n" for each in lines for line in wrapped(each))


def wrapped(line: str) -> list[str]:
    if len(line) <= WIDTH:
        return [line]
    if line.startswith("    "):
        return [line[: WIDTH - 1] + "…"]
    first, *rest = textwrap.wrap(line[LABEL:], WIDTH - LABEL, break_long_words=False)
    return [line[:LABEL] + first, *(" " * LABEL + each for each in rest)]


def lasting(output: str) -> list[str]:
    return [line for line in output.splitlines() if not line.startswith(MEASURED)]


@pytest.mark.parametrize(("command", "output"), shown())
def test_the_guide_shows_what_is_printed(command: str, output: str, tmp_path: Path) -> None:
    assert lasting(printed(command, tmp_path)) == lasting(output)


def paste(folder: Path) -> None:
    """Write what is printed now into the guide."""
    path = ROOT / PAGE
    text = path.read_text(encoding="utf-8")
    fresh = SHOWN.sub(lambda found: f"$ {found[1]}\n{printed(found[1], folder)}", text)
    path.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        paste(Path(made))
