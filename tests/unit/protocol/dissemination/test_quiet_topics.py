"""Quiet topics: what two peers say of all topics in which they agree, and whose turn it is."""

from random import Random

from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.dissemination.quiet_topics import GROUP_MAX, TURN_S, QuietTopics
from pulsarcast.protocol.effects import Send, SetTimer
from pulsarcast.protocol.messages import CompareTopics
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.turn import Turn
from tests.support.people import ALICE, BOB, CAROL

INTERVAL_S = Parameters().status_interval_s_max


class Quiet:
    """A topic's heartbeats, which remember what they are told to do."""

    def __init__(self, name: str, says: bytes = b"the same") -> None:
        self.topic: Cid = cid_of(name.encode())
        self.says = says
        self.asked: list[PeerId] = []
        self.beats = 0

    def summary(self, peer: PeerId) -> bytes:
        return self.says

    def ask(self, peer: PeerId) -> None:
        self.asked.append(peer)

    def beat(self) -> None:
        self.beats += 1


class Side:
    """The quiet topics of one node, and its driver."""

    def __init__(self, *names: str, peer: PeerId = BOB.peer_id, who: int = 1) -> None:
        self.turn = Turn(ALICE, Random(who))
        self.quiet = QuietTopics(Context(self.turn, Parameters()))
        self.topics = {name: Quiet(name) for name in names}
        self.peer = peer
        for topic in self.topics.values():
            self.quiet.agree(peer, topic)
            self.quiet.sleep(topic)

    def sent(self) -> list[tuple[PeerId, CompareTopics]]:
        """What was sent since the last look."""
        found = [each for each in self.turn.effects if isinstance(each, Send)]
        self.turn.effects = [each for each in self.turn.effects if not isinstance(each, Send)]
        messages = [(each.peer, each.message) for each in found]
        return [(peer, m) for peer, m in messages if isinstance(m, CompareTopics)]

    def pass_time(self, duration_s: float) -> None:
        """Fire every timer that falls due, in order."""
        until_s = self.turn.now + duration_s
        due: list[tuple[float, int]] = []
        while True:
            timers = [each for each in self.turn.effects if isinstance(each, SetTimer)]
            due += [(self.turn.now + each.delay_s, each.timer) for each in timers]
            self.turn.effects = [e for e in self.turn.effects if not isinstance(e, SetTimer)]
            due.sort()
            if not due or due[0][0] > until_s:
                break
            self.turn.now, timer = due.pop(0)
            self.turn.fired(timer)
        self.turn.now = until_s
        self.turn.effects += [SetTimer(timer, at_s - until_s) for at_s, timer in due]

    @property
    def asked(self) -> set[str]:
        return {name for name, topic in self.topics.items() if topic.asked}


def beat(one: Side, other: Side) -> None:
    """One of two peers has its heartbeat, and the other answers."""
    while not (sent := one.sent()):
        one.pass_time(INTERVAL_S / 8)
    ((_, message),) = sent
    assert message.answer
    other.quiet.receive(ALICE.peer_id, message)
    ((_, answer),) = other.sent()
    one.quiet.receive(one.peer, answer)


NAMES = tuple(f"topic {number}" for number in range(1000))


def two(*names: str) -> tuple[Side, Side]:
    """Two peers that agree in some topics."""
    return Side(*names), Side(*names, peer=ALICE.peer_id, who=2)


def test_two_that_agree_say_one_message_each_for_all_their_topics() -> None:
    one, other = two(*NAMES[:GROUP_MAX])
    beat(one, other)
    assert not one.asked | other.asked
    assert not one.sent() + other.sent()
    assert one.quiet.agrees(BOB.peer_id, one.topics["topic 0"].topic)


def test_a_topic_in_which_they_differ_is_compared_with_its_group_and_with_no_other() -> None:
    one, other = two(*NAMES)
    one.topics["topic 7"].says = b"something else"
    beat(one, other)
    assert "topic 7" in one.asked
    assert one.asked == other.asked
    assert len(one.asked) < 3 * GROUP_MAX
    assert not one.quiet.agrees(BOB.peer_id, one.topics["topic 7"].topic)
    agreeing = [topic for name, topic in one.topics.items() if name not in one.asked]
    assert all(one.quiet.agrees(BOB.peer_id, topic.topic) for topic in agreeing)


def test_a_topic_that_only_one_of_them_has_is_found_by_both() -> None:
    one, other = two("a", "b")
    other.quiet.disagree(ALICE.peer_id, other.topics["b"].topic)
    beat(one, other)
    assert one.asked == {"a", "b"}
    assert other.asked == {"a"}, "of b it does not know that it should agree"


