"""A world runs processes, hands them commands and time, and does to them what a test asks."""

from hashlib import sha256
from random import Random
from typing import Any

import pytest

from pulsarcast.model import trace
from pulsarcast.model.errors import Rejection, RemoteError, Verdict
from pulsarcast.model.identity import Identity
from pulsarcast.model.ids import cid_of
from pulsarcast.model.reach import Reach
from pulsarcast.model.remembering import RememberedVerification
from pulsarcast.protocol.effects import (
    DropPeer,
    Effect,
    Persist,
    Reply,
    Send,
    SetTimer,
    Stopped,
    Trace,
)
from pulsarcast.protocol.inputs import (
    FetchBlock,
    Input,
    MessageReceived,
    Now,
    PeerUp,
    Persisted,
    Start,
    Stop,
    TimerFired,
)
from pulsarcast.protocol.messages import Contact, Range
from pulsarcast.protocol.store import PutState, StateRow
from pulsarcast.simulation import lines
from pulsarcast.simulation.hosts import Seat
from pulsarcast.simulation.links import Constant, Jittered
from pulsarcast.simulation.world import World
from tests.unit.simulation.puppets import Notebook, Puppet, Strings, word


def fired(strings: Strings) -> list[tuple[float, int]]:
    return [
        (round(time_s, 4), given.timer)
        for time_s, given in strings.heard[0]
        if isinstance(given, TimerFired)
    ]


# Nodes.


def test_identities_follow_from_seed_and_index() -> None:
    world = Strings(2, seed=9).world
    assert world.peer(1) == Identity.from_seed(sha256(b"9/1").digest()).peer_id
    assert world.index_of(world.peer(1)) == 1


def test_a_node_starts_with_its_contacts_and_again_at_every_restart() -> None:
    strings = Strings(1)
    index = strings.world.add_node(contacts=[0])
    contacts = (Contact(strings.world.peer(0)),)
    strings.world.kill(index)
    strings.world.restart(index)
    assert [given for _, given in strings.heard[index]] == [
        Start(contacts=contacts, reach=Reach.PUBLIC)
    ] * 2
    assert strings.world.incarnation(index) == 2


def test_every_new_node_is_prepared() -> None:
    prepared = list[Any]()
    strings = Strings(2, prepare=prepared.append)
    strings.world.kill(0)
    strings.world.restart(0)
    assert [puppet.seat.index for puppet in prepared] == [0, 1, 0]


def test_each_life_of_a_node_has_its_own_chance() -> None:
    rngs = list[Random]()
    strings = Strings(2, prepare=lambda puppet: rngs.append(puppet.seat.rng))
    strings.world.kill(0)
    strings.world.restart(0)
    assert len({rng.random() for rng in rngs}) == 3


def test_streams_of_chance_have_names_and_do_not_disturb_each_other() -> None:
    one, other = Strings(0).world, Strings(0).world
    one.stream("faults").random()
    assert one.stream("workload").random() == other.stream("workload").random()
    assert one.stream("faults").random() != other.stream("faults").random()
    assert (
        Strings(0, seed=2).world.stream("faults").random()
        != Strings(0).world.stream("faults").random()
    )


# Commands.


def replier(puppet: Puppet, given: Input, now: Now) -> list[Effect]:
    return [Reply(given.call, block=b"here")] if isinstance(given, FetchBlock) else []


def fetch(call: int) -> FetchBlock:
    return FetchBlock(call, cid_of(b"x"))


def test_a_command_is_answered_to_whoever_gave_it() -> None:
    strings, replies = Strings(2, answer=replier), list[tuple[str, bytes | None]]()
    strings.world.command(0, fetch, lambda reply: replies.append(("first", reply.block)))
    strings.world.command(0, fetch, lambda reply: replies.append(("second", reply.block)))
    strings.world.command(1, fetch)
    strings.world.run(1.0)
    assert replies == [("first", b"here"), ("second", b"here")]


def test_whoever_hears_a_reply_may_kill_the_node_that_gave_it() -> None:
    strings = Strings(1, answer=replier)
    strings.world.command(0, fetch, lambda reply: strings.world.kill(0))
    strings.world.run(1.0)
    assert not strings.world.is_up(0)


def test_a_node_that_is_down_or_dies_first_answers_nothing() -> None:
    strings, replies = Strings(1), list[Reply]()
    strings.world.command(0, fetch, replies.append)
    strings.world.run(1.0)
    strings.world.kill(0)
    strings.world.command(0, fetch, replies.append)
    strings.world.run(2.0)
    strings.answer = replier
    strings.world.restart(0)
    strings.world.run(3.0)
    assert replies == []


