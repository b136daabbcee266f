"""The public API is what `public_api.txt` says; nobody changes it without noticing.

Renew it, once a change is meant, and say in CHANGELOG.md what a user has to do:

    PULSARCAST_REWRITE_API=1 .venv/bin/python -m pytest tests/api
"""

from __future__ import annotations

import ast
import inspect
import os
import re
from pathlib import Path

import pytest

import pulsarcast
import pulsarcast.client
from pulsarcast.model import api
from tests.api import surface

pytest.importorskip("trio", reason="the library needs the extra network")

SNAPSHOT = Path(__file__).with_name("public_api.txt")


def test_the_public_api_is_the_one_that_was_agreed_on() -> None:
    now = surface.told()
    if os.environ.get("PULSARCAST_REWRITE_API"):
        SNAPSHOT.write_text(now, encoding="utf-8")
    assert now == SNAPSHOT.read_text(encoding="utf-8"), __doc__


def test_the_reference_shows_every_public_name() -> None:
    shown = set(surface.public_names())
    assert {f"pulsarcast.{name}" for name in pulsarcast.__all__} <= shown
    assert {f"pulsarcast.client.{name}" for name in pulsarcast.client.__all__} <= shown


def test_the_reference_shows_whatever_the_client_answers_with() -> None:
    shown = set(surface.public_names())
    text = SNAPSHOT.read_text(encoding="utf-8")
    for name in {*re.findall(r"\bapi\.([A-Z]\w+)", text), *re.findall(r"\b([A-Z]\w+View)\b", text)}:
        if inspect.isclass(getattr(api, name)):
            assert f"{api.__name__}.{name}" in shown, name


def test_every_public_name_says_what_it_is_for() -> None:
    for name in surface.public_names():
        assert inspect.getdoc(surface.resolve(name)), name


def test_all_that_is_imported_on_demand_is_named_for_type_checkers_too() -> None:
    tree = ast.parse(Path(pulsarcast.__file__).read_text(encoding="utf-8"))
    (checked,) = (each for each in tree.body if isinstance(each, ast.If))
    homes = {
        alias.name: str(each.module).removeprefix("pulsarcast.")
        for each in checked.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }
    assert homes == pulsarcast._HOMES
    assert sorted(homes) == sorted(pulsarcast.__all__)
