"""Where a peer can be dialled of whom the driver knows nothing but the name: the DHT is asked."""

import pytest

from pulsarcast.protocol.effects import Effect, Know
from pulsarcast.protocol.inputs import FindPeer, Input, Now
from pulsarcast.protocol.messages import Contact, FindPeers, Peers
from tests.support.people import ALICE, BOB, MALLORY
from tests.support.solo import Solo

WANTED = ALICE.peer_id
HELPER = BOB.peer_id
THERE = Contact(WANTED, ("/ip4/10.0.0.1/tcp/1",))
ANOTHER = Contact(MALLORY.peer_id, ("/ip4/10.0.0.2/tcp/1",))


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        ([ANOTHER, THERE], THERE),
        ([ANOTHER], Contact(WANTED)),
        ([], Contact(WANTED)),
        ([Contact(WANTED)], Contact(WANTED)),
    ],
    ids=["there", "others", "nobody", "a name without an address"],
)
def test_the_driver_hears_where_a_peer_is_or_that_nobody_knows(
    answer: list[Contact], known: Contact, monkeypatch: pytest.MonkeyPatch
) -> None:
    solo = Solo(contacts=[HELPER]).start()
    if THERE in answer:  # and it lives: the lookup asks it too
        solo.peers[WANTED] = lambda message: (
            [Peers(message.request, ())] if isinstance(message, FindPeers) else []
        )
    effects: list[Effect] = []
    handle = solo.node.handle

    def noted(given: Input, now: Now) -> list[Effect]:
        done = handle(given, now)
        effects.extend(done)
        return done

    monkeypatch.setattr(solo.node, "handle", noted)
    solo.give(FindPeer(WANTED))
    asked = solo.sent_to(HELPER, FindPeers)[-1]
    solo.hear(HELPER, Peers(asked.request, tuple(answer)))
    solo.advance(60.0)  # the others do not answer
    told = [each for each in effects if isinstance(each, Know) and each.contact.peer == WANTED]
    assert told[-1] == Know(known)
