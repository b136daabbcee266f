"""Homes: holds tree nodes for other peers, and serves subscriptions and events sent to them.

2d-tree thesis, 3.3 and 3.4; docs/spec/content.md, Processing.

A message for a tree node meets one of three cases. The tree node is a leaf: it is served. It has
split: the message goes on to the leaf below, whose name is known. There is no such tree node: the
sender guessed too deep, and the message jumps up to half the level.

**Who is home.** The home is the peer that finds itself closest to the tree node's key. A home that
holds nothing of the tree node may be new. It passes the message to the next closest peer first,
which serves it if it is the old home, and hands over. So a home serves only after a hand-over, and
the old one until then (2d-tree thesis, 3.6). If neither holds anything, and the tree node must
exist because its parent has split, the home begins it anew, empty: leases fill it again.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

import msgspec

from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.keys import Key
from pulsarcast.model.subscriptions import SubscriptionRecord, decode_subscription
from pulsarcast.protocol.content.messages import (
    Held,
    Installed,
    MatchedEvent,
    PlaceState,
    PlaceSubscription,
    PlaceTaken,
    ProbeEvent,
    Purpose,
    Stage,
    Target,
    TreeHint,
)
from pulsarcast.protocol.content.place import Place, PlaceId, kept_of
from pulsarcast.protocol.content.routing import HOPS_MAX, Routing, grouped
from pulsarcast.protocol.content.rules import ContentRules
from pulsarcast.protocol.content.shape import Shape
from pulsarcast.protocol.content.shape_hints import ShapeHints
from pulsarcast.protocol.content.space import ROOT, Line, is_below, key_of_node, level
from pulsarcast.protocol.content.spaces import Spaces, filter_of
from pulsarcast.protocol.content.splitting import Splitting
from pulsarcast.protocol.content.trees import Trees
from pulsarcast.protocol.content.upkeep import Upkeep
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.mark_pages import MarkPages
from pulsarcast.protocol.topic.versions import Versions

PLACES_MAX = 1024
"""Bounds the tree nodes that a node holds: strangers can have it hold them."""
KEPT_MAX = 16_384
"""Bounds the pieces of subscriptions that a node holds, in all of its places."""
NEW_S = 30.0
"""Time after its start in which a home may lack its places: peers next to it may be as new."""


class HomesOwner(Protocol):
    """Asked of the node that holds the places, which may be a subscriber too."""

    def deliver(self, message: MatchedEvent) -> None:
        """A subscription of this node matches an event."""

    def installed(self, sender: PeerId, message: Installed) -> None:
        """A leaf keeps a piece of a subscription of this node."""

    def heard_line(self, topic: Cid, attribute: str) -> None:
        """The root's home has told the cut-off line."""


