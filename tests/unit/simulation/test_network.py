"""How connections open, carry and end (design 4: ordered messages, peer up and down)."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarcast.model.identity import Identity
from pulsarcast.protocol.effects import DropPeer, Send
from pulsarcast.protocol.inputs import MessageReceived, PeerLost, PeerUp, Start
from pulsarcast.simulation.lines import WRITE_BYTES
from pulsarcast.simulation.links import Constant, Jittered
from tests.unit.simulation.puppets import Strings, number_of, word

# Opening.


def test_the_first_message_waits_for_a_round_trip_and_both_ends_are_told_before() -> None:
    strings = Strings(2)
    strings.say(0, 1, 7)
    strings.world.run(1.0)
    assert strings.told(0) == [(0.2, "+1")]
    assert strings.told(1) == [(0.1, "+0"), (0.3, "0:7")]


def test_later_messages_take_one_latency() -> None:
    strings = Strings(2)
    strings.connect(0, 1)
    strings.say(0, 1, 7)
    strings.say(1, 0, 8)
    strings.world.run(2.0)
    assert strings.told(1) == [(1.1, "0:7")]
    assert strings.told(0) == [(1.1, "1:8")]


def test_two_who_dial_each_other_at_once_get_one_connection() -> None:
    strings = Strings(2)
    strings.say(0, 1, 7)
    strings.say(1, 0, 8)
    strings.world.run(1.0)
    assert [told for _, told in strings.told(0)] == ["+1", "1:8"]
    assert [told for _, told in strings.told(1)] == ["+0", "0:7"]


def test_whoever_was_dialled_may_speak_before_the_dialler() -> None:
    strings = Strings(2)
    strings.answer = lambda puppet, given, now: (
        [Send(given.contact.peer, word(9))] if isinstance(given, PeerUp) else []
    )
    strings.say(0, 1, 7)
    strings.world.run(1.0)
    assert strings.told(0) == [(0.2, "+1"), (0.2, "1:9")]
    assert strings.told(1) == [(0.1, "+0"), (0.3, "0:7"), (0.3, "0:9")]


def test_a_dial_to_a_dead_node_fails_after_a_round_trip() -> None:
    strings = Strings(2)
    strings.world.kill(1)
    strings.say(0, 1, 7)
    strings.world.run(10.0)
    assert strings.told(0) == [(0.2, "-1")]
    assert strings.world.messages_lost == 1


def test_a_dial_across_a_cut_fails_after_five_seconds() -> None:
    strings = Strings(2)
    strings.world.cut([{0}, {1}])
    strings.say(0, 1, 7)
    strings.world.run(10.0)
    assert strings.told(0) == [(5.0, "-1")]
    assert strings.told(1) == []


def test_a_dial_that_is_under_way_when_the_network_is_cut_fails_too() -> None:
    strings = Strings(2)
    strings.say(0, 1, 7)
    strings.world.at(0.05, lambda: strings.world.cut([{0}, {1}]))
    strings.world.run(10.0)
    assert strings.told(0) == [(5.0, "-1")]
    assert strings.told(1) == []


def test_a_dial_to_a_peer_that_does_not_exist_fails() -> None:
    strings = Strings(1)
    strings.act(0, Send(Identity.from_seed(bytes(32)).peer_id, word(7)))
    strings.world.run(10.0)
    assert strings.told(0) == [(5.0, "-?")]


def test_after_a_failed_dial_the_next_message_dials_again() -> None:
    strings = Strings(2)
    strings.world.kill(1)
    strings.say(0, 1, 7)
    strings.world.run(1.0)
    strings.world.restart(1, keep_disk=True)
    strings.say(0, 1, 8)
    strings.world.run(2.0)
    assert strings.told(0) == [(0.2, "-1"), (1.2, "+1")]
    assert strings.words(1) == [8]


# Carrying.


def test_messages_arrive_in_the_order_they_were_sent_under_any_jitter() -> None:
    strings = Strings(2, links=Jittered(0.1, 0.1))
    for number in range(200):
        strings.world.at(0.003 * number, lambda number=number: strings.say(0, 1, number))  # type: ignore[misc]
    strings.world.run(5.0)
    assert strings.words(1) == list(range(200))
    assert strings.times(1) == sorted(strings.times(1))


def test_bytes_wait_for_each_other_where_bandwidth_is_limited() -> None:
    strings = Strings(2, links=Constant(0.1, bandwidth=1_000.0))
    strings.connect(0, 1)
    before = sum(strings.world.bytes.values())
    strings.say(0, 1, *range(10))
    strings.world.run(10.0)
    size = sum(strings.world.bytes.values()) - before + WRITE_BYTES
    assert strings.times(1)[-1] == pytest.approx(1.0 + 0.1 + size / 1_000.0, abs=1e-5)
    assert strings.words(1) == list(range(10))


def test_what_waits_on_a_line_leaves_in_one_write_and_in_order() -> None:
    strings = Strings(2, links=Constant(0.1, bandwidth=1_000.0))
    strings.connect(0, 1)
    before = strings.world.writes
    strings.say(0, 1, 0)
    for number in range(1, 5):  # while the first is still leaving
        strings.world.at(strings.world.now + 0.005 * number, partial(strings.say, 0, 1, number))
    strings.world.run(10.0)
    assert strings.world.writes - before == 2
    assert strings.words(1) == list(range(5))


def test_what_does_not_wait_leaves_at_once() -> None:
    strings = Strings(2, links=Constant(0.1))
    strings.connect(0, 1)
    began_s, before = strings.world.now, strings.world.writes
    for number in range(5):
        strings.world.at(began_s + 0.005 * number, partial(strings.say, 0, 1, number))
    strings.world.run(10.0)
    assert strings.world.writes - before == 5
    arrivals_s = [began_s + 0.1 + 0.005 * number for number in range(5)]
    assert strings.times(1)[-5:] == pytest.approx(arrivals_s)


# Ending.


def test_a_kill_loses_what_is_on_its_way_in_both_directions() -> None:
    strings = Strings(3)
    strings.connect(0, 1)
    strings.connect(1, 2)
    strings.say(1, 2, 7)
    strings.say(0, 1, 8)
    strings.world.at(2.05, lambda: strings.world.kill(1))
    strings.world.run(30.0)
    assert strings.told(0) == [(2.15, "-1")]
    assert strings.told(2) == [(2.15, "-1")]
    assert strings.told(1) == []
    assert strings.world.messages_lost == 2


def test_what_is_said_to_a_dead_peer_before_we_know_is_lost() -> None:
    strings = Strings(2)
    strings.connect(0, 1)
    strings.world.kill(1)
    strings.world.at(1.05, lambda: strings.say(0, 1, 7))
    strings.world.run(3.0)
    assert strings.told(0) == [(1.1, "-1")]
    assert strings.world.messages_lost == 1


def test_a_peer_that_is_back_before_we_knew_it_was_gone_is_lost_first_and_then_up() -> None:
    strings = Strings(2, links=Jittered(0.1, 0.1), seed=5)
    strings.connect(0, 1)
    for attempt in range(20):
        strings.heard[0].clear()
        strings.world.kill(1)
        strings.world.restart(1)
        strings.say(1, 0, attempt)
        strings.world.run(strings.world.now + 2.0)
        assert [told for _, told in strings.told(0)] == ["-1", "+1", f"1:{attempt}"]


def test_a_reset_loses_what_is_on_its_way_and_both_ends_know_at_once() -> None:
    strings = Strings(2)
    strings.connect(0, 1)
    strings.say(0, 1, 7)
    strings.world.at(1.05, lambda: strings.world.reset(0, 1))
    strings.world.run(3.0)
    assert strings.told(0) == [(1.05, "-1")]
    assert strings.told(1) == [(1.05, "-0")]


def test_a_reset_between_strangers_does_nothing() -> None:
    strings = Strings(2)
    strings.world.reset(0, 1)
    strings.world.run(1.0)
    assert strings.told(0) == strings.told(1) == []


def test_a_peer_that_is_dropped_still_hears_what_was_said_before() -> None:
    strings = Strings(2)
    strings.connect(0, 1)
    peer = strings.world.peer(1)
    strings.act(0, Send(peer, word(7)), DropPeer(peer, "enough"))
    strings.say(1, 0, 8)
    strings.world.run(3.0)
    assert strings.told(1) == [(1.1, "0:7"), (1.1, "-0")]
    assert strings.told(0) == []


def test_a_dial_that_is_dropped_comes_to_nothing() -> None:
    strings = Strings(2)
    peer = strings.world.peer(1)
    strings.act(0, Send(peer, word(7)), DropPeer(peer, "never mind"))
    strings.world.run(10.0)
    assert strings.told(0) == strings.told(1) == []


def test_whoever_is_dropped_hears_all_of_a_long_goodbye_first() -> None:
    strings = Strings(2, links=Constant(0.1, bandwidth=100.0))
    strings.connect(0, 1)
    peer = strings.world.peer(1)
    strings.act(0, *(Send(peer, word(number)) for number in range(50)), DropPeer(peer, "enough"))
    strings.world.run(30.0)
    assert [told for _, told in strings.told(1)] == [*(f"0:{n}" for n in range(50)), "-0"]


def test_nothing_of_an_old_connection_is_heard_once_a_new_one_is_up() -> None:
    strings = Strings(2, links=Constant(0.1, bandwidth=100.0))
    strings.connect(0, 1)
    peer = strings.world.peer(1)
    strings.act(0, *(Send(peer, word(number)) for number in range(50)), DropPeer(peer, "enough"))
    strings.world.at(2.0, lambda: strings.say(0, 1, 99))
    strings.world.run(30.0)
    told = [told for _, told in strings.told(1)]
    assert told[-3:] == ["-0", "+0", "0:99"]
    assert 0 < len(told) - 3 < 50


def test_whoever_is_dropped_before_it_knew_we_are_up_hears_only_that_we_are_not() -> None:
    strings = Strings(2)
    peer = strings.world.peer(1)
    strings.say(1, 0, 7)
    strings.act(0, Send(peer, word(8)))
    strings.world.at(0.15, lambda: strings.act(0, DropPeer(peer, "enough")))
    strings.world.run(5.0)
    assert [told for _, told in strings.told(1)] == ["-0"]


# Partitions.


def test_a_cut_loses_everything_across_it_and_is_noticed_after_fifteen_seconds() -> None:
    strings = Strings(3)
    strings.connect(0, 1)
    strings.connect(0, 2)
    strings.say(0, 1, 7)
    strings.world.at(2.05, lambda: strings.world.cut([{0, 2}, {1}]))
    strings.world.at(3.0, lambda: strings.say(0, 1, 8))
    strings.world.at(3.0, lambda: strings.say(0, 2, 9))
    strings.world.run(30.0)
    assert strings.told(0) == [(17.05, "-1")]
    assert strings.told(1) == [(17.05, "-0")]
    assert strings.told(2) == [(3.1, "0:9")]


def test_nodes_in_no_group_are_together() -> None:
    strings = Strings(3)
    strings.world.cut([{0}])
    strings.say(1, 2, 7)
    strings.say(1, 0, 8)
    strings.world.run(10.0)
    assert strings.words(2) == [7]
    assert strings.words(0) == []


def test_a_connection_that_was_cut_ends_at_the_heal_and_never_speaks_again() -> None:
    strings = Strings(2)
    strings.connect(0, 1)
    strings.world.cut([{0}, {1}])
    strings.world.at(2.0, lambda: strings.say(0, 1, 7))
    strings.world.at(2.9, lambda: strings.say(0, 1, 8))
    strings.world.at(3.0, strings.world.heal)
    strings.world.at(4.0, lambda: strings.say(0, 1, 9))
    strings.world.run(30.0)
    assert strings.told(0) == [(3.0, "-1"), (4.2, "+1")]
    assert strings.told(1) == [(3.0, "-0"), (4.1, "+0"), (4.3, "0:9")]


def test_a_peer_killed_behind_a_cut_is_missed_only_when_the_cut_is_noticed() -> None:
    strings = Strings(2)
    strings.connect(0, 1)
    strings.world.cut([{0}, {1}])
    strings.world.at(2.0, lambda: strings.world.kill(1))
    strings.world.run(30.0)
    assert strings.told(0) == [(16.0, "-1")]


def test_a_cut_loses_the_last_words_of_a_connection_that_was_closing() -> None:
    strings = Strings(2)
    strings.connect(0, 1)
    peer = strings.world.peer(1)
    strings.act(0, Send(peer, word(7)), DropPeer(peer, "enough"))
    strings.world.at(1.05, lambda: strings.world.cut([{0}, {1}]))
    strings.world.run(30.0)
    assert strings.words(1) == []


def test_a_reset_behind_a_cut_is_not_noticed_earlier_than_the_cut() -> None:
    strings = Strings(2)
    strings.connect(0, 1)
    strings.world.cut([{0}, {1}])
    strings.world.at(2.0, lambda: strings.world.reset(0, 1))
    strings.world.run(30.0)
    assert strings.told(0) == [(16.0, "-1")]


# Whatever happens.

NODES = 3
_node = st.integers(0, NODES - 1)
_step = st.one_of(
    st.tuples(st.just("say"), _node, _node),
    st.tuples(st.just("say"), _node, _node),
    st.tuples(st.just("say"), _node, _node),
    st.tuples(
        st.sampled_from(["kill", "pause", "resume", "restart", "reset", "drop"]), _node, _node
    ),
    st.tuples(st.sampled_from(["cut", "heal", "wait"]), _node, _node),
)


@settings(max_examples=300)
@given(steps=st.lists(_step, max_size=60), seed=st.integers(0, 1_000))
def test_no_connection_ever_reorders_repeats_or_skips_a_message(
    steps: list[tuple[str, int, int]], seed: int
) -> None:
    strings = Strings(NODES, links=Jittered(0.1, 0.1), seed=seed)
    world = strings.world
    for number, (action, a, b) in enumerate(steps):
        match action:
            case "say" if a != b:
                strings.say(a, b, number)
            case "kill":
                world.kill(a)
            case "restart" if not world.is_up(a):
                world.restart(a)
            case "pause":
                world.pause(a)
            case "resume":
                world.resume(a)
            case "reset" if a != b:
                world.reset(a, b)
            case "drop" if a != b:
                strings.act(a, DropPeer(world.peer(b), "test"))
            case "cut":
                world.cut([{a}, {b}])
            case "heal":
                world.heal()
            case "wait":
                world.run(world.now + 5.0)
            case _:
                pass
        world.run(world.now + 0.05)
    world.heal()
    for index in range(NODES):
        world.resume(index)
    world.run(world.now + 60.0)
    for listener in range(NODES):
        for speaker in range(NODES):
            if speaker != listener:
                _check_hearing(strings, listener, speaker)


def _check_hearing(strings: Strings, listener: int, speaker: int) -> None:
    """Between up and lost a node hears a run of what its peer said; else nothing, ever."""
    ours, theirs = strings.world.peer(listener), strings.world.peer(speaker)
    said = [
        number_of(done.message)
        for done in strings.history[speaker]
        if isinstance(done, Send) and done.peer == ours
    ]
    connected = False
    last: int | None = None  # within this connection
    highest = -1
    for each in strings.history[listener]:
        match each:
            case Start():
                connected = False
            case PeerUp(contact) if contact.peer == theirs:
                assert not connected, "up twice, and not lost in between"
                connected, last = True, None
            case PeerLost(peer) | DropPeer(peer) if peer == theirs:
                connected = False
            case MessageReceived(sender, message) if sender == theirs:
                number = number_of(message)
                assert connected, "a message without a connection"
                assert number > highest, "a message came twice or out of order"
                if last is not None:
                    assert said.index(number) == said.index(last) + 1, "a message was skipped"
                last = highest = number
            case _:
                pass
