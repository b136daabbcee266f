"""Starting: loads the frontier at which a member starts, part by part, and gives it to others.

A member that lets a newcomer in tells it the hash of its frontier, the root, and as many marks as
fit. What lies beyond that frontier is due to the newcomer, which loads the other parts in its own
time: those first whose events arrive. It takes a part only if the hash is right. The giver keeps
the frontier as it was. A newcomer that finds nobody with its root starts the parts that it still
misses at another member's (docs/spec/pulsarcast.md, Subscribe; docs/spec/models.md).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.ids import CID_BYTES, Cid, PeerId
from pulsarcast.protocol.dissemination.overlay import Overlay
from pulsarcast.protocol.limits import PARTS_MAX, START_PARTS_MAX
from pulsarcast.protocol.messages import FetchStart, FrontierPart, PartHash, StartParts
from pulsarcast.protocol.store import DropState, MarkState, PutState, StateRow, Write
from pulsarcast.protocol.topic.hash_tree import EMPTY, HashTree
from pulsarcast.protocol.topic.state import TopicState

TABLE = "start"
"""Rows of the disk: a topic and a part that is missing; its hash, and the root."""
KEPT_MAX = 16
"""Bounds the frontiers that are kept for newcomers. Where the one at which a newcomer started is
gone, it starts what it misses anew."""
LOADED_MAX = 65_536
"""Bounds the marks that a newcomer loads before an event asks for them: a hostile giver may make up
numberings without end. What is missing beyond them is loaded once its events arrive."""
AGAIN_S = 1.0
"""How long a newcomer waits that was told nothing new, or that has nobody to ask."""
TRIES_MAX = 3
"""Answers without anything new after which a newcomer starts what it misses elsewhere."""
ALONE_S = 30.0
"""How long nobody must have helped the first of the members: then nobody has what it misses."""


class StartGiver:
    """Gives one topic's frontier to newcomers, as it was when each was let in."""

    __slots__ = ("_frontier", "_kept", "_parameters", "_topic", "_turn")

    def __init__(self, state: TopicState) -> None:
        self._topic = state.id
        self._turn = state.context.turn
        self._parameters = state.context.parameters
        self._frontier = state.frontier
        self._kept: dict[bytes, HashTree] = {}
        """By root; the one that was used last is the last."""

    @property
    def is_idle(self) -> bool:
        """Whether no newcomer may ask for more."""
        return not self._kept

    def give(self, peer: PeerId, parts: tuple[bytes, ...] = (b"",)) -> None:
        """Let a peer start, in these parts, at the frontier as it is now."""
        tree = self._frontier.snapshot()
        starts = tuple(PartHash(steps, tree.hash_of(steps)) for steps in parts)
        if not self._send(peer, tree, starts, parts):
            self._keep(tree)

    def serve(self, peer: PeerId, message: FetchStart, *, known: bool) -> None:
        """A peer asks for parts of the frontier at which it starts.

        One that is no member yet knows a root that the node gave.
        """
        tree = self._kept.get(message.root)
        if tree is not None:
            self._keep(tree)
            self._send(peer, tree, (), message.parts)
        elif known:
            self.give(peer, message.parts)

    def _keep(self, tree: HashTree) -> None:
        self._kept.pop(tree.digest(), None)
        self._kept[tree.digest()] = tree
        if len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]

    def _send(
        self, peer: PeerId, tree: HashTree, starts: tuple[PartHash, ...], parts: Iterable[bytes]
    ) -> bool:
        content = tree.content(parts, self._parameters.frontier_page, PARTS_MAX)
        rows = tuple(FrontierPart(*row) for row in content.rows)
        marks = tuple(content.marks)
        self._turn.send(peer, StartParts(self._topic, tree.digest(), starts, rows, marks))
        return content.is_all


class Missing(NamedTuple):
    """The parts of a start frontier that are not loaded, by name."""

    digests: dict[bytes, bytes]
    roots: dict[bytes, bytes]
    """The hash of the frontier that each is a part of."""


class StartLoaderOwner(Protocol):
    """Asked of the topic whose start is loaded."""

    def start_alone(self) -> None:
        """Nobody has a frontier: what is missing starts at nothing."""


