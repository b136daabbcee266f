"""The sequencers' log: what it holds, what it forgets, and what comes back from a disk."""

from pulsarcast.model.ids import PEER_ID_PREFIX, PeerId, cid_of
from pulsarcast.protocol.sequencing.configs import Config, Member, pack_config, unpack_config
from pulsarcast.protocol.sequencing.log import (
    ENTRY_BYTES,
    NO_SNAPSHOT,
    SNAPSHOT,
    Entry,
    EntryKind,
    Log,
    Snapshot,
    pack_snapshot,
    read_log,
    unpack_snapshot,
)
from pulsarcast.protocol.store import DropState, PutState, Write

TOPIC = cid_of(b"a topic")
MEMBERS = tuple(Member(PeerId(PEER_ID_PREFIX + bytes([n]) * 32), bytes([n]) * 8) for n in (1, 2, 3))
CONFIG = Config(MEMBERS)


def event(term: int, position: int) -> Entry:
    return Entry(term, position, EntryKind.EVENT, b"event %d/%d" % (term, position))


def filled() -> tuple[Log, list[Write]]:
    log = Log()
    writes = [
        log.append(TOPIC, Entry(1, 0, EntryKind.MEMBERS, pack_config(CONFIG))),
        log.append(TOPIC, event(1, 1)),
        log.append(TOPIC, Entry(2, 1, EntryKind.NOTHING, b"")),
        log.append(TOPIC, event(2, 2)),
        log.append(TOPIC, event(2, 3)),
    ]
    return log, writes


class Disk:
    """Rows as a store keeps them."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, bytes], bytes] = {}

    def apply(self, writes: list[Write]) -> None:
        for write in writes:
            if isinstance(write, PutState):
                self.rows[write.row.table, write.row.key] = write.row.value
            elif isinstance(write, DropState):
                self.rows.pop((write.table, write.key), None)

    def log(self) -> Log:
        entries = {
            int.from_bytes(key[-8:], "big"): value
            for (table, key), value in self.rows.items()
            if table == "entry"
        }
        return read_log(entries, self.rows.get((SNAPSHOT, TOPIC)))


def test_events_are_found_by_their_positions() -> None:
    log, _ = filled()
    assert (log.last_index, log.last_term, log.last_position) == (5, 2, 3)
    assert [log.event_at(position) for position in (0, 1, 2, 3, 4)] == [
        None,
        (2, event(1, 1)),
        (4, event(2, 2)),
        (5, event(2, 3)),
        None,
    ]
    assert log.config() == CONFIG
    assert log.last_cid() == event(2, 3).cid


def test_what_is_dropped_is_remembered_as_far_as_it_is_needed() -> None:
    log, writes = filled()
    disk = Disk()
    disk.apply([*writes, *log.drop_to(TOPIC, 4)])
    assert log.snapshot == Snapshot(4, 2, 2, event(2, 2).cid, CONFIG)
    assert len(log) == 1
    assert log.event_at(2) is None
    assert log.event_at(3) == (5, event(2, 3))
    assert (log.term_at(3), log.term_at(4), log.term_at(5), log.term_at(6)) == (None, 2, 2, None)
    assert log.config() == CONFIG
    again = disk.log()
    assert again.snapshot == log.snapshot
    assert list(again) == list(log)


def test_what_is_dropped_takes_no_room_on_the_disk() -> None:
    log, writes = filled()
    disk = Disk()
    disk.apply([*writes, *log.drop_to(TOPIC, 4)])
    assert [key for table, key in disk.rows if table == "entry"] == [TOPIC + bytes(7) + b"\x05"]


def test_what_is_cut_off_is_gone_from_the_disk_too() -> None:
    log, writes = filled()
    disk = Disk()
    disk.apply([*writes, *log.cut_from(TOPIC, 3)])
    disk.apply([log.append(TOPIC, event(3, 2))])
    assert list(disk.log()) == list(log)
    assert [entry.term for _, entry in log] == [1, 1, 3]


def test_a_log_that_begins_behind_others_has_nothing_before() -> None:
    log, writes = filled()
    disk = Disk()
    snapshot = Snapshot(9, 4, 7, event(4, 7).cid, CONFIG)
    disk.apply([*writes, *log.install(TOPIC, snapshot)])
    assert (log.last_index, log.last_term, log.last_position) == (9, 4, 7)
    assert log.last_cid() == snapshot.cid
    assert disk.log().snapshot == snapshot
    assert len(disk.log()) == 0


def test_members_and_bases_survive_being_bytes() -> None:
    for config in (CONFIG, Config(MEMBERS[1:], MEMBERS, TOPIC), Config(MEMBERS[:1], (), TOPIC)):
        assert unpack_config(pack_config(config)) == config
    for snapshot in (
        NO_SNAPSHOT,
        Snapshot(1, 2, 3, TOPIC, CONFIG),
        Snapshot(1, 2, 0, None, CONFIG),
    ):
        assert unpack_snapshot(pack_snapshot(snapshot)) == snapshot


def test_a_page_of_entries_ends_at_its_bounds_and_has_one_at_least() -> None:
    log, _ = filled()
    assert len(log.since(1, 9, 1 << 20)) == 5
    assert len(log.since(2, 2, 1 << 20)) == 2
    assert len(log.since(2, 9, 1)) == 1
    assert log.since(6, 9, 1) == ()


def test_a_log_knows_how_many_bytes_lie_behind_an_index() -> None:
    """Also after it was cut, after it has dropped its front, and after it came from a disk."""
    log, writes = filled()
    disk = Disk()
    disk.apply(writes)

    def counted(log: Log, index: int) -> int:
        return sum(ENTRY_BYTES + len(entry.body) for at, entry in log if at > index)

    def check() -> None:
        for each in (log, disk.log()):
            for index in range(each.snapshot.index, each.last_index + 1):
                assert each.bytes_after(index) == counted(each, index)

    check()
    disk.apply(log.drop_to(TOPIC, 2))
    check()
    disk.apply(log.cut_from(TOPIC, 4))
    check()
    disk.apply([log.append(TOPIC, event(3, 2))])
    check()
    disk.apply(log.install(TOPIC, Snapshot(9, 3, 7, None, CONFIG)))
    assert log.bytes_after(9) == 0
    disk.apply([log.append(TOPIC, event(3, 8))])
    check()


def test_the_newest_change_of_members_is_known_whatever_is_cut_dropped_or_begun_anew() -> None:
    change = Entry(2, 3, EntryKind.MEMBERS, pack_config(CONFIG))
    log, _ = filled()
    assert log.last_change() == 1
    log.append(TOPIC, change)
    assert log.last_change() == 6
    log.cut_from(TOPIC, 6)
    assert log.last_change() == 1
    log.append(TOPIC, change)
    log.drop_to(TOPIC, 2)
    assert log.last_change() == 6
    assert Log(log.snapshot, [entry for _, entry in log]).last_change() == 6
    log.drop_to(TOPIC, 6)
    assert log.last_change() is None
    log.append(TOPIC, change)
    assert log.last_change() == 7
    log.install(TOPIC, Snapshot(20, 3, 9, None, CONFIG))
    assert log.last_change() is None
