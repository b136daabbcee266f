"""Syncing, on its own: no peer hears of what a crash could take back."""

from pulsarcast.protocol.sequencing.messages import Vote
from pulsarcast.protocol.sequencing.state import VOTE
from pulsarcast.protocol.store import PutState, StateRow
from tests.unit.protocol.sequencing.work import HIM, TOPIC, Bench


def test_an_answer_waits_for_all_writes_before_it() -> None:
    bench = Bench()
    vote = Vote(TOPIC, 0, bench.state.store, True, False)
    bench.syncing.reply(HIM, vote)
    assert bench.core.sent() == [(HIM, vote)], "nothing is unsynced"
    bench.syncing.sync(PutState(StateRow(VOTE, TOPIC, b"")))
    bench.syncing.reply(HIM, vote)
    assert bench.core.sent() == []
    bench.core.sync()
    assert bench.core.sent() == [(HIM, vote)]


def test_a_sequencer_that_has_stopped_says_nothing_more() -> None:
    bench = Bench()
    bench.syncing.sync_vote(lambda: bench.work.told.append("voted"))
    bench.state.is_stopped = True
    bench.core.sync()
    assert bench.work.told == []
