"""What the guides to simulating and to ingest say that a run's traces have, its traces have."""

import io
import re
from pathlib import Path
from typing import NamedTuple

import zstandard
from click.testing import CliRunner

from pulsarcast.cli import main

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"^\$ pulsarcast (simulate .+) --trace (traces\S*)", re.MULTILINE)
LANDED = re.compile(r"^tables: (?:run \S+: )?(\d+) lines of (\d+) segments", re.MULTILINE)


class Size(NamedTuple):
    lines: int
    segments: int


def size(folder: Path) -> Size:
    segments = sorted(folder.rglob("*.zst"))
    lines = 0
    for segment in segments:
        with segment.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as text:
            lines += sum(1 for _ in io.BufferedReader(text))
    return Size(lines, len(segments))


def told(page: str, folder: Path) -> list[Size]:
    """Play what a page plays, and return what it says came of it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (command,) = COMMAND.finditer(text)
    words = [*command[1].split(), "--trace", str(folder / command[2])]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    return [Size(int(lines), int(segments)) for lines, segments in LANDED.findall(text)]


def test_the_run_of_the_guide_to_simulating(tmp_path: Path) -> None:
    assert told("docs/guides/simulating.md", tmp_path) == [size(tmp_path)]


def test_the_runs_of_the_guide_to_ingest(tmp_path: Path) -> None:
    shown = told("docs/guides/ingest.md", tmp_path)
    one, two, three = (size(tmp_path / f"traces/random-{seed}") for seed in (1, 2, 3))
    both = Size(one.lines + two.lines, one.segments + two.segments)
    assert shown == [both, three, two]