# Time.


def test_timers_fire_when_their_time_has_come_and_never_before() -> None:
    def answer(puppet: Puppet, given: Input, now: Now) -> list[Effect]:
        if isinstance(given, TimerFired):
            assert now.mono_s >= 0.3
        return []

    strings = Strings(1, answer=answer)
    strings.act(0, SetTimer(1, 0.3), SetTimer(2, 0.3))
    strings.world.run(1.0)
    assert fired(strings) == [(0.3, 1), (0.3, 2)]


def test_timers_follow_the_nodes_own_clock() -> None:
    strings = Strings(1)
    strings.world.set_clock(0, offset_s=-30.0, drift_ppm=-500_000.0)
    strings.act(0, SetTimer(1, 1.0))
    strings.world.run(5.0)
    assert fired(strings) == [(2.0, 1)]


def test_a_wrong_clock_stays_wrong_after_a_restart() -> None:
    seen = list[Now]()

    def answer(puppet: Puppet, given: Input, now: Now) -> list[Effect]:
        seen.append(now)
        return []

    strings = Strings(1, answer=answer)
    strings.world.set_clock(0, offset_s=5.0, drift_ppm=0.0)
    strings.world.kill(0)
    strings.world.restart(0)
    assert seen[1].wall_us - seen[0].wall_us == 5_000_000


def test_timers_of_an_earlier_life_do_not_fire() -> None:
    strings = Strings(1)
    strings.act(0, SetTimer(1, 1.0))
    strings.world.at(0.5, lambda: strings.world.kill(0))
    strings.world.at(0.6, lambda: strings.world.restart(0))
    strings.world.run(5.0)
    assert fired(strings) == []


def test_run_until_looks_now_and_then_and_gives_up_at_the_deadline() -> None:
    world = Strings(0).world
    assert world.run_until(lambda: world.now > 2.2, 10.0, 0.5)
    assert world.now == 2.5
    assert not world.run_until(lambda: False, 4.0, 1.0)
    assert world.now == 4.0


# Pausing.


def test_a_paused_node_does_everything_later_and_in_order() -> None:
    strings = Strings(2)
    strings.connect(0, 1)
    strings.act(0, SetTimer(5, 0.5))
    strings.world.run(1.1)
    strings.world.pause(0)
    strings.say(1, 0, 1, 2)
    strings.world.at(2.0, lambda: strings.say(1, 0, 3))
    strings.world.run(10.0)
    assert strings.told(0) == []
    strings.world.resume(0)
    strings.world.run(11.0)
    assert strings.told(0) == [
        (10.0, "1:1"),
        (10.0, "1:2"),
        (10.0, "TimerFired"),
        (10.0, "1:3"),
    ]


def test_a_paused_node_that_is_dialled_answers_if_it_wakes_in_time() -> None:
    strings = Strings(2)
    strings.world.pause(1)
    strings.say(0, 1, 7)
    strings.world.at(3.0, lambda: strings.world.resume(1))
    strings.world.run(10.0)
    assert strings.told(1) == [(3.0, "+0"), (3.2, "0:7")]
    assert strings.told(0) == [(3.1, "+1")]


def test_a_paused_node_that_sleeps_on_cannot_be_dialled() -> None:
    strings = Strings(2)
    strings.world.pause(1)
    strings.say(0, 1, 7)
    strings.world.at(6.0, lambda: strings.world.resume(1))
    strings.world.run(10.0)
    assert strings.told(0) == [(5.0, "-1")]
    assert strings.told(1) == []


def test_what_waits_for_a_paused_node_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "STALLED_BYTES_MAX", 100)
    strings = Strings(2)
    strings.connect(0, 1)
    strings.world.pause(1)
    strings.say(0, 1, *range(1_000))
    strings.world.run(2.0)
    assert strings.told(0) == [(1.1, "-1")]
    strings.world.resume(1)
    strings.world.run(3.0)
    assert strings.told(1) == [(2.0, "-0")]


def test_what_waited_for_a_node_that_woke_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "STALLED_BYTES_MAX", 100)
    strings = Strings(2)
    strings.connect(0, 1)
    for number in range(20):
        strings.world.pause(1)
        strings.say(0, 1, number, number)
        strings.world.run(strings.world.now + 1.0)
        strings.world.resume(1)
    assert strings.words(1) == [number for number in range(20) for _ in range(2)]


