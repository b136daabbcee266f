"""The intake on its own: which queue takes a request, and which wait for a fenced numbering."""

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsarcast.model.events import decode_request
from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dissemination.quiet_topics import QuietTopics
from pulsarcast.protocol.messages import RequestToPublish
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.sequencing import intake
from pulsarcast.protocol.sequencing.intake import RequestIntake
from pulsarcast.protocol.topic.followed import FollowedTopics
from pulsarcast.protocol.topic.work import AtWork
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, BOB, request_of, topic_of

DESCRIPTOR = topic_of(ALICE)
TOPIC = DESCRIPTOR.cid


class Queues:
    """The queue of the publisher, and those of the sequencers."""

    def __init__(self) -> None:
        self.published: list[int] = []
        self.sequenced: list[int] = []

    def receive(self, sender: PeerId, message: RequestToPublish, topic: object) -> None:
        self.published.append(number_of(message))

    def receive_request(self, sender: PeerId, topic: Cid, message: RequestToPublish) -> None:
        self.sequenced.append(number_of(message))


class Fence:
    """A fence that the test opens."""

    def __init__(self) -> None:
        self.numberings = SimpleNamespace(refusal=None)
        self.is_closed = False
        self.later: list[Callable[[], None]] = []

    def is_fenced(self, topic: Cid) -> bool:
        return self.is_closed

    def waiting_count(self, topic: Cid) -> int:
        return len(self.later)

    def confirm(self, descriptor: object, topic: object, then: Callable[[], None]) -> None:
        self.later.append(then)

    def open(self) -> None:
        self.is_closed = False
        later, self.later = self.later, []
        for then in later:
            then()


class Rig:
    """An intake and what it is given."""

    def __init__(self) -> None:
        context = Context(Turn(ALICE, Random(1)), Parameters(requests_held_max=4))
        self.queues, self.fencing = Queues(), Fence()
        self.topic = SimpleNamespace(
            id=TOPIC,
            descriptor=DESCRIPTOR,
            is_sequenced=False,
            started=True,
            is_behind_its_log=False,
        )
        followed = FollowedTopics({}, QuietTopics(context), AtWork(context.turn))
        followed.members[TOPIC] = cast(Any, self.topic)
        queues = cast(Any, self.queues)
        self.intake = RequestIntake(context, followed, cast(Any, self.fencing), queues, queues)

    def hear(self, *numbers: int) -> None:
        for number in numbers:
            block = request_of(BOB, TOPIC, number).block
            self.intake.receive(BOB.peer_id, RequestToPublish(block, False, 0))


def number_of(message: RequestToPublish) -> int:
    return decode_request(message.block).request.sequence.number


def test_the_sequencers_of_a_topic_take_its_requests() -> None:
    rig = Rig()
    rig.hear(1)
    rig.topic.is_sequenced = True
    rig.hear(2)
    rig.intake.followed.members.clear()
    rig.hear(3)
    assert (rig.queues.published, rig.queues.sequenced) == ([1], [2, 3])


@pytest.mark.parametrize("lacks", ["started", "history", "numbering"])
def test_a_node_that_cannot_publish_leaves_requests_without_an_answer(lacks: str) -> None:
    rig = Rig()
    rig.topic.started = lacks != "started"
    rig.topic.is_behind_its_log = lacks == "history"
    rig.fencing.numberings.refusal = "two nodes have this key" if lacks == "numbering" else None
    rig.hear(1)
    assert not rig.queues.published
    assert not rig.fencing.later


def test_requests_wait_while_a_numbering_is_fenced_and_are_bounded_in_count() -> None:
    rig = Rig()
    rig.fencing.is_closed = True
    rig.hear(*range(1, 9))
    assert not rig.queues.published
    rig.fencing.open()
    assert rig.queues.published == [1, 2, 3, 4]


def test_requests_that_wait_while_a_numbering_is_fenced_are_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = len(request_of(BOB, TOPIC, 1).block)
    monkeypatch.setattr(intake, "FENCED_BYTES_MAX", 2 * size)
    rig = Rig()
    for numbers in ((1, 2, 3), (4, 5, 6)):
        rig.fencing.is_closed = True
        rig.hear(*numbers)
        rig.fencing.open()
    assert rig.queues.published == [1, 2, 4, 5]
