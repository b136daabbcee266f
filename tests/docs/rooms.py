"""The files of each room, as `docs/architecture.md` lists them: the first sentence of each.

python -m tests.docs.rooms        # write the tables anew
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/architecture.md"
HEADING = "## Every file\n"
ROOMS = (
    "protocol",
    "protocol/commands",
    "protocol/content",
    "protocol/sequencing",
    "protocol/history",
    "protocol/following",
    "protocol/publishing",
    "protocol/topic",
    "protocol/dissemination",
    "protocol/dht",
    "model",
    "wire",
    "storage",
    "network",
    "daemon",
    "client",
    "simulation",
    "pipeline",
    "pipeline/checks",
    "pipeline/quality",
    "testbed",
    "cli",
)


def first_sentence(path: Path) -> str:
    """What a module says it is for, without the sources that it cites."""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert doc, f"{path} does not say what it is for"
    said = re.sub(r" \([^()]*\)(?=[.?:]|$)", "", doc.splitlines()[0])
    return said.rstrip(".").replace("|", "\\|")


def table(room: str) -> str:
    """One room's table."""
    folder = ROOT / "src/pulsarcast" / room
    files = sorted(
        path
        for path in folder.glob("*.py")
        if path.name != "__init__.py" and not path.name.endswith("_pb2.py")
    )
    rooms = [path for path in sorted(folder.glob("*/__init__.py")) if room != "protocol"]
    rows = [f"| `{path.name}` | {first_sentence(path)} |" for path in files]
    rows += [f"| `{path.parent.name}/` | {first_sentence(path)} |" for path in rooms]
    about = first_sentence(folder / "__init__.py")
    return "\n".join([f"### `{room}/`", f"{about}.", "", "| file | |", "| --- | --- |", *rows])


def section() -> str:
    """All tables."""
    begin = f"{HEADING}What each file says first; `python -m tests.docs.rooms` writes this anew.\n"
    return "\n".join([begin, *(f"{table(room)}\n" for room in ROOMS)])


def rewrite(text: str) -> str:
    """The page with the tables of today at its end."""
    return text.partition(HEADING)[0] + section()


if __name__ == "__main__":
    PAGE.write_text(rewrite(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
