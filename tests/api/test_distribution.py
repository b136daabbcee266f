"""The sdist makes the wheel, and both hold what they should."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pulsarcast

ROOT = Path(__file__).parents[2]
VERSION = pulsarcast.__version__


def build(folder: Path, target: str, out: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)],
        cwd=folder, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    made = build(ROOT, "sdist", folder / "dist")
    subprocess.run(["tar", "-xzf", str(made), "-C", str(folder)], check=True)
    return folder / f"pulsarcast-{VERSION}"


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build(sdist, "wheel", tmp_path_factory.mktemp("wheel") / "dist"))


def test_the_sdist_has_all_that_the_tests_need(sdist: Path) -> None:
    for name in ("tests/conftest.py", "examples", "benchmarks", "docs/.site/hooks.py", "deploy",
                 ".ci/run", ".ci/full", ".ci/stages", ".ci/setup", "Makefile", "constraints.txt",
                 "mkdocs.yml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md",
                 "SECURITY.md", "LICENSE"):  # fmt: skip
        assert (sdist / name).exists(), name


def test_the_wheel_that_the_sdist_makes_has_every_file_of_the_packages(
    wheel: zipfile.ZipFile,
) -> None:
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in source.glob("**/*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert "pulsarcast/py.typed" in wanted
    assert "pyspark_pulsarcast/py.typed" in wanted
    info = f"pulsarcast-{VERSION}.dist-info/"
    assert {name for name in wheel.namelist() if not name.startswith(info)} == wanted


def test_the_wheel_names_its_licence_and_its_command(wheel: zipfile.ZipFile) -> None:
    info = f"pulsarcast-{VERSION}.dist-info"
    assert f"{info}/licenses/LICENSE" in wheel.namelist()
    commands = wheel.read(f"{info}/entry_points.txt").decode()
    assert "pulsarcast = pulsarcast.cli:run" in commands


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = text.partition("\n## ")[2].splitlines()[0]
    assert newest.split(" ")[0] == VERSION
