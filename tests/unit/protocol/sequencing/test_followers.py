"""A leader's side of the log, on its own: what it sends, and what it believes of a follower."""

import pytest

from pulsarcast.model.errors import RemoteError
from pulsarcast.protocol.sequencing.followers import SILENT_TIMEOUTS, Followers
from pulsarcast.protocol.sequencing.messages import Append, Appended
from tests.unit.protocol.sequencing.work import HER, HER_STORE, HIM, HIS_STORE, ME, TOPIC, Bench


def leading() -> tuple[Bench, Followers]:
    """A leader whose first entry is not on its disk yet."""
    bench = Bench()
    sequencer = bench.sequencer
    sequencer.term = 1
    sequencer.followers = followers = Followers(sequencer)
    sequencer.become_leader({ME: sequencer.store, HIM: HIS_STORE, HER: HER_STORE})
    return bench, followers


def appends(bench: Bench) -> list[int]:
    """How many entries each message to a follower has."""
    messages = [message for _, message in bench.core.sent()]
    return [len(each.entries) for each in messages if isinstance(each, Append)]


def test_an_entry_goes_to_others_once_it_is_on_the_leaders_own_disk() -> None:
    bench, _ = leading()
    assert set(appends(bench)) == {0}
    bench.core.sync()
    assert appends(bench) == [1, 1]


def test_an_entry_is_committed_once_most_stores_have_it() -> None:
    bench, followers = leading()
    bench.core.sync()
    followers.receive(HIM, Appended(TOPIC, 1, b"newstore", True, 1, 0))
    assert bench.sequencer.committed == 0, "a member that lost its store is another member"
    followers.receive(HIM, Appended(TOPIC, 1, HIS_STORE, True, 1, 0))
    assert bench.sequencer.committed == 1


def test_a_follower_cannot_have_more_than_there_is() -> None:
    bench, followers = leading()
    bench.core.sync()
    with pytest.raises(RemoteError):
        followers.receive(HIM, Appended(TOPIC, 1, HIS_STORE, True, 2, 0))


def test_a_leader_that_most_do_not_answer_steps_down() -> None:
    bench, _ = leading()
    bench.core.sync()
    bench.core.turn.now = SILENT_TIMEOUTS * bench.core.context.parameters.election_timeout_s
    bench.core.fire()
    assert bench.sequencer.leads
    bench.core.turn.now += 0.1
    bench.core.fire()
    assert not bench.sequencer.leads
