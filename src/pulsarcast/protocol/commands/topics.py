"""Topics: making them, naming them, and making new versions (thesis, algorithm 1)."""

from collections.abc import Callable
from typing import assert_never

from pulsarcast.model import trace
from pulsarcast.model.errors import (
    Halted,
    LocalError,
    NameInUse,
    NotAllowed,
    Refusal,
    RemoteError,
    TopicNotFound,
    Unavailable,
    caller_to_blame,
)
from pulsarcast.model.ids import cid_of, cid_text
from pulsarcast.model.mark_blocks import make_mark_blocks
from pulsarcast.model.pointers import Named, Pointer, Resolution, sign_pointer
from pulsarcast.model.topics import (
    META,
    Mark,
    NamedMarks,
    TopicDescriptor,
    check_name,
    check_same,
    create_meta_topic,
    create_topic,
    next_version,
    settled,
)
from pulsarcast.protocol.commands.announcing import Announcing
from pulsarcast.protocol.commands.commands import NO_TOPIC, Commands
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.following.following import Following
from pulsarcast.protocol.following.names import Names
from pulsarcast.protocol.following.own_listings import OwnListings
from pulsarcast.protocol.following.renewal import Renewal
from pulsarcast.protocol.inputs import (
    CreateTopic,
    MoveName,
    TopicCommand,
    UpdateTopic,
)
from pulsarcast.protocol.publishing.publisher import NONCE_BYTES
from pulsarcast.protocol.sequencing.registry import summon
from pulsarcast.protocol.topic.life import FollowReason
from pulsarcast.protocol.topic.versions import Versions, valid_until

NO_OWN_NAME = TopicNotFound(
    "the node has no name like this, and no peer that was asked knows one: check the name"
).refusal
NOT_OWN = NotAllowed("a name leads to topics of its author alone").refusal


