"""Sharing: how a frontier is shown, and how others are served from our disk."""

import pytest

from pulsarcast.protocol.effects import Load
from pulsarcast.protocol.messages import (
    CompareFrontiers,
    FetchRange,
    FrontierPage,
    FrontierPart,
    Range,
)
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import Events, MarkState
from pulsarcast.protocol.topic.sharing import COMPARE_INTERVAL_S, Sharing
from tests.support.people import ALICE, BOB, CAROL, EPOCH, event_of, peer, topic_of
from tests.unit.protocol.topic.bench import Bench

TOPIC = topic_of(ALICE)
OTHER = CAROL.peer_id
LEAVES_MAX = Parameters().frontier_list


def bench(publishers: int = 3) -> tuple[Bench, Sharing]:
    made = Bench(TOPIC, parameters=Parameters(frontier_page=2))
    for number in range(publishers):
        made.frontier.add(peer(f"publisher {number}"), EPOCH, 1, None)
    return made, Sharing(made.state)


def pages(made: Bench) -> list[FrontierPage]:
    return [message for _, message in made.sent() if isinstance(message, FrontierPage)]


def test_one_who_holds_nothing_shows_an_empty_page() -> None:
    made, sharing = bench(publishers=0)
    sharing.compare(OTHER)
    assert pages(made) == [FrontierPage(TOPIC.cid, (), answer=True)]


def test_a_peer_is_shown_the_whole_frontier_once_in_an_interval() -> None:
    made, sharing = bench()
    for _ in range(3):
        sharing.compare_now_and_then(OTHER)
    assert len(pages(made)) == 1
    made.turn.now += COMPARE_INTERVAL_S
    sharing.compare_now_and_then(OTHER)
    sharing.lost(OTHER)
    sharing.compare_now_and_then(OTHER)
    assert len(pages(made)) == 2


class Talk:
    """Two members that compare, and what they say to each other until both are silent."""

    def __init__(self, held: int, lacking: int) -> None:
        self.sides = [bench(held), bench(held)]
        self.shown: list[FrontierPage] = []
        self.compared: list[CompareFrontiers] = []
        for number in range(lacking):
            self.sides[1][0].frontier.add(peer(f"publisher {number}"), EPOCH, 2, None)

    def play(self) -> None:
        self.sides[0][1].compare(OTHER)
        speaker = 0
        while said := [message for _, message in self.sides[speaker][0].sent()]:
            made, listening = self.sides[1 - speaker]
            for message in said:
                match message:
                    case CompareFrontiers(_, parts):
                        self.compared.append(message)
                        listening.compare_parts(OTHER, parts)
                    case FrontierPage(_, marks, answer):
                        self.shown.append(message)
                        if answer:
                            listening.answer(OTHER, message, known=True)
                        for mark in marks:
                            if made.frontier.missing_from(mark):
                                made.frontier.adopt(mark)
            speaker = 1 - speaker

    @property
    def marks(self) -> int:
        return sum(len(page.marks) for page in self.shown)


@pytest.mark.parametrize("lacking", [1, 5, 100])
@pytest.mark.parametrize("held", [9, 300, 5000])
def test_only_the_parts_that_differ_are_shown(held: int, lacking: int) -> None:
    lacking = min(lacking, held)
    talk = Talk(held, lacking)
    talk.play()
    ours, theirs = (made.frontier.digest() for made, _ in talk.sides)
    assert ours == theirs
    assert talk.marks <= 2 * LEAVES_MAX * lacking
    assert len(talk.compared) <= 5


def test_few_marks_are_shown_at_once() -> None:
    talk = Talk(LEAVES_MAX, 1)
    talk.play()
    assert not talk.compared
    assert talk.marks == 2 * LEAVES_MAX


def test_a_part_that_is_shown_is_no_answer_about_all() -> None:
    made, sharing = bench(300)
    frontier = made.frontier
    different = FrontierPart(b"", bytes(len(frontier.digests(b""))))
    sharing.compare_parts(OTHER, [different])
    [deeper] = [each for _, each in made.sent() if isinstance(each, CompareFrontiers)]
    part = deeper.parts[0]
    sharing.compare_parts(OTHER, [part._replace(digests=bytes(len(part.digests)))])
    shown = pages(made)
    assert shown[-1].answer
    assert shown[-1].parts
    assert all(page.parts for page in shown)


def test_a_visitor_hears_of_the_numberings_that_it_names() -> None:
    made, sharing = bench()
    named = MarkState(peer("publisher 1"), EPOCH, 0, 5, None)
    asked = FrontierPage(TOPIC.cid, (named,), answer=True)
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
