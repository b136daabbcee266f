"""Splitting: halves a leaf that holds too much or has too much load (2d-tree thesis, program 3.1).

The home goes on halving until each part is small enough. So each part travels once, to the leaf
that it ends in. The old home matches its pieces until the home of that leaf confirms them.
"""

from collections.abc import Mapping
from typing import Protocol

from pulsarcast.model.ids import Cid
from pulsarcast.protocol.content.messages import PlaceState, PlaceTaken, Purpose
from pulsarcast.protocol.content.place import Kept, Place
from pulsarcast.protocol.content.space import SPLIT_DEPTH_MAX, child_towards, level
from pulsarcast.protocol.content.trees import Trees
from pulsarcast.protocol.context import Context

HELD_MAX = 128
"""Bounds the pieces in one message."""


class SplittingOwner(Protocol):
    """Asked of the part that holds the places."""

    def route_state(self, message: PlaceState) -> None:
        """Bring pieces to the home of their leaf."""


class Splitting:
    """Halves leaves, and brings their pieces to the new homes."""

    def __init__(self, context: Context, trees: Trees, owner: SplittingOwner) -> None:
        self._turn = context.turn
        self._trees = trees
        self._owner = owner
        self._retry_s = 2 * context.parameters.rpc_timeout_s
        self.load_max = context.parameters.content_load_max
        """Messages a second that a leaf may cause before it is halved for that alone."""

    def is_too_much(self, rate: float) -> bool:
        """Whether a leaf's load asks for more homes."""
        return self.load_max > 0 and rate > self.load_max

    def split(self, place: Place, capacity: int) -> list[int]:
        """Halve a leaf at least once, and further until no half holds more than `capacity`.

        Returns the tree nodes below it that were halved in passing: their homes do not know it.
        """
        shape = self._trees.shape(place.topic, place.attribute)
        place.is_split = True
        place.version += 1
        place.copies.clear()
        shape.split(place.at)
        pieces = list(place.kept.values())
        passed: list[int] = []
        waiting = [(child, _within(child, pieces)) for child in (2 * place.at, 2 * place.at + 1)]
        for at, own in waiting:
            if len(own) > capacity and level(at) < SPLIT_DEPTH_MAX and _differ(own):
                shape.split(at)
                passed.append(at)
                waiting += [(child, _within(child, own)) for child in (2 * at, 2 * at + 1)]
        self.send_down(place)
        return passed

    def send_down(self, place: Place) -> None:
        """Send every piece that a split tree node still holds to its leaf's home."""
        shape = self._trees.shape(place.topic, place.attribute)
        leaving = {key for keys in place.leaving.values() for key in keys}
        leaves: dict[int, list[Kept]] = {}
        for kept in place.kept.values():
            if kept.key not in leaving:
                leaf = shape.leaf(*kept.point, below=place.at)
                leaves.setdefault(leaf, []).append(kept)
        for leaf, pieces in sorted(leaves.items()):
            for first in range(0, len(pieces), HELD_MAX):
                self._send(place, leaf, pieces[first : first + HELD_MAX])

    def _send(self, place: Place, leaf: int, pieces: list[Kept]) -> None:
        # A peer that knows the token can confirm the pieces, and the old home drops them.
        token = self._turn.new_secret()
        keys = {kept.key: None for kept in pieces}
        place.leaving[token] = keys
        now = self._turn.now
        self._turn.after(self._turn.jitter(self._retry_s), lambda: self._retry(place, token))
        held = tuple(kept.held(now) for kept in pieces)
        self._owner.route_state(
            PlaceState(
                place.topic,
                place.attribute,
                leaf,
                Purpose.TRANSFER,
                False,
                held,
                token=token,
                home=self._turn.me,
            )
        )

    def _retry(self, place: Place, token: int) -> None:
        """No home has confirmed the pieces: send them again, to the leaves of now."""
        if place.leaving.pop(token, None) is not None and place.kept:
            self.send_down(place)

    def taken(self, places: Mapping[tuple[Cid, str, int], Place], message: PlaceTaken) -> None:
        """A leaf's home has the pieces: drop them here."""
        at = message.at >> 1
        while at:
            place = places.get((message.topic, message.attribute, at))
            if place is not None and message.token in place.leaving:
                for key in place.leaving.pop(message.token):
                    place.drop(key)
                return
            at >>= 1


def _within(child: int, pieces: list[Kept]) -> list[Kept]:
    return [kept for kept in pieces if child_towards(child >> 1, *kept.point) == child]


def _differ(pieces: list[Kept]) -> bool:
    return len({kept.point for kept in pieces}) > 1
