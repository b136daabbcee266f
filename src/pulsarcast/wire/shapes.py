"""Shapes: generates the source code that packs, reads and measures a value of a field's type.

Each shape writes three pieces of Python:

- `pack`: an expression, which Protocol Buffers takes;
- `read`: lines that refuse what a check of the field refuses, and an expression for the value;
- `size`: lines that add up the bytes that the value takes.

A field is a tag, of one byte for all fields but those of Frame, and a value. Bytes, texts and
records have their length in front, as a varint. A value that is zero or empty is left out, except
for elements of lists and `optional` fields.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import copysign
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor

from pulsarcast.model.errors import Rejection, Verdict
from pulsarcast.model.ids import CID_BYTES, PEER_ID_BYTES, Cid, PeerId, check_cid, check_peer_id
from pulsarcast.protocol.fields import AsMany, Bound, Many, Newer, Size, Steps, Total, UpTo, Whole
from pulsarcast.wire.refusing import refusal

IDS: Final[dict[object, tuple[str, int]]] = {
    Cid: ("_check_cid", CID_BYTES),
    PeerId: ("_check_peer_id", PEER_ID_BYTES),
}


def steps_between(start: int, numbers: Sequence[int]) -> Iterator[int]:
    """From each number to the next: small, so a byte each, where the numbers are large."""
    for number in numbers:
        assert number > start, "numbers beyond a mark ascend"
        yield number - start
        start = number


NAMES: Final[dict[str, Any]] = {
    "_IGNORE": Verdict.IGNORE,
    "_Rejection": Rejection,
    "_accumulate": accumulate,
    "_check_cid": check_cid,
    "_check_peer_id": check_peer_id,
    "_copysign": copysign,
    "_encode": str.encode,
    "_integer": int.from_bytes,
    "_refusal": refusal,
    "_steps": steps_between,
    "_tuple": tuple.__new__,
}
"""Names that the source may use, beside builtins; records and enums add themselves."""


class Reading(NamedTuple):
    """How a field is read: local variables, then checks of them, then the value."""

    loads: list[str]
    checks: list[str]
    value: str


class Shape:
    """How values of one type travel."""

    bytes_always = 0
    """How many bytes every value takes with its tag, if that is one number."""

    def pack(self, at: str) -> str:
        """The value at `at`, as Protocol Buffers takes it."""
        return at

    def entry(self, at: str, name: str) -> str:
        """A field of what is at `at`, in the mapping that Protocol Buffers takes."""
        return f'"{name}": {self.pack(at + name)}'

    def read(self, given: str, name: str, what: str) -> Reading:
        """How the field `name` of the message `given` is read."""
        raise NotImplementedError

    def read_each(self, name: str, what: str) -> list[str]:
        """Lines that make of the list `name` a tuple of checked values."""
        raise TypeError(f"{what}: no list of {type(self).__name__} yet")

    def size(self, at: str, into: str) -> list[str]:
        """Lines that add the bytes of a field that may be left out to the number `into`."""
        return []

    def size_present(self, at: str, into: str) -> list[str]:
        """Lines that add the bytes of a field that is there, even if it is empty."""
        return [f"{into} += {self.bytes_always}"]


def refuse_if(condition: str, what: str, check: object = None) -> list[str]:
    """Lines that refuse a message, with the code that fits the check."""
    why, code = what, ""
    if check is not None:
        why = f"{what} breaks {check}"
    match check:
        case Bound(0) | Size(0):
            code = ", _Rejection.OVERSIZE"
        case Many() | Total():
            code = ", _Rejection.TOO_MANY"
        case Newer():
            why, code = f"{what} is unknown", ", _Rejection.UNKNOWN_KIND, _IGNORE"
    return [f"if {condition}:", f"    raise _refusal({why!r}{code})"]


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def with_number(number: str, into: str) -> str:
    """A line that adds a tag and a varint: seven bits a byte. Exact for up to 64 bits."""
    return f"{into} += ({number}.bit_length() * 9 + 128) >> 6"


def with_length(length: str, into: str) -> str:
    """A line that adds a tag, a length and so many bytes."""
    return f"{into} += {length} + (({length}.bit_length() * 9 + 128) >> 6)"


# Single values.


class Plain(Shape):
    """A number, a truth value, a text or bytes: Protocol Buffers has them as they are."""

    def __init__(self, base: type, checks: Sequence[object], field: FieldDescriptor) -> None:
        if not checks and base is not bool:
            raise TypeError(f"{field.full_name} has no bound")
        self.base = base
        self.checks: list[object] = []
        for check in checks:
            match check:
                case Size(1, int(high)):  # too short and too long are two faults
                    self.checks += (Size(1, None), Size(0, high))
                case Size(0, None):
                    pass
                case _:
                    self.checks.append(check)
        self.is_fixed = field.type == FieldDescriptor.TYPE_FIXED64

    def read(self, given: str, name: str, what: str) -> Reading:
        if not self.checks:
            return Reading([], [], f"{given}.{name}")
        lines: list[str] = []
        for check in self.checks:
            lines += refuse_if(self._breaks(check, name), what, check)
        return Reading([f"{name} = {given}.{name}"], lines, name)

    def read_each(self, name: str, what: str) -> list[str]:
        lines = [f"{name} = tuple({name})"]
        for check in self.checks:
            lines += refuse_if(self._one_breaks(check, name), f"one of {what}", check)
        return lines

    def size(self, at: str, into: str) -> list[str]:
        if self.base is bool:
            return [f"if {at}: {into} += 2"]
        if self.base is float:  # -0.0 travels
            return [f"if {at} or _copysign(1.0, {at}) < 0.0: {into} += 9"]
        if self.is_fixed:
            return [f"if {at}: {into} += 9"]
        if self.base is int:
            return [f"if n := {at}: {with_number('n', into)}"]
        return [f"if n := {self._length(at)}: {with_length('n', into)}"]

    def size_present(self, at: str, into: str) -> list[str]:
        return [f"n = {self._length(at)}", with_length("n", into)]

    def _length(self, at: str) -> str:
        return f"len({at}.encode())" if self.base is str else f"len({at})"

    def _breaks(self, check: object, at: str) -> str:
        """Whether a value breaks a check."""
        match check:
            case Bound(0, high) if self.base is int:  # the schema has no negative ones
                return f"{at} > {high}"
            case Bound(low, high):  # not a number breaks it too
                return f"not {low} <= {at} <= {high}"
            case UpTo(other):
                return f"{at} > {other}"
            case Size(1, None):
                return f"not {at}"
            case Size(0, high):
                return f"{self._length(at)} > {high}"
            case Size(low, high):
                return f"not {low} <= {self._length(at)} <= {high}"
            case Whole(part):
                return f"len({at}) % {part}"
        raise TypeError(f"{check} is no check of a value")

    def _one_breaks(self, check: object, at: str) -> str:
        """Whether an element of a list that is not empty breaks a check."""
        lengths = f"map(len, map(_encode, {at}))" if self.base is str else f"map(len, {at})"
        match check:
            case Bound(0, high) if self.base is int:
                return f"max({at}) > {high}"
            case Size(1, None):
                return f"not all({at})"
            case Size(0, high):
                return f"max({lengths}) > {high}"
        raise TypeError(f"{check} is no check of a list's elements yet")


class Id(Shape):
    """A content id or a peer id."""

    def __init__(self, base: object) -> None:
        self.check, length = IDS[base]
        self.bytes_always = 2 + length

    def read(self, given: str, name: str, what: str) -> Reading:
        return Reading([], [], f"{self.check}({given}.{name})")

    def read_each(self, name: str, what: str) -> list[str]:
        return [f"{name} = tuple(map({self.check}, {name}))"]


class WideNumber(Shape):
    """A number of more than 64 bits, as bytes."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.bytes_always = 2 + length

    def pack(self, at: str) -> str:
        return f'{at}.to_bytes({self.length}, "big")'

    def read(self, given: str, name: str, what: str) -> Reading:
        checks = refuse_if(f"len({name}) != {self.length}", f"{what} has not {self.length} bytes")
        return Reading([f"{name} = {given}.{name}"], checks, f'_integer({name}, "big")')


