"""Elections among scripted sequencers whose disks take their time."""

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.effects import Effect, Persist, Send
from pulsarcast.protocol.inputs import Input, MessageReceived, Now, Persisted
from pulsarcast.protocol.sequencing.changes import Changes
from pulsarcast.protocol.sequencing.elections import Elections
from pulsarcast.protocol.sequencing.followers import Followers
from pulsarcast.protocol.sequencing.messages import RequestVote, Vote
from tests.support.people import CREATED_US, MALLORY
from tests.support.sequencing import STORE, Pair
from tests.unit.protocol.sequencing import work
from tests.unit.protocol.sequencing.work import HER_STORE, HIM, HIS_STORE, ME, Bench

HER = MALLORY.peer_id


class Stand:
    """Plays the sequencer that stands in an election."""

    def __init__(self) -> None:
        self.votes: dict[PeerId, bytes] | None = None

    def follow(self, leader: PeerId | None) -> None:
        assert leader is None

    def elected(self, votes: dict[PeerId, bytes]) -> None:
        self.votes = dict(votes)


def stand_in(bench: Bench, stand: Stand) -> Elections:
    changes = Changes(bench.state, Followers(bench.state, bench.work))
    return Elections(bench.state, bench.syncing, changes, stand)


def handle(pair: Pair, given: Input) -> list[Effect]:
    """What the node makes of something, and its disk does not do yet."""
    return pair.solo.node.handle(given, Now(pair.solo.now_s, CREATED_US))


def test_who_has_come_to_a_later_term_before_its_own_vote_was_synced_asks_for_none() -> None:
    pair = Pair()
    pair.votes = False
    pair.solo.advance(10.0)
    (asked, *_) = pair.solo.sent_to(HER, RequestVote)
    assert asked.pre_vote
    effects = handle(pair, MessageReceived(HER, Vote(pair.topic, 0, STORE, True, True)))
    assert pair.sequencer.state.voted_for == pair.solo.me
    later = RequestVote(pair.topic, 9, STORE, 0, 0, False)
    effects += handle(pair, MessageReceived(HER, later))
    assert (pair.sequencer.state.term, pair.sequencer.state.voted_for) == (9, HER)
    tokens = [effect.token for effect in effects if isinstance(effect, Persist)]
    synced = [each for token in tokens for each in handle(pair, Persisted(token))]
    (answer,) = [each.message for each in synced if isinstance(each, Send)]
    assert answer == Vote(pair.topic, 9, pair.sequencer.state.store, True, False)


def test_a_candidate_asks_for_pre_votes_and_its_vote_is_synced_before_it_asks_for_votes() -> None:
    bench, stand = Bench(), Stand()
    elections = stand_in(bench, stand)
    elections.reset_timeout()
    bench.core.fire()
    asked = dict(bench.core.sent())
    assert list(asked) == [HIM, work.HER]
    assert all(isinstance(each, RequestVote) and each.pre_vote for each in asked.values())
    for peer, store in ((HIM, HIS_STORE), (work.HER, HER_STORE)):
        assert bench.state.term == 0
        elections.receive_vote(peer, Vote(work.TOPIC, 0, store, True, True))
    assert (bench.state.term, bench.state.voted_for) == (1, ME)
    assert bench.core.sent() == []
    bench.core.sync()
    again = [message for _, message in bench.core.sent()]
    assert [isinstance(each, RequestVote) and each.pre_vote for each in again] == [False, False]
    for peer, store in ((HIM, HIS_STORE), (work.HER, HER_STORE)):
        assert stand.votes is None
        elections.receive_vote(peer, Vote(work.TOPIC, 1, store, True, False))
    assert stand.votes == {ME: bench.state.store, HIM: HIS_STORE, work.HER: HER_STORE}


def test_a_vote_is_given_once_per_term_and_after_it_is_on_the_disk() -> None:
    bench = Bench()
    bench.state.term = 5
    elections = stand_in(bench, Stand())
    granted: list[bool] = []
    for peer, store in ((HIM, HIS_STORE), (work.HER, HER_STORE)):
        elections.receive_request(peer, RequestVote(work.TOPIC, 5, store, 0, 0, False))
        early = [message for _, message in bench.core.sent()]
        assert not any(isinstance(each, Vote) and each.granted for each in early)
        bench.core.sync()
        (answer,) = early or [message for _, message in bench.core.sent()]
        assert isinstance(answer, Vote)
        granted.append(answer.granted)
    assert granted == [True, False]