def test_a_paused_node_sends_nothing_not_even_what_waited_for_a_dial() -> None:
    strings = Strings(2)
    strings.say(0, 1, 7)
    strings.world.at(0.05, lambda: strings.world.pause(0))
    strings.world.at(3.0, lambda: strings.world.resume(0))
    strings.world.run(10.0)
    assert strings.told(0) == [(3.0, "+1")]
    assert strings.told(1) == [(0.1, "+0"), (3.1, "0:7")]


def test_a_node_that_wakes_hears_of_a_loss_in_its_turn_and_not_before() -> None:
    strings = Strings(2)
    strings.connect(0, 1)
    strings.answer = lambda puppet, given, now: (
        [Send(given.sender, word(9))] if isinstance(given, MessageReceived) else []
    )
    peer = strings.world.peer(1)
    strings.act(0, Send(peer, word(7)), DropPeer(peer, "enough"))
    strings.world.at(1.05, lambda: strings.world.pause(1))
    strings.world.at(3.0, lambda: strings.world.resume(1))
    strings.world.run(10.0)
    assert strings.told(1) == [(3.0, "0:7"), (3.0, "-0")]
    # Its answer to 7 went into the connection that it did not know to be gone.
    assert strings.told(0) == []


def test_a_node_killed_in_its_sleep_wakes_as_a_new_one() -> None:
    strings = Strings(2)
    strings.connect(0, 1)
    strings.world.pause(1)
    strings.say(0, 1, 7)
    strings.world.run(2.0)
    strings.world.kill(1)
    strings.world.resume(1)
    strings.world.restart(1)
    strings.world.run(3.0)
    assert strings.told(1) == []
    assert strings.told(0) == [(2.1, "-1")]


# Going.


def test_a_node_that_stops_flushes_its_disk_and_says_its_last_words() -> None:
    strings = Strings(2)
    strings.connect(0, 1)
    peer = strings.world.peer(1)

    def answer(puppet: Puppet, given: Input, now: Now) -> list[Effect]:
        if not isinstance(given, Stop):
            return []
        return [
            Persist(1, (PutState(StateRow("t", b"k", b"v")),)),
            Send(peer, word(7)),
            Stopped(),
        ]

    strings.answer = answer
    strings.world.stop(0)
    strings.world.run(3.0)
    assert strings.told(1) == [(1.1, "0:7"), (1.1, "-0")]
    assert not strings.world.is_up(0)
    assert strings.world.store(0).rows() == (StateRow("t", b"k", b"v"),)
    assert not any(isinstance(given, Persisted) for _, given in strings.heard[0])
    strings.world.restart(0)
    assert strings.world.is_up(0)


def test_a_node_that_does_not_stop_is_gone_after_fifteen_seconds() -> None:
    strings = Strings(1)
    strings.world.stop(0)
    strings.world.run(14.9)
    assert strings.world.is_up(0)
    strings.world.run(15.1)
    assert not strings.world.is_up(0)


def test_a_stop_does_not_end_the_life_that_follows() -> None:
    strings = Strings(1)
    strings.world.stop(0)
    strings.world.run(1.0)
    strings.world.kill(0)
    strings.world.restart(0)
    strings.world.run(30.0)
    assert strings.world.is_up(0)


def test_a_node_lost_for_good_cannot_be_started() -> None:
    strings = Strings(1)
    strings.act(0, Persist(1, (PutState(StateRow("t", b"k", b"v")),)))
    strings.world.run(1.0)
    strings.world.lose(0)
    assert strings.world.store(0).rows() == ()
    with pytest.raises(AssertionError, match="lost for good"):
        strings.world.restart(0)


def test_what_was_done_to_the_world_is_written_down() -> None:
    world = Strings(2).world
    world.cut([{1}, {0}])
    world.heal()
    world.kill(1)
    assert [note[1:] for note in world.fault_notes] == [
        ("cut", (1, 0), "[[1], [0]]"),
        ("heal", (), ""),
        ("kill", (1,), ""),
    ]


# What is seen and counted.


def test_records_are_told_with_time_node_life_and_clock() -> None:
    notebook = Notebook()
    strings = Strings(2, observer=notebook)
    strings.world.kill(1)
    strings.world.restart(1)
    strings.world.run(2.0)
    strings.act(1, Trace(trace.NodeStarted()))
    strings.world.run(3.0)
    ((time_s, index, incarnation, now, record),) = notebook.records
    assert (time_s, index, incarnation, now.mono_s) == (2.0, 1, 2, 2.0)
    assert record == trace.NodeStarted()


