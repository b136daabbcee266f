"""The notebook of the Spark guide runs from its first cell to its last, and prints what it shows.

    PULSARCAST_REWRITE_NOTEBOOK=1 pytest tests/docs/test_notebook.py

runs it and keeps what it printed, after its cells were changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbclient")
pytest.importorskip("pyspark")

import nbformat
from nbclient import NotebookClient

from tests.docs.guides import BIN, ROOT
from tests.support.daemons import DaemonProcess

NOTEBOOK = ROOT / "docs/guides/spark.ipynb"
books: Any = nbformat  # it has no types

# The kernel is another process, whose sockets it does not close itself.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    daemon = DaemonProcess(tmp_path / "home")
    daemon.start()
    try:
        yield daemon.home
    finally:
        daemon.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_notebook_runs_and_prints_what_it_shows(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSARCAST_HOME", str(home))
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    # As on a machine that has a name: Spark then has nothing to say about it.
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    for name in ("PULSARCAST_URL", "PULSARCAST_TOKEN", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    notebook = books.read(NOTEBOOK, as_version=4)
    shown = printed(notebook)
    NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    if os.environ.get("PULSARCAST_REWRITE_NOTEBOOK"):
        keep(notebook)
        return
    assert printed(notebook) == shown


def printed(notebook: Any) -> list[str]:
    """What the cells print and show; of a picture, that there is one."""
    found: list[str] = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.get("name") == "stdout":
                found.append(output["text"])
            elif "data" in output:
                data = output["data"]
                found.append("a picture" if "image/png" in data else data["text/plain"])
    return found


def keep(notebook: Any) -> None:
    """Write it down with its outputs, but for what Spark says about this machine."""
    for cell in notebook.cells:
        cell["metadata"] = {}
        if "outputs" in cell:
            cell["outputs"] = [each for each in cell["outputs"] if each.get("name") != "stderr"]
    notebook["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    books.write(notebook, NOTEBOOK)
