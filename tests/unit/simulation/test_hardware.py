"""Hardware: inputs take time, cores are shared, and all that a node sends leaves on one uplink."""

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pulsarcast.model.errors import LocalError
from pulsarcast.model.identity import Identity
from pulsarcast.protocol.effects import DropPeer, Send
from pulsarcast.protocol.inputs import (
    Acknowledge,
    LinkFree,
    LinkFull,
    MessageReceived,
    Moving,
    PeerLost,
)
from pulsarcast.protocol.messages import Credit, EventMessage
from pulsarcast.simulation.hardware.costs import MEASURED, Costs, read_costs
from pulsarcast.simulation.hardware.machines import INPUTS_MAX, Hardware, Machine, Meter
from pulsarcast.simulation.lines import WRITE_BYTES
from pulsarcast.simulation.options import load
from pulsarcast.wire.codec import encode
from pulsarcast.wire.framing import write_frames
from pulsarcast.wire.lanes import FREE_BYTES, FULL_BYTES, QUEUE_BYTES_MAX
from pulsarcast.wire.parts import PART_BYTES
from tests.unit.simulation.puppets import NUDGE, Notebook, Strings, word

SLOW = Costs(**dict.fromkeys(Costs.__struct_fields__, 0.0) | {"turn_s": 0.5, "input_s": 0.1})
"""Half a second a turn, and a tenth for each input."""


def busy(count: int, costs: Costs = SLOW, cores: int | None = None) -> Strings:
    strings = Strings(count, hardware=Hardware(costs, cores))
    strings.world.run(100.0)
    for heard in strings.heard.values():
        heard.clear()
    return strings


def nudge(strings: Strings, index: int, times: int = 1) -> None:
    for _ in range(times):
        # Not the nudge that puppets know: this one they only remember.
        strings.world.command(index, lambda call: Acknowledge(NUDGE.topic, call))


def heard_s(strings: Strings, index: int) -> list[float]:
    return [round(time_s - 100.0, 6) for time_s, _ in strings.heard[index]]


def test_what_comes_in_a_turn_waits_for_the_next_one_which_takes_it_together() -> None:
    strings = busy(1)
    nudge(strings, 0, times=4)
    strings.world.run(110.0)
    # The first came alone; its turn took 0.6 s, and the others shared one.
    assert heard_s(strings, 0) == [0.0, 0.6, 0.6, 0.6]
    nudge(strings, 0)
    strings.world.run(120.0)
    assert heard_s(strings, 0)[-1] == 10.0


def test_a_turn_takes_no_more_than_so_many() -> None:
    strings = busy(1)
    nudge(strings, 0, times=2 + INPUTS_MAX)
    strings.world.run(120.0)
    assert heard_s(strings, 0)[-2:] == [0.6, round(0.6 + 0.5 + INPUTS_MAX * 0.1, 6)]


@pytest.mark.parametrize(("cores", "begun_s"), [(1, 0.6), (2, 0.0), (None, 0.0)])
def test_nodes_share_the_cores_there_are(cores: int | None, begun_s: float) -> None:
    strings = busy(2, cores=cores)
    nudge(strings, 0)
    nudge(strings, 1)
    strings.world.run(110.0)
    assert heard_s(strings, 0) == [0.0]
    assert heard_s(strings, 1) == [begun_s]


def test_what_the_core_wants_happens_when_the_turn_is_over() -> None:
    strings = busy(2)
    strings.act(0, Send(strings.world.peer(1), word(7)))
    strings.world.run(100.59)
    assert not strings.world._network.traffic.messages
    strings.world.run(110.0)
    assert strings.words(1) == [7]


def test_a_node_that_dies_in_its_turn_gives_its_core_back_and_does_nothing_more() -> None:
    strings = busy(2, cores=1)
    strings.act(0, Send(strings.world.peer(1), word(7)))
    nudge(strings, 1)
    strings.world.run(100.1)
    strings.world.kill(0)
    strings.world.run(110.0)
    assert strings.words(1) == []
    assert len(strings.heard[1]) == 1


def test_a_node_that_dies_while_it_waits_for_a_core_takes_none() -> None:
    strings = busy(3, cores=1)
    for index in range(3):
        nudge(strings, index)
    strings.world.run(100.1)
    strings.world.kill(1)
    strings.world.run(110.0)
    assert heard_s(strings, 1) == []
    assert heard_s(strings, 2) == [0.6]


def test_a_paused_node_goes_on_where_it_was() -> None:
    strings = busy(2)
    strings.act(0, Send(strings.world.peer(1), word(7)))
    strings.world.run(100.1)
    nudge(strings, 0)
    strings.world.run(100.2)
    strings.world.pause(0)
    strings.world.run(105.0)
    assert heard_s(strings, 0) == []
    assert strings.words(1) == []
    strings.world.resume(0)
    strings.world.run(120.0)
    assert heard_s(strings, 0)[0] == 5.0
    assert strings.words(1) == [7]


def test_signatures_are_counted_and_verified_once() -> None:
    meter = Meter()
    identity = Identity.from_seed(bytes(32))
    assert meter.identity(identity).sign("event", b"body") == identity.sign("event", b"body")
    decoded: list[bytes] = []

    def decode_event(block: bytes) -> Any:
        decoded.append(block)
        return block

    decode = meter.decoder(decode_event)
    for block in (b"one", b"two", b"one"):
        decode(block)
    assert decoded == [b"one", b"two"]
    assert (meter.signed, meter.verified) == (1, 2)


