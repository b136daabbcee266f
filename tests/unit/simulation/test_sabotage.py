"""Sabotage replaces parts by their public methods: nothing private of the core is touched."""

import ast
from pathlib import Path
from types import ModuleType

import pytest

from pulsarcast.simulation import sabotage, withholding
from pulsarcast.simulation.sabotage import SAFEGUARDS


@pytest.mark.parametrize("module", [sabotage, withholding], ids=lambda module: module.__name__)
def test_only_public_names_of_the_core_are_used_and_none_is_set(module: ModuleType) -> None:
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    assert list(_reaching_in(tree)) == []


@pytest.mark.parametrize(
    "line",
    [
        "from pulsarcast.protocol.turn import _Timer",
        "node._halt(1)",
        "node.topics = {}",
        "setattr(node, 'topics', {})",
        "class Spoilt(Node):\n    def _halt(self): pass",
    ],
)
def test_the_rule_sees_what_it_forbids(line: str) -> None:
    assert list(_reaching_in(ast.parse(line)))


def test_every_part_stands_in_for_its_base() -> None:
    for spoilt in SAFEGUARDS.values():
        for kind, part in spoilt.parts.items():
            assert issubclass(part, kind)
            overridden = [name for name in vars(part) if not name.startswith("__")]
            assert overridden
            assert all(name in vars(kind) for name in overridden)


def _reaching_in(tree: ast.AST) -> list[str]:
    """Private names of others, and attributes that are set on other objects."""
    found = list[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store(), attr=name):
                names = [name]
            case ast.Attribute(ctx=ast.Store()):
                found.append(ast.unparse(node))
                continue
            case ast.Attribute(attr=name):
                names = [name]
            case ast.ImportFrom(names=imported):
                names = [each.name for each in imported]
            case ast.ClassDef(body=body):
                names = [each.name for each in body if isinstance(each, ast.FunctionDef)]
            case ast.Name(id="setattr" | "getattr" | "vars" as name):
                found.append(name)
                continue
            case _:
                continue
        found += [name for name in names if name.startswith("_") and not name.endswith("__")]
    return found