class Choice(Shape):
    """A member of an enum."""

    def __init__(self, base: type[enum.IntEnum], newer: Newer | None) -> None:
        self.known = f"_{base.__name__}"
        self.newer = newer
        NAMES[self.known] = {int(member): member for member in base}.get

    def read(self, given: str, name: str, what: str) -> Reading:
        wrong = f"{name} is None"
        checks = refuse_if(wrong, what if self.newer else f"{what} is unknown", self.newer)
        return Reading([f"{name} = {self.known}({given}.{name})"], checks, name)

    def size(self, at: str, into: str) -> list[str]:
        return [f"if n := {at}: {with_number('n', into)}"]


class Maybe(Shape):
    """A value or None: an absent field, or an empty one if the schema has it so."""

    def __init__(self, inner: Shape, *, has_presence: bool) -> None:
        self.inner = inner
        self.has_presence = has_presence

    def pack(self, at: str) -> str:
        if not self.has_presence:
            return f'{at} or b""'
        packed = self.inner.pack(at)
        return at if packed == at else f"None if {at} is None else {packed}"

    def read(self, given: str, name: str, what: str) -> Reading:
        loads, checks, value = self.inner.read(given, name, what)
        there = f'{given}.HasField("{name}")' if self.has_presence else f"{given}.{name}"
        if not loads and not checks:
            return Reading([], [], f"{value} if {there} else None")
        lines = [*loads, *checks, f"{name} = {value}"]
        return Reading([], [f"if {there}:", *indented(lines), f"else: {name} = None"], name)

    def size(self, at: str, into: str) -> list[str]:
        return [f"if {at} is not None:", *indented(self.inner.size_present(at, into))]


