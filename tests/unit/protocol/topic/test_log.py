"""A topic's log, with a disk that answers when the test says so."""

from collections.abc import Iterator
from random import Random
from typing import TypeVar

from pulsarcast.model.events import EventDescriptor
from pulsarcast.model.ids import Cid
from pulsarcast.protocol.effects import Deliver, Load, Persist
from pulsarcast.protocol.store import DropEvents
from pulsarcast.protocol.topic.frontier import Frontier
from pulsarcast.protocol.topic.log import TopicLog
from pulsarcast.protocol.turn import Turn
from pulsarcast.storage.memory import MemoryStore
from tests.support.people import ALICE, BOB, event_of, topic_of

TOPIC = topic_of(ALICE)
EVENTS = [event_of(ALICE, TOPIC, number) for number in range(1, 6)]

EffectT = TypeVar("EffectT", Load, Persist)


class Reader:
    """A log and its disk, for a subscriber who has acknowledged nothing."""

    def __init__(self, store: MemoryStore, *, newest: int = 0) -> None:
        self.turn = Turn(BOB, Random(1))
        self.store = store
        self.frontier = Frontier()
        self.log = TopicLog(TOPIC.topic, self.turn, None, newest=newest, subscribed=True)

    def keep(self, *events: EventDescriptor) -> None:
        """Events have their turn, and are on the disk at once."""
        for event in events:
            self._append(event)
        for effect in self._effects(Persist):
            self.store.apply(effect.writes)
            self.turn.persisted(effect.token)

    def _append(self, event: EventDescriptor) -> None:
        mark = self.frontier.add(event.publisher, *event.sequence, event.cid)
        self.log.append(
            event,
            mark,
            asked_for=True,
            certificate=b"",
            then=lambda index: self.log.deliver(index, event, 1),
        )

    def read(self) -> None:
        """The disk answers whatever it is asked."""
        for effect in self._effects(Load):
            self.turn.loaded(effect.token, self.store.answer(effect.query))

    def _effects(self, kind: type[EffectT]) -> Iterator[EffectT]:
        """Those of a kind, and those that follow from them."""
        while found := [effect for effect in self.turn.effects if isinstance(effect, kind)]:
            self.turn.effects.remove(found[0])
            yield found[0]

    @property
    def delivered(self) -> list[tuple[Cid, bool]]:
        """What the application was given, and whether it is said to be given again."""
        return [
            (effect.event.cid, effect.record.redelivery)
            for effect in self.turn.effects
            if isinstance(effect, Deliver)
        ]


def test_what_comes_during_a_replay_waits_in_the_log_for_its_turn() -> None:
    before = Reader(MemoryStore())
    before.keep(*EVENTS[:3])
    assert before.delivered == [(event.cid, False) for event in EVENTS[:3]]
    again = Reader(before.store, newest=3)
    again.log.open(replay=True)
    again.keep(EVENTS[3])
    assert not again.delivered
    again.read()
    replayed = [(event.cid, True) for event in EVENTS[:3]]
    assert again.delivered == [*replayed, (EVENTS[3].cid, False)]
    again.keep(EVENTS[4])
    assert again.delivered[4:] == [(EVENTS[4].cid, False)], "nothing is left to replay"


def test_what_comes_while_a_flush_takes_what_was_to_be_replayed_is_delivered() -> None:
    before = Reader(MemoryStore())
    before.keep(*EVENTS[:3])
    again = Reader(before.store, newest=3)
    again.log.open(replay=True)
    again.store.apply([DropEvents(TOPIC.topic, 3)])
    pages = [(each.token, again.store.answer(each.query)) for each in again._effects(Load)]
    again.keep(EVENTS[3])
    for token, page in pages:
        again.turn.loaded(token, page)
    again.read()
    assert again.delivered == [(EVENTS[3].cid, False)]
    again.keep(EVENTS[4])
    assert again.delivered[1:] == [(EVENTS[4].cid, False)]


def test_a_replay_ends_with_its_subscription() -> None:
    reader = Reader(MemoryStore())
    reader.log.subscribed = False
    reader.keep(*EVENTS[:3])
    reader.log.subscribe(0)
    reader.log.subscribed = False
    reader.read()
    assert not reader.delivered
    assert not reader.log.is_replaying
    reader.log.subscribe(0)
    reader.log.subscribed = False
    reader.log.subscribe(1)
    reader.read()
    assert reader.delivered == [(event.cid, False) for event in EVENTS[1:3]], "once"
    reader.log.subscribe(0)
    reader.log.subscribed = False
    reader.log.subscribe(3)
    reader.keep(EVENTS[3])
    reader.read()
    assert reader.delivered[2:] == [(EVENTS[3].cid, False)]
