"""How the parts of the core are joined: callbacks, hooks, chains through the node, constructors.

    python benchmarks/core_shape.py [--src PATH] [--tests PATH] [--json FILE] [--list]

Reads the files of a tree and imports none of them, so that two commits can be compared. `--list`
names every place that is counted. What the columns of `protocol/` mean:

hooks       functions that are set on another object after its construction: `a.b = f`, where `a`
            is not `self`, and `f` is a lambda, a function, a parameter that is callable, or a bound
            method (if it is not one of `self`: where `b` is declared as `Callable`, or where no
            class has an attribute of that name). `setattr` counts too.
callables   parameters whose annotation contains `Callable`, an alias of a type that does, or a
            `Protocol` whose one method is `__call__`
nested      functions within a function; one that is within two counts twice
lambdas     lambda expressions
chains      `node.x.y` and `self.node.x.y`: a member of a part, reached through the node
after       calls of `turn.after`
arguments   most arguments of one constructor, `self` not counted; of a dataclass that can change,
            the fields that its constructor takes
init        lines of the longest `__init__`, its signature included

Below the table: the functions that other rooms set on parts of the core; the constructors with most
arguments; the size of `protocol/` and of the handwritten Python of `wire/`; and the public classes
of `protocol/` that hold state but that no test builds. A class holds state if its `__init__` sets
attributes, or if it is a dataclass or a struct that is not frozen. A test builds it if it calls the
name that it imports from the module of the class.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COUNTED = ("hooks", "callables", "nested", "lambdas", "chains", "after")
LINES_MAX = 600
"""A file of the core above it is counted: it is too long to be read as one story."""
SHOWN = 10
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Module:
    """One file, and what its names stand for."""

    name: str
    room: str
    path: Path
    text: str
    tree: ast.Module
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Local name: module and name that it was imported from."""


@dataclass
class Shape:
    """Everything counted, by room where it has one."""

    places: dict[str, list[tuple[str, str]]] = field(
        default_factory=lambda: {kind: [] for kind in COUNTED}
    )
    """Of each kind: room and place."""
    own_line: int = 0
    """Parameters written as `name: Callable[…` at the start of a line."""
    constructors: list[tuple[int, str, str]] = field(default_factory=list)
    inits: list[tuple[int, str, str]] = field(default_factory=list)
    files: list[tuple[int, str, str]] = field(default_factory=list)
    stateful: list[tuple[str, str]] = field(default_factory=list)
    from_outside: list[str] = field(default_factory=list)
    """Functions that other rooms set on parts of the core."""


@dataclass
class Names:
    """What the classes of the core call their methods and their attributes."""

    methods: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    callables: set[str] = field(default_factory=set)
    """Attributes that are declared as one `Callable`."""

    @classmethod
    def of(cls, core: list[Module], aliases: set[tuple[str, str]]) -> Names:
        names = cls()
        for module in core:
            for node in ast.walk(module.tree):
                match node:
                    case ast.ClassDef():
                        names.methods |= methods_of(node)
                    case ast.AnnAssign(
                        target=ast.Attribute(attr=name) | ast.Name(id=name), annotation=kind
                    ):
                        names.attributes.add(name)
                        outermost = re.match(r"\w+", ast.unparse(kind))
                        if outermost and mentions(module, ast.Name(id=outermost[0]), aliases):
                            names.callables.add(name)
                    case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                        names.attributes.add(name)
        return names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--src", type=Path, default=Path("src"))
    parser.add_argument("--tests", type=Path, help="by default `tests` beside SRC")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    tests = given.tests or given.src.resolve().parent / "tests"
    core = list(modules(given.src, "pulsarcast/protocol"))
    if not core:
        sys.exit(f"{given.src} holds no pulsarcast/protocol")
    others = [each for each in modules(given.src, "pulsarcast") if each.room != "protocol"]
    shape = measure(core, others)
    built = built_by_tests(tests)
    unbuilt = [f"{module}.{name}" for module, name in shape.stateful if (module, name) not in built]
    wire = sum(
        lines(each.text) for each in others if each.room == "wire" and "_pb2" not in each.path.name
    )
    result = summary(shape, unbuilt, wire)
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table(result))
    if given.list:
        for kind, places in shape.places.items():
            print(f"\n{kind}", *(f"  {place}" for _, place in places), sep="\n")
    return 0


