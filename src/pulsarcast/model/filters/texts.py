"""Filters as text: the one canonical way to write each, which parses to an equal one."""

from __future__ import annotations

import re
from typing import Final

from pulsarcast.model.filters.domains import Domains, Value, time_text
from pulsarcast.model.filters.terms import (
    All,
    Comparison,
    Listed,
    Presence,
    Some,
    Term,
    joined,
)

KEYWORDS: Final = frozenset(
    ("and", "or", "not", "in", "starts", "ends", "with", "matches", "is", "missing", "present")
).union(("true", "false"))

_PLAIN_NAME: Final = re.compile(r"[^\W\d]\w*")


def name_text(name: str) -> str:
    """An attribute's name: in backticks where it would be read as something else."""
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in KEYWORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def value_text(value: Value, kind: str) -> str:
    """A value, as the type of its attribute has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if kind == "timestamp":
        return time_text(int(value))
    return repr(value).removesuffix(".0")


def term_text(term: Term, domains: Domains) -> str:
    """A term, with parentheses where `or` stands within `and`."""
    if isinstance(term, Some):
        return " or ".join(term_text(part, domains) for part in term.parts)
    if isinstance(term, All):
        return " and ".join(
            f"({text})" if isinstance(part, Some) else text
            for part in term.parts
            for text in (term_text(part, domains),)
        )
    name, kind = name_text(term.name), domains[term.name].kind
    if isinstance(term, Comparison):
        return f"{name} {term.sign} {value_text(term.value, kind)}"
    if isinstance(term, Presence):
        return f"{name} is {'present' if term.present else 'missing'}"
    negation = "not " if term.negated else ""
    if isinstance(term, Listed):
        listed = ", ".join(value_text(value, kind) for value in term.choices)
        return f"{name} {negation}in ({listed})"
    return f"{name} {negation}{term.how} {value_text(term.part, kind)}"


def canonical(term: Term, domains: Domains) -> Term:
    """The term as its canonical text says it: what differs in spelling alone becomes equal."""
    if isinstance(term, (All, Some)):
        parts = [canonical(part, domains) for part in term.parts]
        return joined(type(term), parts, lambda part: term_text(part, domains))
    if isinstance(term, Comparison) and isinstance(term.value, bool) and term.sign == "!=":
        return Comparison(term.name, "=", not term.value)
    return term
