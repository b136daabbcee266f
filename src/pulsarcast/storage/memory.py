"""A store in memory: what a simulated disk holds, and what tests compare others with.

It keeps references to descriptors and copies nothing, so a hundred nodes in one process share
the bytes of an event that all of them hold. Histories are kept by `TopicHistory`; this file
keeps the rest: blocks by content id, the DHT's keys in order, and small records.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from functools import reduce
from heapq import heappop, heappush
from operator import xor
from typing import assert_never

from pulsarcast.model.ids import Cid
from pulsarcast.model.keys import Key
from pulsarcast.protocol.store import (
    VERSIONS,
    Answer,
    AnyWrite,
    Block,
    DigestKeys,
    DropBlock,
    DropEvents,
    DropExpired,
    DropState,
    DropTopic,
    Events,
    Keep,
    KeyDigest,
    Keys,
    LoadBlock,
    LoadKeys,
    LoadLog,
    LoadNumbers,
    LoadOldest,
    LoadRequest,
    MarkState,
    Oldest,
    OwnTopic,
    PutBlock,
    PutEvent,
    PutMark,
    PutState,
    Query,
    StateRow,
    Write,
)
from pulsarcast.storage.history import TopicHistory
from pulsarcast.storage.quota import BYTES_MAX, Quota, charge_of


class MemoryStore:
    """Applies writes and answers queries, as `protocol.store` defines them."""

    __slots__ = (
        "_blocks",
        "_charges",
        "_expiry",
        "_keys",
        "_own",
        "_quota",
        "_rows",
        "_topics",
    )

    def __init__(self, strangers_bytes_max: int = BYTES_MAX) -> None:
        self._topics: dict[Cid, TopicHistory] = {}
        self._blocks: dict[Cid, PutBlock] = {}
        # Sorted, so that a range of the keyspace is a slice. One CID has one key.
        self._keys: list[tuple[Key, Cid]] = []
        # A heap: replicas by when their time is up. Some may be dropped or put anew since.
        self._expiry: list[tuple[int, Cid]] = []
        # Blocks that we keep for ourselves, whether or not they are replicas too.
        self._own: dict[Cid, None] = {}
        # Blocks that strangers sent: the account, and what is charged to it.
        self._charges: dict[Cid, tuple[str, int]] = {}
        self._quota = Quota(strangers_bytes_max)
        self._rows: dict[tuple[str, bytes], bytes] = {}

    def apply(self, writes: Iterable[AnyWrite]) -> tuple[int, ...]:
        """Carry out writes, in order; returns which ones for strangers found no room."""
        left_out: list[int] = []
        for write in writes:
            # Nearly every write is one of these, and a `match` takes its time.
            if type(write) is PutEvent:
                self._topic(write.event.request.topic).put(write)
            elif not isinstance(write, Keep):
                self._apply(write)
            elif not self._keep(write):
                left_out.append(write.token)
        return tuple(left_out)

    def _keep(self, keep: Keep) -> bool:
        charge = sum(map(self._charge_of, keep.writes))
        account = self._quota.account(keep.place, charge)
        if account is None:
            return False
        for write in keep.writes:
            charge = self._charge_of(write)
            if type(write) is PutBlock:
                if charge:
                    self._quota.add(account, charge)
                    self._charges[write.cid] = (account, charge)
                self._put_replica(write)
                continue
            self._apply(write)
            if type(write) is PutEvent:
                self._quota.charge_log(write.event.topic, account, charge)
        return True

    def _charge_of(self, write: Write) -> int:
        match write:
            case PutEvent():
                return charge_of(write.event.block)
            case PutBlock():
                return 0 if write.cid in self._blocks else charge_of(write.block)
            case _:
                return 0

    def _apply(self, write: Write) -> None:
        match write:
            case PutEvent():
                self._topic(write.event.request.topic).put(write)
            case PutState(row=row):
                self._rows[row.table, row.key] = row.value
            case DropState(table=table, key=key):
                self._rows.pop((table, key), None)
            case PutBlock():
                self._put_block(write)
            case PutMark(topic=topic, mark=mark):
                self._topic(topic).move(mark)
            case DropEvents(topic=topic, index=index):
                dropped = self._topics[topic].drop(index) if topic in self._topics else []
                if self._quota.is_charged(topic):
                    self._quota.refund_part(topic, sum(map(charge_of, dropped)))
            case DropBlock(cid=cid):
                self._drop_block(cid)
            case DropExpired(before_us=before_us):
                self._drop_expired(before_us)
            case DropTopic(topic=topic):
                self._quota.refund_log(topic)
                self._topics.pop(topic, None)
            case OwnTopic(topic=topic):
                self._quota.refund_log(topic)
            case _ as unreachable:
                assert_never(unreachable)

    def answer(self, query: Query) -> Answer:
        """Answer one query from what was applied."""
        match query:
            case LoadNumbers():
                return self._numbers(query)
            case LoadBlock(cid=cid, versions=versions):
                version = self._rows.get((VERSIONS, cid)) if versions else None
                return Block(self._find_block(cid) or version)
            case LoadLog(topic=topic):
                history = self._topics.get(topic)
                return Events(() if history is None else history.log(query))
            case LoadRequest(topic=topic, author=author, nonce=nonce):
                history = self._topics.get(topic)
                event = None if history is None else history.find_request(author, nonce)
                return Block(None if event is None else event.block)
            case LoadKeys(first=first, last=last, limit=limit):
                held = self._range(first, last)
                return Keys(tuple(cid for _, cid in held[: max(limit, 0)]))
            case DigestKeys(first=first, last=last):
                held = self._range(first, last)
                return KeyDigest(len(held), reduce(xor, (key for key, _ in held), 0))
            case LoadOldest(topic=topic):
                history = self._topics.get(topic)
                return Oldest(0, ()) if history is None else history.oldest(query)
            case _ as unreachable:
                assert_never(unreachable)

    def _numbers(self, query: LoadNumbers) -> Events:
        history = self._topics.get(query.topic)
        if history is None:
            return Events(())
        found = history.numbers(query)
        certificates = tuple(history.certificate_of(event) for _, event in found)
        return Events(found, certificates if any(certificates) else ())

    @property
    def strangers_bytes(self) -> int:
        """What is charged for what is kept for strangers."""
        return self._quota.bytes_used

    def rows(self) -> tuple[StateRow, ...]:
        """Every small record, by table and key."""
        return tuple(StateRow(*place, self._rows[place]) for place in sorted(self._rows))

    def marks(self) -> tuple[tuple[Cid, MarkState], ...]:
        """Every topic's frontier, by topic, publisher and epoch."""
        return tuple(
            (topic, marks[numbering])
            for topic in sorted(self._topics)
            for marks in (self._topics[topic].marks,)
            for numbering in sorted(marks)
        )

    def logs(self) -> tuple[tuple[Cid, int], ...]:
        """The newest index ever given in every topic's log, also where it was dropped since."""
        return tuple((topic, self._topics[topic].newest) for topic in sorted(self._topics))

    def copy(self) -> MemoryStore:
        """A store that holds the same and then goes its own way."""
        twin = MemoryStore()
        twin._topics = {topic: history.copy() for topic, history in self._topics.items()}
        twin._blocks = self._blocks.copy()
        twin._keys = self._keys.copy()
        twin._expiry = self._expiry.copy()
        twin._own = self._own.copy()
        twin._charges = self._charges.copy()
        twin._quota = self._quota.copy()
        twin._rows = self._rows.copy()
        return twin

    def _topic(self, topic: Cid) -> TopicHistory:
        history = self._topics.get(topic)
        if history is None:
            history = self._topics[topic] = TopicHistory()
        return history

    def _put_block(self, put: PutBlock) -> None:
        self._refund(put.cid)
        if put.key is None:
            self._own[put.cid] = None
            # A replica stays one, now that it is ours as well: other peers count on that.
            self._blocks.setdefault(put.cid, put)
        else:
            self._put_replica(put)

    def _put_replica(self, put: PutBlock) -> None:
        assert put.key is not None
        old = self._blocks.get(put.cid)
        replica = None if old is None or old.key is None else old
        if replica is not None:
            assert replica.key is not None
            self._remove_key(replica.key, put.cid)
        self._blocks[put.cid] = put
        insort(self._keys, (put.key, put.cid))
        if replica is None or replica.expires_us != put.expires_us:
            heappush(self._expiry, (put.expires_us, put.cid))

    def _drop_block(self, cid: Cid) -> None:
        self._refund(cid)
        self._own.pop(cid, None)
        put = self._blocks.pop(cid, None)
        if put is not None and put.key is not None:
            self._remove_key(put.key, cid)

    def _drop_expired(self, before_us: int) -> None:
        while self._expiry and self._expiry[0][0] < before_us:
            expires_us, cid = heappop(self._expiry)
            put = self._blocks.get(cid)
            if put is None or put.key is None or put.expires_us != expires_us:
                continue
            self._remove_key(put.key, cid)
            if cid in self._own:
                self._blocks[cid] = PutBlock(cid, put.block, None, 0)
            else:
                self._refund(cid)
                del self._blocks[cid]

    def _refund(self, cid: Cid) -> None:
        charge = self._charges.pop(cid, None)
        if charge is not None:
            self._quota.refund(*charge)

    def _remove_key(self, key: Key, cid: Cid) -> None:
        place = bisect_left(self._keys, (key, cid))
        assert self._keys[place] == (key, cid), "the DHT's keys and blocks disagree"
        del self._keys[place]

    def _find_block(self, cid: Cid) -> bytes | None:
        put = self._blocks.get(cid)
        if put is not None:
            return put.block
        for history in self._topics.values():
            event = history.find(cid)
            if event is not None:
                return event.block
        return None

    def _range(self, first: Key, last: Key) -> list[tuple[Key, Cid]]:
        start = bisect_left(self._keys, first, key=_key)
        return self._keys[start : bisect_right(self._keys, last, lo=start, key=_key)]


def _key(entry: tuple[Key, Cid]) -> Key:
    return entry[0]
