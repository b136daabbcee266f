"""What CONTRIBUTING.md names is there: files, commands, words of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.guides import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MARKED = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL))
SHOWN_ONLY = {"NNNN-a-sentence.md"}
# A room's files may be named after the room alone, once a recipe says which room is meant.
ROOMS = ("protocol", "wire", "daemon", "pipeline")
PLACES = ("", "tests/support", "src/pulsarcast", *(f"src/pulsarcast/{room}" for room in ROOMS))
FILES = {it for it in MARKED if re.fullmatch(r"\w[\w.-]*(/[\w.-]+)+|[\w-]+\.\w{2,5}", it)}


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_file_that_it_names_is_there(name: str) -> None:
    if name.rpartition("/")[2] not in SHOWN_ONLY:
        assert any((ROOT / place / name).exists() for place in PLACES), name


def test_every_word_of_the_code_that_it_names_is_in_the_code() -> None:
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("src", "tests")
        for path in (ROOT / folder).glob("**/*.py")
        if path != Path(__file__)
    )
    names = {it for it in MARKED if re.fullmatch(r"_?[A-Z]\w*|_\w+|\w+_\w*", it)}
    assert len(names) > 20
    missing = [name for name in sorted(names) if not re.search(rf"\b{name}", code)]
    assert missing == []


def test_every_command_that_it_names_is_one() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = {it.removeprefix("make ") for it in MARKED if it.startswith("make ")}
    assert named <= {*targets, "setup"}
    assert named
    for path in re.findall(r"(?<!\S)(tests(?:/[\w.]+)+)", TEXT):
        assert (ROOT / path.rstrip(".")).exists(), path
    for module in re.findall(r"python -m (tests[\w.]+)", TEXT):
        assert (ROOT / (module.replace(".", "/") + ".py")).exists(), module
    known = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/*.py"))
    for variable in re.findall(r"PULSARCAST_\w+", TEXT):
        assert variable in known, variable
