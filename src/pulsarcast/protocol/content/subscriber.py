"""The node's own subscriptions: installs, renews, replaces and cancels them at leaves (3.3).

docs/spec/content.md, Install.

A filter is routed by the most selective of its attributes; `or` makes several routed subscriptions
of it, and the cut-off line several pieces of each. The subscriber sends each piece to the leaf that
its point falls into, by the known shape, and sends it again until a leaf confirms it.

Where an attribute's line moves, the subscriber cuts its wide ranges anew: it ends the old pieces
once all new ones are kept.
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
from pulsarcast.protocol.content.spaces import Routed, Spaces, own_filter, routes_of
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

    __slots__ = ("factor", "home", "leaf", "piece", "point", "route", "timer", "token")

    def __init__(self, route: Routed, piece: Piece, point: tuple[float, float], token: int) -> None:
        self.route = route
        self.piece = piece
        self.point = point
        self.leaf: int | None = None
        self.home: PeerId | None = None
        """The peer that keeps it; None before one has confirmed it."""
        self.timer: int | None = None
        self.factor = 1
        self.token = token
        """Repeated in a home's answer."""

    @property
    def attribute(self) -> str:
        """The attribute that it is routed by."""
        return self.route.attribute


class _Own:
    """One subscription of this node."""

    __slots__ = ("is_kept", "levels", "old", "pieces", "record", "routed")

    def __init__(self, record: SubscriptionRecord) -> None:
        self.record = record
        self.routed: dict[int, _Routed] = {}
        """By number of the piece."""
        self.old: dict[int, _Routed] = {}
        """Pieces by an earlier line, which end once all others are kept."""
        self.pieces = 0
        """How many pieces it has had: each has a number of its own."""
        self.levels: dict[str, int] = {}
        """By attribute: the level of the line that its ranges were cut by."""
        self.is_kept = False
        """Whether every piece of it was kept, at any time."""

    @property
    def has_home(self) -> bool:
        """Whether every piece has a known home."""
        return all(each.home is not None for each in self.routed.values())


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
        self._line_timer: int | None = None

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
        routes = routes_of(wanted, self._spaces.domains(versions))
        record = self._sign(topic, read_by.cid, sid, number, wanted.text())
        own = self._own[(topic, sid)] = _Own(record)
        for route in routes:
            level = self._trees.shape(topic, route.attribute).line.cut
            own.levels[route.attribute] = level
            self._cut(own, sid, route, level)
        self._see_if_kept(sid, own)
        for piece_number in list(own.routed):
            self._send(topic, sid, piece_number)
        if self._line_timer is None:
            self._follow_later()

    def _cut(self, own: _Own, sid: int, route: Routed, level: int) -> None:
        """Make pieces of a range that lie below a level of the line."""
        cut_off = self._rules.cut_off(level)
        for piece in pieces(route.low, route.high, self._turn.rng, cut_off):
            salt = salt_of(self._turn.me, sid, own.pieces)
            point, token = point_of(piece, salt), self._turn.new_secret()
            own.routed[own.pieces] = _Routed(route, piece, point, token)
            own.pieces += 1

    # The cut-off line.

    def _follow_later(self) -> None:
        delay_s = self._turn.jitter(self._rules.line_s / 2)
        self._line_timer = self._turn.after(delay_s, self._ask_lines)

    def _ask_lines(self) -> None:
        """Ask for the lines of all trees that hold wide ranges of this node."""
        self._line_timer = None
        trees = {
            (topic, routed.attribute): None
            for (topic, _), own in self._own.items()
            for routed in own.routed.values()
            if self._is_wide(routed.route)
        }
        for topic, attribute in trees:
            self._homes.shape_hints.ask_line(topic, attribute)
        if self._own:
            self._follow_later()

    def _is_wide(self, route: Routed) -> bool:
        """Whether some level of the line cuts a range."""
        return route.high - route.low > self._rules.cut_offs[-1]

    def follow_line(self, topic: Cid, attribute: str) -> None:
        """The root's home has told a tree's line: cut the ranges anew that are cut otherwise."""
        level = self._trees.shape(topic, attribute).line.cut
        for (of, sid), own in list(self._own.items()):
            before = own.levels.get(attribute)
            if of != topic or before is None or before == level:
                continue
            own.levels[attribute] = level
            narrowest = min(self._rules.cut_off(before), self._rules.cut_off(level))
            stale = {
                number: routed
                for number, routed in own.routed.items()
                if routed.attribute == attribute
                and routed.route.high - routed.route.low > narrowest
            }
            first = own.pieces
            for route in dict.fromkeys(routed.route for routed in stale.values()):
                self._cut(own, sid, route, level)
            for number, routed in stale.items():
                self._turn.cancel(routed.timer)
                own.old[number] = own.routed.pop(number)
            for number in range(first, own.pieces):
                self._send(topic, sid, number)

    def _end_old(self, topic: Cid, sid: int, own: _Own) -> None:
        """All pieces are kept: those of an earlier line are not needed any more."""
        old, own.old = own.old, {}
        self._end_pieces(topic, sid, own.record, old)

    def _end_pieces(
        self, topic: Cid, sid: int, record: SubscriptionRecord, ended: dict[int, _Routed]
    ) -> None:
        end = self._sign(topic, record.version, sid, record.number + 1, "")
        for number, routed in ended.items():
            self._turn.cancel(routed.timer)
            if routed.leaf is not None:
                self._say(topic, end, number, routed)

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
        self._end_pieces(topic, sid, own.record, own.routed | own.old)

    def _send(self, topic: Cid, sid: int, number: int) -> None:
        """Send a piece to the leaf that the shape names, and again if no home answers."""
        own = self._own.get((topic, sid))
        routed = None if own is None else own.routed.get(number)
        if own is None or routed is None:
            return
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
        routed = None if own is None else own.routed.get(number)
        if routed is not None:
            routed.home = None
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
        routed = own.routed.get(message.piece)
        if routed is None:
            return
        if (routed.attribute, routed.token) != (message.attribute, message.token):
            return
        shape = self._trees.shape(message.topic, message.attribute)
        if not shape.is_known or (
            self._is_wide(routed.route)
            and shape.line_age_s(self._turn.now) > self._rules.line_s / 2
        ):
            self._homes.shape_hints.ask_line(message.topic, message.attribute)
        routed.home, routed.leaf, routed.factor = sender, message.leaf, 1
        self._turn.cancel(routed.timer)
        delay_s = self._turn.jitter(self._lease_s * RENEW_SHARE)
        renew = partial(self._renew, message.topic, message.sid, message.piece)
        routed.timer = self._turn.after(delay_s, renew)
        self._see_if_kept(message.sid, own)
        if own.old and own.has_home:
            self._end_old(message.topic, message.sid, own)

    def _see_if_kept(self, sid: int, own: _Own) -> None:
        if not own.is_kept and own.has_home:
            own.is_kept = True
            self._rules.kept(self._turn.me, sid)

    def _renew(self, topic: Cid, sid: int, number: int) -> None:
        if (topic, sid) in self._own:
            self._send(topic, sid, number)

    def is_kept(self, topic: Cid, sid: int) -> bool:
        """Whether every piece of a subscription has a known home."""
        own = self._own.get((topic, sid))
        return own is not None and own.has_home

    def lost(self, peer: PeerId) -> None:
        """A home may be gone: its replicas have copies, and a renewal finds them."""
        for (topic, sid), own in self._own.items():
            for number, routed in own.routed.items():
                if routed.home == peer:
                    routed.home = None
                    self._turn.cancel(routed.timer)
                    delay_s = self._turn.jitter(HOME_LOST_S)
                    routed.timer = self._turn.after(
                        delay_s, partial(self._renew, topic, sid, number)
                    )
