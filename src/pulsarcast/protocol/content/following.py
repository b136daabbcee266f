"""A topic that the node follows by content: takes matching events and delivers them.

docs/spec/content.md, Compare.

The node is no member of such a topic. An event that arrives by routing or by comparing is known by
its number, checked, written to the disk and delivered from there, like a member's events. The
frontier's gapless part is what two members have confirmed: every matching event up to there has
arrived.

In an ordered topic a member's log decides the order. An event that arrives by routing waits until
that member says that it is next, so the subscriber need not guess whether events before it match.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import msgspec

from pulsarcast.model import trace
from pulsarcast.model.errors import Rejection, RemoteError
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.filters import Filter
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import DeliveryOrder, Mark
from pulsarcast.protocol.content.comparing import START_MARKS_MAX, Comparing
from pulsarcast.protocol.content.members import id_of
from pulsarcast.protocol.content.messages import ID_BYTES, ContentCompared
from pulsarcast.protocol.content.spaces import Spaces
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.member_finder import MemberFinder
from pulsarcast.protocol.store import MarkState, PutMark, PutState, StateRow, Write
from pulsarcast.protocol.topic.barrier import CausalBarrier
from pulsarcast.protocol.topic.frontier import Frontier, Source
from pulsarcast.protocol.topic.log import TopicLog
from pulsarcast.protocol.topic.published_requests import PublishedRequests
from pulsarcast.protocol.topic.state import Resumed
from pulsarcast.protocol.topic.versions import Versions

Waiting = tuple[Callable[[], None], Callable[[], None]]
"""Callbacks for when a subscription has its start, and for when it gets none."""

TABLE = "content"
"""Table of the disk that keeps the filters of this node: by topic and sid."""
COMPARED_MAX = 256
"""Bounds the events remembered to have come by comparing, in case routing brings them too."""
EARLY_MAX = 1024
"""Bounds the events of an ordered topic that wait for their turn; a member sends others again."""
EARLY_BYTES_MAX = 8 << 20
"""Bounds the bytes of those."""


class FilterRow(msgspec.Struct, frozen=True):
    """A filter of this node, on the disk."""

    number: int
    where: str


class ContentTopic:
    """One topic that the node follows by content."""

    def __init__(
        self,
        context: Context,
        versions: Versions,
        spaces: Spaces,
        dht: Kademlia,
        resumed: Resumed | None = None,
    ) -> None:
        frontier, log_index, cursor, *_ = resumed or Resumed(None, 0, 0)
        self._context = context
        self._turn = context.turn
        self._spaces = spaces
        self._dht = dht
        self.versions = versions
        self.id = versions.first.cid
        self.started = frontier is not None
        self.frontier = Frontier() if frontier is None else frontier
        self.is_ordered = versions.first.delivery_order is not DeliveryOrder.NONE
        self.wanted: dict[int, Filter] = {}
        """The node's filters, by sid."""
        is_causal = versions.first.delivery_order is DeliveryOrder.CAUSAL
        self.barrier = CausalBarrier(self.id) if is_causal else None
        """Parents of the node's next event in a causal topic: events that its filters brought."""
        self.numbers: dict[int, int] = {}
        self.requests = PublishedRequests(self.id)
        self.log = TopicLog(
            self.id,
            self._turn,
            None,  # A content subscriber links nothing to what it saw last.
            newest=log_index,
            cursor=cursor,
            subscribed=True,
        )
        self.finder = MemberFinder(self.id, versions.first.root_peer, context, dht)
        self.comparing = context.part(Comparing)(context, self)
        self._waiting: dict[int, list[Waiting]] = {}
        """By sid: callers that wait for the subscription's start, or for its failure."""
        self._early: dict[bytes, tuple[EventDescriptor, int]] = {}
        self._early_bytes = 0
        self._compared_first: dict[bytes, bool] = {}

    @property
    def held_back(self) -> int:
        """How many events wait for their turn."""
        return len(self._early)

    def open(self) -> None:
        """Begin to compare, or go on."""
        marks = {(mark.publisher, mark.epoch): mark.high for mark in self.frontier.marks()}
        self.comparing.open(marks if self.started else None)
        self.log.open(replay=self.started)

    def begin(self, own: tuple[Mark, Cid] | None) -> None:
        """Follow for the first time; the node's own earlier event is a parent of its next one."""
        if self.barrier is not None and own is not None:
            self._turn.persist(*self.barrier.put(*own))

    def forget_heads(self) -> list[Write]:
        """The writes that drop the topic's heads from the disk."""
        return [] if self.barrier is None else self.barrier.forget()

    def close(self) -> None:
        """End the subscription, and deliver nothing more of the log."""
        self.comparing.close()
        self.log.subscribed = False

    def want(self, sid: int, number: int, wanted: Filter) -> None:
        """Add a filter, or replace it."""
        self.wanted[sid] = wanted
        self.numbers[sid] = number

    def wait(self, sid: int, started: Callable[[], None], failed: Callable[[], None]) -> None:
        """Run `started` once the subscription has its start, or `failed` if it gets none."""
        self._waiting.setdefault(sid, []).append((started, failed))

    def waiting(self, sid: int) -> list[Waiting]:
        """The callers that wait for a filter's start; they are removed."""
        return self._waiting.pop(sid, [])

    def rows(self) -> list[Write]:
        """The rows that the disk should hold about the filters."""
        return [
            PutState(
                StateRow(
                    TABLE,
                    self.id + sid.to_bytes(8, "big"),
                    msgspec.json.encode(FilterRow(self.numbers[sid], wanted.text())),
                )
            )
            for sid, wanted in self.wanted.items()
        ]

    # Asked and reported by comparing.

    def filters(self) -> tuple[str, ...]:
        """The filters that members are asked to match."""
        return tuple(each.text() for each in self.wanted.values())

    def find_members(self, then: Callable[[list[PeerId]], None]) -> None:
        """Find some members; `then` gets an empty list if none was found."""
        self.finder.find(then)

    def start(self, marks: dict[Source, int]) -> None:
        """The subscription starts where a member stands."""
        for (publisher, epoch), high in marks.items():
            self.frontier.adopt(MarkState(publisher, epoch, high, high, None))
        self.started = True
        # Marks of now: by the time that they are on the disk more events may have come.
        start = self._known()

        def synced() -> None:
            self._say(start)
            for sid in list(self._waiting):
                for then, _ in self.waiting(sid):
                    then()

        writes = [PutMark(self.id, mark) for mark in self.frontier.marks()]
        self._turn.persist(*writes, *self.rows(), then=synced)

    def say_filters(self) -> None:
        """Trace the filters, after a change."""
        self._say(self._known())

    def _say(self, start: tuple[Mark, ...]) -> None:
        self._turn.trace(trace.Subscribed(self.id, start, self.filters()))

    def say_ended(self) -> None:
        """Trace the end of the subscription, if it ever had a start."""
        if self.started:
            self._turn.trace(trace.Unsubscribed(self.id, self._known()))

    def _known(self) -> tuple[Mark, ...]:
        """Marks up to which all matching events have arrived."""
        marks = self.frontier.marks()
        return tuple(Mark(mark.publisher, mark.epoch, mark.high) for mark in marks)

    # Events that arrive.

    def receive(
        self, event: EventDescriptor, hops: int, *, routed: bool, has_turn: bool = False
    ) -> None:
        """A home or a member sends an event that is said to match.

        `has_turn`: the member whose log decides the order sends it, and says that it is next.
        """
        if not self.started:
            return
        source, (epoch, number) = event.numbered_by, event.sequence
        if self.frontier.holds(source, epoch, number):
            if routed and self._compared_first.pop(id_of(event.cid), False):
                # Routing did not miss it: a member was only quicker.
                self._count("content_by_comparison", -1)
                self._count("content_routed", 1)
            return
        attributes = event.request.attributes
        if not any(each.matches(attributes) for each in self.wanted.values()):
            return  # It was wanted when it was sent.
        if event.version in self.versions.by_cid:
            self._judge(event, hops, routed=routed, has_turn=has_turn)
        else:
            again = partial(self._judge_later, event, hops, routed)
            self._spaces.find(self.id, event.version, lambda each: again(each is not None))

    def _judge_later(self, event: EventDescriptor, hops: int, routed: bool, is_known: bool) -> None:
        """What an event is judged by was looked for."""
        is_held = self.frontier.holds(event.numbered_by, *event.sequence)
        if not is_known or is_held or not self._is_followed:
            return
        try:
            self._judge(event, hops, routed=routed, has_turn=False)
        except RemoteError as error:
            self._context.rejected(event.publisher, self.id, error)

    def _judge(self, event: EventDescriptor, hops: int, *, routed: bool, has_turn: bool) -> None:
        unread = self.versions.judge(event, self._dht.marks)
        if unread:
            again = partial(self._judge_later, event, hops, routed)
            self._dht.marks.find(unread, (event.publisher, event.sequence.epoch), again)
            return
        if self.is_ordered:
            is_full = not has_turn and self._is_full_of_early(event)
            self.comparing.ask_soon()
        else:
            is_full = routed and self.frontier.is_full(event.numbered_by, *event.sequence)
        if is_full:
            return  # Not named as held: the next comparison makes room, and brings it again.
        if routed:
            self.comparing.came(event.cid)
        if self.is_ordered:
            self._take_early(id_of(event.cid))
            self._early[id_of(event.cid)] = (event, hops)
            self._early_bytes += len(event.block)
        else:
            self._accept(event, hops, routed=routed)

    def _is_full_of_early(self, event: EventDescriptor) -> bool:
        is_full = self._early_bytes + len(event.block) > EARLY_BYTES_MAX
        return is_full or len(self._early) >= EARLY_MAX

    def _take_early(self, name: bytes) -> tuple[EventDescriptor, int] | None:
        found = self._early.pop(name, None)
        if found is not None:
            self._early_bytes -= len(found[0].block)
        return found

    def _accept(self, event: EventDescriptor, hops: int, *, routed: bool) -> None:
        self._count("content_routed" if routed else "content_by_comparison", 1)
        if not routed:
            self._compared_first[id_of(event.cid)] = True
            if len(self._compared_first) > COMPARED_MAX:
                del self._compared_first[next(iter(self._compared_first))]
        mark = self.frontier.add(event.numbered_by, *event.sequence, event.cid)
        is_request = event.author != event.publisher
        if is_request and not self.requests.is_first(event):
            self.log.append_undelivered(event, mark, b"")
            return
        writes = [self.requests.row(event)] if is_request else []
        if self.barrier is not None:
            writes += self.barrier.take(event)
        self.log.append(
            event,
            mark,
            *writes,
            asked_for=event.author == self._turn.me,
            certificate=b"",
            then=lambda index: self.log.deliver(index, event, hops),
        )

    def _count(self, name: str, by: int) -> None:
        self._context.counts[name] += by

    def compared(self, sender: PeerId, message: ContentCompared, decides: bool) -> bool:
        """A member names all that match, and sends those that the subscriber lacks.

        False if the version of one, or marks of that, are not known yet. Then nothing of the answer
        is taken: the member's marks would cover an event that the subscriber has not checked.
        """
        events: list[EventDescriptor] = []
        for block in message.blocks:
            try:
                event = self._context.decode(block)
                if event.topic != self.id:
                    raise RemoteError("an answer from another topic", code=Rejection.WRONG_TOPIC)
                events.append(event)
            except RemoteError as error:
                self._context.rejected(sender, self.id, error)
        for event in events:
            if event.version not in self.versions.by_cid:
                looked = partial(self._looked, sender, event.version)
                self._spaces.find(self.id, event.version, looked, always=True)
                return False
        if self._lacks_marks(sender, events):
            return False
        order = [message.order[at : at + ID_BYTES] for at in range(0, len(message.order), ID_BYTES)]
        listed = set(order) if decides else set()
        for event in events:
            try:
                has_turn = id_of(event.cid) in listed
                self.receive(event, 1, routed=False, has_turn=has_turn)
            except RemoteError as error:
                self._context.rejected(sender, self.id, error)
        if not self.is_ordered or not decides:
            return True
        for name in order:
            found = self._take_early(name)
            if found is not None:
                event, hops = found
                epoch, number = event.sequence
                # A later event of its numbering came first: no filter wanted this one then.
                if number > self.frontier.highest(event.numbered_by, epoch):
                    self._accept(event, hops, routed=hops > 1)
        return True

    def _lacks_marks(self, member: PeerId, events: list[EventDescriptor]) -> bool:
        """Whether marks by which a member's events are judged have to be found first."""
        wanted: list[tuple[list[Cid], Source]] = []
        for event in events:
            with suppress(RemoteError):  # It is refused where it is taken.
                if unread := self.versions.judge(event, self._dht.marks):
                    wanted.append((unread, (event.publisher, event.sequence.epoch)))
        if wanted:
            self._find_marks(member, wanted, True)
        return bool(wanted)

    def _find_marks(
        self, member: PeerId, wanted: list[tuple[list[Cid], Source]], are_known: bool
    ) -> None:
        marks = self._dht.marks
        while wanted and all(
            marks.number(each, wanted[-1][1]) is not None for each in wanted[-1][0]
        ):
            wanted.pop()
        if not self._is_followed:
            return
        if wanted and are_known:
            marks.find(*wanted.pop(), partial(self._find_marks, member, wanted))
        else:
            self.comparing.again(member, is_known=are_known)

    @property
    def _is_followed(self) -> bool:
        """Whether the topic was not left during a search."""
        return self.log.subscribed

    def _looked(self, member: PeerId, version: Cid, _: Versions | None) -> None:
        """A version that a member's answer named was looked for."""
        if self._is_followed:
            self.comparing.again(member, is_known=version in self.versions.by_cid)

    def confirmed(self, marks: dict[Source, int]) -> None:
        """Two members have shown all matching events up to these marks."""
        writes = []
        for (publisher, epoch), high in marks.items():
            if high <= self.frontier.high(publisher, epoch):
                continue
            known = self.frontier.mark(publisher, epoch)
            if known is None:
                if len(self.frontier) >= START_MARKS_MAX:
                    continue  # Nothing of this numbering has arrived: it may be made up.
                known = MarkState(publisher, epoch, 0, 0, None)
            beyond = tuple(number for number in known.beyond if number > high)
            moved = known._replace(high=high, cid=None, beyond=beyond)
            self.frontier.adopt(moved)
            writes.append(PutMark(self.id, moved))
        if writes:
            self._turn.persist(*writes)
