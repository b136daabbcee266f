"""A tiny network for the DHT's tests: nodes, latency, disks, deaths and partitions."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import sha256
from random import Random

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import Cid, PeerId, cid_key, cid_of, peer_key
from pulsarcast.model.keys import Key
from pulsarcast.model.pointers import Named
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.expiry import Lifetime
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.effects import Know, Load, Persist, Send, SetTimer
from pulsarcast.protocol.messages import Contact, DhtMessage
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.store import AnyWrite, Block, Keys, LoadBlock, LoadKeys, PutBlock, Query
from pulsarcast.protocol.turn import Turn
from pulsarcast.storage.memory import MemoryStore

EPOCH_US = 1_767_225_600_000_000
LAST_KEY = (1 << 256) - 1
BRIEF_S = 600
"""How long a block lasts that says it is brief."""
PROLONGED_S = 300
"""How much longer one lasts from when somebody asks for it, that says it is old."""


def verify_block(block: bytes) -> tuple[Cid, Lifetime]:
    """In these tests any block is valid that does not say otherwise, and lasts for a month."""
    if block.startswith(b"bad"):
        raise RemoteError("a bad block")
    kept_s = BRIEF_S if block.startswith((b"brief", b"old")) else 30 * 86_400
    prolonged_s = PROLONGED_S if block.startswith(b"old") else 0
    expires_us = EPOCH_US + kept_s * 1_000_000
    return cid_of(block), Lifetime(EPOCH_US, expires_us, prolonged_s * 1_000_000)


class AnyBlocks:
    """Takes blocks as `verify_block` does, and remembers those that were stored."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []

    def verify_block(self, block: bytes) -> tuple[Cid, Lifetime]:
        return verify_block(block)

    def stored_block(self, block: bytes, sender: PeerId) -> None:
        self.stored.append(block)

    def shown_own_name(self, named: Named) -> None:
        """No test of blocks asks for it."""

    def own_reach_changed(self) -> None:
        """No test of blocks asks for it."""

    def reach_changed(self, contact: Contact) -> None:
        """No test of blocks asks for it."""


class Node:
    """One node with its disk, as a driver would run it."""

    def __init__(self, network: "Network", seed: bytes) -> None:
        self.network = network
        self.identity = Identity.from_seed(seed)
        self.peer: PeerId = self.identity.peer_id
        self.key: Key = peer_key(self.peer)
        self.contact = Contact(self.peer)
        self.disk = MemoryStore()
        self.disk_works = True
        self.counts: Counter[str] = Counter()
        self.stored: list[tuple[Cid, PeerId]] = []
        self.shown: list[Named] = []
        self.errors: list[RemoteError] = []
        self.incarnation = 0
        self.alive = False
        self.group = 0
        self.clock_s = 0.0
        """By how much its clock is ahead of the others'."""
        self.connected: dict[PeerId, None] = {}

    def start(self, contacts: Sequence[Contact], *, keep_disk: bool = True) -> None:
        self.incarnation += 1
        self.alive = True
        self.connected.clear()
        if not keep_disk:
            self.disk = MemoryStore()
        self.turn = Turn(self.identity, Random(f"{self.peer.hex()}/{self.incarnation}"))
        context = Context(self.turn, self.network.parameters)
        context.counts = self.counts
        self.dht = Kademlia(context, self)
        self.receive: Callable[[PeerId, DhtMessage], None] = self.dht.receive
        self.do(lambda: self.dht.start(contacts, self.disk.rows(), Reach.PUBLIC))

    def verify_block(self, block: bytes) -> tuple[Cid, Lifetime]:
        return verify_block(block)

    def stored_block(self, block: bytes, sender: PeerId) -> None:
        self.stored.append((cid_of(block), sender))

    def shown_own_name(self, named: Named) -> None:
        self.shown.append(named)

    def own_reach_changed(self) -> None:
        """No test of the DHT asks for it."""

    def reach_changed(self, contact: Contact) -> None:
        """No test of the DHT asks for it."""

    def do(self, act: Callable[[], None]) -> None:
        """Run one turn."""
        turn = self.turn
        turn.now = self.network.now
        turn.wall_us = EPOCH_US + int((self.network.now + self.clock_s) * 1e6)
        try:
            act()
        except RemoteError as error:
            self.errors.append(error)
        turn.end()
        effects, turn.effects = turn.effects, []
        for effect in effects:
            match effect:
                case Send(peer=peer, message=message):
                    self.network.carry(self, peer, message)
                case SetTimer(timer=timer, delay_s=delay_s):
                    self.later(delay_s, partial(turn.fired, timer))
                case Load(token=token, query=query):
                    self.later(0.0002, partial(self._load, token, query))
                case Persist(token=token, writes=writes):
                    if self.disk_works:
                        self.later(0.002, partial(self._sync, token, writes))
                    else:
                        self.later(0.002, partial(turn.persist_failed, token))
                case Know():
                    pass
                case _:
                    raise AssertionError(f"the DHT has no business with {effect}")

    def _load(self, token: int, query: Query) -> None:
        self.turn.loaded(token, self.disk.answer(query))

    def _sync(self, token: int, writes: tuple[AnyWrite, ...]) -> None:
        self.turn.persisted(token, self.disk.apply(writes))

    def lose(self, peer: PeerId) -> None:
        self.dht.lost(peer)

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        incarnation = self.incarnation

        def fire() -> None:
            if self.alive and self.incarnation == incarnation:
                self.do(act)

        self.network.after(delay_s, fire)

    def kill(self) -> None:
        self.alive = False
        for peer in list(self.connected):
            other = self.network.by_peer[peer]
            other.connected.pop(self.peer, None)
            other.later(0.05, partial(other.lose, self.peer))

    def holds(self, cid: Cid) -> bool:
        """Whether a block is on our disk as a replica."""
        key = cid_key(cid)
        return self.disk.answer(LoadKeys(key, key, 1)) == Keys((cid,))

    def block(self, cid: Cid) -> bytes | None:
        answer = self.disk.answer(LoadBlock(cid))
        assert isinstance(answer, Block)
        return answer.block

    def put(self, block: bytes) -> None:
        """Write a replica behind the node's back."""
        cid = cid_of(block)
        _, lifetime = verify_block(block)
        self.disk.apply((PutBlock(cid, block, cid_key(cid), lifetime.expires_us),))


