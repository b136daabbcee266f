"""Messages of every kind, made from the types and checks of their fields."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from itertools import accumulate
from math import nan
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from pulsarcast.model.cbor import encode
from pulsarcast.model.ids import CID_PREFIX, PEER_ID_PREFIX, Cid, PeerId, cid_of, peer_id_of
from pulsarcast.protocol.content.messages import ProbeEvent, Target
from pulsarcast.protocol.fields import (
    AsMany,
    BigEndian,
    Bound,
    Many,
    Newer,
    Parts,
    Size,
    Steps,
    Unsent,
    UpTo,
    Whole,
)
from pulsarcast.protocol.limits import INTEGER_MAX
from pulsarcast.protocol.messages import Message

KINDS: tuple[type, ...] = get_args(Message)
TOPIC = cid_of(b"topic")
PEER = peer_id_of(bytes(range(32)))

_hash = st.binary(min_size=32, max_size=32)
peers = _hash.map(lambda raw: PeerId(PEER_ID_PREFIX + raw))
cids = _hash.map(lambda raw: Cid(CID_PREFIX + raw))
characters = st.characters(exclude_categories=["Cs"])


def split(hint: Any) -> tuple[Any, dict[type, Any]]:
    """A type, and what its annotation says of it."""
    if get_origin(hint) is not Annotated:
        return hint, {}
    return hint.__origin__, {type(check): check for check in hint.__metadata__}


def fields_of(kind: Any) -> dict[str, Any]:
    """The fields of a record that travel."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint for name, hint in hints.items() if Unsent not in split(hint)[1]}


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Values that keep to all checks of their own."""
    base, checks = split(hint)
    match base:
        case _ if base is Cid:
            return cids
        case _ if base is PeerId:
            return peers
        case _ if NoneType in get_args(base):
            return st.none() | of_type(get_args(base)[0])
        case _ if Parts in checks:
            return st.tuples(*map(of_type, get_args(base)))
        case _ if Steps in checks:  # made numbers by `_agreeing`
            return st.lists(st.integers(1, 300), max_size=4).map(tuple)
        case _ if get_origin(base) is tuple:
            element = of_type(get_args(base)[0])
            many = checks[Many]
            return st.lists(element, min_size=many.low, max_size=min(4, many.high)).map(tuple)
        case _ if issubclass(base, enum.IntEnum):
            return st.sampled_from(base)
        case _ if base is bool:
            return st.booleans()
        case _ if BigEndian in checks:
            return st.integers(0, 256 ** checks[BigEndian].size - 1)
        case _ if base is float:
            return st.floats(checks[Bound].low, checks[Bound].high)
        case _ if base is int:
            low, high = bounds(checks)
            edges = [it for it in (0, 1, 127, 128, 16383, 16384, high) if low <= it <= high]
            return st.integers(low, high) | st.sampled_from(edges)
        case _ if base is str:
            text = st.text(characters, min_size=checks[Size].low, max_size=20)
            return text.filter(lambda it: len(it.encode()) <= checks[Size].high)
        case _ if Whole in checks:
            part, least = checks[Whole].part, checks[Size].low
            parts = st.binary(min_size=part, max_size=part)
            return st.lists(parts, min_size=least // part, max_size=4).map(b"".join)
        case _ if base is bytes:
            low, high = checks[Size].low, checks[Size].high
            return st.binary(min_size=low, max_size=low + 300 if high is None else high)
        case _:
            return of_kind(base)


def bounds(checks: dict[type, Any]) -> tuple[int, int]:
    bound = checks.get(Bound, Bound(0, INTEGER_MAX))
    return int(bound.low), int(bound.high)


def of_kind(kind: Any) -> st.SearchStrategy[Any]:
    """Records of one kind that keep to all checks."""
    parts = {name: of_type(hint) for name, hint in fields_of(kind).items()}
    if kind is ProbeEvent:  # its topic is the one that its block names
        return st.builds(kind, **parts).map(
            lambda probe: replace(probe, block=encode({"r": {"t": probe.topic}}))
        )
    return st.builds(kind, **parts).map(_agreeing)


def _agreeing(record: Any) -> Any:
    """The record, with fields changed so that they agree with each other."""
    for name, hint in fields_of(type(record)).items():
        value = getattr(record, name)
        for check in split(hint)[1].values():
            match check:
                case UpTo(other) if value > getattr(record, other):
                    record = changed(record, other, value)
                case AsMany(other):
                    count = len(getattr(record, other)) if value else 0
                    record = changed(record, name, (value * count)[:count])
    # Only now does what the steps start from stand.
    for name, hint in fields_of(type(record)).items():
        match split(hint)[1].get(Steps):
            case Steps(start):
                numbers = accumulate(getattr(record, name), initial=getattr(record, start))
                fitting = tuple(it for it in list(numbers)[1:] if it <= INTEGER_MAX)
                record = changed(record, name, fitting)
    return record


def changed(record: Any, name: str, value: object) -> Any:
    """A record with another value in one field."""
    if isinstance(record, Struct):
        return replace(record, **{name: value})
    return record._replace(**{name: value})


any_message = st.one_of([of_kind(kind) for kind in KINDS])


# One of each, and what breaks its checks.


def sample(hint: Any) -> Any:
    """A value that keeps to all checks, with something in every list."""
    base, checks = split(hint)
    match base:
        case _ if base is Cid:
            return TOPIC
        case _ if base is PeerId:
            return PEER
        case _ if NoneType in get_args(base):
            return sample(get_args(base)[0])
        case _ if Parts in checks:
            return tuple(map(sample, get_args(base)))
        case _ if Steps in checks:
            return ()
        case _ if get_origin(base) is tuple:
            return (sample(get_args(base)[0]),)
        case _ if base is str:
            return "a"
        case _ if base is bytes:
            return bytes(max(1, checks[Size].low, checks[Whole].part if Whole in checks else 0))
        case _ if base in (int, float, bool):
            return base(1)
        case _ if issubclass(base, enum.IntEnum):
            return next(iter(base))
        case _ if base is ProbeEvent:
            return replace(_sample_of(base), block=encode({"r": {"t": TOPIC}}))
        case _:
            return _sample_of(base)


def _sample_of(kind: Any) -> Any:
    return kind(**{name: sample(hint) for name, hint in fields_of(kind).items()})


def broken(hint: Any) -> Iterator[Any]:
    """Values that break one check each."""
    base, checks = split(hint)
    whole = sample(hint)
    if base is Cid:
        yield from (TOPIC[:-1], b"\x01\x55" + TOPIC[2:], b"")
    elif base is PeerId:
        yield from (PEER[:-1], b"\x00\x25" + PEER[2:])
    elif NoneType in get_args(base):
        yield from broken(get_args(base)[0])
    elif Parts in checks:
        for at, part in enumerate(get_args(base)):
            yield from ((*whole[:at], wrong, *whole[at + 1 :]) for wrong in broken(part))
    elif get_origin(base) is tuple:
        yield from ((wrong,) for wrong in broken(get_args(base)[0]) if Steps not in checks)
        yield (
            tuple(range(2, 3 + checks[Many].high))
            if Steps in checks
            else (whole * (checks[Many].high + 1))
        )
        if checks[Many].low:
            yield ()
    elif base in (str, bytes):
        size = checks[Size]
        one = "a" if base is str else b"a"
        if size.low:
            yield one * (size.low - 1)
        if size.high is not None:
            yield one * (size.high + 1)
        if Whole in checks:
            yield one * (checks[Whole].part + 1)
    elif base is float:
        yield from (checks[Bound].low - 0.1, checks[Bound].high + 0.1, nan)
    elif base is int and BigEndian not in checks:  # a key is wrong in its bytes alone
        low, high = bounds(checks)
        yield high + 1
        if low:
            yield low - 1
    elif isinstance(base, type) and issubclass(base, enum.IntEnum):
        if Newer not in checks:
            yield max(map(int, base)) + 1
    elif isinstance(whole, (tuple, Struct)):
        yield from broken_records(base)


def broken_records(kind: Any) -> Iterator[Any]:
    """Records of which one field breaks one check."""
    whole = sample(kind)
    for name, hint in fields_of(kind).items():
        for wrong in broken(hint):
            if (kind, name) == (ProbeEvent, "topic"):
                continue  # does not travel
            if (kind, name, wrong) == (Target, "wanted", 0):
                continue  # stands for `at`
            yield changed(whole, name, wrong)
        for check in split(hint)[1].values():
            match check:
                case UpTo(other):
                    yield changed(whole, name, getattr(whole, other) + 1)
                case AsMany(other):
                    yield changed(whole, name, getattr(whole, name) * 2)
