"""Nodes whose disk went back in time, and nodes that there are two of (decision 0014)."""

from collections.abc import Callable

import msgspec
import pytest

from pulsarcast.model import trace
from pulsarcast.model.errors import Halted, Refusal, Rejection
from pulsarcast.model.ids import Cid
from pulsarcast.protocol.inputs import Now, Publish
from pulsarcast.protocol.store import RESTORED, PutState
from pulsarcast.simulation.applications import settings_for
from pulsarcast.simulation.links import Constant
from pulsarcast.simulation.options import load
from pulsarcast.simulation.results import Result
from pulsarcast.simulation.run import Run
from tests.support.lab import Lab

NODES = 10
AUTHOR, MEMBER, VISITOR = 0, 1, 2
BEFORE, SINCE, AFTER = 3, 20, 5


class Play:
    """A run with one topic that everyone but one follows."""

    def __init__(self, order: str, seed: int = 1) -> None:
        options = msgspec.structs.replace(load("tree"), seed=seed, through_wire=True)
        self.run = Run(options, links=Constant(0.02))
        self.published: list[trace.Published] = []
        self.replies: list[Cid | None] = []
        self._injections = 0
        observe = self.run.observer.record

        def observed(
            time_s: float, index: int, incarnation: int, now: Now, record: trace.Record
        ) -> None:
            if isinstance(record, trace.Published):
                self.published.append(record)
            observe(time_s, index, incarnation, now, record)

        self.run.observer.record = observed  # type: ignore[method-assign]
        self.run.join(NODES, settle_s=20.0)
        self.topics: list[Cid] = []
        settings = settings_for(order, self.run.world.peer(AUTHOR))
        self.run.applications.create(AUTHOR, "news", settings, self._created)
        self.until(lambda: bool(self.topics))
        for index in range(NODES):
            if index != VISITOR:
                self.run.applications.subscribe(index, self.topic)
        self.wait(30.0)

    def _created(self, topic: Cid | None) -> None:
        assert topic is not None
        self.topics.append(topic)

    @property
    def topic(self) -> Cid:
        return self.topics[0]

    def wait(self, seconds: float) -> None:
        self.run.world.run(self.run.world.now + seconds)

    def until(self, condition: Callable[[], bool], s_max: float = 300.0) -> None:
        assert self.run.world.run_until(condition, self.run.world.now + s_max)

    def publish(self, index: int, count: int, *, replicated: bool = True) -> None:
        """Publish events one after the other, and wait for all answers."""
        wanted = len(self.replies) + count
        for _ in range(count):
            self.start(index, replicated=replicated)
            self.wait(0.5)
        self.until(lambda: len(self.replies) == wanted)

    def start(self, index: int, *, replicated: bool = False) -> None:
        """Publish and do not wait."""
        self._injections += 1
        self.run.applications.publish(
            index,
            self.topic,
            b"%d" % self._injections,
            injection=str(self._injections),
            then=self.replies.append,
            replicated=replicated,
        )

    def epochs(self, index: int) -> list[int]:
        """The epochs that a node has used, in order."""
        peer = self.run.world.peer(index)
        ours = [each.epoch for each in self.published if each.publisher == peer]
        return list(dict.fromkeys(ours))

    def end(self) -> Result:
        self.run.settle()
        assert None not in self.replies, "everything was accepted"
        return self.run.result()


def go_back(play: Play, index: int) -> None:
    """Publish, copy the disk, publish on, stop, and start again from the copy."""
    play.publish(index, BEFORE)
    play.wait(5.0)
    copy = play.run.fleet.copy_disk(index)
    play.publish(index, SINCE)
    play.run.fleet.kill(index)
    play.wait(2.0)
    play.run.fleet.roll_back(index, copy)