class TopicCommands(Commands[TopicCommand]):
    """Carries out what authors ask about their topics."""

    def __init__(
        self,
        context: Context,
        following: Following,
        dht: Kademlia,
        renewal: Renewal,
        announcing: Announcing,
        listings: OwnListings,
        names: Names,
    ) -> None:
        super().__init__(context, following)
        self.dht = dht
        self.renewal = renewal
        self.announcing = announcing
        self.listings = listings
        self.names = names
        self._making: dict[str, list[CreateTopic]] = {}
        """Names that are looked up for a new topic, and the calls that wait for the outcome."""

    def carry_out(self, given: TopicCommand) -> None:
        match given:
            case CreateTopic():
                self._create(given)
            case UpdateTopic():
                self._update(given)
            case MoveName():
                self._move(given)
            case _ as unreachable:
                assert_never(unreachable)

    def _create(self, given: CreateTopic) -> None:
        """Make a topic, unless its name is in use: here, at a peer, or for a call under way."""
        check_name(given.name)
        settled(given.settings, self.turn.me)  # What is refused anyway is refused at once.
        if given.name in self._making:
            self._making[given.name].append(given)
            return
        self._making[given.name] = []
        known = self.names.own(given.name)
        if known is not None:
            self._take(given, known.pointer)
            return

        def found(resolution: Resolution | None) -> None:
            self._take(given, None if resolution is None else resolution.pointer)

        self.names.find(self.turn.me, given.name, found)

    def _take(self, given: CreateTopic, pointer: Pointer | None) -> None:
        """Take a name that is free, or say which topic has it."""
        try:
            if pointer is None:
                self._make(given)
            elif given.ensure is None:
                raise NameInUse(
                    f"the name {given.name!r} is in use: it leads to {cid_text(pointer.topic)}. "
                    "Ensure the topic to use it, or choose another name",
                    topic=cid_text(pointer.topic),
                )
            else:
                self._ensure(given, given.ensure, pointer)
        except LocalError as error:
            self._finish(given, Reply(given.call, error.refusal))

    def _finish(self, given: CreateTopic, reply: Reply) -> None:
        """Answer a call, and then those that waited for its name."""
        self.answer(reply)
        for waiting in self._making.pop(given.name):
            self.handle(waiting)

    def _make(self, given: CreateTopic) -> None:
        """Meta topic first (thesis, algorithm 1), and the name with them in one write."""
        turn = self.turn
        nonce = turn.rng.randbytes(NONCE_BYTES)
        meta = create_meta_topic(
            turn.identity,
            given.name,
            created=turn.wall_us,
            nonce=nonce,
            recovery_keys=given.settings.recovery_keys,
        )
        topic = create_topic(
            turn.identity,
            given.name,
            given.settings,
            created=turn.wall_us,
            meta=meta.cid,
            subtopics=given.subtopics,
        )
        for descriptor in (meta, topic):
            self.renewal.descriptors.keep(Versions(descriptor))
        self.names.learn(Named(self._sign(given.name, topic)))
        versions = self.renewal.descriptors.get(topic.cid)
        assert versions is not None, "it is kept"
        self._establish(given, versions, [meta.block])

    def _establish(self, given: CreateTopic, versions: Versions, blocks: list[bytes]) -> None:
        """Store a topic of the node's own, let its name lead to it, follow it, and answer."""
        topic = versions.first

        def pointed(counts: list[int]) -> None:
            self.turn.trace(
                trace.TopicCreated(
                    topic.cid,
                    topic.name,
                    topic.author,
                    topic.delivery_order,
                    topic.dissemination,
                    topic.cid,
                    topic.event_linking,
                    topic.allowed_publishers,
                    topic.retention.age_s,
                    topic.retention.count,
                    topic.retention.bytes,
                )
            )
            if topic.is_sequenced:
                summon(self.turn, versions)
            self.listings.changed(versions.current)
            block = versions.current.block
            done = Reply(given.call, cid=topic.cid, block=block, replicas=min(counts))
            # Nothing was published before: the author need not learn where it starts.
            self.following.follow(
                versions,
                FollowReason.AUTHOR,
                from_start=True,
                then=lambda: self._finish(given, done),
            )

        def stored(counts: list[int]) -> None:
            # Before the caller hears of the topic, its name leads to it.
            self._point_to(versions.current, lambda: pointed(counts))

        own = [version.block for version in versions.all()]
        self.dht.store([*blocks, *own], stored)

    def _ensure(self, given: CreateTopic, compared: tuple[str, ...], pointer: Pointer) -> None:
        """Answer with the topic that has the name, unless its settings are others."""
        cid = pointer.topic

        def found(versions: Versions | None) -> None:
            if versions is None or versions.first.author != self.turn.me:
                error = Unavailable(
                    f"the name {given.name!r} leads to {cid_text(cid)}, "
                    "and no peer that was asked has that topic: try again",
                    topic=cid_text(cid),
                )
                self._finish(given, Reply(given.call, error.refusal))
            elif pointer.cid in versions.by_cid:
                self._answer_with(given, compared, versions)
            else:
                self.renewal.descriptors.find_version(
                    cid, pointer.cid, lambda newer: renewed(versions, newer)
                )

        def renewed(versions: Versions, newer: list[TopicDescriptor]) -> None:
            try:
                for version in newer:
                    self.following.add_version(versions, version)
            except RemoteError as error:
                self.context.rejected(self.turn.me, cid, error)
            self._answer_with(given, compared, versions)

        self.renewal.descriptors.find(cid, found)

    def _answer_with(
        self, given: CreateTopic, compared: tuple[str, ...], versions: Versions
    ) -> None:
        current = versions.current
        try:
            check_same(current, given.settings, compared, given.subtopics)
        except LocalError as error:
            self._finish(given, Reply(given.call, error.refusal))
            return
        reasons = self.followed.reasons(current.topic)
        if FollowReason.AUTHOR in reasons or current.topic in self.followed.by_content:
            done = Reply(given.call, cid=current.topic, block=current.block)
            self._finish(given, done)
        else:
            # The node stopped in the middle of making it, left it, or has its key from elsewhere.
            meta = self.renewal.descriptors.get(current.subtopics[META])
            blocks = [] if meta is None else [meta.first.block]
            self.renewal.descriptors.keep(versions)
            self._establish(given, versions, blocks)

    def _move(self, given: MoveName) -> None:
        """Let a name lead to another topic: by one more move than any peer knows of."""

        def found(resolution: Resolution | None) -> None:
            if resolution is None:
                self.refuse(given.call, NO_OWN_NAME)
                return
            self.renewal.descriptors.find(given.topic, lambda each: move(resolution, each))

        def move(resolution: Resolution, versions: Versions | None) -> None:
            if versions is None:
                self.refuse(given.call, NO_TOPIC)
                return
            version = versions.current
            if version.author != self.turn.me or version.is_meta:
                self.refuse(given.call, NOT_OWN)
                return
            done = Reply(given.call, cid=version.topic, block=version.block)
            if resolution.pointer.topic == version.topic and resolution.rival is None:
                self.answer(done)
                return
            moves = resolution.pointer.moves + 1
            pointer = self._sign(given.name, version, moves)
            self._point(pointer, lambda: self.answer(done))

        self.names.find(self.turn.me, given.name, found)

    def _update(self, given: UpdateTopic) -> None:
        """Make a new version: store it, adopt it, and announce it in the meta topic."""
        topic = self.following.member(given.topic)
        current = topic.descriptor
        is_author = current.author == self.turn.me
        if not is_author and self.turn.me not in current.recovery_keys:
            raise NotAllowed("only the topic's author, or a recovery key, may make a new version")
        if self.announcing.is_held_up(topic, lambda: self.handle(given)):
            return
        if self.announcing.refusal is not None:
            raise Halted(self.announcing.refusal)
        frontier = [Mark(mark.publisher, mark.epoch, mark.high) for mark in topic.frontier.marks()]
        chosen = settled(given.settings, current.author)
        blocks: list[bytes] = []
        version = next_version(
            self.turn.identity,
            current,
            chosen,
            created=self.turn.wall_us,
            valid_until=self._name(valid_until(frontier, current, chosen), blocks),
            flushed=self._name(frontier if given.flush else [], blocks),
            subtopics=given.subtopics,
        )
        with caller_to_blame():
            topic.versions.check_sequencers(version)
            self.dht.marks.keep(blocks)
            self.renewal.adopt(topic, version)
        if is_author:  # A name is its author's: without that key it leads to the version it led to.
            self._point_to(version, lambda: None)
            self.listings.changed(version, current)
        done = Reply(given.call, cid=version.cid, block=version.block)

        def announced(refusal: Refusal | None) -> None:
            self.answer(done if refusal is None else Reply(given.call, refusal))

        self.announcing.announce(topic, version, blocks, announced)

    def _name(self, marks: list[Mark], blocks: list[bytes]) -> NamedMarks:
        """Marks as a version names them: where they are many, by an index, in further blocks."""
        if len(marks) <= self.context.parameters.version_marks:
            return tuple(marks)
        made = make_mark_blocks(
            self.turn.identity,
            marks,
            created=self.turn.wall_us,
            page_marks=self.context.parameters.version_marks,
        )
        blocks += made
        return cid_of(made[0])

    def _point_to(self, version: TopicDescriptor, then: Callable[[], None]) -> None:
        """Let every name of a topic lead to its newest version; a name that moved away stays."""
        pointers = [
            self._sign(pointer.name, version, pointer.moves)
            for pointer in self.names.own_of(version.topic)
        ]
        left = len(pointers)

        def placed() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for pointer in pointers:
            self._point(pointer, placed)
        if not pointers:
            then()

    def _point(self, pointer: Pointer, then: Callable[[], None]) -> None:
        """Keep a pointer of the node's own, and place it in the DHT."""
        self.names.learn(Named(pointer))
        named = self.names.own(pointer.name)
        assert named is not None, "it was learned"
        self.dht.put_pointer(named, lambda _: then())

    def _sign(self, name: str, version: TopicDescriptor, moves: int = 0) -> Pointer:
        number, cid, topic = version.number, version.cid, version.topic
        return sign_pointer(self.turn.identity, name, number, cid, topic=topic, moves=moves)
