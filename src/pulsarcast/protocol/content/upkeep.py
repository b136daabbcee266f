"""Upkeep: replicates places, hands them over to closer peers, and ends leases.

2d-tree thesis, 3.6; docs/spec/content.md, Who is home.

The peers next closest to a place's key hold copies of it, so that the closest of them can serve as
soon as the home is gone. A home that learns of a closer peer hands the place over, and serves it
until that peer confirms that it holds it.
"""

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.content.messages import Held, PlaceState, Purpose
from pulsarcast.protocol.content.place import Place, PlaceId
from pulsarcast.protocol.content.routing import Routing
from pulsarcast.protocol.content.shape_hints import ShapeHints
from pulsarcast.protocol.content.space import ROOT
from pulsarcast.protocol.content.splitting import HELD_MAX, Splitting
from pulsarcast.protocol.content.trees import Trees
from pulsarcast.protocol.context import Context

FLUSH_S = 2.0
"""Delay in which changes gather, before they go to the replicas."""
TELL_UP_ROUNDS = 30
"""Interval in rounds at which a place reports to its parent, whose home may have been lost."""
TENDED_MAX = 64
"""Bounds the places looked after in one round."""
NEEDLESS_ROUNDS = 3
"""A copy is dropped once enough other peers have been closer for this many rounds."""


class Upkeep:
    """Looks after the places that a node holds."""

    def __init__(
        self,
        context: Context,
        routing: Routing,
        trees: Trees,
        places: dict[PlaceId, Place],
        hints: ShapeHints,
        splitting: Splitting,
    ) -> None:
        self._turn = context.turn
        self._routing = routing
        self._trees = trees
        self._places = places
        self._hints = hints
        self._splitting = splitting
        self._replicas = context.parameters.replicas
        self._interval_s = context.parameters.content_upkeep_s
        self._idle_s = context.parameters.content_lease_s
        """How long an unused empty place is held."""
        self._retry_s = 2 * context.parameters.rpc_timeout_s
        self._round = 0
        self._timer: int | None = None
        self._flush_timer: int | None = None
        self._dirty: dict[PlaceId, None] = {}

    def touched(self, place: Place) -> None:
        """A place has changed: its replicas get the change soon."""
        self._dirty[(place.topic, place.attribute, place.at)] = None
        if self._flush_timer is None:
            self._flush_timer = self._turn.after(self._turn.jitter(FLUSH_S), self._flush)
        if self._timer is None:
            self._timer = self._turn.after(self._turn.jitter(self._interval_s), self._tend)

    def lost(self, peer: PeerId) -> None:
        """A connection ended: a peer that comes back may not hold its copies any more."""
        for place in self._places.values():
            place.copies.pop(peer, None)
            if place.handing is not None and place.handing[0] == peer:
                place.handing = None

    def _flush(self) -> None:
        self._flush_timer = None
        dirty, self._dirty = self._dirty, {}
        for where in dirty:
            place = self._places.get(where)
            if place is not None and place.is_owner:
                self._replicate(place)

    def _tend(self) -> None:
        self._timer = None
        self._round += 1
        now = self._turn.now
        for where, place in self._next_places():
            place.expire(now)
            if not place.kept and now - place.used_s > self._idle_s:
                self._forget(where)
                continue
            closer = self._routing.closer(place.key)
            if place.is_owner:
                if closer is not None:
                    self.hand_over(place, closer)
                else:
                    if place.at == ROOT and self._hints.lines.tend(place):
                        place.copies.clear()
                    self._replicate(place)
                if place.at != ROOT and (self._round + place.at) % TELL_UP_ROUNDS == 0:
                    self._hints.tell_up(place)
                if place.is_split and place.kept and not place.leaving:
                    self._splitting.send_down(place)
            elif closer is None:
                place.is_owner = True
                self._replicate(place)
            elif self._is_needless(place):
                place.needless += 1
                if place.needless >= NEEDLESS_ROUNDS:
                    self._forget(where)
            else:
                place.needless = 0
        if self._places:
            self._timer = self._turn.after(self._turn.jitter(self._interval_s), self._tend)

    def _forget(self, where: PlaceId) -> None:
        """Drop a place, and what it still had to send: no answer could reach it."""
        self._places.pop(where).leaving.clear()

    def _next_places(self) -> list[tuple[PlaceId, Place]]:
        """The places of this round: all, unless strangers have the node hold very many."""
        places = list(self._places.items())
        if len(places) <= TENDED_MAX:
            return places
        first = self._round * TENDED_MAX % len(places)
        return (places + places)[first : first + TENDED_MAX]

    def _is_needless(self, place: Place) -> bool:
        """Whether as many peers as keep a place are closer to its key than this node."""
        around = self._routing.around(place.key, self._replicas)
        return len(around) >= self._replicas and all(
            self._routing.is_closer(peer, place.key) for peer in around
        )

    def _replicate(self, place: Place) -> None:
        """Bring the copies at the replicas up to date."""
        around = self._routing.around(place.key, self._replicas - 1)
        place.copies = {peer: None for peer in place.copies if peer in around}
        now = self._turn.now
        changed = [place.kept[key].held(now) for key in place.changed if key in place.kept]
        for peer in around:
            if peer not in place.copies:
                self._send(place, peer, Purpose.REPLICA, list(place.all_held(now)))
                place.copies[peer] = None
            elif changed:
                self._send(place, peer, Purpose.REPLICA, changed)
        place.changed.clear()

    def hand_over(self, place: Place, peer: PeerId) -> None:
        """A peer is closer to a place's key: send it everything, and serve until it confirms."""
        if place.handing is not None:
            return
        token = self._turn.new_id()
        place.handing = (peer, token, place.version)
        self._turn.after(self._retry_s, lambda: self._give_up(place, token))
        held = list(place.all_held(self._turn.now))
        self._send(place, peer, Purpose.HAND_OVER, held, token)

    def _give_up(self, place: Place, token: int) -> None:
        if place.handing is not None and place.handing[1] == token:
            place.handing = None

    def _send(
        self, place: Place, peer: PeerId, purpose: Purpose, held: list[Held], token: int = 0
    ) -> None:
        shape = self._trees.shape(place.topic, place.attribute)
        told = shape.to_bytes(place.at) if place.is_split else b""
        pages = [held[at : at + HELD_MAX] for at in range(0, len(held), HELD_MAX)] or [[]]
        for page in pages:
            last = page is pages[-1]
            self._turn.send(
                peer,
                PlaceState(
                    place.topic,
                    place.attribute,
                    place.at,
                    purpose if last else Purpose.REPLICA,
                    place.is_split,
                    tuple(page),
                    told if last else b"",
                    token if last else 0,
                    cut=place.line.cut,
                    reach=place.line.reach,
                ),
            )