def modules(src: Path, below: str) -> Iterator[Module]:
    """Every file below a package, with what it imports."""
    for path in sorted((src / below).rglob("*.py")):
        parts = path.relative_to(src).with_suffix("").parts
        inner = path.relative_to(src / below).parts
        room = inner[0] if len(inner) > 1 else "(files)"
        text = path.read_text(encoding="utf-8")
        name = ".".join(parts).removesuffix(".__init__")
        module = Module(name, room, path.relative_to(src), text, ast.parse(text))
        module.imported = imports(module.tree)
        yield module


def imports(tree: ast.Module) -> dict[str, tuple[str, str]]:
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def lines(text: str) -> int:
    return text.count("\n")


def measure(core: list[Module], others: list[Module]) -> Shape:
    shape = Shape()
    aliases = callable_names(core)
    names = Names.of(core, aliases)
    for module in core:
        shape.own_line += len(re.findall(r"^ +\w+: Callable\[", module.text, re.MULTILINE))
        shape.files.append((lines(module.text), module.room, str(module.path)))
        for node in ast.walk(module.tree):
            for kind, line, what in found(module, node, aliases):
                shape.places[kind].append((module.room, f"{module.path}:{line} {what}"))
            if isinstance(node, ast.ClassDef):
                look_at_class(shape, module, node)
        for _, place in hooks(module, names, aliases):
            shape.places["hooks"].append((module.room, place))
    for module in others:
        if "pulsarcast.protocol" not in module.text:
            continue
        for attribute, place in hooks(module, names, aliases):
            if attribute in names.callables or attribute in names.methods:
                shape.from_outside.append(place)
    return shape


def found(
    module: Module, node: ast.AST, aliases: set[tuple[str, str]]
) -> Iterator[tuple[str, int, str]]:
    """What one node is counted as: kind, line, and how it reads."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            for inner in ast.walk(node):
                if inner is not node and isinstance(inner, FUNCTIONS):
                    yield "nested", inner.lineno, inner.name
            for argument in arguments(node):
                if argument.annotation and mentions(module, argument.annotation, aliases):
                    what = f"{node.name}({argument.arg}: {ast.unparse(argument.annotation)})"
                    yield "callables", argument.lineno, what
        case ast.Lambda():
            yield "lambdas", node.lineno, ast.unparse(node)
        case ast.Attribute(value=ast.Attribute(value=root)) if ends_with(root, "node"):
            yield "chains", node.lineno, ast.unparse(node)
        case ast.Call(func=ast.Attribute(value=root, attr="after")) if ends_with(root, "turn"):
            yield "after", node.lineno, ast.unparse(node)


def ends_with(node: ast.expr, name: str) -> bool:
    """Whether an expression is `name`, or the attribute `name` or `_name` of something."""
    match node:
        case ast.Name(id=last) | ast.Attribute(attr=last):
            return last.lstrip("_") == name
        case _:
            return False


def arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """All parameters; of a method, its own object is one of them."""
    given = function.args
    rest = [each for each in (given.vararg, given.kwarg) if each]
    return given.posonlyargs + given.args + given.kwonlyargs + rest


def callable_names(core: list[Module]) -> set[tuple[str, str]]:
    """Module and name of every alias that contains `Callable`, and of every callback protocol."""
    known: set[tuple[str, str]] = set()
    while True:
        more = set(known)
        for module in core:
            for node in module.tree.body:
                match node:
                    case (
                        ast.Assign(targets=[ast.Name(id=name)], value=value)
                        | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                    ) if mentions(module, value, known):
                        more.add((module.name, name))
                    case ast.ClassDef(name=name) if "Protocol" in base_names(node):
                        called = [each.name for each in node.body if isinstance(each, FUNCTIONS)]
                        if called == ["__call__"]:
                            more.add((module.name, name))
        if more == known:
            return known
        known = more


def mentions(module: Module, node: ast.expr, aliases: set[tuple[str, str]]) -> bool:
    """Whether a type contains `Callable`, as itself or by another name."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            if each.id == "Callable" or (module.name, each.id) in aliases:
                return True
            if module.imported.get(each.id) in aliases:
                return True
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            try:
                quoted = ast.parse(each.value, mode="eval").body
            except SyntaxError:
                continue
            if mentions(module, quoted, aliases):
                return True
    return False


