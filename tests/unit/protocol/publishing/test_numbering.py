"""Our own numberings: what we say next follows what we said last, whatever becomes of an epoch."""

from functools import partial
from random import Random

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.topics import DeliveryOrder, Mark, TopicSettings
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.publishing.numbering import Numbering, Numberings
from pulsarcast.protocol.store import PutState
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, EPOCH, event_of, mark_of, topic_of

TOPIC = topic_of(ALICE, TopicSettings(open=True, order=DeliveryOrder.CAUSAL))
CAUSAL = DeliveryOrder.CAUSAL


def numberings(life: int = 1) -> Numberings:
    return Numberings(Context(Turn(ALICE, Random(life)), Parameters()))


def give(ours: Numberings) -> tuple[EventDescriptor, bytes]:
    """Give an event its number; returns it, and what our disk says from then on."""
    numbering = ours.open(TOPIC.topic, CAUSAL)
    event = event_of(ALICE, TOPIC, numbering.last + 1, epoch=numbering.epoch)
    write = ours.give(event, None)
    assert isinstance(write, PutState)
    return event, write.row.value


def test_an_epoch_that_was_given_up_comes_before_the_next() -> None:
    before, row = give(numberings())
    ours = numberings(life=2)
    ours.load(TOPIC.topic, row)
    ours.abandon(TOPIC.topic)
    new = ours.open(TOPIC.topic, CAUSAL)
    assert new.epoch != before.sequence.epoch
    assert ours.last_link(TOPIC.topic) == (mark_of(before), before.cid)
    after, _ = give(ours)
    assert ours.last_link(TOPIC.topic) == (Mark(ALICE.peer_id, new.epoch, 1), after.cid)


def test_an_epoch_that_goes_on_after_a_restart_is_linked_to() -> None:
    before, row = give(numberings())
    ours = numberings(life=2)
    ours.load(TOPIC.topic, row)
    assert ours.last_link(TOPIC.topic) == (mark_of(before), before.cid)
    assert ours.open(TOPIC.topic, CAUSAL).last == 1
    assert ours.last_link(TOPIC.topic) == (mark_of(before), before.cid)


def test_who_never_said_anything_links_to_nothing() -> None:
    ours = numberings()
    assert ours.last_link(TOPIC.topic) is None
    ours.open(TOPIC.topic, CAUSAL)
    assert ours.last_link(TOPIC.topic) is None


def test_what_others_knew_better_we_have_given_and_go_on_behind() -> None:
    before, row = give(numberings())
    epoch = before.sequence.epoch
    second, third, fourth = (event_of(ALICE, TOPIC, number, epoch=epoch) for number in (2, 3, 4))
    ours = numberings(life=2)
    ours.load(TOPIC.topic, row)
    assert not ours.remembers(second)
    ours.continue_after(TOPIC.topic, 3, third.cid)
    assert [ours.remembers(event) for event in (second, third, fourth)] == [True, True, False]
    assert ours.last_link(TOPIC.topic) == (mark_of(third), third.cid)
    assert give(ours)[0].sequence == (epoch, 4)


def test_callers_wait_for_all_numbers_before_theirs() -> None:
    numbering = Numbering(EPOCH, 3, None)
    numbering.replicating = dict.fromkeys((1, 2, 3))
    heard: list[int] = []
    for number in (1, 3):
        numbering.waiting[number] = partial(heard.append, number)
    numbering.settle((3, 2))
    assert (heard, numbering.replicated) == ([], 0)
    numbering.settle((1,))
    assert (heard, numbering.replicated) == ([1, 3], 3)
    numbering.settle((1,))
    assert heard == [1, 3], "each hears once"
