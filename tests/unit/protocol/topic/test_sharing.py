"""Sharing: how a frontier is shown, and how others are served from our disk."""

from pulsarcast.protocol.effects import Load
from pulsarcast.protocol.messages import FetchRange, FrontierPage, Range
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import Events, MarkState
from pulsarcast.protocol.topic.sharing import COMPARE_INTERVAL_S, Sharing
from tests.support.people import ALICE, BOB, CAROL, EPOCH, event_of, peer, topic_of
from tests.unit.protocol.topic.bench import Bench

TOPIC = topic_of(ALICE)
OTHER = CAROL.peer_id


def bench(publishers: int = 3) -> tuple[Bench, Sharing]:
    made = Bench(TOPIC, parameters=Parameters(frontier_page=2))
    for number in range(publishers):
        made.frontier.add(peer(f"publisher {number}"), EPOCH, 1, None)
    return made, Sharing(made.state)


def pages(made: Bench) -> list[FrontierPage]:
    return [message for _, message in made.sent() if isinstance(message, FrontierPage)]


def test_a_frontier_is_shown_in_pages_and_the_last_one_asks() -> None:
    made, sharing = bench()
    sharing.show(OTHER, answer=True)
    shown = pages(made)
    assert [(len(page.marks), page.answer, page.more) for page in shown] == [
        (2, False, True),
        (1, True, False),
    ]


def test_one_who_holds_nothing_shows_an_empty_page() -> None:
    made, sharing = bench(publishers=0)
    sharing.show(OTHER, answer=False)
    assert pages(made) == [FrontierPage(TOPIC.cid, (), answer=False, more=False)]


def test_a_peer_is_shown_the_whole_frontier_once_in_an_interval() -> None:
    made, sharing = bench()
    for _ in range(3):
        sharing.show_now_and_then(OTHER)
    assert len(pages(made)) == 2
    made.turn.now += COMPARE_INTERVAL_S
    sharing.show_now_and_then(OTHER)
    sharing.lost(OTHER)
    sharing.show_now_and_then(OTHER)
    assert len(pages(made)) == 4


def test_a_visitor_hears_of_the_numberings_that_it_names() -> None:
    made, sharing = bench()
    named = MarkState(peer("publisher 1"), EPOCH, 0, 5, None)
    asked = FrontierPage(TOPIC.cid, (named,), answer=True, more=False)
    sharing.answer(OTHER, asked, known=False)
    ((mark,),) = [page.marks for page in pages(made)]
    assert mark.publisher == named.publisher
    sharing.answer(OTHER, asked, known=True)
    assert sum(len(page.marks) for page in pages(made)) == 3


def test_nobody_consults_itself() -> None:
    made, sharing = bench()
    sharing.consult([BOB.peer_id, OTHER], ALICE.peer_id, EPOCH)
    assert [to for to, _ in made.sent()] == [OTHER]


def test_events_are_served_from_the_disk_and_more_is_promised_where_we_hold_more() -> None:
    made, sharing = bench()
    events = [event_of(CAROL, TOPIC, number) for number in (1, 2)]
    for event in events:
        made.frontier.add(CAROL.peer_id, EPOCH, event.sequence.number, event.cid)
    sharing.serve(OTHER, FetchRange(9, TOPIC.cid, CAROL.peer_id, EPOCH, 1, 2))
    (load,) = [each for each in made.effects() if isinstance(each, Load)]
    made.turn.loaded(load.token, Events(((1, events[0]),)))
    assert made.sent() == [(OTHER, Range(9, TOPIC.cid, (events[0].block,), more=True))]
