"""What the site adds to the pages: README, changelog, how to contribute, `deploy`, the version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_OUTSIDE = re.compile(r"\]\(\.\./\.\./([^)#]+)")
"""Links from a folder of `docs` to a file beside it."""


def on_config(config: Any) -> Any:
    """Name the version in the title, and list all decisions."""
    text = (ROOT / "src/pulsarcast/__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    config.site_name = f"Pulsarcast {version}"
    config.nav = [{"Decisions": _decisions()} if it == "Decisions" else it for it in config.nav]
    return config


def _decisions() -> list[str]:
    return [f"decisions/{path.name}" for path in sorted((DOCS / "decisions").glob("*.md"))]


def on_files(files: Files, config: Any) -> Files:
    """Take in what stands outside of `docs` and is linked to from here."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    readme = re.sub(r"\]\(docs/", "](", readme)
    for folder in ("guides", "decisions"):
        first = config.nav[1]["Guides"][0] if folder == "guides" else _decisions()[0]
        readme = readme.replace(f"]({folder})", f"]({first})")
    files.append(File.generated(config, "index.md", content=readme))
    pages = [path.read_text(encoding="utf-8") for path in DOCS.glob("**/*.md")]
    linked = {name for text in pages for name in _OUTSIDE.findall(text)} - {"README.md"}
    deploy = {f"deploy/{path.name}" for path in (ROOT / "deploy").iterdir()}
    for name in ("CONTRIBUTING.md", "SECURITY.md"):
        text = re.sub(r"\]\(docs/", "](", (ROOT / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, name, content=text))
    for name in sorted({*linked, *deploy, "CHANGELOG.md", "LICENSE"}):
        files.append(File.generated(config, name, content=(ROOT / name).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let links to the root of the clone lead to where its files are here."""
    return _OUTSIDE.sub(r"](../\1", markdown.replace("](../../README.md", "](../index.md"))
