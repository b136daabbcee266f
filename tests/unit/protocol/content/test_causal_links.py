"""What a content subscriber writes follows what it has read, though it is no member."""

from typing import Any

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid
from pulsarcast.model.topic_types import AttributeRule, DeliveryOrder, TopicSettings
from pulsarcast.protocol.inputs import Publish, SubscribeContent, UnsubscribeContent
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.topic.barrier import TABLE
from tests.support.lab import Lab

AUTHOR, MEMBER, READER = 0, 1, 2
SETTINGS: dict[str, Any] = {
    "attributes": (AttributeRule("price", "float", 0.0, 100.0),),
    "content_routing": True,
    "order": DeliveryOrder.CAUSAL,
}


def lab(*, nodes: int = 4, parameters: Parameters | None = None, **more: Any) -> tuple[Lab, Cid]:
    """An author, a member, and a reader of what costs less than ten."""
    made = Lab(nodes, parameters=parameters)
    topic = made.create(AUTHOR, TopicSettings(**SETTINGS, open=True, **more))
    made.subscribe([AUTHOR, MEMBER], topic)
    read(made, READER, topic)
    return made, topic


def read(made: Lab, node: int, topic: Cid) -> None:
    reply = made.ask(node, lambda call: SubscribeContent(call, topic, "price < 10", 1))
    assert reply.refusal is None, reply.refusal
    made.run(5.0)


def publish(made: Lab, node: int, topic: Cid, price: float) -> Cid:
    reply = made.ask(node, lambda call: Publish(call, topic, b"", attributes={"price": price}))
    assert reply.refusal is None, reply.refusal
    assert reply.cid is not None
    made.run(5.0)
    return reply.cid


def parents(made: Lab, event: Cid) -> set[Cid]:
    return set(made.event(event).parents)


def heads_on_disk(made: Lab, node: int) -> int:
    return sum(row.table == TABLE for row in made.world.store(node).rows())


def test_an_answer_follows_what_it_answers_and_not_what_was_never_read() -> None:
    made, topic = lab()
    question = publish(made, MEMBER, topic, 5.0)
    unread = publish(made, MEMBER, topic, 50.0)
    assert made.delivered(READER, topic) == [question]
    # Whether its own filter finds an answer or not, the next one follows it.
    first = publish(made, READER, topic, 60.0)
    second = publish(made, READER, topic, 6.0)
    third = publish(made, READER, topic, 61.0)
    assert parents(made, first) == {question}
    assert parents(made, second) == {first}
    assert parents(made, third) == {second}
    assert made.delivered(MEMBER, topic) == [question, unread, first, second, third]
    assert made.delivered(READER, topic) == [question, second]


def test_a_reader_that_was_killed_goes_on_with_what_it_had_read() -> None:
    made, topic = lab()
    question = publish(made, MEMBER, topic, 5.0)
    made.world.kill(READER)
    made.run(5.0)
    made.world.restart(READER)
    made.run(30.0)
    assert question in parents(made, publish(made, READER, topic, 60.0))


def test_a_request_of_a_reader_comes_after_what_it_had_read() -> None:
    made = Lab(4)
    allowed = (made.peer(AUTHOR), made.peer(MEMBER))
    topic = made.create(AUTHOR, TopicSettings(**SETTINGS, publishers=allowed))
    made.subscribe([AUTHOR, MEMBER], topic)
    read(made, READER, topic)
    question = publish(made, MEMBER, topic, 5.0)
    answer = made.event(publish(made, READER, topic, 60.0))
    assert answer.author == made.peer(READER) != answer.publisher
    assert answer.request.after == (question,)


def test_what_was_said_before_reading_is_followed_too() -> None:
    made, topic = lab()
    before = publish(made, 3, topic, 1.0)
    read(made, 3, topic)
    assert parents(made, publish(made, 3, topic, 60.0)) == {before}


def test_a_reader_merges_what_does_not_fit() -> None:
    made, topic = lab(nodes=6, parameters=Parameters(barrier_max=2))
    questions = {publish(made, node, topic, 5.0) for node in (3, 4, 5)}
    answer = publish(made, READER, topic, 60.0)
    (merge,) = [each for each in made.records(trace.Published, READER) if each.merge]
    assert parents(made, answer) | set(merge.parents) == questions | {merge.event}


def test_who_reads_no_longer_leaves_no_heads_behind() -> None:
    made, topic = lab()
    publish(made, MEMBER, topic, 5.0)
    assert heads_on_disk(made, READER) == 1
    made.ask(READER, lambda call: UnsubscribeContent(call, topic, 1))
    assert heads_on_disk(made, READER) == 0
