"""Recovery: finds a topic's missing events and fetches them (docs/spec/pulsarcast.md, Recover).

The node asks the peer that showed a missing event, then other neighbours, then the DHT. A fetched
event is received like a new one, and so forwarded to members that lack it too.

**Bounds on hostile peers.** A peer can show numberings that do not exist. Peers other than the
parent take at most half of the wants, and one of them at most an eighth. The parent, which may be
hostile too, leaves them a quarter. The peers that showed missing events take turns, and some of the
requests in flight are reserved for the parent's.

**Gaps that no peer fills.** Retention drops events for good, and a node that was away would wait
for them for ever. If no peer has the events, `witnesses` says whether the node may skip them.
"""

from collections.abc import Iterable
from typing import Protocol

from pulsarcast.model import trace
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.topics import Mark
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.overlay import Neighbourhood
from pulsarcast.protocol.messages import FetchRange, Range
from pulsarcast.protocol.store import MarkState
from pulsarcast.protocol.topic.frontier import Source
from pulsarcast.protocol.topic.retirement import Retirement
from pulsarcast.protocol.topic.state import TopicState
from pulsarcast.protocol.topic.witnesses import Witnesses, shows

WANTS_MAX = 1024
"""Bounds the numberings with missing events that a topic fetches at a time. Others are taken up
after a later comparison."""
OTHERS_SHARE = 2
"""Peers other than the parent take at most 1/`OTHERS_SHARE` of `WANTS_MAX` together."""
PEER_SHARE = 8
"""One peer other than the parent takes at most 1/`PEER_SHARE` of `WANTS_MAX`."""
KEPT_SHARE = 4
"""The parent leaves 1/`KEPT_SHARE` of `WANTS_MAX` to others: it may be hostile and withhold."""
SHOWN_MAX = 16
"""Bounds the peers that are remembered to have shown the same events."""
SOURCES_MAX = 8
"""Bounds the peers that are asked for the same events; beyond it, only peers of the node's own
choice are asked."""
FETCHES_MAX = 8
"""Bounds the requests in flight per topic, so that catch-up never starves live events."""
FETCHES_KEPT = 2
"""Requests of `FETCHES_MAX` that are reserved for events that the parent shows."""


class _Want:
    """A numbering with missing events."""

    __slots__ = (
        "asked",
        "cid",
        "due_s",
        "first",
        "last",
        "request",
        "shown_by",
        "sponsor",
        "timer",
        "voices",
    )

    def __init__(self, sponsor: PeerId, first: int, last: int, due_s: float) -> None:
        self.sponsor = sponsor
        """The peer whose share it takes: the first that showed it, or the parent."""
        self.first = first
        self.last = last
        self.due_s = due_s
        self.cid: Cid | None = None
        self.shown_by: dict[PeerId, MarkState | None] = {}
        """The peers that showed it, and their marks."""
        self.voices: dict[PeerId, MarkState] = {}
        """The marks of the witnesses."""
        self.asked: dict[PeerId, MarkState | None] = {}
        """The peers that were asked, and the mark that each had shown by then."""
        self.request: tuple[int, PeerId] | None = None
        self.timer: int | None = None


class RecoveryOwner(Protocol):
    """Asked of the topic whose events are recovered."""

    def neighbours(self) -> Iterable[PeerId]:
        """Members to ask for a missing event, best first."""

    def take_recovered(self, block: bytes, sender: PeerId, certificate: bytes = b"") -> None:
        """An event was fetched: it arrives like any other."""


