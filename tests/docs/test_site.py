"""The site is built from these pages without a complaint, and asks nobody else for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pulsarcast
from tests.docs.guides import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        # The theme tells of its own future there, which is no fault of a page.
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


@pytest.mark.timeout(900)
def test_every_page_is_there_and_says_which_version_it_is_of(site: Path) -> None:
    for page in ROOT.glob("docs/**/*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("")
        assert (site / name / "index.html").exists(), f"{name} is missing"
    home = (site / "index.html").read_text(encoding="utf-8")
    assert f"Pulsarcast {pulsarcast.__version__}" in home


def test_the_reference_has_what_programs_call(site: Path) -> None:
    library = (site / "reference/library/index.html").read_text(encoding="utf-8")
    for name in ("Node.publish", "Node.subscribe", "Subscription.acknowledge", "TopicSettings"):
        assert name in library, name
    client = (site / "reference/client/index.html").read_text(encoding="utf-8")
    for name in ("Client.publish", "AsyncClient.subscribe", "UnexpectedResponse", "Unreachable"):
        assert name in client, name


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=\"?(https?://[^\" >]+)")
    for page in site.glob("**/*.html"):
        found = loaded.findall(page.read_text(encoding="utf-8"))
        assert found == [], f"{page.relative_to(site)} loads {found[:3]}"


def test_what_the_guides_hand_out_is_there_to_be_taken(site: Path) -> None:
    for path in (ROOT / "deploy").iterdir():
        assert (site / "deploy" / path.name).read_bytes() == path.read_bytes()