@pytest.mark.parametrize("index", [AUTHOR, MEMBER, VISITOR], ids=["author", "member", "visitor"])
@pytest.mark.parametrize("order", ["none", "per-publisher"])
def test_a_node_whose_disk_went_back_gives_no_number_twice(order: str, index: int) -> None:
    play = Play(order)
    go_back(play, index)
    play.publish(index, AFTER)
    result = play.end()
    assert result.ok, result.details
    assert (result.due, result.lost_acknowledged) == (result.delivered, 0)
    assert len(play.epochs(index)) == 2


def test_a_sequencer_whose_disk_went_back_goes_on_behind_what_it_forgot() -> None:
    play = Play("total")
    go_back(play, AUTHOR)
    play.publish(AUTHOR, AFTER)
    play.publish(MEMBER, AFTER)
    result = play.end()
    assert result.ok, result.details
    assert (result.due, result.lost_acknowledged) == (result.delivered, 0)
    assert len(play.epochs(AUTHOR)) == 1
    numbers = {each.number for each in play.published if each.topic == play.topic}
    assert numbers == set(range(1, BEFORE + SINCE + 2 * AFTER + 1))


@pytest.mark.parametrize("index", [AUTHOR, MEMBER, VISITOR], ids=["author", "member", "visitor"])
@pytest.mark.parametrize("order", ["none", "per-publisher"])
def test_nor_does_it_where_nobody_can_be_asked(order: str, index: int) -> None:
    play = Play(order)
    play.publish(index, BEFORE)
    play.wait(5.0)
    copy = play.run.fleet.copy_disk(index)
    play.publish(index, SINCE)
    play.run.fleet.kill(index)
    play.run.fleet.cut([{index}])
    play.run.fleet.roll_back(index, copy)
    play.publish(index, AFTER, replicated=False)
    play.run.fleet.heal()
    result = play.end()
    assert result.ok, result.details
    assert (result.due, result.lost_acknowledged) == (result.delivered, 0)
    assert len(play.epochs(index)) == 2


def test_a_restored_sequencer_waits_until_somebody_can_be_asked() -> None:
    play = Play("total")
    play.publish(AUTHOR, BEFORE)
    play.wait(5.0)
    copy = play.run.fleet.copy_disk(AUTHOR)
    copy.disk.apply([PutState(RESTORED)])
    play.publish(AUTHOR, SINCE)
    play.run.fleet.kill(AUTHOR)
    play.run.fleet.cut([{AUTHOR}])
    play.run.fleet.roll_back(AUTHOR, copy)
    play.start(AUTHOR)
    play.wait(120.0)
    assert len(play.replies) == BEFORE + SINCE, "nobody has answered yet"
    assert RESTORED in play.run.world.store(AUTHOR).rows()
    play.run.fleet.heal()
    play.until(lambda: len(play.replies) == BEFORE + SINCE + 1)
    result = play.end()
    assert result.ok, result.details
    assert len(play.epochs(AUTHOR)) == 1
    assert RESTORED not in play.run.world.store(AUTHOR).rows()


def test_an_ordinary_restart_goes_on_in_its_epoch_and_soon() -> None:
    play = Play("per-publisher")
    for index in (AUTHOR, MEMBER, VISITOR):
        play.publish(index, BEFORE)
        play.wait(5.0)
        play.run.fleet.kill(index)
        play.wait(1.0)
        play.run.fleet.restart(index)
        begin_s = play.run.world.now
        wanted = len(play.replies) + 1
        play.start(index)
        play.until(lambda wanted=wanted: len(play.replies) == wanted)  # type: ignore[misc]
        assert play.run.world.now - begin_s <= 2.0
    result = play.end()
    assert result.ok, result.details
    for index in (AUTHOR, MEMBER, VISITOR):
        assert len(play.epochs(index)) == 1


# Two nodes with one key.


