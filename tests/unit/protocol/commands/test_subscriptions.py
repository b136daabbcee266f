"""Subscriptions on their own: what is refused, and what waits until a topic is forgotten."""

from collections.abc import Callable
from typing import cast

from pulsarcast.model.errors import Conflict, LocalError, NotFollowed, TopicNotFound, Unavailable
from pulsarcast.model.ids import Cid
from pulsarcast.protocol.commands.subscriptions import SubscriptionCommands
from pulsarcast.protocol.content.content import Content
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import Subscribe, SubscribeContent, Unsubscribe
from pulsarcast.protocol.topic.life import Life, Stage
from pulsarcast.protocol.topic.versions import Versions
from tests.support.parts import Core
from tests.support.people import ALICE, topic_of

TOPIC = topic_of(ALICE)


class Filters:
    """Plays content: remembers who waits for a filter, or refuses it."""

    def __init__(self) -> None:
        self.refusal: LocalError | None = None
        self.waiting: list[tuple[str, Callable[[], None], Callable[[], None]]] = []

    def follow(
        self,
        versions: Versions,
        sid: int,
        where: str,
        then: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.waiting.append((where, then, failed))


class Desk:
    """The commands about subscriptions; the DHT, the owner and content are fakes."""

    def __init__(self) -> None:
        self.core = Core()
        self.filters = Filters()
        content = cast("Content", self.filters)
        self.commands = SubscriptionCommands(
            self.core.context, self.core.following, self.core.descriptors, content
        )

    def codes(self) -> list[str | None]:
        """How the commands were answered since the last look: None, or why not."""
        refusals = [reply.refusal for reply in self.core.replies()]
        return [None if each is None else each.code for each in refusals]


def code_of(error: LocalError) -> str:
    return error.refusal.code


def test_a_topic_that_cannot_be_found_is_refused() -> None:
    desk = Desk()
    desk.commands.handle(Subscribe(7, TOPIC.cid))
    assert desk.codes() == []
    desk.core.network.found(None)
    assert desk.codes() == [code_of(TopicNotFound(""))]


def test_a_subscription_is_answered_once_it_is_on_the_disk() -> None:
    desk = Desk()
    desk.core.descriptors.keep(Versions(TOPIC))
    desk.commands.handle(Subscribe(7, TOPIC.cid, from_start=True))
    assert desk.core.replies() == []
    desk.core.sync()
    assert desk.core.replies() == [Reply(7, cid=TOPIC.cid, places=(0,))]


def test_an_unsubscribe_waits_until_the_disk_has_forgotten_the_topic() -> None:
    desk = Desk()
    life = desk.core.followed.lives[TOPIC.cid] = Life(Stage.FORGETTING)
    desk.commands.handle(Unsubscribe(7, TOPIC.cid))
    assert desk.codes() == []
    life.stage = Stage.AWAY
    (again,) = life.take_on_forgotten()
    again()
    assert desk.codes() == [code_of(NotFollowed(""))]


def test_a_topic_followed_by_filters_is_not_followed_whole_too() -> None:
    desk = Desk()
    desk.core.descriptors.keep(Versions(TOPIC))
    by_content = cast("dict[Cid, object]", desk.core.followed.by_content)
    by_content[TOPIC.cid] = object()
    desk.commands.handle(Subscribe(7, TOPIC.cid))
    assert desk.codes() == [code_of(Conflict(""))]


def test_an_unsubscribe_from_a_topic_that_is_not_followed_is_refused() -> None:
    desk = Desk()
    desk.commands.handle(Unsubscribe(7, TOPIC.cid))
    assert desk.codes() == [code_of(NotFollowed(""))]


def test_a_filter_is_answered_once_with_its_start_or_with_why_not() -> None:
    desk = Desk()
    desk.core.descriptors.keep(Versions(TOPIC))
    desk.commands.handle(SubscribeContent(7, TOPIC.cid, "price < 5"))
    ((where, _, failed),) = desk.filters.waiting
    assert where == "price < 5"
    assert desk.codes() == []
    failed()
    assert desk.codes() == [code_of(Unavailable(""))]
    desk.filters.refusal = Conflict("not this one")
    desk.commands.handle(SubscribeContent(8, TOPIC.cid, "price < 5"))
    assert desk.codes() == [code_of(Conflict(""))]
