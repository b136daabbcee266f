"""Pace: lets publishers wait while a topic's members do not keep up (docs/spec/pulsarcast.md).

The core refuses a publish beyond the pace and says when to come back. The callers of one topic wait
in the order in which they came: the first tries again, the others stand in line behind it.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from pulsarcast.model.errors import Busy
from pulsarcast.model.ids import Cid
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import Command

PATIENCE_S: Final = 60.0
"""How long a call waits for room, unless it says otherwise."""
TOGETHER: Final = 32
"""Publications that go to the disk together before anybody else has a turn."""

Make = Callable[[int], Command]
"""Makes a command from its call number."""
AskSome = Callable[[Iterable[tuple[Make, Callable[[Reply], None]]]], None]


class Asked:
    """A command that the core was given, and its answer."""

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self._answered = trio.Event()

    def take(self, reply: Reply) -> None:
        """The core answers."""
        self.reply = reply
        self._answered.set()

    @property
    def wait_s(self) -> float:
        """When the core wants to be asked again; 0 where it took or refused the command."""
        refusal = None if self.reply is None else self.reply.refusal
        return refusal.after_s if refusal is not None and refusal.code == Busy.code else 0.0

    async def answer(self) -> Reply:
        """Wait for the answer."""
        await self._answered.wait()
        assert self.reply is not None
        return self.reply


class Pace:
    """The publishers of a node that wait."""

    def __init__(self, ask_some: AskSome) -> None:
        self._ask_some = ask_some
        self._lines: dict[Cid, trio.Lock] = {}
        """The topics in which publishers wait."""

    async def publish(self, topic: Cid, make: Make, patience_s: float | None) -> Reply:
        """What the core answers; it is refused as busy only after so long (None: never)."""
        until_s = _after(patience_s)
        if topic not in self._lines:
            (asked,) = self._ask([make])
            reply = await asked.answer()
            if not asked.wait_s:
                return reply
        return (await self._publish_in_line(topic, [make], until_s))[0]

    async def publish_many(
        self, topic: Cid, makes: Sequence[Make], patience_s: float | None
    ) -> list[Reply]:
        """The same for several; they keep their order."""
        return await self._publish_in_line(topic, makes, _after(patience_s))

    def _ask(self, makes: Iterable[Make]) -> list[Asked]:
        asked = [(make, Asked()) for make in makes]
        self._ask_some([(make, each.take) for make, each in asked])
        return [each for _, each in asked]

    async def _publish_in_line(
        self, topic: Cid, makes: Sequence[Make], until_s: float
    ) -> list[Reply]:
        done: dict[int, Asked] = {}
        left = list(range(len(makes)))
        while left:
            async with self._line(topic):
                # The next in line need not wait until these are replicated.
                while left:
                    some, left = left[:TOGETHER], left[TOGETHER:]
                    done.update(zip(some, self._ask(makes[each] for each in some), strict=True))
                    busy = [each for each in some if done[each].wait_s]
                    if busy and trio.current_time() >= until_s:
                        for each in left:
                            done[each] = done[busy[0]]
                        left = []
                    elif busy:
                        left = busy + left
                        left_s = until_s - trio.current_time()
                        await trio.sleep(min(done[busy[0]].wait_s, left_s))
                    else:
                        await trio.lowlevel.checkpoint()
            for asked in done.values():
                await asked.answer()
            if trio.current_time() < until_s:
                # The core may find out later that there is no room: where it looks up the topic.
                left = [each for each in range(len(makes)) if done[each].wait_s]
        return [await done[each].answer() for each in range(len(makes))]

    @asynccontextmanager
    async def _line(self, topic: Cid) -> AsyncIterator[None]:
        line = self._lines.setdefault(topic, trio.Lock())
        try:
            async with line:
                yield
        finally:
            if not line.locked() and self._lines.get(topic) is line:
                del self._lines[topic]


def _after(patience_s: float | None) -> float:
    return math.inf if patience_s is None else trio.current_time() + patience_s