def test_messages_and_bytes_are_counted_by_kind_once_they_are_sent() -> None:
    strings = Strings(2)
    peer = strings.world.peer(1)
    batch = Range(1, cid_of(b"topic"), (b"a", b"b"), False)
    strings.act(0, Send(peer, word(7)), Send(peer, batch), Send(peer, batch))
    strings.world.run(0.1)
    assert strings.world.messages == {}
    strings.world.run(1.0)
    assert strings.world.messages == {"EventMessage": 1, "Range": 2}
    assert strings.world.range_events == 4
    wired = Strings(2, through_wire=True)
    wired.act(0, Send(peer, word(7)), Send(peer, batch), Send(peer, batch))
    wired.world.run(1.0)
    assert wired.world.bytes == strings.world.bytes


def test_messages_through_the_wire_arrive_as_equal_ones() -> None:
    strings = Strings(2, through_wire=True)
    strings.say(0, 1, 7, 8)
    strings.world.run(1.0)
    assert strings.words(1) == [7, 8]


def test_bytes_that_cannot_be_read_are_traced_and_end_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(data: bytes) -> None:
        raise RemoteError("gibberish", code=Rejection.NOT_CANONICAL)

    monkeypatch.setattr(lines, "decode", refuse)
    notebook = Notebook()
    strings = Strings(2, through_wire=True, observer=notebook)
    strings.say(0, 1, 7)
    strings.world.run(1.0)
    assert [told for _, told in strings.told(1)] == ["+0", "-0"]
    record = notebook.records[0][4]
    assert record == trace.Rejected(Verdict.REJECT, "not_canonical", strings.world.peer(0))


@pytest.mark.parametrize("through_wire", [False, True])
def test_messages_are_traced_at_level_rpc(through_wire: bool) -> None:
    notebook = Notebook()
    strings = Strings(2, observer=notebook, trace_rpc=True, through_wire=through_wire)
    strings.say(0, 1, 7)
    strings.world.run(1.0)
    size = strings.world.bytes["EventMessage"]
    assert [(round(entry[0], 6), entry[1], entry[4]) for entry in notebook.records] == [
        (0.2, 0, trace.RpcSent("EventMessage", None, strings.world.peer(1), size)),
        (0.3, 1, trace.RpcReceived("EventMessage", None, strings.world.peer(0), size)),
    ]
    assert strings.words(1) == [7]


# Sharing what was verified.


def test_bytes_are_verified_once_for_all_nodes_or_by_each() -> None:
    seats = list[Seat]()

    def make(seat: Seat) -> Puppet:
        seats.append(seat)
        return Puppet(seat, [], strings)

    strings = Strings(0)
    shared = World(1, links=Constant(0.1), make_node=make)
    apart = World(1, links=Constant(0.1), make_node=make, share_verification=False)
    for world in (shared, shared, apart):
        world.add_node()
    assert isinstance(seats[0].decode_event, RememberedVerification)
    assert seats[0].decode_event is seats[1].decode_event
    assert not isinstance(seats[2].decode_event, RememberedVerification)


# The same again.


def chatter(puppet: Puppet, given: Input, now: Now) -> list[Effect]:
    """Every node speaks to two others now and then."""
    rng = puppet.seat.rng
    timer = SetTimer(1, rng.random())
    if isinstance(given, (Start, PeerUp)):
        return [timer]
    peers = [puppet.strings.world.peer(index) for index in range(5) if index != puppet.seat.index]
    said = [Send(rng.choice(peers), word(rng.randrange(1000))) for _ in range(2)]
    return [*said, timer] if isinstance(given, TimerFired) else []


def run_chatter(seed: int) -> str:
    """All that happens in a world of five who chatter while things go wrong, as text."""
    strings = Strings(5, links=Jittered(0.1, 0.1), seed=seed, answer=chatter)
    world, rng = strings.world, strings.world.stream("faults")
    for _ in range(40):
        world.run(world.now + rng.random())
        index = rng.randrange(5)
        match rng.randrange(6):
            case 0:
                world.kill(index)
            case 1 if not world.is_up(index):
                world.restart(index)
            case 2:
                world.cut([{index, (index + 1) % 5}])
            case 3:
                world.heal()
            case 4:
                world.pause(index)
            case _:
                world.resume(index)
    lines_ = [f"{index} {told}" for index in range(5) for told in strings.told(index)]
    return "\n".join([*lines_, str(world.messages), str(world.happenings)])


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    assert run_chatter(1) == run_chatter(1)
    assert run_chatter(1) != run_chatter(2)
