"""A disk makes writes durable in groups, loses the rest at a kill, and may be full or lie."""

from pulsarcast.model.ids import Cid, cid_key, cid_of
from pulsarcast.model.reach import Reach
from pulsarcast.protocol.effects import Effect, Load, Persist, Stopped
from pulsarcast.protocol.inputs import Input, Loaded, Now, Persisted, PersistFailed, Start, Stop
from pulsarcast.protocol.store import Block, Keep, LoadBlock, PutBlock, PutState, StateRow
from pulsarcast.simulation.disk import DiskModel
from tests.unit.simulation.puppets import Puppet, Strings


def row(number: int) -> StateRow:
    return StateRow("test", b"%d" % number, b"")


def persist(token: int) -> Persist:
    return Persist(token, (PutState(row(token)),))


def put(data: bytes) -> tuple[Cid, PutBlock]:
    cid = cid_of(data)
    return cid, PutBlock(cid, data, None, 0)


def answers(strings: Strings) -> list[tuple[float, Input]]:
    return [
        (round(time_s, 6), given)
        for time_s, given in strings.heard[0]
        if isinstance(given, (Persisted, PersistFailed, Loaded))
    ]


def rows(strings: Strings) -> list[int]:
    return [int(kept.key) for kept in strings.world.store(0).rows()]


def test_a_write_is_durable_after_one_sync() -> None:
    strings = Strings(1)
    strings.act(0, persist(1))
    strings.world.run(0.001)
    assert (answers(strings), rows(strings)) == ([], [])
    strings.world.run(1.0)
    assert (answers(strings), rows(strings)) == ([(0.002, Persisted(1))], [1])


def test_writes_that_come_during_a_flush_go_together_in_the_next() -> None:
    strings = Strings(1)
    strings.act(0, persist(1))
    for token in (2, 3, 4):
        strings.world.at(token * 0.0001, lambda token=token: strings.act(0, persist(token)))  # type: ignore[misc]
    strings.world.run(1.0)
    assert answers(strings) == [(0.002, Persisted(1)), (0.004, Persisted(4))]


def test_a_kill_loses_what_was_not_flushed() -> None:
    strings = Strings(1)
    strings.act(0, persist(1))
    strings.world.at(0.001, lambda: strings.act(0, persist(2)))
    strings.world.at(0.003, lambda: strings.world.kill(0))
    strings.world.run(1.0)
    assert rows(strings) == [1]
    strings.world.restart(0, keep_disk=True)
    starts = [given for _, given in strings.heard[0] if isinstance(given, Start)]
    assert [start.rows for start in starts] == [(), (row(1),)]


def test_a_restart_without_the_disk_starts_from_nothing() -> None:
    strings = Strings(1)
    strings.act(0, persist(1))
    strings.world.run(1.0)
    strings.world.kill(0)
    strings.world.restart(0, keep_disk=False)
    assert strings.heard[0][-1][1] == Start(reach=Reach.PUBLIC)
    assert rows(strings) == []


def test_a_read_sees_what_is_flushed_when_it_is_answered() -> None:
    cid, write = put(b"x")
    strings = Strings(1)
    strings.act(0, Persist(1, (write,)), Load(2, LoadBlock(cid)))
    strings.world.at(0.0019, lambda: strings.act(0, Load(3, LoadBlock(cid))))
    strings.world.run(1.0)
    assert answers(strings) == [
        (0.0002, Loaded(2, Block(None))),
        (0.002, Persisted(1)),
        (0.0021, Loaded(3, Block(b"x"))),
    ]


def test_a_full_disk_refuses_from_the_first_write_on_and_keeps_none_behind_it() -> None:
    strings = Strings(1)
    strings.world.disk_full(0, True)
    strings.act(0, persist(1), persist(2))
    strings.world.at(0.001, lambda: strings.act(0, persist(3)))
    strings.world.run(1.0)
    assert answers(strings) == [(0.002, PersistFailed(1, "no space left on device"))]
    strings.world.disk_full(0, False)
    strings.act(0, persist(4))
    strings.world.run(2.0)
    assert answers(strings)[1:] == [(1.002, Persisted(4))]
    assert rows(strings) == [4]