def test_topics_are_split_into_groups_as_their_number_grows() -> None:
    for count, groups in ((1, 1), (GROUP_MAX, 1), (GROUP_MAX + 1, 2), (1000, 16)):
        one, other = two(*NAMES[:count])
        while not (sent := one.sent()):
            one.pass_time(INTERVAL_S / 8)
        assert len(sent[0][1].hashes) == 16 * groups, count
        other.quiet.receive(ALICE.peer_id, sent[0][1])
        assert not other.asked


def test_whoever_was_just_compared_with_has_no_heartbeat_of_its_own() -> None:
    one, other = two("a")
    for _ in range(20):
        sides = [one, other]
        for side in sides:
            side.pass_time(INTERVAL_S / 8)
            if sent := side.sent():
                peer = sides[1 - sides.index(side)]
                peer.quiet.receive(peer.peer, sent[0][1])
                ((_, answer),) = peer.sent()
                side.quiet.receive(side.peer, answer)
                other.turn.now = one.turn.now = max(one.turn.now, other.turn.now)
    compared = one.quiet.heard_s(BOB.peer_id, one.topics["a"].topic)
    assert compared > 0
    assert one.turn.now - compared <= 1.25 * 2 * INTERVAL_S


def test_only_whoever_was_asked_can_answer() -> None:
    one = Side("a")
    one.quiet.receive(BOB.peer_id, CompareTopics(bytes(16), answer=False))
    assert not one.asked
    assert one.quiet.agrees(BOB.peer_id, one.topics["a"].topic)


def test_a_peer_that_says_nonsense_again_and_again_makes_the_node_ask_once() -> None:
    one = Side(*NAMES[:100])
    for _ in range(50):
        one.quiet.receive(BOB.peer_id, CompareTopics(bytes(16 * 256), answer=True))
    assert all(len(topic.asked) == 1 for topic in one.topics.values())
    assert len(one.sent()) == 50, "one answer for each"


def test_a_stranger_is_answered_and_not_remembered() -> None:
    one = Side("a")
    before = one.quiet.footprint()
    for number in range(100):
        stranger = PeerId(b"stranger %d" % number)
        one.quiet.receive(stranger, CompareTopics(bytes(16), answer=True))
    assert len(one.sent()) == 100
    assert one.quiet.footprint() == before


def test_a_topic_that_changes_is_compared_by_itself() -> None:
    one, other = two("a", "b")
    one.quiet.changed(one.topics["a"].topic)
    other.quiet.changed(other.topics["a"].topic)
    beat(one, other)
    assert not one.asked | other.asked


def test_a_connection_that_ends_takes_its_agreements_with_it() -> None:
    one = Side("a")
    one.quiet.agree(CAROL.peer_id, one.topics["a"])
    one.quiet.lost(BOB.peer_id)
    assert not one.quiet.agrees(BOB.peer_id, one.topics["a"].topic)
    assert one.quiet.agrees(CAROL.peer_id, one.topics["a"].topic)
    assert list(one.quiet.watched()) == [CAROL.peer_id]
    one.quiet.end(one.topics["a"].topic)
    assert not list(one.quiet.watched())
    one.pass_time(5 * INTERVAL_S)
    assert not one.sent()
    assert one.quiet.footprint() == {"pairs": 0, "agreed": 0, "asleep": 0}


def test_topics_that_are_awake_need_no_heartbeat_of_their_pair() -> None:
    one = Side("a")
    one.quiet.wake(one.topics["a"].topic)
    one.pass_time(5 * INTERVAL_S)
    assert not one.sent()


def test_each_sleeping_topic_has_its_turn_and_a_thousand_cost_no_more_than_ten() -> None:
    few, many = Side(*NAMES[:10]), Side(*NAMES)
    for side in (few, many):
        side.pass_time(1.25 * INTERVAL_S)
        side.pass_time(20 * TURN_S)
    assert all(topic.beats for topic in few.topics.values())
    beats = [sum(topic.beats for topic in side.topics.values()) for side in (few, many)]
    assert 15 <= beats[1] <= 40
    assert abs(beats[0] - beats[1]) <= 8


def test_one_sleeping_topic_beats_as_often_as_before() -> None:
    one = Side("a")
    one.pass_time(10 * INTERVAL_S)
    assert 7 <= one.topics["a"].beats <= 14
