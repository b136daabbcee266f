"""One member of a cube between scripted others: what it asks them, and whom it talks to."""

from random import Random
from typing import cast

from pulsarcast.model.ids import PeerId, cid_of, peer_key
from pulsarcast.model.keys import KEY_BITS
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dht.kademlia import Kademlia
from pulsarcast.protocol.dissemination.cube import DisseminationCube
from pulsarcast.protocol.dissemination.cube_heartbeat import FAR, CubeHeartbeat
from pulsarcast.protocol.dissemination.quiet_topics import QuietTopics
from pulsarcast.protocol.effects import Send, SetTimer
from pulsarcast.protocol.messages import EventMessage, Meet, Members, Message, Status
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, identity
from tests.support.reach import reachability_of

TOPIC = cid_of(b"a topic")
PARAMETERS = Parameters(cube_nearest=1)
OTHERS = [identity(f"member {number}").peer_id for number in range(32)]


class Member:
    """The cube of the topic's author, and the little of a topic that it needs around it."""

    def __init__(self, parameters: Parameters = PARAMETERS) -> None:
        self.turn = Turn(ALICE, Random(1))
        context = Context(self.turn, parameters)
        self.counts = context.counts
        self.reachability = reachability_of(context)
        self.differing: list[PeerId] = []
        dht = cast(Kademlia, self)
        root = ALICE.peer_id
        self.cube = DisseminationCube(TOPIC, root, context, dht, self)
        self.heartbeat = CubeHeartbeat(TOPIC, context, self.cube, QuietTopics(context), self)
        self.cube.become_root()
        for other in OTHERS:
            self.cube.receive(other, Meet(TOPIC, 0, 1))
        self.sent()

    def digest(self) -> bytes:
        return bytes(16)

    def attached(self, parent: PeerId | None, digest: bytes | None) -> None:
        """Nothing to catch up with."""

    def welcome(self, child: PeerId, *, fresh: bool) -> None:
        """Nothing to show."""

    def path_changed(self) -> None:
        """Nobody to tell."""

    def lost_touch(self) -> None:
        """Nobody to ask."""

    def differs_from(self, peer: PeerId, digest: bytes | None = None) -> None:
        self.differing.append(peer)

    def overlay_left(self) -> None:
        """Nothing to forget."""

    def sent(self) -> list[tuple[PeerId, Message]]:
        """What it has said since the last look."""
        effects, self.turn.effects = self.turn.effects, []
        return [(each.peer, each.message) for each in effects if isinstance(each, Send)]


def test_a_member_asks_about_each_of_its_buckets_in_turn_and_then_about_its_own_place() -> None:
    member = Member()
    cube = member.cube
    indices = range(KEY_BITS - 1, cube.members.lowest - 1, -1)
    turns = [*map(cube.members.first_key, indices), peer_key(ALICE.peer_id)]
    keys = []
    for _ in turns:
        cube.refresh()
        ((peer, message),) = member.sent()
        assert isinstance(message, Meet)
        keys.append(message.key)
        cube.receive(peer, Members(TOPIC, ()))
        member.sent()
    assert keys == turns


def test_members_that_were_met_and_not_kept_are_asked_in_their_turn_too() -> None:
    """All members that a node keeps may have room for the node alone, where it lacks a member."""
    member = Member(Parameters(cube_nearest=1, cube_view=2, cube_bucket=1))
    assert len(member.cube.members) < len(OTHERS)
    asked = set()
    span = KEY_BITS - member.cube.members.lowest + 1
    for _ in range(span * len(OTHERS)):
        member.cube.refresh()
        ((peer, _),) = member.sent()
        asked.add(peer)
        member.cube.receive(peer, Members(TOPIC, ()))
        member.sent()
    assert asked == set(OTHERS)


def test_what_a_lost_child_may_not_have_passed_on_the_next_of_its_bucket_is_asked_for() -> None:
    member = Member()
    (_, (first, second, *_)), *_ = member.cube.members.below(KEY_BITS)
    member.cube.lost(first)
    assert member.differing == [], "it was sent nothing"
    member.cube.forward(EventMessage(b"an event", 0), source=None)
    member.cube.lost(second)
    assert member.differing == member.cube.children[:1]
    assert member.counts["child_skipped"] == 1


def test_a_beat_goes_to_the_nearest_and_a_few_far_members_unless_they_took_an_event() -> None:
    member = Member()
    children = member.cube.children
    assert len(children) > 1 + FAR, "the test is void unless there are more"
    member.heartbeat.timer.start()
    member.heartbeat.announce()
    timers = [each for each in member.turn.effects if isinstance(each, SetTimer)]
    member.sent()
    counts = []
    for timer in timers[-2:]:
        member.turn.fired(timer.timer)
        said = member.sent()
        assert all(isinstance(message, Status) for _, message in said)
        counts.append(len(said))
        member.cube.forward(EventMessage(b"an event", 0), source=None)
        member.sent()
    assert counts == [1 + FAR, len({*children, *member.cube.members.nearest(1)})]
