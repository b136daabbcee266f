"""Pace: lets publishers wait while a topic's members do not keep up (docs/spec/pulsarcast.md).

The core refuses a publish beyond the pace and says when to come back. The callers of one topic wait
in line, in the order in which they came, and one task comes back for all of them: what finds room
at one time is one commit, whoever published it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
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
    """A command for the core, and its answer."""

    __slots__ = ("_answered", "left", "make", "reply", "waits")

    def __init__(self, make: Make) -> None:
        self.make = make
        self.reply: Reply | None = None
        self.waits = False
        """Whether it stands in line."""
        self.left = trio.Event()
        """Set once it does not any more."""
        self._answered = trio.Event()

    def take(self, reply: Reply) -> None:
        """The core answers."""
        self.reply = reply
        self._answered.set()

    def again(self) -> None:
        """The core is about to be asked, for the first time or after it was busy."""
        self.reply = None
        self._answered = trio.Event()

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
        self._lines: dict[Cid, deque[Asked]] = {}
        """What waits for room, by topic."""
        self._nursery: trio.Nursery | None = None

    async def keep(self) -> None:
        """Come back for those who wait, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            await trio.sleep_forever()

    async def publish(self, topic: Cid, make: Make, patience_s: float | None) -> Reply:
        """What the core answers; it is refused as busy only after so long (None: never)."""
        (reply,) = await self.publish_many(topic, [make], patience_s)
        return reply

    async def publish_many(
        self, topic: Cid, makes: Sequence[Make], patience_s: float | None
    ) -> list[Reply]:
        """The same for several; they keep their order."""
        until_s = math.inf if patience_s is None else trio.current_time() + patience_s
        asked = [Asked(make) for make in makes]
        goes_now = topic not in self._lines and len(asked) <= TOGETHER
        left = self._ask(asked) if goes_now else asked
        while True:
            if left:
                await self._stand_in_line(topic, left, until_s)
            replies = [await each.answer() for each in asked]
            # The core may find out later that there is no room: where it looks up the topic.
            left = [each for each in asked if each.wait_s]
            if not left or trio.current_time() >= until_s:
                return replies

    def _ask(self, asked: Sequence[Asked]) -> list[Asked]:
        """Ask the core; return those that it has no room for."""
        for each in asked:
            each.again()
        self._ask_some([(each.make, each.take) for each in asked])
        return [each for each in asked if each.wait_s]

    async def _stand_in_line(self, topic: Cid, asked: Sequence[Asked], until_s: float) -> None:
        """Wait until the core was asked for each of them; at the latest it is asked then."""
        line = self._lines.get(topic)
        if line is None:
            assert self._nursery is not None, "`keep` does not run"
            line = self._lines[topic] = deque()
            self._nursery.start_soon(self._come_back, topic, line)
        for each in asked:
            each.waits, each.left = True, trio.Event()
        line.extend(asked)
        behind: list[Asked] = []
        try:
            with trio.move_on_at(until_s):
                await asked[-1].left.wait()
        finally:
            behind += [each for each in asked if each.waits]
            for each in behind:
                each.waits = False
        self._ask(behind)

    async def _come_back(self, topic: Cid, line: deque[Asked]) -> None:
        """Ask for the first in line, time and again, until nobody waits."""
        try:
            while line:  # noqa: ASYNC110 (the core says when to come back)
                await trio.sleep(self._let_some_go(line))
        finally:
            del self._lines[topic]
            for each in line:
                each.left.set()

    def _let_some_go(self, line: deque[Asked]) -> float:
        """Ask for those in front until there is no room; return when to come back; 0: now."""
        went = 0
        while line and went < TOGETHER:
            if line[0].waits:
                if self._ask([line[0]]):
                    return line[0].wait_s
                line[0].waits = False
                line[0].left.set()
                went += 1
            line.popleft()
        return 0.0
