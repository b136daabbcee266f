"""A command that asks a daemon imports no more than it needs."""

import subprocess
import sys

import pytest

ENDS = """
import sys
from pulsarcast.cli import {run}
sys.argv = ["pulsarcast", "status", "--url", "http://127.0.0.1:9"]
try:
    {run}()
except SystemExit as end:
    print(end.code)
print(*(name for name in ("h2", "httpx", "rich", "trio") if name in sys.modules))
import h2, trio
"""


@pytest.mark.parametrize(("run", "imported"), [("run", "httpx"), ("main", "h2 httpx rich trio")])
def test_only_the_program_leaves_out_what_httpx_brings_for_others(run: str, imported: str) -> None:
    code = ENDS.format(run=run)
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert ran.stdout.split("\n")[:2] == ["3", imported], ran.stderr


def test_the_client_under_trio_is_not_touched_by_commands_within_a_program() -> None:
    code = """
import trio
from click.testing import CliRunner
from pulsarcast.cli import main
from pulsarcast.client import AsyncClient, Unreachable

assert CliRunner().invoke(main, ["status", "--url", "http://127.0.0.1:9"]).exit_code == 3

async def ask() -> None:
    async with AsyncClient("http://127.0.0.1:9", "plsr_none") as client:
        try:
            await client.status()
        except Unreachable:
            print("asked")

trio.run(ask)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert ran.stdout == "asked\n", ran.stderr
