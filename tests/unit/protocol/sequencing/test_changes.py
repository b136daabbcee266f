"""Changes of members, on their own: who certifies, and what a leader does next."""

from pulsarcast.protocol.sequencing.changes import Changes, Step
from pulsarcast.protocol.sequencing.configs import Config, Member, pack_config
from pulsarcast.protocol.sequencing.followers import Followers
from pulsarcast.protocol.sequencing.log import Entry, EntryKind, Log
from pulsarcast.protocol.sequencing.state import Role
from tests.unit.protocol.sequencing.work import HER, HER_STORE, HIM, HIS_STORE, ME, TOPIC, Bench

HIS, HERS = Member(HIM, HIS_STORE), Member(HER, HER_STORE)


def log_of(config: Config) -> Log:
    """A log whose one entry says who has a vote."""
    return Log(entries=[Entry(1, 0, EntryKind.MEMBERS, pack_config(config))])


def changes_of(bench: Bench) -> Changes:
    """Changes of a sequencer whose followers it has not heard yet."""
    return Changes(bench.state, Followers(bench.state, bench.work))


def leading(bench: Bench) -> Changes:
    """Changes of a leader that has committed its log."""
    state = bench.state
    state.term, state.role, state.committed = 1, Role.LEADER, state.log.last_index
    return changes_of(bench)


def test_a_node_is_out_once_the_change_that_leaves_it_out_is_committed() -> None:
    bench = Bench(HIM, HER, log=log_of(Config((HIS, HERS))))
    changes = changes_of(bench)
    assert not changes.is_removed
    bench.state.committed = 1
    assert changes.is_removed


def test_the_old_sequencers_certify_until_they_have_handed_over() -> None:
    bench = Bench(log=log_of(Config((HERS,), (HIS,), TOPIC)))
    assert changes_of(bench).certifying() == (HIM,)
    bench = Bench(log=log_of(Config((HERS,), version=TOPIC)))
    assert changes_of(bench).certifying() == (HER,)
    assert changes_of(Bench()).certifying() == (ME, HIM, HER), "before the founding"


def test_a_leader_goes_no_step_further_before_the_last_one_is_committed() -> None:
    bench = Bench(log=log_of(Config((HERS,), (HIS,), TOPIC)))
    changes = leading(bench)
    assert changes.next_step() is Step.HAND_OVER
    bench.state.committed = 0
    assert changes.next_step() is None
    bench.state.committed, bench.state.role = 1, Role.FOLLOWER
    assert changes.next_step() is None


def test_a_leader_that_is_removed_leaves_and_one_that_is_named_again_resigns() -> None:
    others = Config((HIS, HERS))
    assert leading(Bench(HIM, HER, log=log_of(others))).next_step() is Step.LEAVE
    assert leading(Bench(log=log_of(others))).next_step() is Step.RESIGN


def test_a_change_of_stores_alone_ends_without_a_handover() -> None:
    before, after = (HIS, HERS), (HIS, Member(HER, b"newstore"))
    changes = leading(Bench(HIM, HER, log=log_of(Config(after, before))))
    assert not changes.awaits_handover
    assert changes.next_step() == Config(after)