def test_a_disk_that_is_full_is_so_after_a_restart_too() -> None:
    strings = Strings(1)
    strings.world.disk_full(0, True)
    strings.world.kill(0)
    strings.world.restart(0)
    strings.act(0, persist(1))
    strings.world.run(1.0)
    assert answers(strings) == [(0.002, PersistFailed(1, "no space left on device"))]


def test_a_lying_disk_answers_at_once_reads_what_it_has_not_and_loses_it_at_a_kill() -> None:
    cid, write = put(b"x")
    strings = Strings(1, disk=DiskModel(lies=True))
    strings.act(0, Persist(1, (write,)), Load(2, LoadBlock(cid)))
    strings.world.at(0.5, lambda: strings.world.kill(0))
    strings.world.run(5.0)
    assert answers(strings) == [(0.0, Persisted(1)), (0.0002, Loaded(2, Block(b"x")))]
    assert strings.world.store(0).answer(LoadBlock(cid)) == Block(None)


def test_a_lying_disk_that_is_left_in_peace_keeps_what_it_was_given() -> None:
    cid, write = put(b"x")
    strings = Strings(1, disk=DiskModel(lies=True))
    strings.act(0, Persist(1, (write,)))
    strings.world.run(2.0)
    strings.world.kill(0)
    assert strings.world.store(0).answer(LoadBlock(cid)) == Block(b"x")


def test_a_node_that_stops_in_good_order_loses_nothing_even_to_a_lying_disk() -> None:
    strings = Strings(1, disk=DiskModel(lies=True), answer=stop_at_once)
    strings.act(0, persist(1), persist(2))
    strings.world.run(0.5)
    strings.world.stop(0)
    strings.world.run(0.6)
    assert rows(strings) == [1, 2]


def test_a_full_disk_keeps_nothing_at_a_stop_either() -> None:
    strings = Strings(1, answer=stop_at_once)
    strings.world.disk_full(0, True)
    strings.act(0, persist(1))
    strings.world.stop(0)
    strings.world.run(1.0)
    assert not strings.world.is_up(0)
    assert rows(strings) == []


def stop_at_once(puppet: Puppet, given: Input, now: Now) -> list[Effect]:
    return [Stopped()] if isinstance(given, Stop) else []


def test_a_full_disk_leaves_strangers_blocks_out_and_has_not_failed() -> None:
    strings = Strings(1)
    strings.world.disk_full(0, True)
    strings.act(0, strangers(1))
    strings.world.run(1.0)
    assert answers(strings) == [(0.002, Persisted(1, (1,)))]
    strings.act(0, strangers(2), persist(3))
    strings.world.run(2.0)
    assert answers(strings)[1:] == [
        (1.002, Persisted(2, (2,))),
        (1.004, PersistFailed(3, "no space left on device")),
    ]


def test_a_disk_without_room_for_strangers_says_so_and_takes_the_rest() -> None:
    strings = Strings(1, disk=DiskModel(strangers_bytes_max=0))
    strings.act(0, strangers(1), persist(2))
    strings.world.run(1.0)
    assert answers(strings) == [(0.002, Persisted(1, (1,))), (0.004, Persisted(2))]
    assert rows(strings) == [2]
    strings.world.kill(0)
    strings.world.restart(0, keep_disk=False)
    strings.act(0, strangers(3))
    strings.world.run(2.0)
    assert answers(strings)[-1][1] == Persisted(3, (3,))


def strangers(token: int) -> Persist:
    block = b"block %d" % token
    cid = cid_of(block)
    return Persist(token, (Keep(token, "", (PutBlock(cid, block, cid_key(cid), 1),)),))