class Recovery:
    """Fetches what one topic lacks."""

    __slots__ = (
        "_look",
        "_requests",
        "_timer",
        "_timer_due_s",
        "_wanted_by",
        "_wants",
        "counts",
        "dht",
        "frontier",
        "owner",
        "parameters",
        "place",
        "retirement",
        "state",
        "topic",
        "turn",
        "witnesses",
    )

    def __init__(
        self,
        state: TopicState,
        dht: Kademlia,
        place: Neighbourhood,
        retirement: Retirement,
        witnesses: Witnesses,
        owner: RecoveryOwner,
    ) -> None:
        self.state = state
        self.topic = state.id
        self.dht = dht
        self.place = place
        self.turn = state.context.turn
        self.parameters = state.context.parameters
        self.counts = state.context.counts
        self.frontier = state.frontier
        self.retirement = retirement
        self.witnesses = witnesses
        self.owner = owner
        self._wants: dict[Source, _Want] = {}
        self._wanted_by: dict[PeerId, int] = {}
        """The number of wants in each peer's share."""
        self._requests: dict[int, Source] = {}
        self._look: tuple[int, PeerId] | None = None
        """A request for an event that differs from the node's under one number, and its peer."""
        self._timer: int | None = None
        self._timer_due_s = 0.0

    def __len__(self) -> int:
        return len(self._wants)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is wanted, or asked for."""
        return not self._wants and self._look is None and self._timer is None

    def compare(self, sender: PeerId, marks: Iterable[MarkState], *, patience_s: float) -> None:
        """A peer shows its marks: want the missing events, unless they arrive live soon."""
        for mark in marks:
            missing = self.frontier.missing_from(mark)
            if missing is not None:
                source = (mark.publisher, mark.epoch)
                want = self._want(source, missing, sender, patience_s, mark)
                if want is not None:
                    self._may_ask_again(source, want, sender, mark)
                    if self.witnesses.has_a_say(sender, mark.publisher):
                        want.voices[sender] = mark
        self._pump()

    def gap(self, publisher: PeerId, epoch: int, missing: tuple[int, int], sender: PeerId) -> None:
        """An event arrived ahead of others of its publisher: those must exist."""
        self._want((publisher, epoch), missing, sender, self.parameters.gap_delay_s, None)
        self._pump()

    def parent_missing(self, mark: Mark, cid: Cid, publisher: PeerId, sender: PeerId) -> None:
        """An event names a parent that is missing: its publisher had it, and its sender may.

        The want takes the publisher's share: no other peer vouches that the parent exists.
        """
        source = (mark.publisher, mark.epoch)
        missing = (self.frontier.high(*source) + 1, mark.number)
        want = self._want(source, missing, publisher, self.parameters.gap_delay_s, None)
        if want is None:
            return
        if want.last == mark.number:
            want.cid = cid
        if sender != self.turn.me and sender not in want.shown_by:
            want.shown_by[sender] = None
        self._pump()

    def _may_ask_again(self, source: Source, want: _Want, peer: PeerId, mark: MarkState) -> None:
        """Ask a peer again if it shows an event that it lacked when it was asked.

        A peer that shows the same again is not asked: the node would ask its neighbours for ever
        and never find out that none has the event.
        """
        first = self._first(source, want)
        if peer in want.asked and shows(mark, first) and not shows(want.asked[peer], first):
            del want.asked[peer]

    def _first(self, source: Source, want: _Want) -> int:
        return max(want.first, self.frontier.high(*source) + 1)

    def _want(
        self,
        source: Source,
        missing: tuple[int, int],
        sender: PeerId,
        patience_s: float,
        mark: MarkState | None,
    ) -> _Want | None:
        if sender == self.turn.me:
            sender = next(iter(self.owner.neighbours()), sender)
        want = self._wants.get(source)
        due_s = self.turn.now + patience_s
        if want is None:
            if not self._has_room(sender):
                return None
            want = self._wants[source] = _Want(sender, *missing, due_s)
            self._wanted_by[sender] = self._wanted_by.get(sender, 0) + 1
        elif sender == self.place.upstream != want.sponsor:
            self._release(want.sponsor)
            want.sponsor = sender
            self._wanted_by[sender] = self._wanted_by.get(sender, 0) + 1
        if missing[1] >= want.last:
            want.last, want.cid = missing[1], None if mark is None else mark.cid
        want.due_s = min(want.due_s, due_s)
        shown = want.shown_by.pop(sender, None)
        want.shown_by[sender] = shown if mark is None else mark
        if len(want.shown_by) > SHOWN_MAX:
            del want.shown_by[next(iter(want.shown_by))]
        return want

    def _has_room(self, sender: PeerId) -> bool:
        """Whether a peer's share has room for one more want."""
        if len(self._wants) >= WANTS_MAX:
            return False
        parent = self.place.upstream
        from_parent = 0 if parent is None else self._wanted_by.get(parent, 0)
        if sender == parent:
            return from_parent < WANTS_MAX - WANTS_MAX // KEPT_SHARE
        return (
            len(self._wants) - from_parent < WANTS_MAX // OTHERS_SHARE
            and self._wanted_by.get(sender, 0) < WANTS_MAX // PEER_SHARE
        )

    def _release(self, sponsor: PeerId) -> None:
        self._wanted_by[sponsor] -= 1
        if not self._wanted_by[sponsor]:
            del self._wanted_by[sponsor]

    def _pump(self) -> None:
        """Ask for all wants that are due, within the limits."""
        now = self.turn.now
        next_due_s: float | None = None
        due: dict[PeerId, list[Source]] = {}
        for source, want in list(self._wants.items()):
            if want.request is not None:
                continue
            if self._satisfied(source, want):
                self._close(source, want)
            elif want.due_s > now + 1e-9:
                next_due_s = want.due_s if next_due_s is None else min(next_due_s, want.due_s)
            else:
                due.setdefault(want.sponsor, []).append(source)
        if due:
            self._fetch_in_turns(due)
        if next_due_s is not None and (self._timer is None or next_due_s < self._timer_due_s):
            self.turn.cancel(self._timer)
            self._timer_due_s = next_due_s
            self._timer = self.turn.after(next_due_s - now, self._on_timer)

    def _fetch_in_turns(self, due: dict[PeerId, list[Source]]) -> None:
        """Share the requests between the peers that showed missing events."""
        parent = self.place.upstream
        flying: dict[PeerId, int] = {}
        for source in self._requests.values():
            sponsor = self._wants[source].sponsor
            flying[sponsor] = flying.get(sponsor, 0) + 1
        others = len(self._requests) - (0 if parent is None else flying.get(parent, 0))
        others_max = FETCHES_MAX - (0 if parent is None else FETCHES_KEPT)
        while due and len(self._requests) < FETCHES_MAX:
            may_ask = [peer for peer in due if peer == parent or others < others_max]
            if not may_ask:
                break
            # The peer with the fewest requests in flight; the parent among equals.
            sponsor = min(may_ask, key=lambda peer: (flying.get(peer, 0), peer != parent))
            source = due[sponsor].pop(0)
            if not due[sponsor]:
                del due[sponsor]
            want = self._wants.get(source)
            # Giving up a want may have brought events, and so changed the others.
            if want is not None and want.request is None and self._fetch(source, want):
                flying[sponsor] = flying.get(sponsor, 0) + 1
                others += sponsor != parent

    def _on_timer(self) -> None:
        self._timer = None
        self._pump()

    def _satisfied(self, source: Source, want: _Want) -> bool:
        return self.frontier.high(*source) >= want.last

    def _fetch(self, source: Source, want: _Want) -> bool:
        """Ask the next peer; False if none is left.

        All peers of the node's own choice are asked before a gap is skipped.
        """
        left = (peer for peer in self._peers_to_ask(source[0], want) if peer not in want.asked)
        if len(want.asked) >= SOURCES_MAX:
            chosen = self.witnesses.chosen()
            left = (peer for peer in left if peer in chosen)
        peer = next(left, None)
        first = self._first(source, want)
        if peer is None:
            self._exhausted(source, want, first)
            return False
        if not want.asked:
            self.turn.trace(trace.GapFound(self.topic, *source, first, want.last))
        want.asked[peer] = want.shown_by.get(peer)
        number = self.state.next_request()
        self._requests[number] = source
        want.request = (number, peer)
        want.timer = self.turn.after(
            2 * self.parameters.rpc_timeout_s, lambda: self._timed_out(number)
        )
        self.turn.send(peer, FetchRange(number, self.topic, *source, first, want.last))
        return True

    def _peers_to_ask(self, publisher: PeerId, want: _Want) -> Iterable[PeerId]:
        """Peers to ask: the last that showed it, those of the node's choice, then all others.

        So strangers that claim to have it, however many, do not keep the node from its neighbours.
        """
        shown = [peer for peer in reversed(want.shown_by) if peer != self.turn.me]
        order = dict.fromkeys(shown[:1])
        order.update(dict.fromkeys(self.witnesses.chosen()))
        order.update(dict.fromkeys(shown))
        order.update(dict.fromkeys(self.owner.neighbours()))
        for speaker in self.state.versions.publishers_of(publisher):
            if speaker != self.turn.me:
                order[speaker] = None
        return order

    def receive(self, sender: PeerId, message: Range) -> None:
        """A peer answers with events: take them, and ask on if some are still missing."""
        if self._look == (message.request, sender):
            self._look = None
            self._take(message, sender)
            return
        source = self._requests.get(message.request)
        want = self._wants.get(source) if source is not None else None
        if source is None or want is None or want.request != (message.request, sender):
            return
        self._end_request(source, want)
        before = self.frontier.high(*source)
        self._take(message, sender)
        if self._wants.get(source) is not want:
            return
        if self._satisfied(source, want):
            self.counts["gap_filled"] += 1
            self.turn.trace(trace.GapFilled(self.topic, *source, want.last, sender))
        elif message.more and self.frontier.high(*source) > before:
            want.asked.pop(sender, None)
        self._pump()

    def _take(self, message: Range, sender: PeerId) -> None:
        certificates = message.certificates or (b"",) * len(message.blocks)
        for block, certificate in zip(message.blocks, certificates, strict=False):
            self.owner.take_recovered(block, sender, certificate)

    def look_at(self, peer: PeerId, claimed: MarkState) -> None:
        """Fetch the event that a peer claims under a number where the node has another."""
        if not self.state.is_sequenced:
            assert claimed.cid is not None, "a claim names an event"
            self.dht.find_block(claimed.cid, self._take_found)
            return
        # It proves something only with its certificate, which the DHT does not keep.
        number = self.state.next_request()
        self._look = (number, peer)
        place = (claimed.publisher, claimed.epoch, claimed.high, claimed.high)
        self.turn.send(peer, FetchRange(number, self.topic, *place))

    def _timed_out(self, number: int) -> None:
        source = self._requests.get(number)
        if source is not None:
            self._end_request(source, self._wants[source])
            self._pump()

    def lost(self, peer: PeerId) -> None:
        """A connection ended: requests to that peer go to the next one."""
        touched = False
        for source, want in list(self._wants.items()):
            want.shown_by.pop(peer, None)
            if want.request is not None and want.request[1] == peer:
                self._end_request(source, want)
                touched = True
        if touched:
            self._pump()

    def _end_request(self, source: Source, want: _Want) -> None:
        assert want.request is not None
        self._requests.pop(want.request[0], None)
        want.request = None
        self.turn.cancel(want.timer)
        want.timer = None
        # To the end of the queue: a slow want must not keep the others waiting.
        del self._wants[source]
        self._wants[source] = want

    def _close(self, source: Source, want: _Want) -> None:
        if want.request is not None:
            self._end_request(source, want)
        if self._wants.pop(source, None) is not None:
            self._release(want.sponsor)

    def _exhausted(self, source: Source, want: _Want, first: int) -> None:
        """No neighbour has the event: it may be retired, or the DHT may still keep it."""
        self._close(source, want)
        if self.state.versions.current.retention.is_limited:
            seen = self.state.ordering.seen(*source)
            if seen > first:
                retired = min(self._retired(source, want, first), seen - 1)
                if retired >= first:
                    self.counts["retired_gap"] += 1
                    self.retirement.retire(*source, retired)
                    return
                self.witnesses.ask_around(source)
            elif (needed := self.retirement.needed(*source)) >= first:
                if self._retired(source, want, first) >= needed:
                    self.counts["retired_parent"] += 1
                    self.retirement.excuse(*source, needed)
                    return
                self.witnesses.ask_around(source)
        if want.cid is not None:
            self.dht.find_block(want.cid, self._found)

    def _retired(self, source: Source, want: _Want, first: int) -> int:
        return self.witnesses.retired(source[0], first, want.voices)

    def _found(self, block: bytes | None) -> None:
        if block is not None:
            self.counts["dht_recovery"] += 1
        self._take_found(block)

    def _take_found(self, block: bytes | None) -> None:
        if block is not None:
            self.owner.take_recovered(block, self.turn.me)

    def stop(self) -> None:
        """Drop all wants: the node leaves the topic."""
        for source, want in list(self._wants.items()):
            self._close(source, want)
        self.turn.cancel(self._timer)
