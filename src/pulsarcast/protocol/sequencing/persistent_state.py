"""Persistent state: the store, term and vote that a sequencer keeps on disk (Raft, figure 2)."""

from typing import Final, NamedTuple

from pulsarcast.model.ids import PEER_ID_BYTES, PeerId

VOTE: Final = "vote"
STORE: Final = "store"


class PersistentState(NamedTuple):
    """The persistent state of a sequencer, without its log."""

    store: bytes
    term: int = 0
    voted_for: PeerId | None = None


def read_persistent_state(store: bytes | None, vote: bytes | None) -> PersistentState | None:
    """The state from its rows on the disk; None if the disk has no store of the topic."""
    if store is None:
        return None
    if vote is None:
        return PersistentState(store)
    voted_for = vote[8 : 8 + PEER_ID_BYTES]
    return PersistentState(
        store, int.from_bytes(vote[:8], "big"), PeerId(voted_for) if voted_for else None
    )
