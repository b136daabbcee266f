"""Numberings: gives each event that the node publishes its epoch and number, no number twice.

There is one numbering per topic (decisions 0007 and 0014). An epoch is a numbering that begins at
1: a node that cannot know which numbers it gave before begins a new epoch.
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
"""Bits of a random epoch: one bit of eight bytes is left for ABANDONED."""
ABANDONED = 1 << EPOCH_BITS
"""Flag set on an epoch on the disk: the node gives no further number in it."""
WITNESSES_MAX = 3
"""Neighbours remembered with each number, the first to receive its event: enough that one is
likely to be alive when the node asks them after a restart."""
RECENT_MAX = 1024
"""Events published since the start that the node recognises as parents of others: bounds memory."""
NO_SECOND_EPOCH = "a total order has one numbering, and this node has abandoned its own"


class Numbering:
    """The node's own sequence in one topic."""

    __slots__ = ("epoch", "last", "last_cid", "replicating", "waiting")

    def __init__(self, epoch: int, last: int, last_cid: Cid | None) -> None:
        self.epoch = epoch
        self.last = last
        self.last_cid = last_cid
        self.replicating: dict[int, None] = {}
        """Numbers whose replicas are not counted yet, lowest first."""
        self.waiting: dict[int, Callable[[], None]] = {}
        """Callers that wait for their number, and for all before it, to be replicated."""

    @property
    def replicated(self) -> int:
        """The number up to which everything has its replicas."""
        return next(iter(self.replicating), self.last + 1) - 1

    def settle(self, numbers: Iterable[int]) -> None:
        """The replicas of these are counted: tell the callers that waited for it."""
        for number in numbers:
            self.replicating.pop(number, None)
        for waiting in [number for number in self.waiting if number <= self.replicated]:
            self.waiting.pop(waiting)()


class SavedNumbering(NamedTuple):
    """A numbering as the disk holds it."""

    epoch: int
    last: int
    replicated: int
    cid: Cid
    witnesses: tuple[PeerId, ...] = ()
    is_abandoned: bool = False
    """Whether the node gives no further number in the epoch."""

    def write(self, topic: Cid) -> Write:
        """The write that puts it on the disk."""
        epoch = self.epoch | (ABANDONED if self.is_abandoned else 0)
        numbers = (epoch, self.last, self.replicated)
        head = b"".join(number.to_bytes(8, "big") for number in numbers)
        return PutState(StateRow("numbering", topic, head + self.cid + b"".join(self.witnesses)))

    @staticmethod
    def read(value: bytes) -> "SavedNumbering":
        """A numbering from its row on the disk."""
        epoch, last, replicated = (int.from_bytes(value[at : at + 8], "big") for at in (0, 8, 16))
        cid, peers = value[24 : 24 + CID_BYTES], value[24 + CID_BYTES :]
        starts = range(0, len(peers), PEER_ID_BYTES)
        witnesses = tuple(PeerId(peers[at : at + PEER_ID_BYTES]) for at in starts)
        is_abandoned = epoch >= ABANDONED
        return SavedNumbering(
            epoch & ~ABANDONED, last, replicated, Cid(cid), witnesses, is_abandoned
        )


