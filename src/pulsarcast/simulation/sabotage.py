"""Sabotage: safeguards switched off from outside, to see that the checkers notice.

The core has no such flags. A sabotage patches a new node before it starts, or makes the world
around it worse than it says. A hostile node is made the same way, one at a time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from pulsarcast.model.errors import LocalError
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.content.following import ContentTopic
from pulsarcast.protocol.dissemination.cube import DisseminationCube
from pulsarcast.protocol.dissemination.tree import DisseminationTree
from pulsarcast.protocol.dissemination.tree_heartbeat import Heartbeat
from pulsarcast.protocol.messages import EventMessage, FetchRange, FrontierPage, Range, Status
from pulsarcast.protocol.node import Node
from pulsarcast.protocol.sequencing.sequencer import Sequencer
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.topic import Topic
from pulsarcast.simulation.disk import DiskModel

VOTE_LATE_S = 1.0
"""How late a vote is written where its sync is switched off."""


class Sabotage(NamedTuple):
    """One safeguard less."""

    about: str
    prepare: Callable[[Any], None] = lambda node: None
    """Called with every new node, before its start."""
    disk: DiskModel | None = None
    sequencer: Callable[[Any], None] | None = None
    """Called with every new sequencer that is run alone, without a node around it."""


def _topics_are(topic_type: type[Topic]) -> Callable[[Any], None]:
    def prepare(node: Node) -> None:
        node.following.topic_type = topic_type

    return prepare


class _SeesEverythingAsNew(Topic):
    """Forgets what it had: every copy of an event is delivered and passed on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.equivocation.knows = lambda event, certificate: False  # type: ignore[method-assign]


class _NeverCompares(Topic):
    """Takes no notice of what its neighbours hold."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.recovery.compare = lambda *args, **kwargs: None  # type: ignore[method-assign]


class _AttachesAnywhere(Topic):
    """Does not ask whether its new parent is below itself, nor mind when its parent says so.

    Were paths passed on that come round, they would grow until the wire refuses them, and the cycle
    would break at that: the bound is part of the check.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(self.overlay, DisseminationTree):
            self.overlay._in_own_path = lambda path: False  # type: ignore[method-assign]
            self.overlay._is_above = lambda peer: False  # type: ignore[method-assign]
            self.overlay.heard_path = lambda sender, path: None  # type: ignore[method-assign]


class _HasNoLazyNeighbours(Topic):
    """Trusts its parent alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(self.heartbeat, Heartbeat):
            self.heartbeat._choose_lazy = lambda: None  # type: ignore[method-assign]
            # Whoever has none asks those above its parent in their stead.
            self.heartbeat._conversation = self._ask_parent  # type: ignore[method-assign]

    def _ask_parent(self) -> list[PeerId]:
        return [] if self.overlay.mainstay is None else [self.overlay.mainstay]


class _LeavesAtOnce(Topic):
    """Goes without handing its children over."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(self.overlay, DisseminationTree):
            tree = self.overlay
            tree._hand_children_over = tree._leave_now  # type: ignore[method-assign]


class _NeverComparesInCubes(Topic):
    """Does not talk to the nearest members of a cube, nor to far ones, nor mends what it lost."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(self.overlay, DisseminationCube):
            self.heartbeat._talk = lambda: None  # type: ignore[attr-defined]
            self.overlay._mend = lambda index: None  # type: ignore[method-assign]


class _SendsToTheDead(Topic):
    """Goes on counting on a cube's member that is gone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(self.overlay, DisseminationCube):
            self.overlay.lost = self.overlay.search.walk.lost  # type: ignore[method-assign]
            self.overlay.drop_silent = lambda peer: None  # type: ignore[method-assign]


class _IgnoresBarriers(Topic):
    """Delivers each publisher's events in order, whatever they follow of others."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.causal is not None:
            self.causal._waits_for = lambda event: None  # type: ignore[method-assign]


def _drop_heads(node: Node) -> None:
    """Where an event has no room for all heads, those that came first are forgotten."""
    publisher = node.publisher
    link = publisher._link_to_heads

    def link_to_some(descriptor: Any, topic: Any, numbering: Any) -> Any:
        if topic is None:
            return link(descriptor, topic, numbering)
        own = (node.turn.me, numbering.epoch)
        return topic.barrier.links(max(2, node.parameters.barrier_max), own)

    publisher._link_to_heads = link_to_some  # type: ignore[method-assign]


def _forget_requests(node: Node) -> None:
    """A request is sent once, and nothing of it is kept."""
    outbox = node.outbox
    send = outbox._send

    def send_once(asked: Any) -> None:
        if not asked.attempts:
            send(asked)

    outbox._send = send_once  # type: ignore[method-assign]
    outbox.resume = lambda *args: None  # type: ignore[method-assign]


def _write_votes_late(sequencer: Sequencer) -> None:
    """A vote is told first and written a second later: a kill in between takes it back."""

    def tell_first(then: Callable[[], None]) -> None:
        then()
        row = sequencer._vote_row()
        sequencer.turn.after(VOTE_LATE_S, lambda: sequencer._sync(row))

    sequencer._sync_vote = tell_first  # type: ignore[method-assign]


def _sequencers_are(spoil: Callable[[Sequencer], None]) -> Callable[[Any], None]:
    def prepare(node: Node) -> None:
        def make(*args: Any, **kwargs: Any) -> Sequencer:
            made = Sequencer(*args, **kwargs)
            spoil(made)
            return made

        node.seats.make_sequencer = make

    return prepare


class _BelievesAnySequencer(Topic):
    """Takes one sequencer's word for an event's place, and goes on whatever comes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.arrivals._prove = lambda *args: None  # type: ignore[method-assign]
        self.equivocation._halt = lambda *args: None  # type: ignore[method-assign]


