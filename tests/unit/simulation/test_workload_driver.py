"""The workload driver: the thesis' three acts, retries, and what faults hang on to."""

from random import Random

import pytest

from pulsarcast.model import trace
from pulsarcast.model.errors import LocalError
from pulsarcast.model.topic_types import DeliveryOrder
from pulsarcast.model.workload import Workload, WorkloadEvent, WorkloadTopic, WorkloadUser
from pulsarcast.protocol.inputs import CreateTopic, Publish, Subscribe
from pulsarcast.simulation.applications import ATTEMPTS, Applications, settings_for
from pulsarcast.simulation.faults import PLANS
from pulsarcast.simulation.fleet import Fleet
from pulsarcast.simulation.observer import Observer
from pulsarcast.simulation.synthetic import make_workload
from pulsarcast.simulation.workload_driver import CONCURRENCY, PAUSE_S, WorkloadDriver
from tests.unit.simulation.planted import peer
from tests.unit.simulation.stage import ANSWER_S, FakeStage

WORKLOAD = Workload(
    [WorkloadTopic("a", "node-1", 3), WorkloadTopic("b", "node-2", 2)],
    [
        WorkloadUser("u1", "node-1", [WorkloadEvent(0, "a", 1), WorkloadEvent(3, "b", 1)], ["a"]),
        WorkloadUser("u2", "node-2", [WorkloadEvent(1, "a", 1)], ["a", "b"]),
        WorkloadUser("u3", "node-3", [WorkloadEvent(2, "a", 1), WorkloadEvent(4, "b", 1)], ["b"]),
    ],
)


class Scene:
    def __init__(self, workload: Workload = WORKLOAD, *, nodes: int = 3, **options: int) -> None:
        self.stage = FakeStage()
        self.notes: list[trace.Record] = []
        self.observer = Observer()
        self.fleet = Fleet(self.stage, self.observer)
        self.applications = Applications(self.fleet, replicas=3, note=self.notes.append)
        for _ in range(nodes):
            self.fleet.add()
        events_max = options.get("events_max")
        self.driver = WorkloadDriver(
            self.applications, workload, rng=Random(1), events_max=events_max
        )

    def play(self) -> None:
        self.driver.create_topics()
        self.stage.run(self.stage.now + 10.0)
        self.driver.subscribe()
        self.stage.run(self.stage.now + 10.0)
        self.driver.publish()

    def given(self, kind: type) -> list[tuple[int, object]]:
        return [(index, c) for _, index, c in self.stage.commands if isinstance(c, kind)]


def test_topics_come_first_then_subscriptions_then_events() -> None:
    scene = Scene()
    scene.play()
    scene.stage.run(100.0)
    kinds = [type(command) for _, _, command in scene.stage.commands]
    assert kinds[:2] == [CreateTopic, CreateTopic]
    assert set(kinds[2:6]) == {Subscribe}
    assert kinds[6:] == [Publish] * 5
    assert scene.driver.done("publish")
    assert scene.driver.answered == scene.applications.acknowledged == 5
    assert scene.applications.levels == {"replicated": 5}


def test_each_users_events_wait_for_one_another() -> None:
    scene = Scene()
    scene.play()
    scene.stage.run(100.0)
    times = [at for at, index, c in scene.stage.commands if index == 0 and isinstance(c, Publish)]
    assert times[1] - times[0] == pytest.approx(ANSWER_S + PAUSE_S)


def test_five_users_publish_at_a_time() -> None:
    users = [
        WorkloadUser(f"u{n}", f"node-{n}", [WorkloadEvent(n, "a", 0)], ["a"]) for n in range(1, 13)
    ]
    scene = Scene(Workload(WORKLOAD.topics[:1], users), nodes=12)
    scene.play()
    assert len(scene.given(Publish)) == CONCURRENCY
    scene.stage.run(100.0)
    assert len(scene.given(Publish)) == 12


def test_the_drivers_trace_says_what_was_injected_and_acknowledged() -> None:
    scene = Scene()
    scene.play()
    scene.stage.run(100.0)
    injected = sorted(n.injection for n in scene.notes if isinstance(n, trace.Injected))
    acknowledged = sorted(
        str(n.injection) for n in scene.notes if isinstance(n, trace.Acknowledged)
    )
    assert injected == acknowledged == ["0", "1", "2", "3", "4"]


