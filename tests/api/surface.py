"""What programs may rest on: every public name with its signature, as text.

Public is what the reference pages name. Members that begin with an underscore are not, but for
`__init__` and the like where a class defines them itself.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
PAGES = ("docs/reference/library.md", "docs/reference/client.md")

CALLED_BY_SYNTAX = {
    "__init__", "__call__", "__len__", "__iter__", "__next__", "__enter__", "__exit__",
    "__aiter__", "__anext__", "__aenter__", "__aexit__",
}  # fmt: skip
"""Special methods that a program meets by `with`, `for`, `len` or a call."""


def public_names() -> list[str]:
    """What the reference shows, in its order."""
    pages = [(ROOT / page).read_text(encoding="utf-8") for page in PAGES]
    return [name for page in pages for name in re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE)]


def resolve(name: str) -> object:
    """The thing that a public name stands for."""
    module, _, last = name.rpartition(".")
    found: object = getattr(importlib.import_module(module), last)
    return found


def told() -> str:
    """The whole surface."""
    return "\n\n".join("\n".join(describe(name)) for name in public_names()) + "\n"


def describe(name: str) -> Iterator[str]:
    """One public name and its members, a line each."""
    thing = resolve(name)
    if not isinstance(thing, type):
        assert callable(thing), name
        yield f"def {name}{_signature(thing)}"
        return
    bases = ", ".join(base.__name__ for base in thing.__bases__ if base is not object)
    yield f"class {name}({bases})"
    if issubclass(thing, enum.Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in thing)
    elif issubclass(thing, msgspec.Struct):
        yield from _fields(thing)
    for member in sorted(set(_members(thing))):
        yield f"    {member}"


def _fields(thing: type[msgspec.Struct]) -> Iterator[str]:
    """A structure's fields: their order matters, for they may be given by place."""
    hints = inspect.get_annotations(thing)
    for field in msgspec.structs.fields(thing):
        if field.name.startswith("_"):
            continue  # JSON has it under another name, and a program by a property.
        default = f" = {field.default!r}" if field.default is not msgspec.NODEFAULT else ""
        if field.default_factory is not msgspec.NODEFAULT:
            default = f" = {field.default_factory()!r}"
        yield f"    {field.name}: {_annotation(hints.get(field.name, field.type))}{default}"


def _members(thing: type) -> Iterator[str]:
    for base in thing.__mro__:
        if not base.__module__.startswith("pulsarcast."):
            continue
        for name, raw in vars(base).items():
            if name.startswith("_") and name not in CALLED_BY_SYNTAX:
                continue
            if isinstance(raw, property):
                hint = inspect.get_annotations(raw.fget).get("return") if raw.fget else None
                yield f"{name} -> {_annotation(hint)}"
            elif isinstance(raw, classmethod | staticmethod):
                kind = type(raw).__name__
                yield f"{_word(raw.__func__)} {name}{_signature(raw.__func__)}  # {kind}"
            elif inspect.isfunction(raw) and raw.__module__.startswith("pulsarcast."):
                yield f"{_word(raw)} {name}{_signature(raw)}"


def _word(function: object) -> str:
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    return "async def" if is_async else "def"


def _signature(function: object) -> str:
    assert callable(function)
    signature = inspect.signature(function)
    parameters = []
    for parameter in signature.parameters.values():
        hint = parameter.annotation
        shown = parameter if hint is parameter.empty else parameter.replace(annotation=_Text(hint))
        parameters.append(shown)
    hint = signature.return_annotation
    result = hint if hint is signature.empty else _Text(hint)
    return str(inspect.Signature(parameters, return_annotation=result))


class _Text:
    """An annotation that shows itself as it stands in the source, without quotes."""

    def __init__(self, hint: object) -> None:
        self._text = _annotation(hint)

    def __repr__(self) -> str:
        return self._text


def _annotation(hint: object) -> str:
    return hint if isinstance(hint, str) else inspect.formatannotation(hint)
