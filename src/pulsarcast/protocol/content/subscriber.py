"""The node's own subscriptions: installs, renews, replaces and cancels them at leaves (3.3).

docs/spec/content.md, Install.

A filter is routed by the most selective of its attributes; `or` makes several routed subscriptions
of it, and the cut-off line several pieces of each. The subscriber sends each piece to the leaf that
its point falls into, by the known shape, and sends it again until a leaf confirms it.
"""

from functools import partial

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.subscriptions import SubscriptionRecord, sign_subscription
from pulsarcast.model.topic_types import TopicDescriptor
from pulsarcast.protocol.content.homes import Homes
from pulsarcast.protocol.content.messages import Held, Installed, PlaceSubscription, Stage
from pulsarcast.protocol.content.place import salt_of
from pulsarcast.protocol.content.rules import ContentRules
from pulsarcast.protocol.content.space import Piece, node_at, pieces, point_of
from pulsarcast.protocol.content.spaces import Spaces, own_filter, routes_of
from pulsarcast.protocol.content.trees import Trees
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.topic.versions import Versions

GUESS_LEVEL_MAX = 4
RETRY_FACTOR_MAX = 16
HOME_LOST_S = 30.0
"""Delay after the loss of a home, before its pieces are renewed: its replicas need time to notice
the loss."""
RENEW_SHARE = 0.5
"""Share of its lease after which a piece is renewed: half leaves time to send it again."""


class _Routed:
    """One piece of a subscription on its way, or at its home."""

    __slots__ = ("attribute", "factor", "home", "leaf", "piece", "point", "timer", "token")

    def __init__(
        self, attribute: str, piece: Piece, point: tuple[float, float], token: int
    ) -> None:
        self.attribute = attribute
        self.piece = piece
        self.point = point
        self.leaf: int | None = None
        self.home: PeerId | None = None
        """The peer that keeps it; None before one has confirmed it."""
        self.timer: int | None = None
        self.factor = 1
        self.token = token
        """Repeated in a home's answer."""


class _Own:
    """One subscription of this node."""

    __slots__ = ("is_kept", "record", "routed")

    def __init__(self, record: SubscriptionRecord, routed: list[_Routed]) -> None:
        self.record = record
        self.routed = routed
        self.is_kept = False
        """Whether every piece of it was kept, at any time."""


