"""Carrying a command out, or saying why not."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from pulsarcast.model.errors import Closed, LocalError, Refusal, TopicNotFound
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.following.following import Following
from pulsarcast.protocol.inputs import Call

STOPPING = Closed("the node is stopping").refusal
NO_TOPIC = TopicNotFound(
    "no such topic was found: check its id, and that peers are connected"
).refusal

CommandT = TypeVar("CommandT", bound=Call)


class Commands(ABC, Generic[CommandT]):
    """Some of what an application asks of a node: each command is answered once."""

    def __init__(self, context: Context, following: Following) -> None:
        self.context = context
        self.turn = context.turn
        self.following = following
        self.followed = following.followed

    def handle(self, given: CommandT) -> None:
        """Do it, or say why not. A command that had to wait comes here again."""
        if self.following.is_stopping:
            self.refuse(given.call, STOPPING)
            return
        try:
            self.carry_out(given)
        except LocalError as error:
            self.refuse(given.call, error.refusal)

    @abstractmethod
    def carry_out(self, given: CommandT) -> None:
        """Do it; raises LocalError where the node does not."""

    def refuse(self, call: int, refusal: Refusal) -> None:
        """Answer with why not."""
        self.turn.effects.append(Reply(call, refusal))

    def answer(self, reply: Reply) -> None:
        """Answer a command."""
        self.turn.effects.append(reply)
