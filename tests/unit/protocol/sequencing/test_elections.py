"""Elections among scripted sequencers whose disks take their time."""

from pulsarcast.protocol.effects import Effect, Persist, Send
from pulsarcast.protocol.inputs import Input, MessageReceived, Now, Persisted
from pulsarcast.protocol.sequencing.messages import RequestVote, Vote
from tests.support.people import CREATED_US, MALLORY
from tests.support.sequencing import STORE, Pair

HER = MALLORY.peer_id


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
    assert pair.sequencer.voted_for == pair.solo.me
    later = RequestVote(pair.topic, 9, STORE, 0, 0, False)
    effects += handle(pair, MessageReceived(HER, later))
    assert (pair.sequencer.term, pair.sequencer.voted_for) == (9, HER)
    tokens = [effect.token for effect in effects if isinstance(effect, Persist)]
    synced = [each for token in tokens for each in handle(pair, Persisted(token))]
    (answer,) = [each.message for each in synced if isinstance(each, Send)]
    assert answer == Vote(pair.topic, 9, pair.sequencer.store, True, False)