class Network:
    """The nodes, and the messages between them."""

    def __init__(self, size: int, *, seed: int = 1, parameters: Parameters | None = None) -> None:
        self.parameters = parameters or Parameters()
        self.rng = Random(seed)
        self.now = 0.0
        self.messages: Counter[str] = Counter()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self._arrivals: dict[tuple[PeerId, PeerId], float] = {}
        self.nodes: list[Node] = []
        self.by_peer: dict[PeerId, Node] = {}
        for _ in range(size):
            self.add()

    def add(self) -> Node:
        seed = sha256(b"%d" % len(self.nodes)).digest()
        node = Node(self, seed)
        self.nodes.append(node)
        self.by_peer[node.peer] = node
        return node

    def start(self, *, settle_s: float = 30.0) -> "Network":
        """Start all nodes, each knowing one that came before it."""
        for index, node in enumerate(self.nodes):
            known = [self.rng.choice(self.nodes[:index]).contact] if index else []
            node.start(known)
            self.run(0.2)
        self.run(settle_s)
        return self

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now + delay_s, self._sequence, act))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now, _, act = heapq.heappop(self._queue)
            act()
        self.now = end

    def run_until(self, condition: Callable[[], bool], *, seconds: float) -> None:
        end = self.now + seconds
        while not condition():
            assert self.now < end, "it did not come true in time"
            self.run(0.05)

    def carry(self, sender: Node, peer: PeerId, message: object) -> None:
        self.messages[type(message).__name__] += 1
        receiver = self.by_peer.get(peer)
        if receiver is None or not receiver.alive:
            sender.later(0.1, lambda: sender.dht.lost(peer))
            return
        if receiver.group != sender.group:
            sender.later(5.0, lambda: sender.dht.lost(peer))
            return
        sender.connected[peer] = None
        receiver.connected[sender.peer] = None
        link = (sender.peer, peer)
        arrival = max(self.now + self.rng.uniform(0.01, 0.1), self._arrivals.get(link, 0.0) + 1e-9)
        self._arrivals[link] = arrival
        assert isinstance(message, DhtMessage)
        receiver.later(arrival - self.now, lambda: receiver.receive(sender.peer, message))

    def cut(self, group: Iterable[Node]) -> None:
        """Part a group of nodes from the others."""
        for node in group:
            node.group = 1
        for node in self.nodes:
            for peer in list(node.connected):
                if self.by_peer[peer].group != node.group:
                    del node.connected[peer]
                    node.later(5.0, partial(node.lose, peer))

    def heal(self) -> None:
        for node in self.nodes:
            node.group = 0

    def closest(self, key: Key, count: int = 3) -> list[Node]:
        """The live nodes that are truly closest to a key."""
        live = [node for node in self.nodes if node.alive]
        return sorted(live, key=lambda node: node.key ^ key)[:count]

    def holders(self, cid: Cid) -> list[Node]:
        return [node for node in self.nodes if node.alive and node.holds(cid)]

    def store(
        self, node: Node, blocks: Sequence[bytes], *, seconds: float = 60.0, keep_local: bool = True
    ) -> list[int]:
        """Store blocks and wait for the counts."""
        answers: list[list[int]] = []
        node.do(lambda: node.dht.store(blocks, answers.append, keep_local=keep_local))
        self.run_until(lambda: bool(answers), seconds=seconds)
        assert len(answers) == 1
        return answers[0]

    def find(self, node: Node, cid: Cid, *, seconds: float = 60.0) -> bytes | None:
        answers: list[bytes | None] = []
        node.do(lambda: node.dht.find_block(cid, answers.append))
        self.run_until(lambda: bool(answers), seconds=seconds)
        assert len(answers) == 1
        return answers[0]

    def look_up(self, node: Node, key: Key, *, seconds: float = 60.0) -> list[PeerId]:
        answers: list[list[Contact]] = []
        node.do(lambda: node.dht.lookup(key, answers.append))
        self.run_until(lambda: bool(answers), seconds=seconds)
        assert len(answers) == 1
        return [contact.peer for contact in answers[0]]


def some_blocks(count: int, *, size: int = 40) -> list[bytes]:
    return [b"block %d" % number + bytes(size) for number in range(count)]
