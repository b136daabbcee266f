"""A follower's side of the log, on its own: what it takes over, and when it says so."""

import pytest

from pulsarcast.model.errors import RemoteError
from pulsarcast.protocol.sequencing.entries import Entries
from pulsarcast.protocol.sequencing.log import Entry, EntryKind
from pulsarcast.protocol.sequencing.messages import Append, Appended
from pulsarcast.protocol.sequencing.state import Role
from tests.unit.protocol.sequencing.work import HIM, HIS_STORE, TOPIC, Bench

NOTHING = Entry(1, 0, EntryKind.NOTHING, b"")


def append(*entries: Entry, term: int = 1, before: int = 0, before_term: int = 0) -> Append:
    return Append(TOPIC, term, HIS_STORE, before, before_term, entries, 0, 1, 0)


def answers(bench: Bench) -> list[tuple[bool, int]]:
    """Whether the follower agrees, and up to which entry."""
    messages = [message for _, message in bench.core.sent()]
    return [(each.agreed, each.matched) for each in messages if isinstance(each, Appended)]


def test_an_entry_is_on_the_disk_before_the_leader_hears_of_it() -> None:
    bench = Bench()
    assert Entries(bench.state, bench.syncing).take(HIM, append(NOTHING))
    assert answers(bench) == []
    bench.core.sync()
    assert answers(bench) == [(True, 1)]


def test_entries_behind_a_gap_are_not_taken_over() -> None:
    bench = Bench()
    entries = Entries(bench.state, bench.syncing)
    assert not entries.take(HIM, append(NOTHING, before=3, before_term=1))
    bench.core.sync()
    assert answers(bench) == [(False, 0)]
    assert len(bench.state.log) == 0


def test_a_leader_of_an_earlier_term_is_told_so_and_changes_nothing() -> None:
    bench = Bench()
    bench.state.term = 2
    bench.sequencer().receive(HIM, append(NOTHING))
    assert answers(bench) == [(False, 0)]
    assert (bench.state.leader, len(bench.state.log)) == (None, 0)


@pytest.mark.parametrize(
    "entry",
    [
        Entry(2, 0, EntryKind.NOTHING, b""),
        Entry(1, 0, EntryKind.NOTHING, b"body"),
        Entry(1, 5, EntryKind.EVENT, b"event"),
    ],
    ids=["of a later term", "of nothing with a body", "out of its position"],
)
def test_an_entry_that_no_leader_sends_leaves_the_log_as_it_was(entry: Entry) -> None:
    bench = Bench()
    with pytest.raises(RemoteError):
        bench.sequencer().receive(HIM, append(entry))
    assert len(bench.state.log) == 0


def test_two_leaders_in_one_term_are_one_too_many() -> None:
    bench = Bench()
    bench.state.term, bench.state.role = 1, Role.LEADER
    with pytest.raises(RemoteError):
        bench.sequencer().receive(HIM, append(NOTHING))
