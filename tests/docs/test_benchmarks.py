"""What benchmarks say of a trace is what a trace is, so that both sides of a comparison read it."""

from __future__ import annotations

import re

from pulsarcast.pipeline.schema import LINE
from tests.docs.guides import ROOT


def columns(ddl: str) -> list[str]:
    """Names and types, however they are written, by name."""
    text = re.sub(r"\s*([<>:,])\s*", r"\1", ddl.replace("`", "").lower().strip())
    return sorted(re.split(r",(?![^<]*>)", text))


def test_plain_sql_reads_every_field_of_a_line() -> None:
    text = (ROOT / "benchmarks/pipeline.sql").read_text(encoding="utf-8")
    view = re.search(r"CREATE TEMPORARY VIEW said \((.*?)\) USING json", text, re.DOTALL)
    assert view
    assert columns(view[1]) == columns(f"{LINE}, _corrupt_record string")
