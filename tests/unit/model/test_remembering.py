import gc
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest

from pulsarcast.model.errors import RemoteError, Verdict
from pulsarcast.model.events import EventDescriptor, decode_event
from pulsarcast.model.remembering import RememberedVerification


def test_events_and_errors_are_remembered_and_the_oldest_forgotten() -> None:
    asked = list[bytes]()
    event = object()

    def decode(block: bytes) -> Any:
        asked.append(block)
        if block == b"bad":
            raise RemoteError("bad", Verdict.IGNORE)
        return event

    typed: Callable[[bytes], EventDescriptor] = decode
    remembered = RememberedVerification(typed, 2)
    for _ in range(2):
        assert remembered(b"good") is event
        with pytest.raises(RemoteError, match="bad") as caught:
            remembered(b"bad")
        assert caught.value.verdict is Verdict.IGNORE
    assert asked == [b"good", b"bad"]
    remembered(b"third")
    remembered(b"good")
    assert asked == [b"good", b"bad", b"third", b"good"]


def test_as_many_bytes_are_remembered_as_allowed_and_an_event_that_the_node_made_is() -> None:
    asked = list[bytes]()

    def decode(block: bytes) -> Any:
        asked.append(block)
        return object()

    typed: Callable[[bytes], EventDescriptor] = decode
    remembered = RememberedVerification(typed, 10, bytes_max=8)
    made: Any = SimpleNamespace(block=b"made")
    remembered.know(made)
    remembered.know(made)
    assert remembered(b"made") is made
    remembered(b"four")
    remembered(b"more")
    assert asked == [b"four", b"more"]
    remembered(b"made")
    assert asked == [b"four", b"more", b"made"]


class Frame:
    """A message of four megabytes, say, in which a stranger sends one block that is refused."""


def test_a_refusal_that_is_remembered_holds_nothing_of_the_message_it_came_in() -> None:
    verify = RememberedVerification(decode_event, count_max=8)

    def receive(frame: Frame, block: bytes) -> None:
        with suppress(RemoteError):
            verify(block)

    frame = Frame()
    gone = ref(frame)
    receive(frame, b"no event")
    del frame
    gc.collect()
    assert gone() is None
    with pytest.raises(RemoteError):
        verify(b"no event")