class Subscriber:
    """Keeps the node's subscriptions installed."""

    def __init__(self, context: Context, homes: Homes, spaces: Spaces, trees: Trees) -> None:
        self._turn = context.turn
        self._homes = homes
        self._spaces = spaces
        self._trees = trees
        self._rules = context.part(ContentRules)()
        self._counts = context.counts
        self._lease_s = int(context.parameters.content_lease_s)
        self._timeout_s = 2 * context.parameters.rpc_timeout_s
        self._own: dict[tuple[Cid, int], _Own] = {}

    def __len__(self) -> int:
        """How many subscriptions the node has."""
        return len(self._own)

    def install(
        self,
        versions: Versions,
        sid: int,
        number: int,
        where: str,
        *,
        version: TopicDescriptor | None = None,
    ) -> None:
        """Have a filter's events sent to this node.

        The filter is read by the newest version, or by the one given.
        Raises LocalError if the filter cannot be routed.
        """
        topic, read_by = versions.first.cid, version or versions.current
        wanted = own_filter(read_by, where)
        routed: list[_Routed] = []
        for route in routes_of(wanted, self._spaces.domains(versions)):
            for piece in pieces(route.low, route.high, self._turn.rng, self._rules.cut_off):
                salt = salt_of(self._turn.me, sid, len(routed))
                point, token = point_of(piece, salt), self._turn.new_secret()
                routed.append(_Routed(route.attribute, piece, point, token))
        record = self._sign(topic, read_by.cid, sid, number, wanted.text())
        own = self._own[(topic, sid)] = _Own(record, routed)
        self._see_if_kept(sid, own)
        for piece_number in range(len(routed)):
            self._send(topic, sid, piece_number)

    def _sign(
        self, topic: Cid, version: Cid, sid: int, number: int, where: str
    ) -> SubscriptionRecord:
        return sign_subscription(
            self._turn.identity,
            topic=topic,
            version=version,
            sid=sid,
            number=number,
            lease_s=self._lease_s,
            where=where,
        )

    def cancel(self, topic: Cid, sid: int) -> None:
        """Tell the homes of a subscription's pieces that it has ended."""
        own = self._own.pop((topic, sid), None)
        if own is None:
            return
        record = own.record
        end = self._sign(topic, record.version, sid, record.number + 1, "")
        for number, routed in enumerate(own.routed):
            self._turn.cancel(routed.timer)
            if routed.leaf is not None:
                self._say(topic, end, number, routed)

    def _send(self, topic: Cid, sid: int, number: int) -> None:
        """Send a piece to the leaf that the shape names, and again if no home answers."""
        own = self._own.get((topic, sid))
        if own is None:
            return
        routed = own.routed[number]
        shape = self._trees.shape(topic, routed.attribute)
        if routed.home is None and shape.is_known:
            routed.leaf = shape.leaf(*routed.point)
        elif routed.leaf is None:
            # The thesis' RndLeafProbe: a random level of the way to the point.
            depth = self._turn.rng.randrange(GUESS_LEVEL_MAX + 1)
            routed.leaf = node_at(*routed.point, depth)
        delay_s = self._turn.jitter(self._timeout_s * routed.factor)
        routed.factor = min(2 * routed.factor, RETRY_FACTOR_MAX)
        routed.timer = self._turn.after(delay_s, partial(self._again, topic, sid, number))
        self._say(topic, own.record, number, routed)

    def _again(self, topic: Cid, sid: int, number: int) -> None:
        self._counts["content_install_again"] += 1
        own = self._own.get((topic, sid))
        if own is not None:
            own.routed[number].home = None
            self._send(topic, sid, number)

    def _say(self, topic: Cid, record: SubscriptionRecord, number: int, routed: _Routed) -> None:
        low, high, closed = routed.piece
        held = Held(record.block, number, low, high, closed, record.lease_s)
        assert routed.leaf is not None
        message = PlaceSubscription(
            topic, routed.attribute, routed.leaf, Stage.GUESSED, held, routed.token
        )
        if routed.home is not None and routed.home != self._turn.me:
            self._turn.send(routed.home, message)
        else:
            self._homes.place(message, None)

    def installed(self, sender: PeerId, message: Installed) -> None:
        """A leaf's home keeps a piece of this node."""
        own = self._own.get((message.topic, message.sid))
        if own is None or own.record.number != message.number:
            return
        if message.piece >= len(own.routed):
            return
        routed = own.routed[message.piece]
        if (routed.attribute, routed.token) != (message.attribute, message.token):
            return
        if not self._trees.shape(message.topic, message.attribute).is_known:
            self._homes.shape_hints.hint(message.topic, message.attribute, message.leaf)
        routed.home, routed.leaf, routed.factor = sender, message.leaf, 1
        self._turn.cancel(routed.timer)
        delay_s = self._turn.jitter(self._lease_s * RENEW_SHARE)
        renew = partial(self._renew, message.topic, message.sid, message.piece)
        routed.timer = self._turn.after(delay_s, renew)
        self._see_if_kept(message.sid, own)

    def _see_if_kept(self, sid: int, own: _Own) -> None:
        if not own.is_kept and all(each.home is not None for each in own.routed):
            own.is_kept = True
            self._rules.kept(self._turn.me, sid)

    def _renew(self, topic: Cid, sid: int, number: int) -> None:
        if (topic, sid) in self._own:
            self._send(topic, sid, number)

    def is_kept(self, topic: Cid, sid: int) -> bool:
        """Whether every piece of a subscription has a known home."""
        own = self._own.get((topic, sid))
        return own is not None and all(routed.home is not None for routed in own.routed)

    def lost(self, peer: PeerId) -> None:
        """A home may be gone: its replicas have copies, and a renewal finds them."""
        for (topic, sid), own in self._own.items():
            for number, routed in enumerate(own.routed):
                if routed.home == peer:
                    routed.home = None
                    self._turn.cancel(routed.timer)
                    delay_s = self._turn.jitter(HOME_LOST_S)
                    routed.timer = self._turn.after(
                        delay_s, partial(self._renew, topic, sid, number)
                    )
