"""Liveness: who is asked, who is suspected, and who is given up."""

from collections.abc import Iterable

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.effects import DropPeer, Effect, Send, SetTimer
from pulsarcast.protocol.liveness import (
    ANSWER,
    ASK,
    BEAT_ASLEEP_S,
    BEAT_S,
    BOUND_S,
    BOUND_S_MAX,
    BOUND_S_MIN,
    GIVE_UP_S,
    LATER_S,
    SLEPT_S,
    TICK_S,
    Liveness,
)
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, BOB, peer

CAROL = peer("carol")


class Watch:
    """A node that relies on some peers, and what it hears of them."""

    def __init__(self, *peers: PeerId) -> None:
        self.turn = Turn(ALICE, None)  # type: ignore[arg-type]
        self.peers = list(peers)
        self.asleep: list[PeerId] = []
        self.silent: list[PeerId] = []
        self.woken: list[PeerId] = []
        self.given_up: list[PeerId] = []
        self.asked: list[PeerId] = []
        self.dropped: list[PeerId] = []
        self.liveness = Liveness(self.turn, self)
        for each in peers:
            self.liveness.up(each)
        self.liveness.start()

    def watched(self) -> Iterable[PeerId]:
        return self.peers

    def watched_asleep(self) -> Iterable[PeerId]:
        return self.asleep

    def fell_silent(self, peer: PeerId) -> None:
        self.silent.append(peer)

    def spoke_again(self, peer: PeerId) -> None:
        self.woken.append(peer)

    def gave_up(self, peer: PeerId) -> None:
        self.given_up.append(peer)
        self.liveness.lost(peer)

    def tick(self, after_s: float | None = None) -> None:
        """The timer fires, in time or late."""
        (timer,) = [each for each in self._take() if isinstance(each, SetTimer)]
        passed_s = timer.delay_s if after_s is None else after_s
        self.turn.now += passed_s
        self.turn.wall_us += round(passed_s * 1e6)
        self.turn.fired(timer.timer)
        for each in self.turn.effects:
            if isinstance(each, Send):
                assert each.message == ASK
                self.asked.append(each.peer)
            elif isinstance(each, DropPeer):
                self.dropped.append(each.peer)

    def _take(self) -> list[Effect]:
        effects, self.turn.effects = self.turn.effects, []
        return effects

    def run(self, seconds: float, *, answering: tuple[PeerId, ...] = ()) -> None:
        """Let time pass; some peers answer half a second after they are asked."""
        until_s = self.turn.now + seconds
        while self.turn.now < until_s:
            self.asked.clear()
            self.tick()
            for each in self.asked:
                if each in answering:
                    now, self.turn.now = self.turn.now, self.turn.now + 0.5
                    self.liveness.heard(each)
                    self.turn.now = now


def test_a_peer_that_speaks_is_not_asked() -> None:
    watch = Watch(BOB.peer_id)
    for _ in range(20):
        watch.tick()
        watch.liveness.heard(BOB.peer_id)
    assert not watch.asked
    assert not watch.silent


def test_a_quiet_peer_is_asked_and_one_that_does_not_answer_is_suspected_within_seconds() -> None:
    watch = Watch(BOB.peer_id, CAROL)
    watch.run(60.0, answering=(CAROL,))
    assert watch.silent == [BOB.peer_id]
    watch = Watch(BOB.peer_id)
    while not watch.silent:
        watch.tick()
    beat_s = BEAT_S if ALICE.peer_id < BOB.peer_id else BEAT_S + LATER_S
    assert beat_s + BOUND_S <= watch.turn.now <= beat_s + BOUND_S + 2 * TICK_S + 0.01


def test_a_peer_of_sleeping_topics_is_asked_less_often_and_suspected_all_the_same() -> None:
    watch = Watch(BOB.peer_id)
    watch.asleep = [BOB.peer_id]
    assert _asked_in_a_minute(watch) > 15  # Another topic is awake.
    watch.peers.clear()
    assert 5 < _asked_in_a_minute(watch) < 10
    watch.run(BEAT_ASLEEP_S + LATER_S + BOUND_S + 2 * TICK_S)
    assert watch.silent == [BOB.peer_id]


def _asked_in_a_minute(watch: Watch) -> int:
    asked = 0
    for _ in range(80):
        watch.run(TICK_S / 2, answering=tuple(watch.peers + watch.asleep))
        asked += len(watch.asked)
    return asked


def test_the_bound_follows_the_answers() -> None:
    watch = Watch(BOB.peer_id)
    watch.run(60.0, answering=(BOB.peer_id,))
    heard_s = watch.turn.now
    watch.liveness.heard(BOB.peer_id)
    while not watch.silent:
        watch.tick()
    beat_s = BEAT_S if ALICE.peer_id < BOB.peer_id else BEAT_S + LATER_S
    quick_s = watch.turn.now - heard_s - beat_s
    assert BOUND_S_MIN <= quick_s <= BOUND_S_MIN + 2 * TICK_S + 0.01
    assert quick_s < BOUND_S_MAX


def test_a_suspected_peer_that_speaks_is_welcome() -> None:
    watch = Watch(BOB.peer_id)
    watch.run(10.0)
    assert list(watch.liveness.suspected) == [BOB.peer_id]
    watch.liveness.heard(BOB.peer_id)
    assert watch.woken == [BOB.peer_id]
    assert not watch.liveness.suspected


def test_a_peer_that_is_silent_for_long_loses_its_connection() -> None:
    watch = Watch(BOB.peer_id)
    watch.run(GIVE_UP_S)
    assert not watch.dropped
    watch.run(10.0)
    assert watch.dropped == watch.given_up == [BOB.peer_id]
    assert not any(watch.liveness.footprint().values())


def test_a_node_that_slept_suspects_nobody() -> None:
    """Whether its timer came late, or only the wall clock shows it."""
    watch = Watch(BOB.peer_id)
    watch.run(2 * BEAT_S)
    watch.tick(after_s=3600.0)
    watch.tick()
    assert not watch.silent
    watch.turn.wall_us += round(2 * SLEPT_S * 1e6)
    for _ in range(3):
        watch.tick()
    assert not watch.silent
    watch.run(10.0)
    assert watch.silent == [BOB.peer_id]


def test_a_peer_that_is_no_longer_relied_on_is_not_asked() -> None:
    watch = Watch(BOB.peer_id)
    watch.peers.clear()
    watch.run(30.0)
    assert not watch.silent


def test_who_asks_is_answered_and_an_answer_is_not() -> None:
    watch = Watch(BOB.peer_id)
    watch.turn.effects.clear()
    watch.liveness.receive(BOB.peer_id, ASK)
    watch.liveness.receive(BOB.peer_id, ANSWER)
    assert watch.turn.effects == [Send(BOB.peer_id, ANSWER)]
