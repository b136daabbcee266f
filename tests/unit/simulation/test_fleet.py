"""The fleet: commands outlive crashes, and the observer hears of every fault."""

import pytest

from pulsarcast.model import trace
from pulsarcast.model.ids import cid_of
from pulsarcast.protocol.effects import Reply
from pulsarcast.protocol.inputs import Subscribe
from pulsarcast.simulation.fleet import Answer, CommandFactory, Fleet, Unanswered
from pulsarcast.simulation.observer import Observer
from tests.unit.simulation.stage import FakeStage

TOPIC = cid_of(b"a topic")


class Scene:
    def __init__(self) -> None:
        self.stage = FakeStage()
        self.observer = Observer()
        self.notes: list[trace.Record] = []
        self.fleet = Fleet(self.stage, self.observer, note=self.notes.append)
        self.answers: list[Answer] = []
        for _ in range(3):
            self.fleet.add()

    def ask(self, index: int, *, patience_s: float | None = None) -> None:
        make: CommandFactory = lambda call: Subscribe(call, TOPIC)  # noqa: E731
        self.fleet.ask(index, make, self.answers.append, patience_s=patience_s)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_nodes_that_start_later_are_nodes_like_others(scene: Scene) -> None:
    scene.fleet.add_down(2)
    assert scene.fleet.living() == [0, 1, 2, 3, 4]
    scene.ask(4)
    scene.stage.run(1.0)
    assert [type(answer) for answer in scene.answers] == [Reply]


def test_a_living_node_answers(scene: Scene) -> None:
    scene.ask(0)
    scene.stage.run(1.0)
    assert [type(answer) for answer in scene.answers] == [Reply]


def test_a_command_that_a_crash_swallowed_is_given_again_and_answered_once(scene: Scene) -> None:
    scene.ask(0)
    scene.fleet.kill(0, down_s=5.0)
    scene.stage.run(10.0)
    assert len(scene.stage.commands) == 2
    assert len(scene.answers) == 1


def test_a_command_to_a_node_that_is_down_waits(scene: Scene) -> None:
    scene.fleet.kill(0)
    scene.ask(0)
    scene.stage.run(10.0)
    assert scene.answers == []
    scene.fleet.restart(0)
    scene.stage.run(20.0)
    assert len(scene.answers) == 1


def test_a_node_lost_for_good_answers_nothing_and_says_so(scene: Scene) -> None:
    scene.ask(0)
    scene.fleet.lose(0)
    scene.ask(0)
    assert scene.answers == [Unanswered.GONE, Unanswered.GONE]
    scene.fleet.restart(0)
    assert scene.fleet.is_gone(0)


def test_patience_runs_out_once(scene: Scene) -> None:
    scene.stage.mute = True
    scene.ask(0, patience_s=3.0)
    scene.ask(1, patience_s=3.0)
    scene.stage.run(2.0)
    scene.stage.mute = False
    scene.fleet.kill(1, down_s=0.5)
    scene.stage.run(9.0)
    assert scene.answers.count(Unanswered.LATE) == 1
    assert len(scene.answers) == 2


def test_who_took_a_node_down_first_says_when_it_is_back(scene: Scene) -> None:
    scene.fleet.kill(0, down_s=10.0, keep_disk=False)
    scene.fleet.kill(0, down_s=1.0)
    scene.stage.run(5.0)
    assert not scene.fleet.is_up(0)
    scene.stage.run(11.0)
    assert scene.fleet.is_up(0)
    assert scene.stage.done == [("kill", 0), ("wipe", 0)]


def test_the_observer_hears_of_kills_and_lost_disks(scene: Scene) -> None:
    scene.stage.run(7.0)
    scene.fleet.kill(0, down_s=1.0)
    scene.fleet.kill(1, down_s=1.0, keep_disk=False)
    scene.fleet.lose(2)
    scene.stage.run(9.0)
    assert scene.observer.killed_s == {0: 7.0, 1: 8.0, 2: 7.0}
    assert scene.observer.disk_lost_s == {1: 8.0, 2: 7.0}
    assert scene.fleet.faults == {"kill": 2, "lose": 1, "restart": 1, "restart_empty": 1}


def test_every_fault_is_in_the_drivers_trace(scene: Scene) -> None:
    scene.fleet.pause(0)
    scene.fleet.resume(0)
    scene.fleet.cut([{0}, {1, 2}])
    scene.fleet.heal()
    scene.fleet.reset(0, 1)
    scene.fleet.set_clock(1, offset_s=3.0, drift_ppm=-20.0)
    scene.fleet.disk_full(2, full=True)
    actions = [note.action for note in scene.notes if isinstance(note, trace.Fault)]
    assert actions == ["pause", "resume", "cut", "heal", "reset", "clock", "disk_full"]
