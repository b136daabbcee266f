"""Bytes by node and purpose: what each one contributes, as the 2d-tree thesis counts it (4.3)."""

from __future__ import annotations

from typing import Final

from pulsarcast.protocol.content import messages as routed
from pulsarcast.protocol.messages import BlockFound, FindBlock, Message
from pulsarcast.simulation.lines import Line
from pulsarcast.simulation.world import World

INSTALLING: Final = "installing"
"""As the thesis counts it: subscriptions on their way, pieces for new leaves, the tree's shape."""
COPYING: Final = "copying"
"""Copies at a home's neighbours and hand-over: the thesis has them, and does not count them."""
FINDING: Final = "finding"
"""Descriptors, which are only looked for because a subscriber or a home needs a topic's schema."""
PROBING: Final = "probing"
DELIVERING: Final = "delivering"
COMPARING: Final = "comparing"

_PURPOSES: Final[dict[type, str]] = {
    routed.PlaceSubscription: INSTALLING,
    routed.Installed: INSTALLING,
    routed.PlaceState: INSTALLING,
    routed.PlaceTaken: INSTALLING,
    routed.TreeHint: INSTALLING,
    routed.AskShape: INSTALLING,
    routed.TreeShape: INSTALLING,
    FindBlock: FINDING,
    BlockFound: FINDING,
    routed.ProbeEvent: PROBING,
    routed.MatchedEvent: DELIVERING,
    routed.CompareContent: COMPARING,
    routed.ContentCompared: COMPARING,
}


def _purpose(message: Message) -> str | None:
    if isinstance(message, routed.PlaceState) and message.purpose is not routed.Purpose.TRANSFER:
        return COPYING
    return _PURPOSES.get(type(message))


class Counted:
    """Messages and bytes that each node sent, by purpose."""

    def __init__(self) -> None:
        names = {*_PURPOSES.values(), COPYING}
        self.bytes: dict[str, dict[int, int]] = {name: {} for name in names}
        self.messages: dict[str, dict[int, int]] = {name: {} for name in names}

    def clear(self) -> None:
        """A new phase begins."""
        for counts in (*self.bytes.values(), *self.messages.values()):
            counts.clear()

    def per_node(self, *purposes: str) -> dict[int, int]:
        """Bytes by node."""
        total: dict[int, int] = {}
        for purpose in purposes:
            for node, count in self.bytes[purpose].items():
                total[node] = total.get(node, 0) + count
        return total

    def total(self, *purposes: str) -> int:
        """Bytes of all nodes."""
        return sum(sum(self.bytes[purpose].values()) for purpose in purposes)

    def count(self, *purposes: str) -> int:
        """Messages of all nodes."""
        return sum(sum(self.messages[purpose].values()) for purpose in purposes)

    def sent(self, *purposes: str) -> dict[int, int]:
        """Messages by node."""
        total: dict[int, int] = {}
        for purpose in purposes:
            for node, count in self.messages[purpose].items():
                total[node] = total.get(node, 0) + count
        return total


def count_in(world: World) -> Counted:
    """Count what is sent in a world from now on, on lines that are opened from now on."""
    counted = Counted()

    class CountedLine(Line):
        __slots__ = ()

        def send(self, message: Message) -> None:
            purpose = _purpose(message)
            if purpose is not None and self.ready:
                traffic = self.traffic
                if message is not traffic.message:
                    traffic.measure(message)
                sizes, counts = counted.bytes[purpose], counted.messages[purpose]
                sizes[self.source] = sizes.get(self.source, 0) + traffic.size
                counts[self.source] = counts.get(self.source, 0) + 1
            super().send(message)

    world.use_lines(CountedLine)
    return counted
