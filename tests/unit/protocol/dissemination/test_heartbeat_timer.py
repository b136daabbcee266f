"""A heartbeat timer: how fast it beats."""

from random import Random

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dissemination.heartbeat_timer import HeartbeatTimer
from pulsarcast.protocol.dissemination.quiet_topics import QuietTopics
from pulsarcast.protocol.effects import SetTimer
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.turn import Turn
from tests.support.people import BOB

INTERVAL_S = Parameters().status_interval_s
SPREAD = 1.25


class Heart:
    """What a heartbeat timer moves."""

    topic = Cid(b"topic")

    def __init__(self) -> None:
        self.turn = Turn(BOB, Random(1))
        context = Context(self.turn, Parameters())
        self.quiet = QuietTopics(context)
        self.timer = HeartbeatTimer(context, self, self, self.quiet)
        self.held = b"something"
        self.beats = 0
        self.settled = False

    def digest(self) -> bytes:
        return self.held

    def differs_from(self, peer: PeerId, digest: bytes | None = None) -> None:
        """No heart compares anything."""

    def beat(self) -> None:
        self.beats += 1

    def is_settled(self) -> bool:
        return self.settled

    def summary(self, peer: PeerId) -> bytes:
        return self.held

    def ask(self, peer: PeerId) -> None:
        """No heart asks anybody."""

    def delay_s(self) -> float:
        """How long until the beat that was set last, which comes now."""
        timer = self.turn.effects[-1]
        assert isinstance(timer, SetTimer)
        self.turn.fired(timer.timer)
        return timer.delay_s


def test_while_nothing_changes_it_slows_down_to_a_limit() -> None:
    heart = Heart()
    heart.timer.start()
    delays_s = [heart.delay_s() for _ in range(12)]
    assert heart.beats == 12
    assert delays_s[0] <= INTERVAL_S
    assert max(delays_s) > 0.75 * Parameters().status_interval_s_max
    assert max(delays_s) <= SPREAD * Parameters().status_interval_s_max


def test_a_change_and_a_hurry_bring_it_back_to_its_normal_pace() -> None:
    heart = Heart()
    heart.timer.start()
    for _ in range(6):
        heart.delay_s()
    heart.held = b"something else"
    heart.delay_s()
    assert heart.delay_s() <= SPREAD * INTERVAL_S
    for _ in range(6):
        heart.delay_s()
    heart.timer.hurry()
    assert heart.delay_s() <= SPREAD * INTERVAL_S


def test_one_that_was_stopped_beats_no_more() -> None:
    heart = Heart()
    heart.timer.start()
    heart.timer.stop()
    heart.delay_s()
    assert heart.beats == 0
    assert not heart.timer.is_beating


def test_one_that_is_settled_falls_asleep_after_its_longest_interval() -> None:
    heart = Heart()
    heart.settled = True
    heart.timer.start()
    for beats in range(1, 5):
        assert not heart.quiet.is_asleep(heart.topic)
        heart.delay_s()
        assert heart.beats == beats
    assert heart.quiet.is_asleep(heart.topic)
    assert heart.timer.is_beating, "in its turn"


def test_a_hurry_wakes_it() -> None:
    heart = Heart()
    heart.settled = True
    heart.timer.start()
    while not heart.quiet.is_asleep(heart.topic):
        heart.delay_s()
    heart.timer.hurry()
    assert not heart.quiet.is_asleep(heart.topic)
    assert heart.delay_s() <= SPREAD * INTERVAL_S
    assert heart.beats == 5


def test_one_that_is_stopped_in_its_sleep_has_no_turn() -> None:
    heart = Heart()
    heart.settled = True
    heart.timer.start()
    while not heart.quiet.is_asleep(heart.topic):
        heart.delay_s()
    beats = heart.beats
    heart.timer.stop()
    for effect in list(heart.turn.effects):
        if isinstance(effect, SetTimer):
            heart.turn.fired(effect.timer)
    assert heart.beats == beats
    assert not heart.timer.is_beating
