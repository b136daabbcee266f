"""A node's disk: all writes of a turn in one commit, and no acknowledgement before it.

Events are delivered after the sync (docs/decisions/0004), and the loop itself commits
(docs/decisions/0015). What peers send meanwhile waits in the kernel and makes the next commit
larger (docs/decisions/0031); events were forwarded before the commit begins.

What is for strangers is the first to go: where the disk is nearly full it is not written, and a
commit that fails with it is made again without it (docs/decisions/0065).
"""

from __future__ import annotations

import logging
import shutil
import time
from typing import Final

from pulsarcast.protocol.effects import Load, Persist
from pulsarcast.protocol.inputs import Loaded, Persisted, PersistFailed
from pulsarcast.protocol.store import AnyWrite, Keep
from pulsarcast.storage.sqlite import SqliteStore, StoreError

LOADS_AT_ONCE: Final = 16
"""Questions that are answered together: the largest blocks are 17 MB then. The answers leave, or
are dropped, before the next ones are read."""
RESERVE_BYTES: Final = 512 << 20
"""Free space that strangers leave on the disk: twice what the owner must find there by
default (`storage.free_bytes_min`)."""
WARY_S: Final = 10.0
"""How long nothing is written for strangers after the disk refused it: a failed commit costs as
much as a good one, and strangers would choose how many there are."""

_log = logging.getLogger(__name__)


class Disk:
    """What the core asked of its store and has not got yet."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.commits = 0
        self._persists: list[Persist] = []
        self._notes: list[AnyWrite] = []
        self._loads: list[Load] = []
        self._failed = False
        self._wary_until_s = 0.0

    def persist(self, persist: Persist) -> None:
        """Take writes for the next commit."""
        self._persists.append(persist)

    def note(self, write: AnyWrite) -> None:
        """Take a write of the driver's own for the next commit, whoever asks for that."""
        self._notes.append(write)

    def load(self, load: Load) -> None:
        """Take a question, to be answered after the next commit."""
        self._loads.append(load)

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits."""
        return not self._persists and not self._loads and not self._notes

    @property
    def only_reads(self) -> bool:
        """Whether nobody waits for a commit."""
        return not self._persists and not self._notes

    def settle(self) -> list[Persisted | PersistFailed | Loaded]:
        """Commit all writes, then answer questions, as many as may be in memory at once."""
        answers: list[Persisted | PersistFailed | Loaded] = []
        persists, self._persists = self._persists, []
        loads, self._loads = self._loads[:LOADS_AT_ONCE], self._loads[LOADS_AT_ONCE:]
        notes, self._notes = self._notes, []
        if (persists or notes) and not self._failed:
            answers += self._commit(persists, notes)
        for load in loads:
            try:
                answers.append(Loaded(load.token, self.store.answer(load.query)))
            except StoreError as error:
                answers.append(self._fail(load.token, error))
        return answers

    def _commit(
        self, persists: list[Persist], notes: list[AnyWrite]
    ) -> list[Persisted | PersistFailed]:
        writes = [write for persist in persists for write in persist.writes]
        try:
            left_out = self._apply(writes + notes)
        except StoreError as error:
            return [self._fail(persists[0].token if persists else 0, error)]
        self.commits += 1
        return [Persisted(persists[-1].token, left_out)] if persists else []

    def _apply(self, writes: list[AnyWrite]) -> tuple[int, ...]:
        """Make the writes; returns which ones for strangers were left out."""
        strangers = [write for write in writes if type(write) is Keep]
        if not strangers:
            return self.store.apply(writes)
        tried = writes
        left_out: tuple[int, ...] = ()
        if not self._has_room_for_strangers():
            tried = [write for write in writes if type(write) is not Keep or write.only_frees]
            left_out = tuple(write.token for write in strangers if not write.only_frees)
        ours = [write for write in writes if type(write) is not Keep]
        if len(tried) > len(ours):
            try:
                return left_out + self.store.apply(tried)
            except StoreError as error:
                self._wary_until_s = time.monotonic() + WARY_S
                _log.warning("no room for what other peers sent: %s", error)
        if ours:
            self.store.apply(ours)
        return tuple(write.token for write in strangers)

    def _has_room_for_strangers(self) -> bool:
        if time.monotonic() < self._wary_until_s:
            return False
        return shutil.disk_usage(self.store.path.parent).free >= RESERVE_BYTES

    def _fail(self, token: int, error: StoreError) -> PersistFailed:
        # Nothing behind a refused write may reach the disk: that would leave a hole.
        self._failed = True
        return PersistFailed(token, str(error))