def hooks(module: Module, names: Names, aliases: set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Functions that a file sets on other objects: attribute and place."""
    functions = {node.name for node in ast.walk(module.tree) if isinstance(node, FUNCTIONS)}

    def visit(node: ast.AST, own: set[str], given: set[str]) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.ClassDef):
            own = methods_of(node)
        elif isinstance(node, FUNCTIONS):
            given = given | {
                each.arg
                for each in arguments(node)
                if each.annotation and mentions(module, each.annotation, aliases)
            }
        for target, value in settings(node):
            match value:
                case ast.Lambda():
                    is_function = True
                case ast.Name(id=name):
                    is_function = name in functions or name in given
                case ast.Attribute(value=ast.Name(id="self"), attr=name):
                    is_function = name in own
                case ast.Attribute(attr=name):
                    declared = target.attr in names.callables or name not in names.attributes
                    is_function = name in names.methods and declared
                case _:
                    is_function = False
            if is_function:
                what = f"{ast.unparse(target)} = {ast.unparse(value)}"
                yield target.attr, f"{module.path}:{target.lineno} {what}"
        for each in ast.iter_child_nodes(node):
            yield from visit(each, own, given)

    return visit(module.tree, set(), set())


def methods_of(owner: ast.ClassDef) -> set[str]:
    """Names that are bound methods on an object of the class; properties are not."""
    return {
        each.name for each in owner.body if isinstance(each, FUNCTIONS) and not each.decorator_list
    }


def settings(node: ast.AST) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    """Attributes of other objects that a statement sets, and to what."""
    match node:
        case ast.Assign(targets=targets, value=value):
            pairs: list[tuple[ast.expr, ast.expr]] = [(target, value) for target in targets]
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            pairs = [(target, value)]
        case ast.Call(func=ast.Name(id="setattr"), args=[whose, name, value]):
            written = ast.Attribute(value=whose, attr=ast.unparse(name).strip("'"))
            pairs = [(ast.copy_location(written, node), value)]
        case _:
            return
    for changed, to in pairs:
        if isinstance(changed, ast.Attribute) and not is_self(changed.value):
            yield changed, to


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def look_at_class(shape: Shape, module: Module, node: ast.ClassDef) -> None:
    """Its constructor, and whether it holds state."""
    where = f"{module.path}:{node.lineno}"
    init = next(
        (each for each in node.body if isinstance(each, FUNCTIONS) and each.name == "__init__"),
        None,
    )
    fields = changing_fields(node)
    if init:
        shape.constructors.append((len(arguments(init)) - 1, module.room, f"{node.name} {where}"))
        long = (init.end_lineno or init.lineno) - init.lineno + 1
        shape.inits.append((long, module.room, f"{node.name} {where}"))
    elif fields is not None:
        shape.constructors.append((fields, module.room, f"{node.name} {where}"))
    sets = init and any(
        isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and is_self(each.value)
        for each in ast.walk(init)
    )
    if (sets or fields is not None) and not node.name.startswith("_"):
        shape.stateful.append((module.name, node.name))


def base_names(node: ast.ClassDef) -> set[str]:
    return {re.split(r"[\[.]", ast.unparse(base).replace("typing.", ""))[-1] for base in node.bases}


def changing_fields(node: ast.ClassDef) -> int | None:
    """How many fields the constructor of a dataclass or struct takes that is not frozen."""
    marks = [ast.unparse(each) for each in node.decorator_list]
    marks = [mark for mark in marks if re.match(r"(dataclasses\.)?dataclass\b", mark)]
    if "Struct" in base_names(node):
        marks.append(" ".join(ast.unparse(each) for each in node.keywords))
    if not marks or "frozen=True" in marks[0]:
        return None
    return sum(
        isinstance(each, ast.AnnAssign)
        and not ast.unparse(each.annotation).startswith("ClassVar")
        and not (each.value and "init=False" in ast.unparse(each.value))
        for each in node.body
    )


def built_by_tests(tests: Path) -> set[tuple[str, str]]:
    """Module and name of all that a test calls by a name that it imports."""
    built: set[tuple[str, str]] = set()
    for path in sorted(tests.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        named = imports(tree)
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id=name)) if name in named:
                    built.add(named[name])
                case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)):
                    if module in named:
                        built.add((".".join(named[module]), name))
    return built


def summary(shape: Shape, unbuilt: list[str], wire: int) -> dict[str, Any]:
    """Everything as plain values."""
    sizes: Counter[str] = Counter()
    for size, room, _ in shape.files:
        sizes[room] += size
    rooms = {room: room_summary(shape, room) | {"lines": sizes[room]} for room in sorted(sizes)}
    whole: dict[str, Any] = {
        kind: sum(each[kind] for each in rooms.values()) for kind in (*COUNTED, "lines")
    }
    for kind in ("arguments", "init", "largest_file"):
        whole[kind] = max(each[kind] for each in rooms.values())
    return {
        "protocol": whole,
        "rooms": rooms,
        "callables_own_line": shape.own_line,
        "constructors": largest(shape.constructors),
        "inits": largest(shape.inits)[:3],
        "files": largest(shape.files)[:3],
        "files_above_600": sum(size > LINES_MAX for size, _, _ in shape.files),
        "wire_lines": wire,
        "set_from_other_rooms": shape.from_outside,
        "stateful": len(shape.stateful),
        "stateful_unbuilt": unbuilt,
    }


def room_summary(shape: Shape, room: str) -> dict[str, int]:
    counts = {
        kind: sum(where == room for where, _ in places) for kind, places in shape.places.items()
    }
    for kind, values in (
        ("arguments", shape.constructors),
        ("init", shape.inits),
        ("largest_file", shape.files),
    ):
        counts[kind] = max((size for size, where, _ in values if where == room), default=0)
    return counts


def largest(values: list[tuple[int, str, str]]) -> list[tuple[int, str]]:
    ordered = sorted(values, key=lambda each: (-each[0], each[2]))
    return [(size, what) for size, _, what in ordered[:SHOWN]]


def table(result: dict[str, Any]) -> str:
    """The rooms, and what is largest, to be read."""
    columns = (*COUNTED, "arguments", "init", "largest_file", "lines")
    rows = [f"| room | {' | '.join(columns)} |", "| --- |" + " ---: |" * len(columns)]
    for name, room in {**result["rooms"], "protocol": result["protocol"]}.items():
        rows.append(f"| {name} | {' | '.join(f'{room[each]:,}' for each in columns)} |")
    rows.append(
        f"\nParameters that start a line with `name: Callable[`: {result['callables_own_line']}"
    )
    rows.append(f"Files above {LINES_MAX} lines: {result['files_above_600']}")
    rows.append(f"Lines of handwritten Python in wire/: {result['wire_lines']:,}")
    outside = result["set_from_other_rooms"]
    rows.append(f"\nFunctions that other rooms set on parts of the core: {len(outside)}")
    rows += [f"  {place}" for place in outside]
    for title, key in (("arguments", "constructors"), ("lines of __init__", "inits")):
        rows.append(f"\nMost {title}")
        rows += [f"  {size:>4} {what}" for size, what in result[key]]
    unbuilt = result["stateful_unbuilt"]
    rows.append(f"\nStateful classes that no test builds: {len(unbuilt)} of {result['stateful']}")
    rows += [f"  {name}" for name in unbuilt]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
