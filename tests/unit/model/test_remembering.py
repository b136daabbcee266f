from collections.abc import Callable
from typing import Any

import pytest

from pulsarcast.model.errors import RemoteError, Verdict
from pulsarcast.model.events import EventDescriptor
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
