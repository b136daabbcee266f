"""The specification's tables of the wire and of the trace are the code's, row by row."""

from __future__ import annotations

import re

from pulsarcast.daemon.answers import STATUS
from pulsarcast.model import trace
from pulsarcast.model.errors import Rejection
from pulsarcast.network import dials, resources
from pulsarcast.protocol import limits
from pulsarcast.protocol.messages import ANSWER_CODES, JoinCode
from pulsarcast.wire import pulsarcast_pb2 as pb
from tests.docs.guides import ROOT

WIRE = (ROOT / "docs/spec/wire.md").read_text(encoding="utf-8")
TRACE = (ROOT / "docs/spec/trace.md").read_text(encoding="utf-8")
THREATS = (ROOT / "docs/spec/threats.md").read_text(encoding="utf-8")
HTTP = (ROOT / "docs/guides/http.md").read_text(encoding="utf-8")


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table that begins with this heading."""
    _, found, rest = page.partition(f"| {heading} |")
    assert found, f"no table begins with {heading!r}"
    lines = rest.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_message_has_its_number_in_the_wires_table() -> None:
    cells = [cell for row in rows(WIRE, "field of `Frame`") for cell in row]
    told = {int(cells[at]): cells[at + 1] for at in range(0, len(cells), 2) if cells[at]}
    fields = pb.Frame.DESCRIPTOR.oneofs_by_name["message"].fields
    assert told == {field.number: field.message_type.name for field in fields}


def test_every_limit_of_the_wire_is_in_its_table() -> None:
    told: dict[str, int] = {}
    for names, _, values in rows(WIRE, "name"):
        found = re.findall(r"`(\w+)`", names)
        # `DIGEST_BYTES_MIN`, `_MAX`: the second begins as the first does.
        found = [it if it[0] != "_" else found[0].rpartition("_")[0] + it for it in found]
        numbers = [value_of(it) for it in values.split(", ")]
        numbers *= len(found) if len(numbers) == 1 else 1
        told |= dict(zip(found, numbers, strict=True))
    built = {name: value for name, value in vars(limits).items() if name.isupper()}
    assert told == built


def test_every_budget_is_in_its_table() -> None:
    told: dict[str, float] = {}
    for names, _, values, _ in rows(THREATS, "budget"):
        found = re.findall(r"`([\w.]+)`", names)
        told |= dict(zip(found, map(value_of, values.split(", ")), strict=True))
    built = {name: value for name, value in vars(resources).items() if name.isupper()}
    built |= {f"dials.{name}": value for name, value in vars(dials).items() if name.isupper()}
    assert told == built


def value_of(cell: str) -> float:
    """`4 MiB`, `2^63 - 1` and `1,024` as numbers."""
    if match := re.fullmatch(r"(\d+) MiB", cell):
        return int(match[1]) * 2**20
    if match := re.fullmatch(r"(\d+) KiB", cell):
        return int(match[1]) * 2**10
    if match := re.fullmatch(r"2\^(\d+) - 1", cell):
        return (1 << int(match[1])) - 1
    return float(cell.replace(",", ""))


def test_every_kind_of_trace_record_is_in_its_table_with_its_fields() -> None:
    told: dict[str, list[str]] = {}
    for kinds, fields, _ in rows(TRACE, "kind"):
        for kind in re.findall(r"`(\w+)`", kinds):
            told[kind] = [name for name in fields.split(", ") if name]
    assert told == {kind: list(fields) for kind, fields in trace.SCHEMA.items()}


def test_every_field_of_a_traces_line_is_in_its_table() -> None:
    told: dict[str, str] = {}
    for names, ddl, _ in rows(TRACE, "field"):
        told |= dict.fromkeys(re.findall(r"`(\w+)`", names), ddl)
    assert told == {**trace.ENVELOPE_SCHEMA, "kind": "string"}


def test_the_traces_page_names_its_version_and_levels() -> None:
    told = {name.strip("`"): value for name, _, value in rows(TRACE, "name")}
    assert int(told["SCHEMA_VERSION"]) == trace.SCHEMA_VERSION
    assert re.findall(r"`(\w+)`", told["LEVELS"]) == list(trace.LEVELS)
    assert f"| Version | {trace.SCHEMA_VERSION} " in TRACE
    assert f'{{"schema_version":{trace.SCHEMA_VERSION},' in TRACE


def codes(page: str, heading: str) -> list[str]:
    """The codes in the first column of a table."""
    return [code.strip("`") for code, *_ in rows(page, heading)]


def test_every_code_of_a_trace_is_in_its_table() -> None:
    assert codes(TRACE, "code in `rejected`") == list(Rejection)
    assert codes(TRACE, "code in `node_stopped`") == list(trace.StopReason)


def test_every_code_of_the_wire_is_in_its_table() -> None:
    told = codes(WIRE, "`RequestAnswered.code`")
    assert sorted(told) == sorted(ANSWER_CODES)
    assert codes(WIRE, "`JoinRefused.code`") == list(JoinCode)
    assert all(len(code) <= limits.CODE_BYTES_MAX for code in (*told, *JoinCode))


def test_every_code_of_a_refusal_is_in_its_table_with_its_status() -> None:
    told = {code.strip("`"): int(status) for code, status, *_ in rows(HTTP, "code")}
    assert told == dict(STATUS)
