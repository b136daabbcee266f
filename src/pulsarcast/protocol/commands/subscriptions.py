"""Subscriptions: to a topic, or to what matches a filter."""

from typing import assert_never

from pulsarcast.model.errors import (
    Conflict,
    LocalError,
    Unavailable,
)
from pulsarcast.protocol.commands.commands import NO_TOPIC, Commands
from pulsarcast.protocol.content.content import Content
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.following.descriptors import Descriptors
from pulsarcast.protocol.following.following import Following
from pulsarcast.protocol.inputs import (
    Subscribe,
    SubscribeContent,
    SubscriptionCommand,
    Unsubscribe,
    UnsubscribeContent,
)
from pulsarcast.protocol.topic.life import NO_REASON, FollowReason
from pulsarcast.protocol.topic.versions import Versions


class SubscriptionCommands(Commands[SubscriptionCommand]):
    """Carries out what subscribers ask."""

    def __init__(
        self, context: Context, following: Following, descriptors: Descriptors, content: Content
    ) -> None:
        super().__init__(context, following)
        self.descriptors = descriptors
        self.content = content

    def carry_out(self, given: SubscriptionCommand) -> None:
        match given:
            case Subscribe():
                self._subscribe(given)
            case Unsubscribe():
                self._unsubscribe(given)
            case SubscribeContent():
                self._subscribe_content(given)
            case UnsubscribeContent():
                self._unsubscribe_content(given)
            case _ as unreachable:
                assert_never(unreachable)

    def _subscribe(self, given: Subscribe) -> None:
        def found(versions: Versions | None) -> None:
            if versions is None:
                self.refuse(given.call, NO_TOPIC)
                return
            if self._comes_again(given):
                return
            if given.topic in self.followed.by_content:
                refused = Conflict(
                    "the node reads this topic by filters: unsubscribe from it first"
                )
                self.refuse(given.call, refused.refusal)
                return
            why = FollowReason.SUBSCRIBED
            if given.below:
                why |= FollowReason.BELOW
                why |= FollowReason.FROM_START if given.from_start else NO_REASON
            self.following.follow(
                versions, why, from_start=given.from_start, then=lambda: self._subscribed(given)
            )

        self.descriptors.find(given.topic, found)

    def _subscribed(self, given: Subscribe) -> None:
        topic = self.followed.members.get(given.topic)
        places = () if topic is None else (topic.log.delivered,)
        self.answer(Reply(given.call, cid=given.topic, places=places))

    def _comes_again(self, given: SubscriptionCommand) -> bool:
        """Whether the command waits, because the disk has yet to forget the topic."""
        if not self.followed.is_forgetting(given.topic):
            return False
        self.following.when_forgotten(given.topic, lambda: self.handle(given))
        return True

    def _unsubscribe(self, given: Unsubscribe) -> None:
        if self._comes_again(given):
            return
        topic = self.following.member(given.topic)
        done = Reply(given.call, cid=given.topic)
        self.following.unfollow(topic, lambda: self.answer(done))

    def _subscribe_content(self, given: SubscribeContent) -> None:
        def started() -> None:
            topic = self.followed.by_content.get(given.topic)
            places = () if topic is None else (topic.log.delivered,)
            self.answer(Reply(given.call, cid=given.topic, places=places))

        def failed() -> None:
            self.refuse(
                given.call,
                Unavailable(
                    "no member of this topic was found: connect to peers that follow it"
                ).refusal,
            )

        def found(versions: Versions | None) -> None:
            if versions is None:
                self.refuse(given.call, NO_TOPIC)
                return
            if self._comes_again(given):
                return
            try:
                self.content.follow(versions, given.sid, given.where, started, failed)
            except LocalError as error:
                self.refuse(given.call, error.refusal)

        self.descriptors.find(given.topic, found)

    def _unsubscribe_content(self, given: UnsubscribeContent) -> None:
        if self._comes_again(given):
            return
        done = Reply(given.call, cid=given.topic)
        self.content.unfollow(given.topic, given.sid, lambda: self.answer(done))
