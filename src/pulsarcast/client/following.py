"""Following a topic through broken connections, without loss and without duplicates. No IO.

A subscriber knows the index of the last event that it handed out, and goes on behind it. One with
a name has a place at the daemon, too, which moves when it says what it is done with. `Following`
decides; the two clients only carry bytes to it and wait. `FollowingBelow` does the same for a
topic and all topics below it, where each topic counts its own events.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from typing import Final

import msgspec

from pulsarcast.client.calls import (
    Ask,
    Start,
    TopicRef,
    acknowledge,
    acknowledge_all,
    forget,
    strange,
    subscribe,
)
from pulsarcast.client.sse import SseParser, TooLongError
from pulsarcast.model.api import Done, EventView, Problem
from pulsarcast.model.errors import REFUSALS, LocalError, Refusal

PATIENCE_S: Final = 60.0
"""Bounds how long a failed request is tried again, unless the caller gives another time."""
DELAY_S_MIN: Final = 0.1
DELAY_S_MAX: Final = 5.0
DIGITS_MAX: Final = 19
SAY_S: Final = 1.0
"""How often a subscriber says what it is done with."""
FOR_A_WHILE: Final = "~~"
"""What a name begins with that the daemon forgets some time after its connection has ended."""

_decode = msgspec.json.Decoder(EventView).decode
_decode_problem = msgspec.json.Decoder(Problem).decode


class Backoff:
    """How long to wait before the next try, and when to try no more."""

    def __init__(self, patience_s: float | None) -> None:
        self._patience_s = patience_s
        self._delay_s = DELAY_S_MIN
        self._failing_since_s: float | None = None

    def failed(self, now_s: float, after_s: float = 0.0) -> float | None:
        """A try failed: wait so long and try again; None: it is enough.

        `after_s` is when the daemon wants to be asked again, where it says so.
        """
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        delay_s = max(self._delay_s, after_s)
        self._delay_s = min(2 * self._delay_s, DELAY_S_MAX)
        if self._patience_s is None:
            return delay_s
        left_s = self._failing_since_s + self._patience_s - now_s
        return min(delay_s, left_s) if left_s > 0 else None

    def connected(self) -> None:
        """The daemon is there: patience begins anew. It may still refuse the request at once."""
        self._failing_since_s = None

    def progressed(self) -> None:
        """The daemon sent something: the next failure will be another one."""
        self._delay_s = DELAY_S_MIN


class Following:
    """What one subscriber knows: where it stands, what it holds, what its caller is done with."""

    def __init__(
        self,
        topic: TopicRef,
        name: str,
        start: Start,
        *,
        manual: bool,
        where: str | None = None,
    ) -> None:
        if isinstance(start, int) and start < 1:
            raise LocalError(f"start={start} is not an index: indices count from 1")
        self.topic = topic
        self.name = name
        self.last: int | None = None
        """The index of the last event that was handed out."""
        self.ended: Refusal | None = None
        """Why the daemon ended the stream, where it said so."""
        self._start = start
        self._manual = manual
        self._where = where
        self._parser = SseParser()
        self._held: deque[EventView] = deque()
        self._begins_behind: int | None = None
        """Index behind which the daemon began; used until the first event is handed out."""
        self._was_marked = False
        self._done: int | None = None
        self._said = 0
        self._said_s = float("-inf")

    # The stream.

    def connect(self) -> Ask[None]:
        """The request that goes on from the last place."""
        return subscribe(self.topic, self.name, self._start, self._place(), self._where)

    def _place(self) -> int | None:
        """Index up to which the daemon sends nothing; None: it knows the place of the name."""
        if not self.name:
            return self._begins_behind if self.last is None else self.last
        # What is done need not come again; what was handed out and is not done comes, and is known
        # by its index. As long as what comes may have been given to this name before, only the
        # daemon knows how far that goes.
        return None if self._was_marked else self._done

    def connected(self) -> None:
        """A new stream begins; what was cut off in the old one comes again."""
        self._parser = SseParser()
        self._held.clear()
        self.ended = None

    def receive(self, chunk: bytes) -> bool:
        """Take what came; whether there was anything new in it."""
        try:
            messages = self._parser.feed(chunk)
            for message in messages:
                if message.event == b"end":
                    said = _decode_problem(message.data)
                    self.ended = Refusal(said.code, said.error)
                elif message.event in (b"", b"message"):
                    self._hold(_decode(message.data))
        except (msgspec.DecodeError, UnicodeDecodeError, TooLongError) as error:
            raise strange(200, str(error)) from error
        place = self._parser.last_id
        if self.last is None and not self._held and place.isdigit() and len(place) < DIGITS_MAX:
            self._begins_behind = int(place)
        return bool(self._held)

    def _hold(self, event: EventView) -> None:
        newest = self._held[-1].index if self._held else self.last
        if newest is None or event.index > newest:
            self._held.append(event)

    def check_end(self) -> None:
        """Raise why the stream ended, where coming back would be refused or undo what was done."""
        kind = None if self.ended is None else REFUSALS.get(self.ended.code)
        if self.ended is not None and kind is not None and not kind.retryable:
            raise self.ended.error()

    # Reading.

    def take(self) -> EventView | None:
        """The next event, if one is held."""
        if not self._held:
            return None
        event = self._held.popleft()
        self.last = event.index
        self._was_marked = event.redelivery
        return event

    def go_on(self) -> None:
        """The next event is asked for: what was handed out before is done."""
        if not self._manual and self.last is not None:
            self._done = self.last

    # What is done.

    def finish(self, index: int | None, subtopic: str | None = None) -> Ask[None] | None:
        """The caller is done with everything up to an index, or up to the last event."""
        if subtopic is not None:
            raise LocalError("the subscription takes in no sub-topics: give below=True")
        if not self.name or self.last is None:
            return None  # There is no place to move, or nothing to be done with.
        done = self.last if index is None else min(index, self.last)
        self._done = max(done, self._done or 0)
        return acknowledge(self.topic, self.name, self._done) if self._done else None

    def due_s(self, now_s: float) -> float | None:
        """In how many seconds the daemon should be told what is done; None: it knows."""
        if not self.name or (self._done or 0) <= self._said:
            return None
        return max(0.0, self._said_s + SAY_S - now_s)

    def say(self, now_s: float) -> Ask[None]:
        """Tell the daemon now."""
        assert self._done is not None, "there is something to say"
        self._said, self._said_s = self._done, now_s
        return acknowledge(self.topic, self.name, self._done)

    def unsaid(self) -> None:
        """The daemon did not hear it: say it again, not before its time."""
        self._said = 0

    def end(self) -> Ask[None] | None:
        """What is to be said at the end."""
        return None


class FollowingBelow(Following):
    """The same for a topic and all topics below it: a place in each."""

    def __init__(self, topic: TopicRef, name: str, start: Start, *, manual: bool) -> None:
        if start not in ("now", "beginning"):
            raise LocalError(f"start={start!r} is for one topic: give 'now' or 'beginning'")
        super().__init__(topic, name, start, manual=manual)
        self._reader = name or FOR_A_WHILE + secrets.token_hex(8)
        self._lasts: dict[str, int] = {}
        """By topic: the index of the last event that is held or was handed out."""
        self._last_event: EventView | None = None
        self._given: dict[str, int] = {}
        """By topic: the index of the last event that was handed out."""
        self._dones: dict[str, int] = {}
        self._unsaid: dict[str, None] = {}
        """Topics of which the daemon has not heard all that is done."""
        self._lock = threading.Lock()
        """A blocking client says what is done from a thread of its own."""

    def connect(self) -> Ask[None]:
        """The request that goes on from the last places, which the daemon knows."""
        return subscribe(self.topic, self._reader, self._start, None, below=True)

    def connected(self) -> None:
        """A new stream begins; what was cut off in the old one comes again."""
        super().connected()
        self._lasts = dict(self._given)

    def _hold(self, event: EventView) -> None:
        # A topic that was left and is back counts anew: only a redelivery can be known already.
        if event.redelivery and event.index <= self._lasts.get(event.topic, 0):
            return
        self._lasts[event.topic] = event.index
        self._held.append(event)

    def take(self) -> EventView | None:
        """The next event, if one is held."""
        event = super().take()
        if event is not None:
            self._last_event = event
            self._given[event.topic] = event.index
            with self._lock:
                if event.index <= self._dones.get(event.topic, 0):
                    del self._dones[event.topic]  # Its log began anew.
        return event

    def go_on(self) -> None:
        """The next event is asked for: what was handed out before is done."""
        if not self._manual and self._last_event is not None:
            self._finish(self._last_event.topic, self._last_event.index)

    def _finish(self, topic: str, index: int) -> None:
        with self._lock:
            if index > self._dones.get(topic, 0):
                self._dones[topic] = index
                self._unsaid[topic] = None

    def finish(self, index: int | None, subtopic: str | None = None) -> Ask[None] | None:
        """The caller is done with all that it was given, or with a topic's up to an index."""
        if index is None:
            for topic, last in self._given.items():
                self._finish(topic, last)
        elif subtopic is None:
            raise LocalError("each topic counts its own events: give subtopic=event.topic, too")
        else:
            self._finish(subtopic, min(index, self._given.get(subtopic, 0)))
        return self._ask_done() if self._unsaid else None

    def due_s(self, now_s: float) -> float | None:
        """In how many seconds the daemon should be told what is done; None: it knows."""
        return max(0.0, self._said_s + SAY_S - now_s) if self._unsaid else None

    def say(self, now_s: float) -> Ask[None]:
        """Tell the daemon now."""
        self._said_s = now_s
        return self._ask_done(is_said=True)

    def _ask_done(self, *, is_said: bool = False) -> Ask[None]:
        with self._lock:
            places = {topic: self._dones[topic] for topic in self._unsaid if topic in self._dones}
            if is_said:
                self._unsaid = {}
        return acknowledge_all(self.topic, self._reader, Done(0, places))

    def unsaid(self) -> None:
        """The daemon did not hear it: say it again, not before its time."""
        with self._lock:
            self._unsaid = dict.fromkeys(self._dones)

    def end(self) -> Ask[None] | None:
        """Let the daemon forget the reader, where its name was for this subscription alone."""
        return None if self.name else forget(self.topic, self._reader)


def follow(
    topic: TopicRef, name: str, start: Start, *, manual: bool, where: str | None, below: bool
) -> Following:
    """A new subscriber."""
    if not below:
        return Following(topic, name, start, manual=manual, where=where)
    if where is not None:
        raise LocalError("a filter is for one topic: give none with below=True")
    return FollowingBelow(topic, name, start, manual=manual)