def test_a_refusal_is_tried_five_times_with_the_same_key() -> None:
    scene = Scene()
    scene.play()
    scene.stage.errors = ["no"] * (ATTEMPTS - 1)
    scene.stage.run(200.0)
    assert scene.applications.retries == ATTEMPTS - 1
    assert scene.applications.refused == {}
    keys = {c.idempotency_key for _, c in scene.given(Publish) if isinstance(c, Publish)}
    assert len(keys) == 5


def test_what_is_refused_five_times_is_given_up_and_counted() -> None:
    scene = Scene()
    scene.play()
    scene.stage.errors = ["no"] * 100
    scene.stage.run(500.0)
    assert scene.driver.done("publish")
    assert scene.applications.refused == {"invalid": 5}


def test_events_of_a_lost_node_are_dropped_and_counted() -> None:
    scene = Scene()
    scene.play()
    scene.fleet.lose(2)
    scene.stage.run(100.0)
    assert scene.driver.done("publish")
    assert scene.driver.dropped == 1
    assert scene.applications.refused == {"the node is lost for good": 1}


def test_a_node_that_lost_its_disk_is_subscribed_again() -> None:
    scene = Scene()
    scene.play()
    scene.fleet.kill(1, down_s=1.0, keep_disk=False)
    before = len(scene.given(Subscribe))
    scene.stage.run(100.0)
    again = scene.given(Subscribe)[before:]
    assert [index for index, _ in again] == [1, 1]


def test_only_the_first_events_are_taken() -> None:
    scene = Scene(events_max=2)
    scene.play()
    scene.stage.run(100.0)
    payloads = [c.payload for _, c in scene.given(Publish) if isinstance(c, Publish)]
    assert sorted(payloads) == [b'{"internalId":0,"ups":1}', b'{"internalId":1,"ups":1}']


def test_what_is_due_follows_from_the_workload() -> None:
    # Topic a: 3 events for nodes 1 and 2; topic b: 2 events for nodes 2 and 3.
    assert Scene().driver.expected_due() == 10


def test_triggers_are_pulled_in_the_course_of_the_load() -> None:
    pulled: list[int] = []
    scene = Scene()
    for share in (1.0, 0.4):
        scene.driver.at_share(share, lambda: pulled.append(scene.driver.answered))
    scene.play()
    scene.stage.run(100.0)
    assert pulled == [2, 5]


def test_a_node_without_a_number_is_refused() -> None:
    with pytest.raises(LocalError, match="somewhere"):
        Scene().driver.node("somewhere")


@pytest.mark.parametrize(
    ("plan", "done"),
    [
        ("none", []),
        ("root-lost", [("lose", 0)]),
        ("root-restarted", [("kill", 0), ("restart", 0)]),
        ("partition", [("cut", 2), ("heal", 0)]),
    ],
)
def test_fault_plans_do_what_their_names_say(plan: str, done: list[tuple[str, int]]) -> None:
    scene = Scene()
    PLANS[plan](scene.fleet, scene.driver, Random(1))
    scene.play()
    scene.stage.run(300.0)
    assert scene.stage.done == done


def test_restarts_take_thirty_per_cent_of_the_nodes_down_and_bring_them_back() -> None:
    scene = Scene(make_workload(Random(1), nodes=20, events=200), nodes=20)
    PLANS["restarts"](scene.fleet, scene.driver, Random(1))
    scene.play()
    scene.stage.run(1000.0)
    actions = [action for action, _ in scene.stage.done]
    assert actions.count("kill") == actions.count("restart") == 6
    assert scene.driver.done("publish")


def test_a_total_order_has_its_creator_as_sequencer_and_takes_requests() -> None:
    settings = settings_for("total", peer(1))
    assert settings.order is DeliveryOrder.TOTAL
    assert settings.publishers == settings.sequencers == (peer(1),)
    assert settings.request_to_publish
    assert settings_for("none", peer(1)).open


def test_a_made_up_workload_is_whole() -> None:
    workload = make_workload(Random(3), nodes=10, events=500)
    events = [event for user in workload.users for event in user.events]
    assert sorted(event.internal_id for event in events) == list(range(500))
    assert sum(topic.event_count for topic in workload.topics) == 500
    for user in workload.users:
        assert {event.topic for event in user.events} == set(user.subscriptions)
