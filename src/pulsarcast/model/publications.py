"""Publications: events to publish, as applications give them to the library and the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from pulsarcast.model.ids import Cid
from pulsarcast.model.payloads import payload_bytes
from pulsarcast.model.requests import Attribute
from pulsarcast.model.shown import preview

EventRef: TypeAlias = Cid | str
"""An event: its content id, as bytes or as text."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Publication:
    """An event to publish: a payload, which is bytes or text, or a JSON value."""

    payload: bytes | str | None = None
    json: object = msgspec.UNSET
    """A value to publish as JSON, in the place of a payload."""
    name: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    parents: Sequence[EventRef] = ()
    idempotency_key: str | None = None
    created_us: int | None = None
    """When it was said, where that was not now: the author's word. Members keep it as any other;
    the DHT keeps nothing older than 30 days or more than a day ahead, so `replicated` says 0."""
    data: bytes = field(init=False, compare=False)
    """The bytes to publish, however they were given."""

    def __post_init__(self) -> None:
        """Refuse here what cannot be published: the caller's line shows which one it is."""
        object.__setattr__(self, "data", payload_bytes(self.payload, self.json))

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<Publication{name}: {preview(self.data)}>"
