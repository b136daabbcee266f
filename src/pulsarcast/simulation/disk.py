"""A node's disk: writes become durable a little later, in groups, and a kill loses the rest.

The durable part, a `MemoryStore`, belongs to the node and outlives its processes. A `Disk`
belongs to one process: with it goes everything that was not flushed.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from pulsarcast.protocol.effects import Load, Persist
from pulsarcast.protocol.inputs import Loaded, Persisted, PersistFailed
from pulsarcast.protocol.store import Keep
from pulsarcast.simulation.loop import Loop
from pulsarcast.storage.memory import MemoryStore
from pulsarcast.storage.quota import BYTES_MAX


class DiskModel(Struct, frozen=True):
    """How long a disk takes, and whether it tells the truth."""

    sync_s: float = 0.002
    """One flush. Writes that come while one is under way wait and go together in the next."""
    load_s: float = 0.000_2
    lies: bool = False
    """Say `Persisted` at once and flush `lie_s` later: a safeguard switched off, for tests."""
    lie_s: float = 1.0
    strangers_bytes_max: int = BYTES_MAX
    """What is kept for strangers may take."""


class Disk:
    """What one process has asked of its disk and not got yet."""

    __slots__ = (
        "_answer",
        "_flushing",
        "_gone",
        "_loop",
        "_model",
        "_seen",
        "_store",
        "_waiting",
        "full",
    )

    def __init__(
        self,
        loop: Loop,
        model: DiskModel,
        store: MemoryStore,
        answer: Callable[[Persisted | PersistFailed | Loaded], None],
    ) -> None:
        self._loop = loop
        self._model = model
        self._store = store
        # What reads see. A lying disk answers them from a cache that a kill loses.
        self._seen = store.copy() if model.lies else store
        self._answer = answer
        self._waiting: list[Persist] = []
        self._flushing: list[Persist] = []
        self._gone = False
        self.full = False

    def persist(self, persist: Persist) -> None:
        """Take a write; `Persisted` comes once it is flushed, or seems to be."""
        if self._model.lies:
            self._lie(persist)
            return
        if self._flushing:
            self._waiting.append(persist)
        else:
            self._flush([persist])

    def load(self, load: Load) -> None:
        """Answer a query a moment later, from what is flushed by then."""
        self._loop.after(self._model.load_s, self._loaded, load)

    def close(self) -> None:
        """Flush everything: the process ends in good order."""
        if not self.full:
            for persist in [*self._flushing, *self._waiting]:
                self._store.apply(persist.writes)
        self.lose()

    def lose(self) -> None:
        """Forget what was not flushed: the process was killed."""
        self._gone = True
        self._waiting = []
        self._flushing = []

    def _flush(self, writes: list[Persist]) -> None:
        self._flushing = writes
        self._loop.after(self._model.sync_s, self._flushed)

    def _flushed(self, _: None) -> None:
        if self._gone:
            return
        done, self._flushing = self._flushing, []
        left_out: list[int] = []
        failed = next((each for each in done if _has_own(each)), None) if self.full else None
        if failed is not None:
            # Nothing from the first refused write on may be acknowledged, so nothing behind it
            # may reach the disk either: that would leave a hole in the middle.
            self._waiting = []
            self._answer(PersistFailed(failed.token, "no space left on device"))
            return
        for persist in done:
            if self.full:
                left_out += (write.token for write in persist.writes if isinstance(write, Keep))
            else:
                left_out += self._store.apply(persist.writes)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._flush(waiting)
        self._answer(Persisted(done[-1].token, tuple(left_out)))

    def _loaded(self, load: Load) -> None:
        self._answer(Loaded(load.token, self._seen.answer(load.query)))

    def _lie(self, persist: Persist) -> None:
        left_out = self._seen.apply(persist.writes)
        self._waiting.append(persist)
        self._loop.after(self._model.lie_s, self._flush_late)
        self._loop.after(0.0, self._claim, Persisted(persist.token, left_out))

    def _claim(self, persisted: Persisted) -> None:
        self._answer(persisted)

    def _flush_late(self, _: None) -> None:
        if not self._gone:
            self._store.apply(self._waiting.pop(0).writes)


def _has_own(persist: Persist) -> bool:
    """Whether it has a write of the node's own, which must not be left out."""
    return not all(isinstance(write, Keep) for write in persist.writes)
