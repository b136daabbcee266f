"""A member vouches for what its log holds, and not for what was before it became one."""

from pulsarcast.model.ids import Cid
from pulsarcast.model.topic_types import AttributeRule
from pulsarcast.protocol.content.messages import MARKS_LEFT_OUT, CompareContent, ContentCompared
from pulsarcast.protocol.store import MarkState
from tests.support.lab import Lab
from tests.support.people import unordered

AUTHOR, LATE, ASKER = 0, 1, 2
EVERY = ("price < 10 or price >= 10",)


def lab() -> tuple[Lab, Cid]:
    """Two events, and then a member that was not there before."""
    made = Lab(3, puppets=[ASKER])
    rule = AttributeRule("price", "float", 0.0, 100.0)
    topic = made.create(AUTHOR, unordered(attributes=(rule,), content_routing=True))
    made.subscribe([AUTHOR], topic)
    for _ in range(2):
        made.publish(AUTHOR, topic)
    made.subscribe([LATE], topic)
    made.publish(AUTHOR, topic)
    return made, topic


def ask(
    made: Lab, topic: Cid, member: int, high: int, *, log: int = 0, place: int = 0
) -> ContentCompared:
    """Ask as one who has compared the author's events up to a number."""
    epoch = made.event(made.delivered(AUTHOR, topic)[0]).sequence.epoch
    marks = (MarkState(made.peer(AUTHOR), epoch, 0, high, None),) if high else ()
    question = CompareContent(1, topic, EVERY, log, place, 0, b"", marks)
    puppet = made.puppets[ASKER]
    puppet.heard.clear()
    made.say(ASKER, made.peer(member), question)
    (answer,) = [each for _, each in puppet.heard if isinstance(each, ContentCompared)]
    return answer


def test_whoever_has_compared_less_than_a_members_start_is_refused_and_told_why() -> None:
    made, topic = lab()
    for high in (0, 1):
        answer = ask(made, topic, LATE, high)
        assert (answer.log, [mark.high for mark in answer.marks]) == (0, [2])
        assert ask(made, topic, AUTHOR, high).log > 0
    answer = ask(made, topic, LATE, 2)
    assert answer.log > 0
    assert [mark.high for mark in answer.marks] == [3]


def test_whoever_cannot_show_its_marks_is_answered() -> None:
    made, topic = lab()
    assert ask(made, topic, LATE, 0, place=MARKS_LEFT_OUT).log > 0


def test_a_log_that_a_member_does_not_know_is_not_taken_for_its_own() -> None:
    made, topic = lab()
    log = ask(made, topic, LATE, 2).log
    assert ask(made, topic, LATE, 0, log=log, place=1).log == log
    made.world.kill(LATE)
    made.run(1.0)
    made.world.restart(LATE)
    made.run(30.0)
    answer = ask(made, topic, LATE, 0, log=log, place=1)
    assert (answer.log, answer.marks) == (0, ())
    assert ask(made, topic, LATE, 2).log not in (0, log)
