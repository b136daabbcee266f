"""Names: what the node's own names lead to, and what names of others led to when it resolved them.

docs/spec/pulsarcast.md, Names.

A node has every name of its own on its disk, so its own names need no network. Of others' names it
remembers the last ones that it resolved, so that it notices when one of them moves. A moved name
stands for the topic that it led to before for as long as the node reads that topic: a reader never
changes over by itself.
"""

from collections.abc import Callable, Iterable, Iterator

from pulsarcast.model import trace
from pulsarcast.model.errors import RemoteError
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.model.pointers import (
    Named,
    Pointer,
    Resolution,
    decode_named,
    decode_pointer,
    join_blocks,
    pointer_key,
    split_blocks,
)
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.following.own_listings import START_S
from pulsarcast.protocol.following.renewal import Renewal
from pulsarcast.protocol.store import DropState, PutState, StateRow
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.life import READ

TABLE = "name"
OTHERS_MAX = 1024
"""Bounds the names of other authors that a node remembers; the one resolved longest ago goes."""


class Names:
    """The names that the node gave, and those that it resolved."""

    def __init__(
        self, context: Context, dht: Kademlia, followed: FollowedTopics, renewal: Renewal
    ) -> None:
        self.turn = context.turn
        self.dht = dht
        self.followed = followed
        self.renewal = renewal
        self._own: dict[str, Named] = {}
        self._names_of: dict[Cid, dict[str, None]] = {}
        """The own names that lead to each topic."""
        self._others: dict[tuple[PeerId, str], Named] = {}
        self._reading: dict[tuple[PeerId, str], Pointer] = {}
        """By name: the pointer that led to the topic that the node reads, before the name moved."""
        self._due: list[tuple[PeerId, str]] = []

    def __len__(self) -> int:
        """How many names are remembered."""
        return len(self._own) + len(self._others)

    def restore(self, values: Iterable[bytes]) -> None:
        """Restore the names that the disk remembers."""
        for value in values:
            try:
                *blocks, reading = split_blocks(value)
                named = decode_named(blocks)
                before = decode_pointer(reading) if reading else None
            except RemoteError:
                continue  # Written under other rules.
            if named is not None:
                self._put(named, before)

    # Own names.

    def own(self, name: str) -> Named | None:
        """What is known of a name of the node's own, without asking a peer."""
        return self._own.get(name)

    def own_of(self, topic: Cid) -> Iterator[Pointer]:
        """The pointers of all own names that lead to a topic."""
        for name in list(self._names_of.get(topic, ())):
            yield self._own[name].pointer

    def notable(self) -> list[Resolution]:
        """The names that people should know of: own ones that clash, and those that moved away
        from a topic that the node reads."""
        own = [(self.turn.me, name) for name, named in self._own.items() if named.rival]
        found = (self._resolution(*key) for key in (*own, *self._reading))
        return [each for each in found if each is not None and (each.rival or each.reading)]

    # Resolving.

    def find(self, author: PeerId, name: str, then: Callable[[Resolution | None], None]) -> None:
        """What a name leads to, by the DHT and by what is remembered."""

        def found(named: Named | None) -> None:
            if named is not None:
                self.learn(named)
            then(self._resolution(author, name))

        self.dht.get_pointer(author, name, found)

    def learn(self, given: Named) -> None:
        """Take in pointers of a name; the trace says if it moved, or if they clash."""
        author, name = key = given.pointer.author, given.pointer.name
        known = self._get(key)
        named = given if known is None else known.merged(given)
        reading = self._reading.pop(key, None)
        if known is not None and known.pointer.topic != named.pointer.topic:
            self._trace(named, known.pointer, clash=False)
            if reading is None and author != self.turn.me:
                reading = known.pointer
        if named.rival is not None and (known is None or known.rival != named.rival):
            self._trace(named, named.rival, clash=True)
        if reading is not None and not self._is_read(reading.topic):
            reading = None
        is_changed = named != known
        self._put(named, reading)
        if is_changed:
            blocks = (*named.blocks, b"" if reading is None else reading.block)
            row = StateRow(TABLE, _row_key(author, name), join_blocks(blocks))
            self.turn.persist(PutState(row))
            self._renew_topic(named.pointer)
        self._trim()

    def _renew_topic(self, pointer: Pointer) -> None:
        """A name may lead to a version that no announcement has brought to this node."""
        topic = self.followed.members.get(pointer.topic)
        if topic is not None and pointer.cid not in topic.versions.by_cid:
            self.renewal.find(topic, pointer.cid, pointer.author)

    def _get(self, key: tuple[PeerId, str]) -> Named | None:
        return self._own.get(key[1]) if key[0] == self.turn.me else self._others.get(key)

    def _put(self, named: Named, reading: Pointer | None) -> None:
        author, name = key = named.pointer.author, named.pointer.name
        if author == self.turn.me:
            if (known := self._own.get(name)) is not None:
                del self._names_of[known.pointer.topic][name]
            self._own[name] = named
            self._names_of.setdefault(named.pointer.topic, {})[name] = None
            return
        self._others.pop(key, None)  # Resolved last: it goes last.
        self._others[key] = named
        if reading is not None:
            self._reading[key] = reading

    def _trim(self) -> None:
        while len(self._others) > OTHERS_MAX:
            author, name = next(iter(self._others))
            del self._others[author, name]
            self._reading.pop((author, name), None)
            self.turn.persist(DropState(TABLE, _row_key(author, name)))

    def _resolution(self, author: PeerId, name: str) -> Resolution | None:
        named = self._get((author, name))
        if named is None:
            return None
        reading = self._reading.get((author, name))
        if reading is not None and not self._is_read(reading.topic):
            del self._reading[author, name]
            reading = None
        return Resolution(named.pointer, named.rival, reading)

    def _is_read(self, topic: Cid) -> bool:
        """Whether an application of this node gets the topic's events."""
        return topic in self.followed.by_content or bool(self.followed.reasons(topic) & READ)

    def _trace(self, named: Named, other: Pointer, *, clash: bool) -> None:
        pointer = named.pointer
        lost = other.cid if other.topic == pointer.topic else other.topic
        self.turn.trace(
            trace.NameChanged(
                pointer.author, pointer.name, pointer.topic, lost, pointer.moves, clash
            )
        )

    # Renewing.

    def renew_soon(self) -> None:
        """The disk may be older than what the node has said: look its names up once it can."""
        self.turn.after(START_S, self.renew)

    def renew(self) -> None:
        """Look up the node's own names and those of topics that it reads, one after the other.

        A lookup also gives the pointer to keepers that lack it.
        """
        if self._due:
            return  # The round before still goes on: a slow network must not queue up rounds.
        self._due.extend((self.turn.me, name) for name in self._own)
        self._due.extend(
            key for key, named in self._others.items() if self._is_read(named.pointer.topic)
        )
        self._renew_next()

    def _renew_next(self) -> None:
        if self._due:
            author, name = self._due[0]
            self.find(author, name, lambda _: self._renewed())

    def _renewed(self) -> None:
        self._due.pop(0)
        # Not at once: a lookup that ends at once would nest the next one in itself.
        if self._due:
            self.turn.after(0.0, self._renew_next)


def _row_key(author: PeerId, name: str) -> bytes:
    return pointer_key(author, name).to_bytes(32)
