"""Members: what a member answers to a content subscriber, by what the subscriber says it has."""

from pulsarcast.protocol.content.members import Members, id_of
from pulsarcast.protocol.content.messages import CompareContent, ContentCompared
from pulsarcast.protocol.store import Events, MarkState
from pulsarcast.protocol.topic.topic import Topic
from tests.support.parts import Core
from tests.support.people import BOB, EPOCH, peer
from tests.unit.protocol.content.stage import TOPIC, WHERE, event_at

ASKER = peer("asker")
CHEAP, DEAR = event_at(10.0, number=1), event_at(90.0, number=2)


class Member:
    """A member of the topic with two events in its log."""

    def __init__(self) -> None:
        self.core = Core()
        self.members = Members(self.core.context)
        self.topic = self.core.topic(TOPIC)
        self.topic.open(from_start=True)
        for event in (CHEAP, DEAR):
            self.topic.receive(event, BOB.peer_id, 1)
        self.core.sync()
        self.core.turn.effects.clear()

    def ask(
        self, topic: Topic | None, *, log: int = 0, have: bytes = b"", fresh: bool = False
    ) -> None:
        question = CompareContent(5, TOPIC.cid, (WHERE,), log, 0, 0, have, (), fresh)
        self.members.answer(ASKER, question, topic)

    def answer(self) -> ContentCompared:
        ((who, answer),) = self.core.sent()
        assert isinstance(answer, ContentCompared)
        assert who == ASKER
        return answer

    def token(self) -> int:
        """What the member calls its log."""
        self.ask(self.topic, fresh=True)
        return self.answer().log


def test_a_new_subscriber_starts_where_the_member_stands() -> None:
    member = Member()
    member.ask(member.topic, fresh=True)
    answer = member.answer()
    assert (answer.place, answer.newest, answer.blocks) == (2, 2, ())
    assert answer.marks == (MarkState(BOB.peer_id, EPOCH, 0, 2, None),)


def test_only_matching_events_that_the_subscriber_lacks_are_sent() -> None:
    member = Member()
    token = member.token()
    member.ask(member.topic, log=token)
    member.core.load(Events(((1, CHEAP), (2, DEAR))))
    answer = member.answer()
    assert (answer.order, answer.blocks) == (id_of(CHEAP.cid), (CHEAP.block,))
    member.ask(member.topic, log=token, have=id_of(CHEAP.cid))
    answer = member.answer()
    assert (answer.order, answer.blocks) == (id_of(CHEAP.cid), ())


def test_places_of_another_log_are_not_taken_for_places_of_this_one() -> None:
    member = Member()
    member.ask(member.topic, log=member.token() + 1)
    assert member.answer().log == 0
