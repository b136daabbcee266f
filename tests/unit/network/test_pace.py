"""Publishers that wait while a topic's members do not keep up."""

from collections.abc import Callable, Iterable

import trio
import trio.testing

from pulsarcast.model.errors import Busy, Refusal, TooLarge
from pulsarcast.model.ids import Cid, cid_of
from pulsarcast.network.pace import Make, Pace
from pulsarcast.protocol.commands.commands import STOPPING
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import Command, Publish

TOPIC, OTHER = cid_of(b"a topic"), cid_of(b"another")
BUSY = Busy("too fast", after_s=0.1).refusal


class Core:
    """Takes so many events of a topic, and is busy then."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken: list[bytes] = []
        self.asked = 0
        self.has_stopped = False

    def ask_some(self, asked: Iterable[tuple[Make, Callable[[Reply], None]]]) -> None:
        for make, then in asked:
            self.asked += 1
            command = make(self.asked)
            assert isinstance(command, Publish)
            then(Reply(self.asked, self._judge(command)))

    def _judge(self, command: Publish) -> Refusal | None:
        if self.has_stopped:
            return STOPPING
        if command.payload == b"large":
            return TooLarge("no").refusal
        if self.room <= 0 and command.topic == TOPIC:
            return BUSY
        self.room -= 1
        self.taken.append(command.payload)
        return None


def making(payload: bytes, topic: Cid = TOPIC) -> Make:
    def make(call: int) -> Command:
        return Publish(call, topic, payload)

    return make


def play(scene: Callable[[Core, Pace], object], room: int = 0) -> None:
    async def main() -> None:
        core = Core(room)
        pace = Pace(core.ask_some)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pace.keep)
                await trio.testing.wait_all_tasks_blocked()
                await scene(core, pace)  # type: ignore[misc]
                nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_publishers_are_served_in_the_order_in_which_they_came() -> None:
    async def scene(core: Core, pace: Pace) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(pace.publish, TOPIC, making(b"%d" % number), None)
                await trio.sleep(0.01)
            for _ in range(5):
                await trio.sleep(1.0)
                core.room += 1
        assert core.taken == [b"0", b"1", b"2", b"3", b"4"]
        assert pace._lines == {}
        # The core is asked for the first in line alone.
        assert core.asked < 70

    play(scene)


def test_other_topics_do_not_wait() -> None:
    async def scene(core: Core, pace: Pace) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pace.publish, TOPIC, making(b"waits"), None)
            await trio.sleep(0.01)
            assert (await pace.publish(OTHER, making(b"goes", OTHER), 0.0)).refusal is None
            nursery.cancel_scope.cancel()
        await trio.sleep(0.2)
        assert pace._lines == {}

    play(scene)


def test_patience_ends_with_the_refusal() -> None:
    async def scene(core: Core, pace: Pace) -> None:
        began_s = trio.current_time()
        reply = await pace.publish(TOPIC, making(b"late"), 2.0)
        assert reply.refusal == BUSY
        assert 2.0 <= trio.current_time() - began_s < 2.2
        assert (await pace.publish(TOPIC, making(b"late"), 0.0)).refusal == BUSY

    play(scene)


def test_many_keep_their_order_and_what_is_left_is_busy() -> None:
    async def scene(core: Core, pace: Pace) -> None:
        payloads = [b"%d" % number for number in range(50)]
        payloads[3] = b"large"
        makes = [making(payload) for payload in payloads]
        replies = await pace.publish_many(TOPIC, makes, 1.0)
        assert core.taken == [each for each in payloads if each != b"large"][:40]
        codes = ["" if each.refusal is None else each.refusal.code for each in replies]
        assert codes == [""] * 3 + ["too_large"] + [""] * 37 + ["busy"] * 9
        assert await pace.publish_many(TOPIC, [], 1.0) == []

    play(scene, room=40)


def test_many_wait_for_room() -> None:
    async def scene(core: Core, pace: Pace) -> None:
        async def open_up() -> None:
            for _ in range(10):
                await trio.sleep(0.5)
                core.room += 7

        payloads = [b"%d" % number for number in range(64)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_up)
            replies = await pace.publish_many(TOPIC, [making(each) for each in payloads], None)
        assert core.taken == payloads
        assert all(each.refusal is None for each in replies)

    play(scene)


class Passes(trio.abc.Instrument):
    """Counts the passes of the loop."""

    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


def test_what_finds_room_at_one_time_is_asked_for_at_one_time() -> None:
    async def scene(core: Core, pace: Pace) -> None:
        passes = Passes()
        trio.lowlevel.add_instrument(passes)
        seen: list[int] = []

        def making_seen(payload: bytes) -> Make:
            def make(call: int) -> Command:
                if core.room > 0:
                    seen.append(passes.count)
                return Publish(call, TOPIC, payload)

            return make

        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(pace.publish, TOPIC, making_seen(b"%d" % number), None)
            await trio.sleep(1.0)
            core.room = 40
        # As many as go to the disk together in one pass, and the rest in another.
        assert [seen.count(each) for each in sorted(set(seen))] == [32, 8]

    play(scene)


def test_who_waits_hears_of_the_end_of_the_node() -> None:
    async def scene(core: Core, pace: Pace) -> None:
        async def wait() -> None:
            assert (await pace.publish(TOPIC, making(b"waits"), None)).refusal == STOPPING

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)
            await trio.sleep(5.0)
            core.has_stopped = True
            assert pace._nursery is not None
            pace._nursery.cancel_scope.cancel()

    play(scene)
