"""Our own numberings: one per topic, and which number comes next (decisions 0007, 0014).

A number is given once. An epoch is a numbering that begins at 1: whenever we cannot know what we
gave before, we take a new one.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pulsarcast.model.errors import Halted
from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import CID_BYTES, PEER_ID_BYTES, Cid, PeerId
from pulsarcast.model.topics import DeliveryOrder, Mark
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.store import PutState, StateRow, Write
from pulsarcast.protocol.topic.topic import Topic

EPOCH_BITS = 63
CLOSED = 1 << EPOCH_BITS
"""Set beside an epoch on our disk: no number of it is given any more."""
WITNESSES_MAX = 3
"""Neighbours remembered with each number: those who get its event first."""
RECENT_MAX = 1024
"""Events of this life that we know again where another event names them as its parents."""
NO_SECOND_EPOCH = "a total order has one numbering, and ours was given up"


class Numbering:
    """Our own sequence in one topic."""

    __slots__ = ("epoch", "last", "last_cid", "replicating", "waiting")

    def __init__(self, epoch: int, last: int, last_cid: Cid | None) -> None:
        self.epoch = epoch
        self.last = last
        self.last_cid = last_cid
        self.replicating: dict[int, None] = {}
        """Numbers whose replicas are not counted yet, lowest first."""
        self.waiting: dict[int, Callable[[], None]] = {}
        """Callers who wait for their number, and for all before it, to be replicated."""

    @property
    def replicated(self) -> int:
        """The number up to which everything has its replicas."""
        return next(iter(self.replicating), self.last + 1) - 1

    def settle(self, numbers: Iterable[int]) -> None:
        """The replicas of these are counted: whoever waited for that hears of it."""
        for number in numbers:
            self.replicating.pop(number, None)
        for waiting in [number for number in self.waiting if number <= self.replicated]:
            self.waiting.pop(waiting)()


class Saved(NamedTuple):
    """A numbering as our disk remembers it."""

    epoch: int
    last: int
    replicated: int
    cid: Cid
    witnesses: tuple[PeerId, ...] = ()
    closed: bool = False

    def write(self, topic: Cid) -> Write:
        """What puts it on our disk."""
        epoch = self.epoch | (CLOSED if self.closed else 0)
        numbers = (epoch, self.last, self.replicated)
        head = b"".join(number.to_bytes(8, "big") for number in numbers)
        return PutState(StateRow("numbering", topic, head + self.cid + b"".join(self.witnesses)))

    @staticmethod
    def read(value: bytes) -> "Saved":
        """What our disk holds of it."""
        epoch, last, replicated = (int.from_bytes(value[at : at + 8], "big") for at in (0, 8, 16))
        cid, peers = value[24 : 24 + CID_BYTES], value[24 + CID_BYTES :]
        starts = range(0, len(peers), PEER_ID_BYTES)
        witnesses = tuple(PeerId(peers[at : at + PEER_ID_BYTES]) for at in starts)
        closed = epoch >= CLOSED
        return Saved(epoch & ~CLOSED, last, replicated, Cid(cid), witnesses, closed)


class Numberings:
    """Gives our events their numbers, each once."""

    def __init__(self, context: Context) -> None:
        self.turn = context.turn
        self.refusal: str | None = None
        """Why we give no numbers any more, in any topic."""
        self._current: dict[Cid, Numbering] = {}
        self._saved: dict[Cid, Saved] = {}
        self._known: dict[Cid, dict[int, int]] = {}
        """Per topic and epoch: the last number that we gave, in this life or, by our disk, before.

        Of earlier lives only the last epoch is known."""
        self._given: dict[Cid, dict[int, int]] = {}
        """The same of this life alone."""
        self._recent: dict[Cid, None] = {}
        self._given_up: dict[Cid, tuple[Mark, Cid]] = {}
        """Per topic: our last event of an epoch that we gave up, until the next one has begun."""

    def __len__(self) -> int:
        return len(self._current)

    def restore(self, topic: Cid, value: bytes) -> Saved:
        """Remember a numbering from the disk."""
        saved = self._saved[topic] = Saved.read(value)
        self._known[topic] = {saved.epoch: saved.last}
        return saved

    # What we gave.

    def saved(self, topic: Cid) -> Saved | None:
        """A numbering as it was on our disk when this life began, or as we gave it up."""
        return self._saved.get(topic)

    def last_of(self, topic: Cid) -> tuple[int, int] | None:
        """The epoch and number of our newest event in a topic, as our disk remembers it."""
        numbering = self._current.get(topic)
        if numbering is not None:
            return numbering.epoch, numbering.last
        saved = self._saved.get(topic)
        return None if saved is None else (saved.epoch, saved.last)

    def last_link(self, topic: Cid) -> tuple[Mark, Cid] | None:
        """Our newest event in a topic, whatever its epoch, as others link to it."""
        last = self._current.get(topic)
        if last is not None and last.last_cid is not None:
            return Mark(self.turn.me, last.epoch, last.last), last.last_cid
        saved = self._saved.get(topic)
        if saved is not None:
            return Mark(self.turn.me, saved.epoch, saved.last), saved.cid
        return self._given_up.get(topic)

    def first_unreplicated(self, topic: Cid) -> int:
        """The first number of ours whose replicas were not counted before the restart."""
        saved = self._saved.get(topic)
        return 1 if saved is None else saved.replicated + 1

    def gave(self, event: EventDescriptor) -> bool:
        """Whether we remember having given a number to an event of ours."""
        epoch, number = event.sequence
        return number <= self._known.get(event.topic, {}).get(epoch, 0)

    def is_in_use(self, topic: Cid, epoch: int) -> bool:
        """Whether we have given numbers of an epoch in this life."""
        return epoch in self._given.get(topic, {})

    def is_recent(self, event: Cid) -> bool:
        """Whether we published an event in this life, as far as we remember."""
        return event in self._recent

    # Giving.

    def open(self, topic: Cid, order: DeliveryOrder) -> Numbering:
        """The numbering that our next event in a topic belongs to."""
        if self.refusal is not None:
            raise Halted(self.refusal)
        numbering = self.resumed(topic)
        if numbering is None:
            if topic in self._saved and order is DeliveryOrder.TOTAL:
                raise Halted(NO_SECOND_EPOCH)
            last = self.last_link(topic)
            if last is not None:
                self._given_up[topic] = last
            self._saved.pop(topic, None)
            # A publisher without memory starts a new epoch, so no number is given twice.
            numbering = Numbering(self.turn.rng.getrandbits(EPOCH_BITS), 0, None)
            self._current[topic] = numbering
        return numbering

    def resumed(self, topic: Cid) -> Numbering | None:
        """The numbering that we have in a topic, unless it was given up."""
        numbering = self._current.get(topic)
        saved = self._saved.get(topic)
        if numbering is None and saved is not None and not saved.closed:
            numbering = self._current[topic] = Numbering(saved.epoch, saved.last, saved.cid)
        return numbering

    def give(self, event: EventDescriptor, topic: Topic | None) -> Write:
        """An event takes its number; returns the record of that, to be written with the event.

        With it we remember who hears of the event first: they can tell us later where we were.
        """
        numbering = self._current[event.topic]
        epoch, number = event.sequence
        assert (epoch, number) == (numbering.epoch, numbering.last + 1), "numbers are gapless"
        numbering.last, numbering.last_cid = number, event.cid
        numbering.replicating[number] = None
        self._known.setdefault(event.topic, {})[epoch] = number
        self._given.setdefault(event.topic, {})[epoch] = number
        self._given_up.pop(event.topic, None)
        self._recent[event.cid] = None
        if len(self._recent) > RECENT_MAX:
            del self._recent[next(iter(self._recent))]
        links = () if topic is None else topic.overlay.first_to_hear(WITNESSES_MAX)
        replicated = min(numbering.replicated, number - 1)
        return Saved(epoch, number, replicated, event.cid, links).write(event.topic)

    # Leaving a numbering.

    def begin_anew(self, topic: Topic) -> None:
        """Take a new epoch where the topic does not hold our old one, up to its end, as we do."""
        own = self.last_of(topic.id)
        if own is not None and topic.frontier.highest(self.turn.me, own[0]) != own[1]:
            self._current.pop(topic.id, None)
            self._saved.pop(topic.id, None)
        # A member is given its own events as they come back to it, and links to those.
        self._given_up.pop(topic.id, None)

    def close(self, topic: Cid) -> Write | None:
        """Give no more numbers of an epoch; returns what makes this so after a restart too."""
        saved = self._saved.get(topic)
        numbering = self._current.pop(topic, None)
        if numbering is not None and numbering.last_cid is not None:
            replicated = numbering.replicated
            saved = Saved(numbering.epoch, numbering.last, replicated, numbering.last_cid)
        if saved is None:
            return None
        saved = self._saved[topic] = saved._replace(closed=True)
        return saved.write(topic)

    def go_on_behind(self, topic: Cid, last: int, cid: Cid | None) -> None:
        """Others knew better how far we were: our next event follows theirs."""
        numbering = self.resumed(topic)
        assert numbering is not None, "there is something to go on with"
        assert last >= numbering.last, "nobody takes numbers back"
        numbering.last, numbering.last_cid = last, cid
        self._known[topic][numbering.epoch] = last
