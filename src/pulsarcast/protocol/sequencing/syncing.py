"""Syncing: votes and entries are on the disk before any peer hears of them (Raft, figure 2)."""

from collections.abc import Callable

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.sequencing.messages import SequencerMessage
from pulsarcast.protocol.sequencing.state import VOTE, SequencerState
from pulsarcast.protocol.store import PutState, StateRow, Write


class Syncing:
    """The writes of one sequencer, and the answers that wait for them."""

    def __init__(self, state: SequencerState) -> None:
        self.state = state
        self.turn = state.turn
        self._unsynced = 0

    def sync(self, *writes: Write, then: Callable[[], None] | None = None) -> None:
        """Write, and go on once that is synced, unless the sequencer has stopped."""
        self._unsynced += 1

        def synced() -> None:
            self._unsynced -= 1
            if then is not None and not self.state.is_stopped:
                then()

        self.turn.persist(*writes, then=synced)

    def sync_vote(self, then: Callable[[], None]) -> None:
        """Write the term and the vote."""
        value = self.state.term.to_bytes(8, "big") + (self.state.voted_for or b"")
        self.sync(PutState(StateRow(VOTE, self.state.topic, value)), then=then)

    def reply(self, to: PeerId, message: SequencerMessage) -> None:
        """Answer once all that the answer depends on is synced."""
        self.sync_reply(to, [], lambda: message)

    def sync_reply(
        self, to: PeerId, writes: list[Write], answer: Callable[[], SequencerMessage | None]
    ) -> None:
        """Write, and answer once that is synced; None: there is nothing to answer any more."""

        def send() -> None:
            message = answer()
            if message is not None:
                self.turn.send(to, message)

        if writes or self._unsynced:
            self.sync(*writes, then=send)
        else:
            send()
