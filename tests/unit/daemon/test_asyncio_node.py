"""A node inside an asyncio program: nothing that asyncio's debug mode could complain about."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from pulsarcast import LocalError, Node, asyncio_node
from pulsarcast.client import AsyncClient
from tests.docs.guides import ROOT
from tests.unit.daemon.asyncio_scenes import SCENES, UNCLEAN

ALWAYS = (
    "publish_and_read",
    "a_reader_is_cancelled",
    "opening_is_cancelled",
    "what_cannot_start_says_why",
    "a_node_under_asyncio_names_what_to_take",
    "interrupted",
)
"""Scenes of the default run; the others take longer together."""


def played(folder: Path, *names: str) -> dict[str, list[str]]:
    """What there is to say against scenes, played in a process in which every warning counts."""
    done = subprocess.run(
        [
            *(sys.executable, "-X", "dev", "-W", "error"),
            *("-m", "tests.unit.daemon.asyncio_scenes", str(folder), *names),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    said: dict[str, list[str]] = json.loads(done.stdout)
    assert list(said) == list(names)
    return said


def test_asyncio_has_nothing_against_a_node_inside(tmp_path: Path) -> None:
    assert played(tmp_path, *ALWAYS) == {name: [] for name in ALWAYS}


@pytest.mark.slow
def test_asyncio_has_nothing_against_any_scene(tmp_path: Path) -> None:
    others = [name for name in SCENES if name not in ALWAYS]
    assert played(tmp_path, *others) == {name: [] for name in others}


@pytest.mark.slow
def test_a_program_that_is_not_clean_is_found_out(tmp_path: Path) -> None:
    names = [each.__name__ for each in UNCLEAN]
    assert [name for name, said in played(tmp_path, *names).items() if not said] == []


def test_the_options_are_those_of_a_node() -> None:
    ours, its = inspect.signature(asyncio_node), inspect.signature(Node.open)
    assert ours.parameters == its.parameters
    assert "AsyncClient" in str(ours.return_annotation)


def test_under_trio_a_node_is_what_to_take(tmp_path: Path) -> None:
    async def scene() -> None:
        with pytest.raises(LocalError, match=r"Node\.open"):
            async with asyncio_node(tmp_path / "home"):
                pass

    trio.run(scene)
    assert not (tmp_path / "home").exists()


async def _open(home: Path) -> None:
    async with Node.open(home):
        pass


async def _ask(home: Path) -> None:
    await AsyncClient("http://127.0.0.1:1", "token").status()


@pytest.mark.parametrize(("call", "words"), [(_open, "trio.run"), (_ask, "Client")])
def test_without_a_loop_the_error_says_what_to_take(
    call: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    coroutine = call(tmp_path / "home")
    assert inspect.iscoroutine(coroutine)
    with pytest.raises(LocalError, match=words):
        coroutine.send(None)
    assert not (tmp_path / "home").exists()


def test_a_node_of_trio_is_not_for_the_asyncio_loop_of_another_thread(tmp_path: Path) -> None:
    async def ask(node: Node) -> None:
        with pytest.raises(LocalError, match="asyncio_node"):
            await node.create_topic("weather")

    async def scene() -> None:
        async with Node.open(tmp_path / "home") as node:
            await trio.to_thread.run_sync(lambda: asyncio.run(ask(node)))
            await node.create_topic("weather")

    trio.run(scene)