# Lists.


class Row(Shape):
    """A list, of at most so many elements."""

    def __init__(self, element: Shape, checks: Sequence[object], field: FieldDescriptor) -> None:
        bounds = [check for check in checks if isinstance(check, Many)]
        if not bounds:
            raise TypeError(f"{field.full_name} has no bound")
        self.bound = bounds[0]
        self.element = element
        self.checks = checks

    def pack(self, at: str) -> str:
        if isinstance(self.element, Record):
            packed = self.element.pack_from(self.element.each)
            return f"[{packed} for {self.element.loop} in {at}]"
        return at

    def read(self, given: str, name: str, what: str) -> Reading:
        lines = refuse_if(f"len({name}) > {self.bound.high}", what, self.bound)
        for check in self.checks:
            if isinstance(check, AsMany):
                wrong = f"len({name}) != len({check.other})"
                lines += refuse_if(wrong, what, check)
        lines += self._read_each(name, what)
        if self.bound.low:
            few = f"len({name}) < {self.bound.low}"
            lines = [*refuse_if(few, what, self.bound), *lines]
        else:
            lines = [f"if {name}:", *indented(lines), f"else: {name} = ()"]
        return Reading([f"{name} = {given}.{name}"], lines, name)

    def size(self, at: str, into: str) -> list[str]:
        if self.element.bytes_always:
            return [f"{into} += len({at}) * {self.element.bytes_always}"]
        if not isinstance(self.element, Record):
            return [f"for each in {at}:", *indented(self.element.size_present("each", into))]
        element = self.element
        lines = element.size_from(element.each, into)
        varying = [field for field in element.fields if not field.shape.bytes_always]
        if len(varying) != 1 or not isinstance(varying[0].shape, Row):
            return [f"for {element.loop} in {at}:", *indented(lines)]
        # Contacts: most have no address.
        bare = 2 + sum(field.shape.bytes_always for field in element.fields)
        lines = [f"if {element.each}{varying[0].name}:", *indented([f"{into} -= {bare}", *lines])]
        return [f"{into} += len({at}) * {bare}", f"for {element.loop} in {at}:", *indented(lines)]

    def _read_each(self, name: str, what: str) -> list[str]:
        return self.element.read_each(name, what)


class Summed(Row):
    """A list of records whose own lists are bounded together."""

    def _read_each(self, name: str, what: str) -> list[str]:
        # One by one: all that a frame can hold would take much memory.
        assert isinstance(self.element, Record)
        total = next(check for check in self.checks if isinstance(check, Total))
        lines = [
            f"each = _read_{self.element.title}(each)",
            f"left -= len(each.{total.of})",
            *refuse_if("left < 0", what, total),
            "read.append(each)",
        ]
        head = ["read = []", f"left = {total.high}", f"for each in {name}:"]
        return [*head, *indented(lines), f"{name} = tuple(read)"]


class Ascending(Row):
    """Ascending numbers, as steps from each to the next."""

    def __init__(self, element: Shape, checks: Sequence[object], field: FieldDescriptor) -> None:
        super().__init__(element, checks, field)
        self.name = field.name
        self.start = next(check.start for check in checks if isinstance(check, Steps))

    def pack(self, at: str) -> str:
        return f"list(_steps({self._start_beside(at)}, {at}))"

    def size(self, at: str, into: str) -> list[str]:
        each = f"_steps({self._start_beside(at)}, {at})"
        total = f"n = sum([(step.bit_length() * 9 + 64) >> 6 for step in {each}])"
        return [f"if {at}:", *indented([total, with_length("n", into)])]

    def _read_each(self, name: str, what: str) -> list[str]:
        return [
            *refuse_if(f"not all({name})", f"{what} do not ascend"),
            f"{name} = tuple(_accumulate({name}, initial={self.start}))[1:]",
            *self.element.read_each(name, what)[1:],
        ]

    def _start_beside(self, at: str) -> str:
        return at.removesuffix(self.name) + self.start