class Numberings:
    """Gives the node's events their numbers, each once."""

    def __init__(self, context: Context) -> None:
        self.turn = context.turn
        self.refusal: str | None = None
        """Why the node gives no further number, in any topic."""
        self._current: dict[Cid, Numbering] = {}
        self._saved: dict[Cid, SavedNumbering] = {}
        self._known: dict[Cid, dict[int, int]] = {}
        """Per topic and epoch: the last number given, since the start or, by the disk, before.

        Of earlier incarnations only the last epoch is known."""
        self._given_since_start: dict[Cid, dict[int, int]] = {}
        """The same, since the start alone."""
        self._recent: dict[Cid, None] = {}
        self._abandoned: dict[Cid, tuple[Mark, Cid]] = {}
        """Per topic: the last event of an abandoned epoch, until the next epoch has begun."""

    def __len__(self) -> int:
        return len(self._current)

    def load(self, topic: Cid, value: bytes) -> SavedNumbering:
        """Read a numbering from the disk."""
        saved = self._saved[topic] = SavedNumbering.read(value)
        self._known[topic] = {saved.epoch: saved.last}
        return saved

    # Numbers that were given.

    def saved(self, topic: Cid) -> SavedNumbering | None:
        """A numbering as it was on the disk at the start, or as it was abandoned."""
        return self._saved.get(topic)

    def last_of(self, topic: Cid) -> tuple[int, int] | None:
        """The epoch and number of the node's newest event in a topic, as the disk holds it."""
        numbering = self._current.get(topic)
        if numbering is not None:
            return numbering.epoch, numbering.last
        saved = self._saved.get(topic)
        return None if saved is None else (saved.epoch, saved.last)

    def last_link(self, topic: Cid) -> tuple[Mark, Cid] | None:
        """The node's newest event in a topic, of any epoch, as others link to it."""
        last = self._current.get(topic)
        if last is not None and last.last_cid is not None:
            return Mark(self.turn.me, last.epoch, last.last), last.last_cid
        saved = self._saved.get(topic)
        if saved is not None:
            return Mark(self.turn.me, saved.epoch, saved.last), saved.cid
        return self._abandoned.get(topic)

    def first_unreplicated(self, topic: Cid) -> int:
        """The node's first number whose replicas were not counted before the restart."""
        saved = self._saved.get(topic)
        return 1 if saved is None else saved.replicated + 1

    def remembers(self, event: EventDescriptor) -> bool:
        """Whether the node remembers that it gave the number of an event with its key."""
        epoch, number = event.sequence
        return number <= self._known.get(event.topic, {}).get(epoch, 0)

    def is_used_since_start(self, topic: Cid, epoch: int) -> bool:
        """Whether the node has given numbers of an epoch since its start."""
        return epoch in self._given_since_start.get(topic, {})

    def is_recent(self, event: Cid) -> bool:
        """Whether the node published an event since its start, as far as it remembers."""
        return event in self._recent

    # Giving.

    def open(self, topic: Cid, order: DeliveryOrder) -> Numbering:
        """The numbering of the node's next event in a topic; raises Halted if there can be none."""
        if self.refusal is not None:
            raise Halted(self.refusal)
        numbering = self.resumed(topic)
        if numbering is None:
            if topic in self._saved and order is DeliveryOrder.TOTAL:
                raise Halted(NO_SECOND_EPOCH)
            last = self.last_link(topic)
            if last is not None:
                self._abandoned[topic] = last
            self._saved.pop(topic, None)
            # A publisher without memory starts a new epoch, so no number is given twice.
            numbering = Numbering(self.turn.rng.getrandbits(EPOCH_BITS), 0, None)
            self._current[topic] = numbering
        return numbering

    def resumed(self, topic: Cid) -> Numbering | None:
        """The node's numbering in a topic, unless it was abandoned."""
        numbering = self._current.get(topic)
        saved = self._saved.get(topic)
        if numbering is None and saved is not None and not saved.is_abandoned:
            numbering = self._current[topic] = Numbering(saved.epoch, saved.last, saved.cid)
        return numbering

    def give(self, event: EventDescriptor, topic: Topic | None) -> Write:
        """An event takes its number; returns the record of that, to be written with the event.

        The record names the peers that receive the event first: they confirm it after a restart.
        """
        numbering = self._current[event.topic]
        epoch, number = event.sequence
        assert (epoch, number) == (numbering.epoch, numbering.last + 1), "numbers are gapless"
        numbering.last, numbering.last_cid = number, event.cid
        numbering.replicating[number] = None
        self._known.setdefault(event.topic, {})[epoch] = number
        self._given_since_start.setdefault(event.topic, {})[epoch] = number
        self._abandoned.pop(event.topic, None)
        self._recent[event.cid] = None
        if len(self._recent) > RECENT_MAX:
            del self._recent[next(iter(self._recent))]
        links = () if topic is None else topic.overlay.first_to_hear(WITNESSES_MAX)
        replicated = min(numbering.replicated, number - 1)
        return SavedNumbering(epoch, number, replicated, event.cid, links).write(event.topic)

    # Leaving an epoch, and catching up.

    def reconcile(self, topic: Topic) -> None:
        """Leave the old epoch if the topic does not hold it up to the same last number."""
        own = self.last_of(topic.id)
        if own is not None and topic.frontier.highest(self.turn.me, own[0]) != own[1]:
            self._current.pop(topic.id, None)
            self._saved.pop(topic.id, None)
        # A member is given its own events as they come back to it, and links to those.
        self._abandoned.pop(topic.id, None)

    def abandon(self, topic: Cid) -> Write | None:
        """Give no further number in the epoch; returns the write that makes this last."""
        saved = self._saved.get(topic)
        numbering = self._current.pop(topic, None)
        if numbering is not None and numbering.last_cid is not None:
            replicated = numbering.replicated
            saved = SavedNumbering(numbering.epoch, numbering.last, replicated, numbering.last_cid)
        if saved is None:
            return None
        saved = self._saved[topic] = saved._replace(is_abandoned=True)
        return saved.write(topic)

    def continue_after(self, topic: Cid, last: int, cid: Cid | None) -> None:
        """Peers hold more of the numbering than the disk: the next number follows theirs."""
        numbering = self.resumed(topic)
        assert numbering is not None, "there is a numbering to continue"
        assert last >= numbering.last, "numbers only grow"
        numbering.last, numbering.last_cid = last, cid
        self._known[topic][numbering.epoch] = last