class StartLoader:
    """Loads the frontier at which one topic starts."""

    __slots__ = (
        "_answer_due_s",
        "_asked",
        "_counts",
        "_expects_root",
        "_frontier",
        "_helpless_s",
        "_overlay",
        "_owner",
        "_parameters",
        "_roots",
        "_saved",
        "_timer",
        "_topic",
        "_tries",
        "_turn",
        "_unasked",
        "_wanted",
    )

    def __init__(
        self,
        state: TopicState,
        overlay: Overlay,
        owner: StartLoaderOwner,
        roots: Mapping[bytes, bytes],
    ) -> None:
        self._topic = state.id
        self._turn = state.context.turn
        self._parameters = state.context.parameters
        self._counts = state.context.counts
        self._frontier = state.frontier
        self._overlay = overlay
        self._owner = owner
        self._roots = dict(roots)
        """The hash of the frontier at which each missing part starts."""
        self._saved = self._missing()
        self._wanted: dict[bytes, None] = {}
        """The missing parts whose events arrive."""
        self._expects_root = False
        self._asked: PeerId | None = None
        self._answer_due_s = 0.0
        self._unasked: dict[PeerId, None] = {}
        """Peers to ask if the one that was asked last does not help."""
        self._tries = 0
        """Answers in a row that brought nothing, or did not come."""
        self._timer: int | None = None
        self._helpless_s: float | None = None
        """Since when nobody helps."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is missing, and nothing awaited."""
        return not (
            self._expects_root or self._frontier.missing or self._wanted or self._timer is not None
        )

    def expect(self, giver: PeerId | None) -> None:
        """A peer has let the node in, and will tell it where to start; None: none has."""
        self._asked = giver
        self._expects_root = giver is not None

    def ask(self, peer: PeerId) -> None:
        """Ask a neighbour for a start, unless another one was asked just before."""
        if self._asked is None or self._turn.now >= self._answer_due_s:
            self.expect(peer)
            self._answer_due_s = self._turn.now + 2 * self._parameters.rpc_timeout_s
            self._turn.send(peer, FetchStart(self._topic, b"", (b"",)))

    def is_awaited(self, sender: PeerId) -> bool:
        """Whether a peer was asked for parts, or owes the node a start."""
        return sender == self._asked

    def want(self, part: bytes) -> None:
        """Load a missing part before others: its events arrive."""
        self._wanted[part] = None
        if self._timer is None:
            self.go_on()

    def take(self, message: StartParts) -> list[MarkState]:
        """Load what was asked for; returns the marks at which the node starts.

        What does not belong to the root raises RemoteError.
        """
        frontier = self._frontier
        for steps, digest in message.starts:
            if steps in frontier.missing or (self._expects_root and not steps):
                if not self._expects_root:
                    self._counts["start_elsewhere"] += 1
                frontier.miss(steps, digest)
                self._roots[steps] = message.root
                self._expects_root = False
        try:
            return frontier.load(message.parts, message.marks)
        except RemoteError:
            self._tries = TRIES_MAX
            raise
        finally:
            for steps in frontier.missing:
                self._roots.setdefault(steps, message.root)

    def moved(self) -> list[Write]:
        """What has changed of the missing parts, for the disk; asks for the next ones."""
        saved, self._saved = self._saved, self._missing()
        for steps in saved:
            if steps not in self._saved:
                self._roots.pop(steps, None)
                self._wanted.pop(steps, None)
        rows: list[Write] = [
            DropState(TABLE, self._topic + steps) for steps in saved if steps not in self._saved
        ]
        rows += [
            PutState(StateRow(TABLE, self._topic + steps, value))
            for steps, value in self._saved.items()
            if saved.get(steps) != value
        ]
        if rows:
            self._tries, self._helpless_s = 0, None
            self.go_on()
        else:
            self._tries += 1
            self._wait(AGAIN_S)
        return rows

    def _missing(self) -> dict[bytes, bytes]:
        return {
            steps: digest + self._roots[steps] for steps, digest in self._frontier.missing.items()
        }

    def forget(self) -> list[Write]:
        """The topic is left."""
        return [DropState(TABLE, self._topic + steps) for steps in self._saved]

    def lost(self, peer: PeerId) -> None:
        """A connection ended."""
        self._unasked.pop(peer, None)
        if peer == self._asked:
            self._asked, self._expects_root = None, False
            if self._timer is not None:
                self._wait(AGAIN_S)

    # Asking.

    def go_on(self) -> None:
        """Ask for the next missing parts."""
        self.stop()
        missing = self._frontier.missing
        # The last first: what a part is made of comes before its neighbours.
        more = reversed(list(missing)) if len(self._frontier) < LOADED_MAX else ()
        order = dict.fromkeys((*reversed(self._wanted), *more))
        parts = [steps for steps in order if steps in missing]
        if not parts:
            return
        peer = self._asked = self._whom()
        if peer is None or self._tries >= TRIES_MAX:
            self._helpless_s = self._turn.now if self._helpless_s is None else self._helpless_s
            if self._is_alone():
                self._owner.start_alone()
                return
        if peer is None:
            self._wait(AGAIN_S)
            return
        root = b""
        if self._tries < TRIES_MAX:
            root = self._roots[parts[0]]
            parts = [steps for steps in parts if self._roots[steps] == root]
        asked = tuple(parts[:START_PARTS_MAX])
        self._counts["start_in_parts"] += 1
        self._turn.send(peer, FetchStart(self._topic, root, asked))
        self._wait(2 * self._parameters.rpc_timeout_s, is_asked=True)

    def _whom(self) -> PeerId | None:
        """The neighbour that answers; after a try in vain the next one, the main one first."""
        if self._asked is not None and not self._tries:
            return self._asked
        if not self._unasked:
            upstream = self._overlay.upstream
            first = () if upstream is None else (upstream,)
            self._unasked = dict.fromkeys((*first, *self._overlay.links))
        peer = next(iter(self._unasked), None)
        if peer is not None:
            del self._unasked[peer]
        return peer

    def _is_alone(self) -> bool:
        """Whether the node is the first of the members, and none has what it misses."""
        is_first = self._overlay.attached and self._overlay.upstream is None
        waits_s = 0.0 if self._helpless_s is None else self._turn.now - self._helpless_s
        return is_first and waits_s >= ALONE_S

    def _wait(self, delay_s: float, *, is_asked: bool = False) -> None:
        self.stop()
        self._timer = self._turn.after(delay_s, self._unanswered if is_asked else self.go_on)

    def _unanswered(self) -> None:
        self._tries += 1
        self.go_on()

    def stop(self) -> None:
        """Ask for nothing more."""
        self._turn.cancel(self._timer)
        self._timer = None


def missing_of(
    rows: Iterable[tuple[bytes, bytes]],
) -> dict[Cid, Missing]:
    """By topic, what was missing before a restart."""
    found: dict[Cid, Missing] = {}
    for key, value in rows:
        digests, roots = found.setdefault(Cid(key[:CID_BYTES]), Missing({}, {}))
        steps, size = key[CID_BYTES:], len(EMPTY)
        digests[steps], roots[steps] = value[:size], value[size:]
    return found