class Twins:
    """A lab with a member that there are two of."""

    def __init__(self, *, published_since: int, seed: int = 1) -> None:
        self.lab = lab = Lab(8, seed=seed)
        self.topic = lab.create(0)
        lab.subscribe([1, 2, 3], self.topic)
        for number in range(BEFORE):
            lab.publish(1, self.topic, b"before %d" % number)
        disk = lab.world.store(1).copy()
        for number in range(published_since):
            lab.publish(1, self.topic, b"since %d" % number)
        self.clone = lab.world.add_clone(1, disk)

    def publish_at_once(self) -> list[list[object]]:
        """Both publish, again and again; returns what each was told."""
        told: dict[int, list[object]] = {1: [], self.clone: []}
        self.lab.run(1.0)
        for number in range(10):
            for index, replies in told.items():
                payload = b"%d from %d" % (number, index)
                self.lab.world.command(
                    index,
                    lambda call, payload=payload: Publish(call, self.topic, payload),  # type: ignore[misc]
                    lambda reply, replies=replies: replies.append(reply.refusal),  # type: ignore[misc]
                )
            self.lab.run(20.0)
        return list(told.values())

    def doubles(self) -> int:
        """Numbers that were given twice."""
        places: dict[tuple[int, int], set[Cid]] = {}
        for record in self.lab.records(trace.Published):
            if record.topic == self.topic:
                places.setdefault((record.epoch, record.number), set()).add(record.event)
        return sum(len(events) - 1 for events in places.values())


def test_a_clone_of_a_node_that_has_gone_on_takes_a_numbering_of_its_own() -> None:
    # In every other world one of the two stops before the other has met its events.
    twins = Twins(published_since=5, seed=2)
    told = twins.publish_at_once()
    assert twins.doubles() == 0
    for index in (1, twins.clone):
        assert Rejection.KEY_IN_USE in twins.lab.reasons(index)
    for errors in told:
        assert errors[0] is None
        assert isinstance(errors[-1], Refusal), "the application hears of it"
        assert errors[-1].code == Halted.code


def test_two_clones_that_begin_alike_give_few_numbers_twice_before_one_of_them_stops() -> None:
    """What cannot be avoided: they know the same and hear the same, until their events meet."""
    twins = Twins(published_since=0)
    told = twins.publish_at_once()
    assert 1 <= twins.doubles() <= 2
    stopped = [errors for errors in told if errors[-1] is not None]
    assert stopped, "and whoever is left is the only one"


def test_a_node_that_is_started_again_after_it_met_its_clone_publishes_in_a_new_epoch() -> None:
    twins = Twins(published_since=0)
    twins.publish_at_once()
    lab = twins.lab
    (met,) = [index for index in (1, twins.clone) if Rejection.KEY_IN_USE in lab.reasons(index)]
    before = {record.epoch for record in lab.records(trace.Published, met)}
    lab.world.kill(1)
    lab.world.kill(twins.clone)
    lab.world.restart(met)
    event = lab.event(lab.publish(met, twins.topic, b"again", replicated=False, settle_s=60.0))
    assert event.sequence.number == 1
    assert event.sequence.epoch not in before
    assert event.cid in lab.delivered(2, twins.topic)


def test_late_events_of_an_earlier_life_are_no_proof_of_a_clone() -> None:
    lab = Lab(6)
    topic = lab.create(0)
    lab.subscribe([1, 2, 3], topic)
    lab.world.cut([{1, 2}])
    lab.run(60.0)
    late = lab.publish(1, topic, b"only one other has it", replicated=False)
    assert late in lab.delivered(2, topic)
    lab.world.kill(1)
    lab.world.cut([{2}])
    lab.world.restart(1, keep_disk=False)
    lab.run(20.0)
    lab.subscribe([1], topic)
    lab.world.heal()
    lab.run(60.0)
    assert late in lab.delivered(1, topic)
    assert lab.reasons(1) == [Rejection.UNKNOWN_OWN_EVENT]
    reply = lab.ask(1, lambda call: Publish(call, topic, b"new"))
    assert reply.refusal is None
