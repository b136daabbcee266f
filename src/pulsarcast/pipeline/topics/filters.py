"""Filters as Spark sees them: the same text, the same rows (`model.filters`).

Filters follow SQL where an attribute is missing, so Spark's own nulls do most of the work. What
differs is settled here. An attribute is looked at through its domain, so NaN and what the schema
does not allow are missing, and integers of a float attribute are rounded as Python rounds them.
Patterns run on RE2 in Python, some thousand rows at a time: Java reads patterns differently and
may take for ever.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_
from typing import Any

import pandas as pd
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import BooleanType

from pulsarcast.model.filters import Filter
from pulsarcast.model.filters.domains import Domain, Domains, Value
from pulsarcast.model.filters.regexes import compiled, occurs
from pulsarcast.model.filters.terms import All, Comparison, Listed, Presence, Some, Term, TextTest

_SPARK_TYPES = {"int": "bigint", "timestamp": "bigint", "float": "double", "str": "string"}


def filter_column(wanted: Filter, attributes: Column | str = "attributes") -> Column:
    """Whether a row matches: true or false, never null."""
    found = F.col(attributes) if isinstance(attributes, str) else attributes
    views = {name: _view(domain, found) for name, domain in wanted.domains.items()}
    return F.coalesce(_term(wanted.term, views, wanted.domains), F.lit(False))


def subscribed_column(wanted: Filter) -> Column:
    """Whether a subscription with this filter is handed a row: merges of causal order never are."""
    return filter_column(wanted) & F.col("payload").isNotNull()


def _view(domain: Domain, attributes: Column) -> Column:
    """An attribute as filters see it; null where it is missing or not what the schema allows."""
    value = F.try_element_at(attributes, F.lit(domain.name))
    if domain.kind == "str":
        text = value["text"]
        within = text >= F.lit(domain.low)
        return F.when(within if domain.high is None else within & (text <= domain.high), text)
    if domain.kind == "bool":
        return value["bool"]
    number = value["int"]
    if domain.kind == "float":
        # Spark takes NaN for larger than any number: it is not within bounds. -0.0 becomes 0.0.
        number = F.coalesce(value["float"], number.cast("double")) + F.lit(0.0)
    within = (number >= _literal(domain.low, domain)) & (number <= _literal(domain.high, domain))
    return F.when(within, number)


def _literal(value: Value, domain: Domain) -> Column:
    kind = _SPARK_TYPES.get(domain.kind)
    return F.lit(value) if kind is None else F.lit(value).cast(kind)


def _term(term: Term, views: dict[str, Column], domains: Domains) -> Column:
    if isinstance(term, (All, Some)):
        parts = [_term(part, views, domains) for part in term.parts]
        return reduce(and_ if isinstance(term, All) else or_, parts)
    view, domain = views[term.name], domains[term.name]
    if isinstance(term, Comparison):
        return _compared(term, view, _literal(term.value, domain))
    if isinstance(term, Presence):
        return view.isNotNull() if term.present else view.isNull()
    if isinstance(term, Listed):
        found = reduce(or_, [view == _literal(value, domain) for value in term.choices])
    else:
        found = _text_test(term, view)
    return ~found if term.negated else found


def _compared(term: Comparison, view: Column, value: Column) -> Column:
    match term.sign:
        case "=":
            return view == value
        case "!=":
            return view != value
        case "<":
            return view < value
        case "<=":
            return view <= value
        case ">":
            return view > value
        case _:
            return view >= value


def _text_test(term: TextTest, view: Column) -> Column:
    if term.how == "starts with":
        return view.startswith(F.lit(term.part))
    if term.how == "ends with":
        return view.endswith(F.lit(term.part))
    pattern = term.part

    def found(texts: pd.Series) -> pd.Series:
        regex = compiled(pattern)
        return pd.Series(
            [None if text is None else occurs(regex, text) for text in texts], dtype="object"
        )

    make: Any = pandas_udf  # its stubs know no closures
    column: Column = make(found, BooleanType())(view)
    return column
