"""The shape of the core: narrow protocols, and no circle of imports (docs/decisions/0030)."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pulsarcast.protocol

ROOT = Path(pulsarcast.protocol.__file__).parent
PACKAGE = "pulsarcast.protocol."
METHODS_MAX = 7


@cache
def trees() -> dict[str, ast.Module]:
    """Every module of the core, by its name."""
    files = (path for path in ROOT.rglob("*.py") if path.name != "__init__.py")
    return {
        PACKAGE + ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(
            path.read_text(encoding="utf-8")
        )
        for path in sorted(files)
    }


def imports_of(tree: ast.Module) -> set[str]:
    """The modules of the core that one imports, those for types included."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found & trees().keys()


def members_of(protocol: ast.ClassDef) -> list[str]:
    """The methods and fields that a protocol itself asks for."""
    named = [node.name for node in protocol.body if isinstance(node, ast.FunctionDef)]
    fields = [node.target for node in protocol.body if isinstance(node, ast.AnnAssign)]
    return named + [field.id for field in fields if isinstance(field, ast.Name)]


def test_no_module_of_the_core_imports_itself_by_way_of_others() -> None:
    graph = {name: imports_of(tree) for name, tree in trees().items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)


def test_no_protocol_asks_for_more_than_seven_things() -> None:
    wide = {
        (name, node.name): len(members_of(node))
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
        and len(members_of(node)) > METHODS_MAX
    }
    assert wide == {}