# Records.


class Field(NamedTuple):
    """A field of a record."""

    name: str
    shape: Shape
    is_mostly_empty: bool
    """Whether it has an empty default: Protocol Buffers takes its time for empty values too."""


class Record(Shape):
    """A message, or a record inside one."""

    is_made_by_name = False

    def __init__(self, kind: Any, title: str, fields: list[Field]) -> None:
        self.title = title
        self.fields = fields
        self.is_struct = hasattr(kind, "__struct_fields__")
        self.is_named = isinstance(kind, type)
        # In a loop, a tuple is taken apart.
        self.each = "each." if self.is_struct else "each_"
        self.loop = "each" if self.is_struct else "".join(f"each_{it.name}," for it in fields)
        NAMES[title] = kind

    def pack(self, at: str) -> str:
        return self.pack_from(f"{at}.")

    def pack_from(self, at: str) -> str:
        """A mapping: made from one, a frame is filled in once instead of copied."""
        whole = self._mapping(at, self.fields)
        for field in self.fields:
            if field.is_mostly_empty:
                there = at + field.name + " is not None" * isinstance(field.shape, Maybe)
                rest = self._mapping(at, [other for other in self.fields if other is not field])
                return f"({whole} if {there} else {rest})"
        return whole

    def _mapping(self, at: str, fields: list[Field]) -> str:
        return "{" + ", ".join(field.shape.entry(at, field.name) for field in fields) + "}"

    def read(self, given: str, name: str, what: str) -> Reading:
        return Reading([], [], f"_read_{self.title}({given}.{name})")

    def read_each(self, name: str, what: str) -> list[str]:
        return [f"{name} = tuple(map(_read_{self.title}, {name}))"]

    def read_function(self) -> list[str]:
        """A function that reads a message of Protocol Buffers."""
        loads, checks, value = self.read_from("given")
        lines = [*loads, *checks, f"return {value}"]
        return [f"def _read_{self.title}(given):", *indented(lines)]

    def read_from(self, given: str) -> Reading:
        """The record, from the fields of a message."""
        loads, checks, value = self._read_fields(given)
        if self.is_struct:
            return Reading(loads, checks, f"{self.title}({value})")
        if self.is_named:  # its own constructor is a Python function around this one
            return Reading(loads, checks, f"_tuple({self.title}, ({value}))")
        return Reading(loads, checks, f"({value})")

    def _read_fields(self, given: str) -> Reading:
        """The fields, as arguments."""
        loads: list[str] = []
        checks: list[str] = []
        values: list[str] = []
        for name, shape, _ in self.fields:
            reading = shape.read(given, name, f"{self.title}.{name}")
            loads += reading.loads
            checks += reading.checks
            values.append(f"{name}=" * self.is_made_by_name + reading.value)
        return Reading(loads, checks, ", ".join(values))

    def size(self, at: str, into: str) -> list[str]:
        return self.size_from(f"{at}.", into)

    size_present = size

    def size_from(self, at: str, into: str) -> list[str]:
        """Lines that add the bytes of a record inside a message."""
        inner = f"{into}_"
        return [f"{inner} = 0", *self.size_fields(at, inner), with_length(inner, into)]

    def size_fields(self, at: str, into: str) -> list[str]:
        """Lines that add the bytes of all fields."""
        always = sum(field.shape.bytes_always for field in self.fields)
        lines = [line for name, shape, _ in self.fields for line in shape.size(at + name, into)]
        return [f"{into} += {always}", *lines] if always else lines


class FlatRecord(Record):
    """A record whose fields travel among those of the record that holds it, or not at all."""

    is_made_by_name = True

    def entry(self, at: str, name: str) -> str:
        return self._mapping(f"{at}{name}.", self.fields)[1:-1]

    def read(self, given: str, name: str, what: str) -> Reading:
        return self.read_from(given)

    def size(self, at: str, into: str) -> list[str]:
        return self.size_fields(f"{at}.", into)


class InnerRecord(Record):
    """A record that only the schema has: it holds some fields of the type."""

    def pack(self, at: str) -> str:
        return self.pack_from(at.removesuffix(self.title))

    def read(self, given: str, name: str, what: str) -> Reading:
        return self._read_fields(f"{given}.{name}")

    def size(self, at: str, into: str) -> list[str]:
        return self.size_from(at.removesuffix(self.title), into)
