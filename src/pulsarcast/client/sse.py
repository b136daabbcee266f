"""Server-sent events: from bytes, however they are cut, to messages (WHATWG HTML, 9.2.6)."""

from __future__ import annotations

from typing import Final, NamedTuple

BYTES_MAX: Final = 64 << 20
"""The most that one message may take; a daemon's are a few megabytes."""
_MARK: Final = b"\xef\xbb\xbf"
_ENDS: Final = (b"\n", b"\r")


class Message(NamedTuple):
    """One message of a stream."""

    event: bytes
    """What kind it is; empty where it does not say."""
    data: bytes
    id: bytes
    """The last id that the stream gave, here or before."""


class TooLongError(ValueError):
    """A message that does not end."""


class SseParser:
    """Takes bytes, gives messages; one parser per connection."""

    def __init__(self) -> None:
        self.last_id: bytes = b""
        """Where the stream is; it may say so without a message."""
        self._pieces: list[bytes] = []
        """A line that has not ended yet."""
        self._after_cr = False
        self._is_first = True
        self._id = b""
        self._event = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[Message]:
        """The messages that end in a chunk."""
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # The other half of a line's end.
        self._after_cr = False
        self._size += len(chunk)
        if self._size > BYTES_MAX:
            raise TooLongError(f"a message of more than {BYTES_MAX} bytes")
        self._pieces.append(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        text = b"".join(self._pieces)
        self._pieces.clear()
        # Bytes, unlike text, know no other line ends than the three of the format.
        lines = text.splitlines()
        if not text.endswith(_ENDS):
            self._pieces.append(lines.pop())
        self._after_cr = text.endswith(b"\r")
        messages: list[Message] = []
        for line in lines:
            self._take(line, messages)
        return messages

    def _take(self, line: bytes, messages: list[Message]) -> None:
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_MARK)
        if not line:
            self._dispatch(messages)
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._event = value
        elif field == b"id" and b"\0" not in value:
            self._id = value
        # Other lines (comments, `retry`) are ignored.

    def _dispatch(self, messages: list[Message]) -> None:
        self.last_id = self._id
        if self._data:
            messages.append(Message(self._event, b"\n".join(self._data), self._id))
        self._event = b""
        self._data.clear()
        self._size = sum(map(len, self._pieces))
