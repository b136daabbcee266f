"""A hostile node: it passes nothing on, and hides that it does not.

It still receives, delivers, and answers every heartbeat with just the hash that the asker expects.
Only a third party can tell its neighbours what they miss.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.context import Context, Parts
from pulsarcast.protocol.dissemination.cube import DisseminationCube
from pulsarcast.protocol.dissemination.cube_heartbeat import CubeHeartbeat
from pulsarcast.protocol.dissemination.quiet_topics import QuietTopics
from pulsarcast.protocol.dissemination.tree import DisseminationTree
from pulsarcast.protocol.dissemination.tree_heartbeat import Heartbeat
from pulsarcast.protocol.messages import (
    CompareFrontiers,
    CompareTopics,
    EventMessage,
    FetchRange,
    FrontierPage,
    Range,
    Status,
)
from pulsarcast.protocol.topic.sharing import Sharing
from pulsarcast.protocol.topic.state import TopicState
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.protocol.turn import Turn


def withholding(parts: Parts, hostile: set[Turn]) -> Parts:
    """Parts of nodes that withhold events while their turns are among the hostile ones."""

    def built(kind: type[Any]) -> Any:
        return parts.get(kind, kind)

    def hiding(overlay: Any) -> Any:
        class Hiding(overlay):  # type: ignore[misc]
            def forward(
                self, message: EventMessage, *, source: PeerId | None, via_overlay: bool = True
            ) -> None:
                """Swallow what comes from others; the node's own events may go."""
                if source is None or self.turn not in hostile:
                    super().forward(message, source=source, via_overlay=via_overlay)

        return Hiding

    def flattering(heartbeat: Any, path_of: Callable[[Any], tuple[PeerId, ...]]) -> Any:
        class Flattering(heartbeat):  # type: ignore[misc]
            def receive(self, sender: PeerId, message: Status) -> None:
                if message.answer and self.turn in hostile:
                    flattery = Status(self.topic, message.digest, path_of(self), (), False)
                    self.turn.send(sender, flattery)
                else:
                    super().receive(sender, message)

        return Flattering

    class Agreeing(built(QuietTopics)):  # type: ignore[misc]
        def __init__(self, context: Context) -> None:
            super().__init__(context)
            self.turn = context.turn

        def receive(self, sender: PeerId, message: CompareTopics) -> None:
            if message.answer and self.turn in hostile:
                self.turn.send(sender, CompareTopics(message.hashes, answer=False))
            else:
                super().receive(sender, message)

    class Refusing(built(Sharing)):  # type: ignore[misc]
        def __init__(self, state: TopicState) -> None:
            super().__init__(state)
            self.id, self.turn = state.id, state.context.turn

        def serve(self, sender: PeerId, message: FetchRange) -> None:
            if self.turn in hostile:
                self.turn.send(sender, Range(message.request, self.id, (), False))
            else:
                super().serve(sender, message)

    class Secretive(built(Topic)):  # type: ignore[misc]
        def receive_page(self, sender: PeerId, message: FrontierPage) -> None:
            """Fetch what others show, show nothing."""
            if self.turn in hostile:
                message = msgspec.structs.replace(message, answer=False)
            super().receive_page(sender, message)

        def compare_parts(self, sender: PeerId, message: CompareFrontiers) -> None:
            """Ask for what others hold of the parts that differ, show nothing."""
            if self.turn not in hostile:
                super().compare_parts(sender, message)
                return
            differ = [
                steps
                for part in message.parts
                if self.frontier.is_known(part.steps)
                for steps in self.frontier.differing(part.steps, part.digests)
            ]
            if differ:
                page = FrontierPage(self.id, (), answer=True, parts=tuple(differ))
                self.turn.send(sender, page)

    return {
        **parts,
        DisseminationTree: hiding(built(DisseminationTree)),
        DisseminationCube: hiding(built(DisseminationCube)),
        Heartbeat: flattering(built(Heartbeat), lambda mine: mine.tree.path_from_here()),
        CubeHeartbeat: flattering(built(CubeHeartbeat), lambda mine: mine.cube.path_from_here()),
        QuietTopics: Agreeing,
        Sharing: Refusing,
        Topic: Secretive,
    }
