"""Which requests of a topic were published: in memory, and as the disk remembers it."""

from pulsarcast.protocol.store import PutState
from pulsarcast.protocol.topic.published_requests import GAPS_MAX, PublishedRequests
from tests.support.people import ALICE, BOB, EPOCH, event_for, request_of, topic_of

TOPIC = topic_of(ALICE)
AUTHOR = BOB.peer_id


def test_a_restart_remembers_which_were_published_and_no_others() -> None:
    requests = PublishedRequests(TOPIC.cid)
    for number in (1, 2, 3, 300, 70_000):
        event = event_for(ALICE, request_of(BOB, TOPIC.cid, number), TOPIC)
        assert requests.is_first(event)
    write = requests.row(event)
    assert isinstance(write, PutState)
    again = PublishedRequests(TOPIC.cid)
    again.restore(write.row.key, write.row.value)
    assert (again.high(AUTHOR, EPOCH), again.highest(AUTHOR, EPOCH)) == (3, 70_000)
    assert [n for n in range(1, 400) if again.holds(AUTHOR, EPOCH, n)] == [1, 2, 3, 300]


def test_what_is_missing_is_waited_for_until_too_many_came_after_it() -> None:
    requests = PublishedRequests(TOPIC.cid)
    last = GAPS_MAX + 1
    for number in range(2, last + 1):
        requests.take(AUTHOR, EPOCH, number)
    assert requests.high(AUTHOR, EPOCH) == 0
    assert not requests.holds(AUTHOR, EPOCH, 1)
    requests.take(AUTHOR, EPOCH, last + 1)
    assert requests.high(AUTHOR, EPOCH) == last + 1
