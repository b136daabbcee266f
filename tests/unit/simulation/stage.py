"""A stage without nodes: commands are answered as a test likes, time passes when it is told to."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import Command, CreateTopic, Publish
from pulsarcast.simulation.fleet import CommandFactory
from pulsarcast.simulation.places import Place
from pulsarcast.storage.memory import MemoryStore
from tests.unit.simulation.planted import peer

ANSWER_S = 0.1


class FakeStage:
    """Answers every command after a tenth of a second, unless the node is down by then."""

    def __init__(self) -> None:
        self.now = 0.0
        self.size = 0
        self.commands: list[tuple[float, int, Command]] = []
        self.done: list[tuple[str, int]] = []
        self.errors: list[str] = []
        """What the next commands are refused with, before any is granted."""
        self.mute = False
        self._down: set[int] = set()
        self._lives: dict[int, int] = {}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._tick = 0

    def run(self, until_s: float) -> None:
        """Let time pass."""
        while self._heap and self._heap[0][0] <= until_s:
            self.now, _, act = heappop(self._heap)
            act()
        self.now = until_s

    def node(self, index: int, /) -> object:
        """There is nothing inside."""
        return object()

    def add_node(self, *, contacts: Sequence[int] = (), place: Place | None = None) -> int:
        self.size += 1
        self._lives[self.size - 1] = 1
        return self.size - 1

    def add_down(self, count: int, /) -> range:
        first = self.size
        for _ in range(count):
            self.add_node()
        return range(first, self.size)

    def peer(self, index: int, /) -> PeerId:
        return peer(index)

    def command(
        self, index: int, make: CommandFactory, then: Callable[[Reply], None] | None, /
    ) -> None:
        command = make(len(self.commands))
        self.commands.append((self.now, index, command))
        life = self._lives[index]

        def answer() -> None:
            if index in self._down or self._lives[index] != life or then is None or self.mute:
                return
            call = len(self.commands)
            if self.errors:
                then(Reply(call, LocalError(self.errors.pop(0)).refusal))
            else:
                then(Reply(call, cid=name_of(command), replicas=3))

        self.after(ANSWER_S, answer)

    def after(self, delay_s: float, act: Callable[[], None], /) -> None:
        self._tick += 1
        heappush(self._heap, (self.now + delay_s, self._tick, act))

    def kill(self, index: int, /) -> None:
        self.done.append(("kill", index))
        self._down.add(index)

    def restart(self, index: int, keep_disk: bool, /) -> None:
        self.done.append(("restart" if keep_disk else "wipe", index))
        self._down.discard(index)
        self._lives[index] += 1

    def lose(self, index: int, /) -> None:
        self.done.append(("lose", index))
        self._down.add(index)

    def pause(self, index: int, /) -> None:
        self.done.append(("pause", index))

    def resume(self, index: int, /) -> None:
        self.done.append(("resume", index))

    def cut(self, groups: Sequence[set[int]], /) -> None:
        self.done.append(("cut", len(groups)))

    def heal(self) -> None:
        self.done.append(("heal", 0))

    def reset(self, a: int, b: int, /) -> None:
        self.done.append(("reset", a))

    def move(self, index: int, place: Place, /) -> None:
        self.done.append(("move", index))

    def set_clock(self, index: int, offset_s: float, drift_ppm: float, /) -> None:
        self.done.append(("clock", index))

    def disk_full(self, index: int, full: bool, /) -> None:
        self.done.append(("disk_full", index))

    def store(self, index: int, /) -> MemoryStore:
        return MemoryStore()

    def roll_back(self, index: int, disk: MemoryStore, /) -> None:
        self.done.append(("roll_back", index))
        self._down.discard(index)
        self._lives[index] += 1


def name_of(command: Command) -> Cid:
    """The CID that the fake answers with."""
    match command:
        case CreateTopic():
            return cid_of(b"topic " + command.name.encode())
        case Publish():
            return cid_of(b"event " + command.payload)
        case _:
            return cid_of(b"done")
