"""A leader's side of the log, on its own: what it sends, and what it believes of a follower."""

import pytest

from pulsarcast.model.errors import RemoteError
from pulsarcast.protocol.sequencing.configs import Config, Member, pack_config
from pulsarcast.protocol.sequencing.followers import SILENT_TIMEOUTS, Followers
from pulsarcast.protocol.sequencing.log import Entry, EntryKind
from pulsarcast.protocol.sequencing.messages import Append, Appended
from pulsarcast.protocol.sequencing.state import Role
from tests.unit.protocol.sequencing.work import HER, HER_STORE, HIM, HIS_STORE, ME, TOPIC, Bench


def leading() -> tuple[Bench, Followers]:
    """A leader whose first entry is not on its disk yet."""
    bench = Bench()
    state = bench.state
    state.term, state.role = 1, Role.LEADER
    votes = {ME: state.store, HIM: HIS_STORE, HER: HER_STORE}
    followers = Followers(state, bench.work)
    followers.begin(votes)
    members = Config(tuple(Member(peer, store) for peer, store in votes.items()))
    state.log.append(TOPIC, Entry(1, 0, EntryKind.MEMBERS, pack_config(members)))
    return bench, followers


def appends(bench: Bench) -> list[int]:
    """How many entries each message to a follower has."""
    messages = [message for _, message in bench.core.sent()]
    return [len(each.entries) for each in messages if isinstance(each, Append)]


def test_an_entry_goes_to_others_once_it_is_on_the_leaders_own_disk() -> None:
    bench, followers = leading()
    followers.send_heartbeats()
    assert appends(bench) == [0, 0]
    followers.kept(1)
    assert appends(bench) == [1, 1]


def test_an_entry_is_committed_once_most_stores_have_it() -> None:
    bench, followers = leading()
    followers.kept(1)
    for store, committed in ((b"newstore", 0), (HIS_STORE, 1)):
        assert followers.receive(HIM, Appended(TOPIC, 1, store, True, 1, 0))
        followers.commit()
        assert bench.state.committed == committed, "a member that lost its store is another member"


def test_a_follower_cannot_have_more_than_there_is() -> None:
    _, followers = leading()
    followers.kept(1)
    with pytest.raises(RemoteError):
        followers.receive(HIM, Appended(TOPIC, 1, HIS_STORE, True, 2, 0))


def test_a_follower_that_has_not_shown_its_store_is_summoned() -> None:
    bench, followers = leading()
    followers.send_heartbeats()
    assert bench.work.told == []
    followers.begin({ME: bench.state.store, HIM: HIS_STORE})
    followers.send_heartbeats()
    assert bench.work.told == ["summon"]


def test_a_leader_that_most_do_not_answer_steps_down() -> None:
    bench = Bench()
    bench.state.term = 1
    sequencer = bench.sequencer()
    sequencer.elected({ME: bench.state.store, HIM: HIS_STORE, HER: HER_STORE})
    bench.core.sync()
    bench.core.turn.now = SILENT_TIMEOUTS * bench.core.context.parameters.election_timeout_s
    bench.core.fire()
    assert bench.state.leads
    bench.core.turn.now += 0.1
    bench.core.fire()
    assert not bench.state.leads