def _believe_one(node: Node) -> None:
    node.following.topic_type = _BelievesAnySequencer
    _sequencers_are(_need_no_others)(node)
    node.seats.make_certificate = lambda sequencers, signatures: b"anything"


def _need_no_others(sequencer: Sequencer) -> None:
    """A leader lets events go with nobody's signature but its own."""
    sequencer._is_committed = lambda index: True  # type: ignore[method-assign]
    sequencer._is_signed = lambda entry, signatures: True  # type: ignore[method-assign]


class _NeverComparesContent(ContentTopic):
    """Believes that routing brings everything."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        ask = self.comparing._ask

        def ask_to_start(slot: Any) -> None:
            if not self.started:
                ask(slot)

        self.comparing._ask = ask_to_start  # type: ignore[method-assign]


def _never_compare_content(node: Node) -> None:
    node.content.topic_type = _NeverComparesContent


def _hand_nothing_over(node: Node) -> None:
    """A new home serves at once, with nothing, and the old one keeps what it has."""
    content = node.content
    content.routing.farther = lambda key, sender: None  # type: ignore[method-assign]
    content.homes.hand_over = lambda place, peer: None
    content.upkeep.hand_over = lambda place, peer: None  # type: ignore[method-assign]


class _NothingRead(FollowedTopics):
    """Forgets what its filters found."""

    def barrier_outside(self, cid: Cid) -> None:
        return None


def _link_to_nothing_read(node: Node) -> None:
    node.publisher.followed = _NothingRead(node.followed.by_content)


SAFEGUARDS: dict[str, Sabotage] = {
    "duplicate-suppression": Sabotage(
        "every copy of an event counts as new", _topics_are(_SeesEverythingAsNew)
    ),
    "frontier-comparison": Sabotage("frontiers are not compared", _topics_are(_NeverCompares)),
    "path-check": Sabotage("nobody minds attaching below itself", _topics_are(_AttachesAnywhere)),
    "outbox": Sabotage("requests are neither kept nor repeated", _forget_requests),
    "lazy-neighbours": Sabotage("nobody has lazy neighbours", _topics_are(_HasNoLazyNeighbours)),
    "cube-comparison": Sabotage(
        "members of a cube do not compare frontiers", _topics_are(_NeverComparesInCubes)
    ),
    "cube-skip": Sabotage("a cube's dead children are not skipped", _topics_are(_SendsToTheDead)),
    "hand-over": Sabotage("those who leave just leave", _topics_are(_LeavesAtOnce)),
    "causal-barrier": Sabotage(
        "nobody waits for what an event follows", _topics_are(_IgnoresBarriers)
    ),
    "merge-events": Sabotage("heads that do not fit are dropped", _drop_heads),
    "vote-sync": Sabotage(
        "votes are told before they are synced",
        _sequencers_are(_write_votes_late),
        sequencer=_write_votes_late,
    ),
    "certificates": Sabotage(
        "one sequencer's own signature is enough", _believe_one, sequencer=_need_no_others
    ),
    "content-comparison": Sabotage(
        "content subscribers do not compare with members", _never_compare_content
    ),
    "content-barrier": Sabotage(
        "what content subscribers write follows nothing that they have read", _link_to_nothing_read
    ),
    "content-hand-over": Sabotage(
        "homes of a tree's nodes hand nothing over to closer peers", _hand_nothing_over
    ),
    "disk-sync": Sabotage("the disk says it has synced when it has not", disk=DiskModel(lies=True)),
}


def find(name: str | None) -> Sabotage:
    """The sabotage that takes this safeguard away; None takes nothing away."""
    if name is None:
        return Sabotage("nothing is switched off")
    if name not in SAFEGUARDS:
        raise LocalError(f"no safeguard {name!r}; there are: {', '.join(sorted(SAFEGUARDS))}")
    return SAFEGUARDS[name]


def make_withhold(node: Node) -> None:
    """Make a running node hostile: it passes nothing on, and hides that it does not.

    It still receives, delivers, and answers every heartbeat with just the hash that the asker
    expects. Only a third party can tell its neighbours what they miss.
    """
    for topic in node.topics.values():
        _withhold(topic)
    node.following.topic_type = _Withholding


class _Withholding(Topic):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _withhold(self)


def _withhold(topic: Topic) -> None:
    answer = topic.heartbeat.receive

    def flatter(sender: PeerId, message: Status) -> None:
        if message.answer:
            topic.turn.send(
                sender,
                Status(topic.id, message.digest, topic.overlay.path_from_here(), (), False),
            )
        else:
            answer(sender, message)

    def hide(sender: PeerId, message: FrontierPage) -> None:
        """Fetch what others show, show nothing."""
        receive_page(sender, msgspec.structs.replace(message, answer=False))

    receive_page = topic.receive_page

    def forward(message: EventMessage, *, source: PeerId | None, passed_on: bool = True) -> None:
        """Swallow what comes from others; our own events may go."""
        if source is None:
            pass_on(message, source=source)

    def serve(sender: PeerId, message: FetchRange) -> None:
        topic.turn.send(sender, Range(message.request, topic.id, (), False))

    pass_on = topic.overlay.forward
    topic.heartbeat.receive = flatter  # type: ignore[method-assign]
    topic.overlay.forward = forward  # type: ignore[method-assign]
    topic.receive_page = hide  # type: ignore[method-assign]
    topic.sharing.serve = serve  # type: ignore[method-assign]