class Homes:
    """The places that a node holds."""

    def __init__(
        self,
        context: Context,
        routing: Routing,
        spaces: Spaces,
        trees: Trees,
        marks: MarkPages,
        owner: HomesOwner,
    ) -> None:
        self._turn = context.turn
        self._routing = routing
        self._spaces = spaces
        self._trees = trees
        self._marks = marks
        self._decode = context.decode
        self._rules = context.part(ContentRules)()
        self._owner = owner
        self._rejected = context.rejected
        self._counts = context.counts
        self.began_s = 0.0
        """When the node started."""
        self.capacity = context.parameters.content_capacity
        self.places: dict[PlaceId, Place] = {}
        self.splitting = Splitting(context, trees, self)
        self.shape_hints = ShapeHints(context, routing, trees, self.places, self)
        self.upkeep = context.part(Upkeep)(
            context, routing, trees, self.places, self.shape_hints, self.splitting
        )

    @property
    def kept_count(self) -> int:
        """How many pieces of subscriptions the node holds."""
        return sum(len(place.kept) for place in self.places.values())

    @property
    def _is_new(self) -> bool:
        return self._turn.now < self.began_s + NEW_S

    # Finding the home.

    def _way(
        self, topic: Cid, attribute: str, at: int, stage: Stage, sender: PeerId | None
    ) -> tuple[PeerId | None, Place | None, int, Stage]:
        """The way of a message for a tree node: to a peer, to a place held here, or up the tree.

        Returns (peer, place, tree node, stage). With neither peer nor place: look again with that
        tree node.
        """
        place = self.places.get((topic, attribute, at))
        if place is not None:
            place.used_s = self._turn.now
        if at == ROOT and stage is Stage.GUESSED:
            stage = Stage.ASSURED  # Every tree has a root.
        key = place.key if place is not None else key_of_node(topic, attribute, at)
        if stage.is_passed:
            if place is not None:
                closer = self._routing.closer(key) or sender
                if closer is not None and self._routing.is_closer(closer, key):
                    place.is_owner = True
                    self.upkeep.hand_over(place, closer)
                return None, place, at, stage
            return self._pass_on(key, at, stage, sender)
        closer = self._routing.closer(key)
        if closer is not None:
            if place is not None and place.is_owner:
                self.upkeep.hand_over(place, closer)
                return None, place, at, stage
            return closer, None, at, stage
        if place is not None:
            place.is_owner = True
            return None, place, at, stage
        if stage is not Stage.NOBODY:
            return self._pass_on(key, at, stage, sender)
        made = self.begin(topic, attribute, at)
        return None, made, at, stage

    def _pass_on(
        self, key: Key, at: int, stage: Stage, sender: PeerId | None
    ) -> tuple[PeerId | None, Place | None, int, Stage]:
        """This node holds nothing of a tree node: an old home may be farther from its key."""
        farther = self._routing.farther(key, sender if stage.is_passed else None)
        if farther is not None and stage < (Stage.PASSED_6 if self._is_new else Stage.PASSED_3):
            return farther, None, at, Stage(stage + 2)
        if not stage.is_assured:
            return None, None, _jump(at), Stage.GUESSED
        return self._routing.closer(key), None, at, Stage.NOBODY

    def begin(self, topic: Cid, attribute: str, at: int) -> Place | None:
        """Hold one more tree node, empty; None if there is no room."""
        if len(self.places) >= PLACES_MAX:
            return None
        place = self.places[(topic, attribute, at)] = Place(topic, attribute, at)
        place.is_owner = True
        place.used_s = self._turn.now
        # A tree node that is known to have split is no leaf, even if its last home was lost.
        shape = self._trees.shape(topic, attribute)
        place.is_split = shape.is_split(at)
        place.line, place.line_moved_s = shape.line, self._turn.now
        self.upkeep.touched(place)
        return place

    # Subscriptions.

    def place(self, message: PlaceSubscription, sender: PeerId | None) -> None:
        """Keep a piece of a subscription, or pass it on towards its leaf."""
        at, stage = message.at, message.stage
        while message.hops <= HOPS_MAX:
            peer, place, at, stage = self._way(message.topic, message.attribute, at, stage, sender)
            if peer is not None:
                passed_on = msgspec.structs.replace(
                    message, at=at, stage=stage, hops=message.hops + 1
                )
                self._turn.send(peer, passed_on)
                return
            if place is None and at == message.at and stage is message.stage:
                return  # There is no room.
            if place is not None:
                if not place.is_split:
                    self._keep(place, message)
                    return
                at, stage = self._leaf_below(place, message.held), Stage.ASSURED
                self._tell_shape(place, message)
            sender = None
            message = msgspec.structs.replace(message, at=at, stage=stage, hops=message.hops + 1)

    def _leaf_below(self, place: Place, held: Held) -> int:
        record = decode_subscription(held.record)
        kept = kept_of(held, record, None, 0.0)
        shape = self._trees.shape(place.topic, place.attribute)
        shape.split(place.at)
        return shape.leaf(*kept.point, below=place.at)

    def _tell_shape(self, place: Place, message: PlaceSubscription) -> None:
        subscriber = decode_subscription(message.held.record).subscriber
        self.shape_hints.tell(subscriber, place)

    def _keep(self, place: Place, message: PlaceSubscription) -> None:
        record = decode_subscription(message.held.record)
        if record.topic != message.topic:
            raise RemoteError("a subscription to another topic", code=Rejection.WRONG_TOPIC)

        def kept(taken: bool) -> None:
            if not taken:
                return
            self._counts["content_installed"] += 1
            answer = Installed(
                place.topic,
                record.sid,
                record.number,
                message.held.piece,
                place.attribute,
                place.at,
                message.token,
                message.hops,
            )
            self._rules.taken(record.subscriber, record.sid, message.held.piece)
            if record.subscriber == self._turn.me:
                self._owner.installed(self._turn.me, answer)
            else:
                self._turn.send(record.subscriber, answer)
            self._split_if_full(place)

        self._take(place, message.held, record, kept)

    def _take(
        self, place: Place, held: Held, record: SubscriptionRecord, then: Callable[[bool], None]
    ) -> None:
        """Keep a piece at a place, once the schema of its filter is known.

        `then` hears whether it is kept: not if the schema is unknown, or if there is no room.
        """
        now = self._turn.now
        expires_s = now + min(held.left_s, record.lease_s)

        def found(versions: Versions | None) -> None:
            version = None if versions is None else versions.by_cid.get(record.version)
            if version is None or self.kept_count >= KEPT_MAX:
                then(False)
                return
            try:
                wanted = filter_of(version, record.where) if record.where else None
            except RemoteError as error:
                self._rejected(record.subscriber, record.topic, error)
                then(False)
                return
            kept = kept_of(held, record, wanted, expires_s)
            if place.put(kept, version.attributes):
                self.upkeep.touched(place)
            then(True)

        self._spaces.find(record.topic, record.version, found)

    def _split_if_full(self, place: Place) -> None:
        if not place.is_split and len(place.kept) > self.capacity and place.can_split():
            self.split(place)

    def split(self, place: Place) -> None:
        """A leaf holds too much, or its load is too high: its halves go to homes of their own."""
        self._counts["content_split"] += 1
        self.halve(place)
        self.shape_hints.tell_up(place)

    def halve(self, place: Place) -> None:
        """A tree node has split: its pieces go to the leaves below it."""
        for at in self.splitting.split(place, self.capacity):
            # Else that home would take an event for its own, and find nothing to match it with.
            self.shape_hints.hear(TreeHint(place.topic, place.attribute, place.at, at))
        self.upkeep.touched(place)

    def heard_line(self, topic: Cid, attribute: str) -> None:
        """The root's home has told the cut-off line."""
        self._owner.heard_line(topic, attribute)

    # Events.

    def probe(self, message: ProbeEvent, sender: PeerId | None) -> None:
        """Match an event at the leaves held here, and pass it on to the other targets."""
        if message.hops > HOPS_MAX:
            return
        ways: list[tuple[PeerId, Target]] = []
        here: list[tuple[Target, Place]] = []
        for target in dict.fromkeys(message.targets):
            self._find_way(message.topic, target, sender, ways, here)
        self.send_on(message, ways)
        if here:
            self._serve(message, here)

    def _find_way(
        self,
        topic: Cid,
        target: Target,
        sender: PeerId | None,
        ways: list[tuple[PeerId, Target]],
        here: list[tuple[Target, Place]],
    ) -> None:
        attribute, at, wanted, stage = target
        for _ in range(level(at) + 2):
            peer, place, at_now, stage_now = self._way(topic, attribute, at, stage, sender)
            if peer is not None:
                ways.append((peer, Target(attribute, at_now, wanted, stage_now)))
                return
            if place is not None:
                here.append((Target(attribute, at_now, wanted, stage_now), place))
                return
            if (at_now, stage_now) == (at, stage):
                return
            at, stage, sender = at_now, stage_now, None

    def send_on(self, message: ProbeEvent, ways: list[tuple[PeerId, Target]]) -> None:
        """Send an event to its next hops, one message each."""
        hops = message.hops + 1
        if not self._rules.multicast:
            for peer, target in ways:
                single = ProbeEvent(message.topic, message.block, (target,), hops)
                self._routing.send_probe(peer, single)
            return
        for peer, targets in grouped(ways).items():
            together = ProbeEvent(message.topic, message.block, tuple(targets), hops)
            self._routing.send_probe(peer, together)

    def _serve(self, message: ProbeEvent, here: list[tuple[Target, Place]]) -> None:
        event = self._decode(message.block)
        if event.topic != message.topic:
            raise RemoteError("an event of another topic", code=Rejection.WRONG_TOPIC)

        def found(versions: Versions | None) -> None:
            if versions is None:
                return
            try:
                unread = versions.judge(event, self._marks)
            except RemoteError as error:
                self._rejected(event.publisher, event.topic, error)
                return
            if unread:
                again = partial(read, versions)
                self._marks.find(unread, (event.publisher, event.sequence.epoch), again)
                return
            places = self._spaces.places(versions, event.request.attributes)
            self._match(message, event, places, here)

        def read(versions: Versions, are_known: bool) -> None:
            found(versions if are_known else None)

        self._spaces.find(event.topic, event.version, found)

    def _match(
        self,
        message: ProbeEvent,
        event: EventDescriptor,
        places: dict[str, float],
        here: list[tuple[Target, Place]],
    ) -> None:
        below: dict[Target, None] = {}
        """Each leaf once, even if several of the targets lie above it."""
        for target, place in here:
            value = places.get(target.attribute)
            if value is None:
                continue
            if place.is_split:
                below.update(dict.fromkeys(self._leaves_below(place, target, value)))
                self.shape_hints.tell(event.publisher, place)
            elif place.at == ROOT != target.wanted:
                # The publisher guessed deeper: nothing has split yet.
                self.shape_hints.tell(event.publisher, place)
            if place.kept and place.is_new(event.cid):
                self._hand_out(place, event, value, message.hops)
        if below:
            again = ProbeEvent(message.topic, message.block, tuple(below), message.hops + 1)
            self.probe(again, None)

    def _leaves_below(self, place: Place, target: Target, value: float) -> Iterable[Target]:
        shape = self._trees.shape(place.topic, place.attribute)
        shape.split(place.at)
        wanted = target.wanted if is_below(target.wanted, place.at) else place.at
        leaf = shape.leaf_towards(wanted, place.at)
        reach = self._rules.known_reach(shape, self._turn.now)
        leaves = shape.leaves(value, wanted, reach) if leaf is None else [leaf]
        return [Target(place.attribute, each, each, Stage.ASSURED) for each in leaves]

    def _hand_out(self, place: Place, event: EventDescriptor, value: float, hops: int) -> None:
        subscribers = place.matching(event.request.attributes, value)
        matched = MatchedEvent(event.block, hops + 1)
        for subscriber in subscribers:
            if subscriber == self._turn.me:
                self._owner.deliver(matched)
            else:
                self._turn.send(subscriber, matched)
        rate = place.bear(1 + len(subscribers), self._turn.now)
        if self.splitting.is_too_much(rate) and not place.is_split and place.can_split():
            self._counts["content_load_split"] += 1
            self.split(place)

    # State that other homes send.

    def route_state(self, message: PlaceState, sender: PeerId | None = None) -> None:
        """Take what another home sends, or pass it on if the tree node's home is another peer."""
        if message.hops > HOPS_MAX:
            return
        if message.purpose is Purpose.TRANSFER:
            key = key_of_node(message.topic, message.attribute, message.at)
            closer = self._routing.closer(key)
            place = self.places.get((message.topic, message.attribute, message.at))
            if closer is not None and (place is None or not place.is_owner):
                home = message.home or self._turn.me
                passed_on = msgspec.structs.replace(message, home=home, hops=message.hops + 1)
                self._turn.send(closer, passed_on)
                return
        self._take_state(message, sender)

    def _take_state(self, message: PlaceState, sender: PeerId | None) -> None:
        where = (message.topic, message.attribute, message.at)
        if message.shape:
            # Its sender is blamed now: the schemas that it waits for come from other peers.
            Shape().merge(message.at, message.shape)
        place = self.places.get(where)
        if place is None:
            if len(self.places) >= PLACES_MAX:
                return
            place = self.places[where] = Place(*where)
            self.upkeep.touched(place)
        place.used_s = self._turn.now
        records = [(held, decode_subscription(held.record)) for held in message.held]
        waiting, all_kept = len(records), True

        def taken(is_kept: bool) -> None:
            nonlocal waiting, all_kept
            waiting -= 1
            all_kept = all_kept and is_kept
            # If it could not be kept whole, its sender goes on serving, and sends it again.
            if waiting == 0 and (all_kept or message.purpose is Purpose.REPLICA):
                self._took_state(place, message, sender)

        for held, record in records:
            if record.topic != message.topic:
                raise RemoteError("a subscription to another topic", code=Rejection.WRONG_TOPIC)
            self._take(place, held, record, taken)
        if not records:
            self._took_state(place, message, sender)

    def _took_state(self, place: Place, message: PlaceState, sender: PeerId | None) -> None:
        if message.purpose is not Purpose.REPLICA:
            place.is_owner = True
        elif sender is not None and self._routing.is_closer(sender, place.key) and place.is_owner:
            # That peer may have begun without what is held here.
            self.upkeep.hand_over(place, sender)
        # A routed message comes from the peer that passed it on, and is not that peer's own word.
        # A new node believes other peers too: so many may be new that the old home is not close.
        if (
            message.is_split
            and message.purpose is not Purpose.TRANSFER
            and (
                self._is_new
                or self.shape_hints.may_tell(sender, place.topic, place.attribute, place.at)
            )
        ):
            shape = self._trees.shape(place.topic, place.attribute)
            shape.split(place.at)
            if message.shape:
                shape.merge(message.at, message.shape)
            place.is_split = True
            if message.purpose is Purpose.HAND_OVER or not place.is_owner:
                place.line = Line(max(message.cut, message.reach), message.reach)
                place.line_moved_s = self._turn.now
        if place.is_owner:
            if place.is_split and place.kept:
                self.splitting.send_down(place)
            self._split_if_full(place)
        if message.token:
            taken = PlaceTaken(message.topic, message.attribute, message.at, message.token)
            home = message.home or sender
            if home is None or home == self._turn.me:
                self.state_taken(taken, self._turn.me)
            else:
                self._turn.send(home, taken)
        self.upkeep.touched(place)

    def state_taken(self, message: PlaceTaken, sender: PeerId) -> None:
        """The state that this node handed over or transferred has its new home."""
        place = self.places.get((message.topic, message.attribute, message.at))
        if place is not None and place.handing is not None:
            peer, token, version = place.handing
            if (peer, token) == (sender, message.token):
                place.handing = None
                self._counts["content_hand_over"] += 1
                if version == place.version:
                    place.is_owner = False
                else:
                    self.upkeep.hand_over(place, peer)
                return
        self.splitting.taken(self.places, message)


def _jump(at: int) -> int:
    """The tree node at half the level on the way to another (program 3.2, line 66)."""
    return at >> (level(at) - level(at) // 2)