def test_cores_go_to_those_who_asked_first() -> None:
    machine, begun = Machine(1), list[int]()
    for number in range(3):
        machine.ask(lambda number=number: begun.append(number))  # type: ignore[misc]
    assert begun == [0]
    machine.give_back()
    machine.give_back()
    assert begun == [0, 1, 2]


def thin(bandwidth: float) -> Strings:
    """Node 0 is connected to 1 and 2, over an uplink of so many bytes a second."""
    strings = Strings(3, hardware=Hardware(uplink=bandwidth))
    strings.connect(0, 1)
    strings.connect(0, 2)
    strings.world.run(100.0)
    for heard in strings.heard.values():
        heard.clear()
    return strings


def test_all_that_a_node_sends_leaves_over_one_uplink() -> None:
    strings = thin(float(len(write_frames([encode(word(7))])) + WRITE_BYTES))
    strings.say(0, 1, 7, 8)
    strings.say(0, 2, 9)
    strings.world.run(200.0)
    # A second for each message, and a tenth for the way.
    assert strings.times(1) == pytest.approx([101.1, 102.1])
    assert strings.times(2) == pytest.approx([103.1])


LARGE = EventMessage(bytes(3 * PART_BYTES), 0)


def test_control_and_other_peers_go_in_between_the_parts_of_a_large_event() -> None:
    strings = thin(float(PART_BYTES))
    near, far = strings.world.peer(1), strings.world.peer(2)
    credit = Credit(NUDGE.topic, 1)
    strings.act(0, Send(near, LARGE), Send(near, credit), Send(far, word(7)))
    strings.world.run(200.0)
    heard = [given.message for _, given in strings.heard[1] if isinstance(given, MessageReceived)]
    assert heard == [credit, LARGE]
    first_s, last_s = strings.times(1)
    assert Moving(strings.world.peer(0)) in [given for _, given in strings.heard[1]]
    assert first_s < 101.2
    assert last_s > 103.0
    assert strings.times(2)[0] < 101.3


def test_what_waits_is_lost_with_a_connection_that_breaks_and_arrives_where_it_is_closed() -> None:
    for close, heard in ((True, [LARGE]), (False, [])):
        strings = thin(float(PART_BYTES))
        strings.act(0, Send(strings.world.peer(1), LARGE))
        if close:
            strings.act(0, DropPeer(strings.world.peer(1), "enough"))
        else:
            strings.world.after(0.5, partial(strings.world.reset, 0, 1))
        strings.say(0, 2, 7)
        strings.world.run(200.0)
        given = [each for _, each in strings.heard[1]]
        assert [each.message for each in given if isinstance(each, MessageReceived)] == heard
        assert isinstance(given[-1], PeerLost)
        assert strings.words(2) == [7]


def test_a_node_hears_that_much_waits_for_a_peer_and_that_it_has_left() -> None:
    strings = thin(float(FREE_BYTES))
    event = EventMessage(bytes(FREE_BYTES), 0)
    near = strings.world.peer(1)
    strings.act(0, *[Send(near, event)] * (1 + FULL_BYTES // FREE_BYTES))
    strings.world.run(200.0)
    told = [(round(time_s), given) for time_s, given in strings.heard[0]]
    assert told == [(100, LinkFull(near)), (108, LinkFree(near))]
    arrived = [given for _, given in strings.heard[1] if isinstance(given, MessageReceived)]
    assert len(arrived) == 1 + FULL_BYTES // FREE_BYTES


def test_a_connection_with_too_much_waiting_is_given_up() -> None:
    strings = thin(float(FREE_BYTES))
    event = EventMessage(bytes(FREE_BYTES), 0)
    near = strings.world.peer(1)
    strings.act(0, *[Send(near, event)] * (2 + QUEUE_BYTES_MAX // FREE_BYTES))
    strings.world.run(101.0)
    assert PeerLost(near) in [given for _, given in strings.heard[0]]


def test_what_arrives_for_a_paused_node_waits() -> None:
    strings = thin(float(PART_BYTES))
    strings.world.pause(1)
    strings.say(0, 1, 7)
    strings.world.run(110.0)
    assert strings.words(1) == []
    strings.world.resume(1)
    assert strings.words(1) == [7]


def test_a_trace_of_messages_names_those_that_went_over_an_uplink() -> None:
    book = Notebook()
    strings = Strings(2, hardware=Hardware(uplink=1e6), observer=book, trace_rpc=True)
    strings.connect(0, 1)
    said = [(each[1], type(each[4]).__name__) for each in book.records]
    assert said == [(0, "RpcSent"), (1, "RpcReceived")]


def test_costs_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="nowhere"):
        read_costs("nowhere.json")
    (tmp_path / "costs.json").write_text('{"turn_s": 1}')
    with pytest.raises(LocalError, match="costs"):
        read_costs(str(tmp_path / "costs.json"))


def test_cores_alone_mean_the_costs_that_were_measured() -> None:
    plain = load("tree")
    assert plain.hardware() == Hardware()
    two = msgspec.structs.replace(plain, cores=2, uplink_mbit=8.0)
    assert two.hardware() == Hardware(read_costs(MEASURED), 2, 1_000_000.0)


def test_a_node_without_hardware_takes_no_time() -> None:
    strings = Strings(1)
    nudge(strings, 0, times=3)
    strings.world.run(1.0)
    assert {time_s for time_s, _ in strings.heard[0]} == {0.0}
