"""Changes of members, on their own: who certifies, and when a node that is replaced is out."""

from pulsarcast.protocol.sequencing.changes import Changes
from pulsarcast.protocol.sequencing.configs import Config, Member, pack_config
from pulsarcast.protocol.sequencing.log import Entry, EntryKind, Log
from tests.unit.protocol.sequencing.work import HER, HER_STORE, HIM, HIS_STORE, ME, TOPIC, Bench


def log_of(config: Config) -> Log:
    """A log whose one entry says who has a vote."""
    return Log(entries=[Entry(1, 0, EntryKind.MEMBERS, pack_config(config))])


def test_a_node_is_out_once_the_change_that_leaves_it_out_is_committed() -> None:
    others = Config((Member(HIM, HIS_STORE), Member(HER, HER_STORE)))
    bench = Bench(HIM, HER, log=log_of(others))
    changes = Changes(bench.sequencer)
    assert not changes.leave_if_removed()
    assert bench.work.told == []
    bench.sequencer.committed = 1
    assert changes.leave_if_removed()
    assert bench.work.told == ["removed"]


def test_the_old_sequencers_certify_until_they_have_handed_over() -> None:
    old, new = (Member(HIM, HIS_STORE),), (Member(HER, HER_STORE),)
    bench = Bench(log=log_of(Config(new, old, TOPIC)))
    assert Changes(bench.sequencer).certifying() == (HIM,)
    bench = Bench(log=log_of(Config(new, version=TOPIC)))
    assert Changes(bench.sequencer).certifying() == (HER,)
    assert Changes(Bench().sequencer).certifying() == (ME, HIM, HER), "before the founding"
