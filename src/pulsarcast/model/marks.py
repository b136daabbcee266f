"""Marks: an event's publisher, epoch and number; and their encoding beside causal links.

docs/spec/descriptors.md, Marks.

In causal topics every link has its mark beside it. So the receiver of an event can tell by number
alone whether a parent was delivered, came before the start, or is retired, even if it never sees
the parent's bytes.

On the wire the marks are a list in the order of the links. A mark is
    [number]                    of the event's own numbering
    [epoch, number]             of another numbering of the event's publisher
    [publisher, epoch, number]  of another publisher; in a request, always
The shortest that will do must be taken, the links ascend, and no two are of one numbering: a
numbering's later event follows its earlier ones anyway. So one set of links has one encoding.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from pulsarcast.model.cbor import INT_MAX
from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.fields import read_int
from pulsarcast.model.ids import Cid, PeerId, check_peer_id


class Mark(NamedTuple):
    """One entry of a frontier: all of a publisher's events in an epoch, up to this number."""

    publisher: PeerId
    epoch: int
    number: int


def write_marks(marks: Iterable[Mark], own: Mark | None = None) -> list[object]:
    """Marks as they travel; `own` is the place of the event that carries them."""
    return [_write_mark(mark, own) for mark in marks]


def _write_mark(mark: Mark, own: Mark | None) -> list[object]:
    if own is not None and mark.publisher == own.publisher:
        return [mark.number] if mark.epoch == own.epoch else [mark.epoch, mark.number]
    return list(mark)


def read_marks(
    value: object, links: tuple[Cid, ...], what: str, own: Mark | None = None
) -> tuple[Mark, ...]:
    """The marks of some links, one for each, or a refusal."""
    if not isinstance(value, list) or not value or len(value) != len(links):
        raise RemoteError(f"{what} do not have one mark each")
    if any(link >= following for link, following in pairwise(links)):
        raise RemoteError(f"{what} with marks do not ascend", code=Rejection.NOT_CANONICAL)
    marks = tuple(_read_mark(each, own) for each in value)
    if len({mark[:2] for mark in marks}) != len(marks):
        raise RemoteError(f"two {what} of one numbering", code=Rejection.INVALID_EVENT)
    return marks


def _read_mark(value: object, own: Mark | None) -> Mark:
    if not isinstance(value, list) or not 1 <= len(value) <= 3 or (own is None and len(value) < 3):
        raise RemoteError("a mark is not a publisher, an epoch and a number")
    number = read_int(value[-1], 1, INT_MAX, "a mark's number")
    if own is not None and len(value) == 1:
        if number >= own.number:
            raise RemoteError("an event that follows itself", code=Rejection.INVALID_EVENT)
        return Mark(own.publisher, own.epoch, number)
    epoch = read_int(value[-2], 0, INT_MAX, "a mark's epoch")
    if own is not None and len(value) == 2:
        if epoch == own.epoch:
            raise RemoteError(
                "a mark says twice what it should say once: the epoch", code=Rejection.NOT_CANONICAL
            )
        return Mark(own.publisher, epoch, number)
    publisher = check_peer_id(value[0])
    if own is not None and publisher == own.publisher:
        raise RemoteError(
            "a mark says twice what it should say once: the publisher", code=Rejection.NOT_CANONICAL
        )
    return Mark(publisher, epoch, number)
