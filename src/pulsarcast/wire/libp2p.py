"""Reads messages of libp2p's own services (`libp2p.proto`); what they say is for their readers."""

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from pulsarcast.wire.refusing import refusal

_Message = TypeVar("_Message", bound=Message)


def parse(kind: type[_Message], data: bytes) -> _Message:
    """A message of this kind; raises RemoteError where the bytes hold none."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise refusal(f"not a message of the kind {kind.__name__}") from None
