"""What a sequencer's disk remembers of its votes."""

from typing import Final, NamedTuple

from pulsarcast.model.ids import PEER_ID_BYTES, PeerId

VOTE: Final = "vote"
STORE: Final = "store"


class Saved(NamedTuple):
    """What a sequencer's disk remembers, but for the log."""

    store: bytes
    term: int = 0
    voted_for: PeerId | None = None


def read_saved(store: bytes | None, vote: bytes | None) -> Saved | None:
    """What our disk remembers of a sequencer's votes; None where it has no store of it."""
    if store is None:
        return None
    if vote is None:
        return Saved(store)
    voted_for = vote[8 : 8 + PEER_ID_BYTES]
    return Saved(store, int.from_bytes(vote[:8], "big"), PeerId(voted_for) if voted_for else None)
