"""Raft, claim by claim (Ongaro and Ousterhout 2014), and what our certificates add to it.

Deviations: PreVote (Ongaro's thesis, 9.6); members are peers with their stores; the first
leader needs all votes (decision 0021).
"""

from collections.abc import Callable
from random import Random

import pytest

from pulsarcast.model.errors import RemoteError
from pulsarcast.model.ids import Cid, PeerId, cid_of
from pulsarcast.protocol.context import Context
from pulsarcast.protocol.effects import Effect, Persist, Send, SetTimer
from pulsarcast.protocol.parameters import Parameters
from pulsarcast.protocol.sequencing.configs import Config, Member, pack_config
from pulsarcast.protocol.sequencing.log import Entry, EntryKind, Log, Place
from pulsarcast.protocol.sequencing.messages import Append, Appended, RequestVote, Vote
from pulsarcast.protocol.sequencing.sequencer import Sequencer
from pulsarcast.protocol.sequencing.state import PersistentState, SequencerState
from pulsarcast.protocol.turn import Turn
from tests.support.people import identity

TOPIC = cid_of(b"a topic")
ME, ANN, BEN, CLEO = (identity(name).peer_id for name in ("me", "ann", "ben", "cleo"))
PEERS = (ME, ANN, BEN)
STORES = {ME: b"my store", ANN: b"anns own", BEN: b"bens own", CLEO: b"cleos 1!"}
VERSIONS = [cid_of(b"version %d" % number) for number in range(3)]
MEMBERS = tuple(Member(peer, STORES[peer]) for peer in PEERS)
BEAT_S = 0.3


class Bench:
    """One sequencer, whose disk and network the test is."""

    def __init__(self, *entries: Entry, term: int = 0, founded: bool = True) -> None:
        self.turn = Turn(identity("me"), Random(1))
        self.lists: list[tuple[PeerId, ...]] = [PEERS]
        self.summoned: list[PeerId] = []
        self.is_removed = False
        self.holds = 0
        self.certified_events: list[tuple[Entry, dict[PeerId, bytes]]] = []
        founding = Entry(1, 0, EntryKind.MEMBERS, pack_config(Config(MEMBERS)))
        log = Log(entries=(founding, *entries) if founded else ())
        saved = PersistentState(STORES[ME], max(term, log.last_term))
        parameters = Parameters(election_timeout_s=1.0, leader_heartbeat_s=BEAT_S)
        context = Context(self.turn, parameters)
        state = SequencerState(context, TOPIC, self, self, saved=saved, log=log)
        self.sequencer = Sequencer(context, state, self)
        self.effects: list[Effect] = []
        self.do(self.sequencer.start)

    def do(self, act: Callable[[], None]) -> list[Effect]:
        self.turn.effects = self.effects = []
        act()
        return self.effects

    def hear(self, sender: PeerId, message: Append | Appended | RequestVote | Vote) -> list[Effect]:
        return self.do(lambda: self.sequencer.receive(sender, message))

    def sync(self) -> list[Effect]:
        """Everything written so far is on the disk."""
        return self.do(lambda: self.turn.persisted(1 << 60))

    def wait(self, seconds: float = 10.0) -> list[Effect]:
        """Time passes, and the last timers run out."""
        self.turn.now += seconds
        timers = [effect.timer for effect in self.effects if isinstance(effect, SetTimer)]

        def fire() -> None:
            for timer in timers:
                self.turn.fired(timer)

        return self.do(fire)

    def elect(self, *voters: PeerId) -> None:
        """Let it be elected, by ann unless others are named."""
        self.wait()
        term = self.sequencer.state.term
        for peer in voters or (ANN,):
            self.hear(peer, Vote(TOPIC, term, STORES[peer], True, True))
        self.sync()
        for peer in voters or (ANN,):
            self.hear(peer, Vote(TOPIC, term + 1, STORES[peer], True, False))

    def leads(self) -> bool:
        return self.sequencer.state.leads

    # What the sequencer asks of versions, of events and of its topic.

    def held(self) -> int:
        return self.holds

    def sign(self, entry: Entry) -> bytes:
        return b"mine"

    def is_signed(self, peer: PeerId, entry: Entry, signature: bytes) -> bool:
        return signature == b"theirs"

    def request_of(self, block: bytes) -> bytes:
        return block

    def check(self, block: bytes) -> None:
        pass

    def certified(self, entry: Entry, signatures: dict[PeerId, bytes]) -> None:
        self.certified_events.append((entry, signatures))

    def leader_changed(self) -> None:
        pass

    def signers_of(self, entry: Entry) -> tuple[PeerId, ...]:
        return self.lists[1] if entry.body.startswith(b"new") else PEERS

    def newest(self) -> Cid:
        return VERSIONS[len(self.lists) - 1]

    def named_by(self, version: Cid | None) -> tuple[PeerId, ...] | None:
        number = 0 if version is None else VERSIONS.index(version)
        return self.lists[number] if number < len(self.lists) else None

    def named_since(self, version: Cid | None) -> tuple[PeerId, ...]:
        first = 0 if version is None else VERSIONS.index(version)
        return tuple(dict.fromkeys(peer for each in self.lists[first:] for peer in each))

    def is_later(self, version: Cid, than: Cid | None) -> bool:
        return VERSIONS.index(version) > (0 if than is None else VERSIONS.index(than))

    def hand_over(self, place: Place, outgoing: tuple[PeerId, ...], to: Cid) -> bytes:
        return b"handover"

    def handed_over(self, entry: Entry) -> Cid | None:
        return VERSIONS[1] if entry.body == b"handover" else None

    def summon(self, peer: PeerId) -> None:
        self.summoned.append(peer)

    def removed(self) -> None:
        self.sequencer.stop()
        self.is_removed = True


def said(effects: list[Effect]) -> list[object]:
    return [effect.message for effect in effects if isinstance(effect, Send)]


def event(term: int, position: int) -> Entry:
    return Entry(term, position, EntryKind.EVENT, b"%d/%d" % (term, position))


def ask(term: int, index: int, last_term: int, *, store: bytes = STORES[ANN]) -> RequestVote:
    return RequestVote(TOPIC, term, store, index, last_term, False)


def append(
    term: int, before: int, before_term: int, *entries: Entry, committed: int = 0, certify: int = 1
) -> Append:
    store = STORES[ANN]
    return Append(TOPIC, term, store, before, before_term, entries, committed, certify, 0)


def test_a_vote_is_on_the_disk_before_anyone_hears_of_it() -> None:
    """Figure 2: persistent state is updated before responding."""
    bench = Bench()
    effects = bench.hear(ANN, ask(2, 1, 1))
    assert not said(effects)
    assert any(isinstance(effect, Persist) for effect in effects)
    [vote] = said(bench.sync())
    assert vote == Vote(TOPIC, 2, STORES[ME], True, False)


def test_each_server_votes_for_one_candidate_in_a_term() -> None:
    """5.2: first come, first served."""
    bench = Bench()
    bench.hear(ANN, ask(2, 1, 1))
    bench.sync()
    [vote] = said(bench.hear(BEN, ask(2, 1, 1, store=STORES[BEN])) + bench.sync())
    assert vote == Vote(TOPIC, 2, STORES[ME], False, False)
    assert bench.sequencer.state.voted_for == ANN


def test_a_candidate_whose_log_is_older_gets_no_vote() -> None:
    """5.4.1: the later term of the last entry, then the longer log."""
    for index, last_term in ((3, 1), (1, 2)):
        bench = Bench(event(2, 1), event(2, 2))
        effects = bench.hear(ANN, ask(5, index, last_term)) + bench.sync()
        votes = [message for message in said(effects) if isinstance(message, Vote)]
        assert [vote.granted for vote in votes] == [False]


def test_a_leaders_entry_is_on_its_disk_before_it_is_sent() -> None:
    """The brief of figure 2 again, for entries."""
    bench = Bench()
    bench.elect()
    assert bench.sequencer.state.leads
    assert not [m for m in said(bench.effects) if isinstance(m, Append) and m.entries]
    appends = [m for m in said(bench.sync()) if isinstance(m, Append) and m.entries]
    assert [entry.kind for entry in appends[0].entries] == [EntryKind.NOTHING]


def test_a_follower_refuses_what_does_not_follow_its_log() -> None:
    """5.3: the consistency check."""
    bench = Bench(event(1, 1))
    [answer] = said(bench.hear(ANN, append(3, 4, 2)) + bench.sync())
    assert isinstance(answer, Appended)
    assert (answer.agreed, answer.matched) == (False, 2)


def test_conflicting_entries_are_replaced_by_the_leaders() -> None:
    """5.3: the leader forces the followers' logs to duplicate its own."""
    bench = Bench(event(1, 1), event(1, 2), event(1, 3))
    effects = bench.hear(ANN, append(3, 2, 1, event(2, 2))) + bench.sync()
    [answer] = said(effects)
    assert isinstance(answer, Appended)
    assert (answer.agreed, answer.matched) == (True, 3)
    assert [entry.term for _, entry in bench.sequencer.log] == [1, 1, 2]


def test_what_was_committed_is_never_replaced() -> None:
    """State machine safety: a leader that tries lacks what was committed, and lies."""
    bench = Bench(event(1, 1), event(1, 2))
    bench.hear(ANN, append(2, 3, 1, committed=3))
    with pytest.raises(RemoteError, match="lacks what was committed"):
        bench.hear(ANN, append(2, 2, 1, event(2, 2)))


def test_an_event_is_signed_at_once_in_the_term_that_made_it() -> None:
    bench = Bench()
    [answer] = said(bench.hear(ANN, append(2, 1, 1, event(2, 1))) + bench.sync())
    assert isinstance(answer, Appended)
    assert answer.signatures == ((1, b"mine"),)


def test_an_event_of_an_earlier_term_is_not_signed_before_it_is_committed() -> None:
    """5.4.2 and figure 8: kept by most in a later term, it may still be replaced."""
    bench = Bench()
    [answer] = said(bench.hear(ANN, append(4, 1, 1, event(2, 1))) + bench.sync())
    assert isinstance(answer, Appended)
    assert answer.agreed
    assert answer.signatures == ()
    [later] = said(bench.hear(ANN, append(4, 2, 2, committed=2)) + bench.sync())
    assert isinstance(later, Appended)
    assert later.signatures == ((1, b"mine"),)


def test_a_leader_commits_an_earlier_terms_entry_only_with_one_of_its_own() -> None:
    """5.4.2."""
    bench = Bench(event(1, 1))
    bench.elect()
    bench.sync()
    term = bench.sequencer.state.term
    answer = Appended(TOPIC, term, STORES[ANN], True, 2, 0, ((1, b"theirs"),))
    bench.hear(ANN, answer)
    assert bench.sequencer.state.committed == 0
    assert bench.certified_events == []
    bench.hear(ANN, Appended(TOPIC, term, STORES[ANN], True, 3, 0, ()))
    assert bench.sequencer.state.committed == 3
    [(entry, signatures)] = bench.certified_events
    assert entry == event(1, 1)
    assert signatures.keys() == {ME, ANN}


def appends(effects: list[Effect]) -> dict[PeerId, Append]:
    """What a leader sends, by follower; it sends each one message at most."""
    sent = [effect for effect in effects if isinstance(effect, Send)]
    found = {e.peer: e.message for e in sent if isinstance(e.message, Append)}
    assert len(found) == len(sent)
    return found


def test_all_hear_at_once_that_an_earlier_terms_event_is_committed() -> None:
    """5.4.2: they may sign it only now, though there is nothing else to send."""
    bench = Bench(event(1, 1))
    bench.elect()
    bench.sync()
    told = appends(bench.hear(ANN, Appended(TOPIC, 2, STORES[ANN], True, 3, 0, ())))
    assert {peer: (m.entries, m.committed) for peer, m in told.items()} == {
        ANN: ((), 3),
        BEN: ((), 3),
    }


def test_a_signature_that_is_none_certifies_nothing() -> None:
    bench = Bench(event(1, 1))
    bench.elect()
    bench.sync()
    term = bench.sequencer.state.term
    bench.hear(ANN, Appended(TOPIC, term, STORES[ANN], True, 3, 0, ((1, b"forged"),)))
    assert bench.sequencer.state.committed == 3
    assert bench.certified_events == []


def test_a_follower_cannot_have_more_than_its_leader() -> None:
    bench = Bench()
    bench.elect()
    bench.sync()
    term, last = bench.sequencer.state.term, bench.sequencer.log.last_index
    for matched in (last + 1, 10**9):
        with pytest.raises(RemoteError, match="more entries than the leader"):
            bench.hear(ANN, Appended(TOPIC, term, STORES[ANN], True, matched, 0, ()))
    bench.wait(0.3)
    assert bench.sequencer.state.committed == 0
    bench.hear(ANN, Appended(TOPIC, term, STORES[ANN], True, last, 0, ()))
    assert bench.sequencer.state.committed == last


def test_another_store_of_a_member_has_no_vote() -> None:
    """Decision 0021: whoever lost its store lost its vote."""
    bench = Bench()
    bench.wait()
    bench.hear(ANN, Vote(TOPIC, 1, b"another!", True, True))
    assert bench.sequencer.state.term == 1
    assert not bench.sequencer.state.leads
    bench.hear(BEN, Vote(TOPIC, 1, STORES[BEN], True, True))
    assert bench.sequencer.state.term == 2


def test_what_another_store_keeps_counts_for_nothing() -> None:
    bench = Bench()
    bench.elect()
    bench.sync()
    bench.hear(ANN, Appended(TOPIC, bench.sequencer.state.term, b"another!", True, 2, 0, ()))
    assert bench.sequencer.state.committed == 0


def test_a_new_store_takes_no_place_before_most_of_the_old_members_agree() -> None:
    """Section 6: the lost store may have voted for a leader that we do not know of."""
    bench = Bench()
    bench.elect()
    bench.sync()
    term = bench.sequencer.state.term
    bench.hear(BEN, Appended(TOPIC, term, STORES[BEN], True, 2, 0, ()))
    assert bench.sequencer.state.committed == 2
    bench.hear(ANN, Appended(TOPIC, term, b"another!", True, 2, 0, ()))
    new = (MEMBERS[0], Member(ANN, b"another!"), MEMBERS[2])
    assert bench.sequencer.log.config() == Config(new, MEMBERS)
    bench.sync()
    bench.hear(ANN, Appended(TOPIC, term, b"another!", True, 3, 0, ()))
    assert bench.sequencer.state.committed == 2
    bench.hear(BEN, Appended(TOPIC, term, STORES[BEN], True, 3, 0, ()))
    assert bench.sequencer.state.committed == 3
    assert bench.sequencer.log.config() == Config(new)


def test_while_members_change_nothing_is_signed_before_it_is_committed() -> None:
    bench = Bench()
    new = (MEMBERS[0], Member(ANN, b"another!"), MEMBERS[2])
    joint = Entry(2, 0, EntryKind.MEMBERS, pack_config(Config(new, MEMBERS)))
    [answer] = said(bench.hear(ANN, append(2, 1, 1, joint, event(2, 1))) + bench.sync())
    assert isinstance(answer, Appended)
    assert answer.agreed
    assert answer.signatures == ()
    [later] = said(bench.hear(ANN, append(2, 3, 2, committed=3)) + bench.sync())
    assert isinstance(later, Appended)
    assert later.signatures == ((1, b"mine"),)


def test_the_first_leader_needs_the_votes_of_all() -> None:
    """Decision 0021: nobody can tell a first start from a lost disk."""
    bench = Bench(founded=False)
    bench.wait()
    bench.hear(ANN, Vote(TOPIC, 0, STORES[ANN], True, True))
    assert bench.sequencer.state.term == 0
    bench.hear(BEN, Vote(TOPIC, 0, STORES[BEN], True, True))
    assert bench.sequencer.state.term == 1
    bench.sync()
    bench.hear(ANN, Vote(TOPIC, 1, STORES[ANN], True, False))
    assert bench.leads() is False
    bench.hear(BEN, Vote(TOPIC, 1, STORES[BEN], True, False))
    assert bench.leads() is True
    assert bench.sequencer.log.config() == Config(MEMBERS)


def asked_again(bench: Bench) -> dict[PeerId, object]:
    """Whom a candidate asks once a heartbeat has passed, and what."""
    (timer,) = [e.timer for e in bench.effects if isinstance(e, SetTimer) and e.delay_s == BEAT_S]
    effects = bench.do(lambda: bench.turn.fired(timer))
    return {effect.peer: effect.message for effect in effects if isinstance(effect, Send)}


def test_a_candidate_asks_those_again_who_have_not_answered() -> None:
    """5.1: servers retry if they do not receive a response in a timely manner."""
    bench = Bench(founded=False)
    bench.wait()
    pre_vote = RequestVote(TOPIC, 1, STORES[ME], 0, 0, True)
    assert asked_again(bench) == {ANN: pre_vote, BEN: pre_vote}
    again = bench.effects
    bench.hear(ANN, Vote(TOPIC, 0, STORES[ANN], True, True))
    bench.effects = again
    assert asked_again(bench) == {BEN: pre_vote}
    bench.hear(BEN, Vote(TOPIC, 0, STORES[BEN], True, True))
    bench.sync()
    vote = RequestVote(TOPIC, 1, STORES[ME], 0, 0, False)
    assert asked_again(bench) == {ANN: vote, BEN: vote}


def test_a_candidate_asks_nobody_again_before_its_own_vote_is_on_the_disk() -> None:
    bench = Bench()
    trials = bench.wait()
    bench.hear(ANN, Vote(TOPIC, 1, STORES[ANN], True, True))
    assert bench.sequencer.state.term == 2
    bench.effects = trials
    assert asked_again(bench) == {}


def test_who_was_named_later_has_to_agree_to_a_founding() -> None:
    """Decision 0024: founders that were replaced, and lost their stores, would found once more."""
    bench = Bench(founded=False)
    bench.lists = [PEERS, (CLEO,)]
    asked = {effect.peer for effect in bench.wait() if isinstance(effect, Send)}
    assert asked == {ANN, BEN, CLEO}
    bench.hear(ANN, Vote(TOPIC, 0, STORES[ANN], True, True))
    bench.hear(BEN, Vote(TOPIC, 0, STORES[BEN], True, True))
    assert bench.sequencer.state.term == 0
    bench.hear(CLEO, Vote(TOPIC, 0, STORES[CLEO], True, True))
    assert bench.sequencer.state.term == 1


def test_who_holds_an_event_founds_nothing_and_lets_nobody() -> None:
    """Decision 0024: there are events, so there was a founding."""
    bench = Bench(founded=False)
    bench.holds = 1
    assert said(bench.wait()) == []
    [vote] = said(bench.hear(ANN, ask(1, 0, 0)) + bench.sync())
    assert isinstance(vote, Vote)
    assert not vote.granted


def moved(*, final: bool) -> Bench:
    """One that is replaced by cleo, alone; perhaps with the entry that ends it, uncommitted."""
    new = Config((Member(CLEO, STORES[CLEO]),), MEMBERS, VERSIONS[1])
    entries = [
        event(1, 1),
        Entry(1, 1, EntryKind.MEMBERS, pack_config(new)),
        Entry(1, 2, EntryKind.EVENT, b"handover"),
    ]
    if final:
        last = pack_config(Config(new.members, version=VERSIONS[1]))
        entries.append(Entry(1, 2, EntryKind.MEMBERS, last))
    bench = Bench(*entries)
    bench.lists = [PEERS, (CLEO,)]
    return bench


def test_who_is_replaced_may_lead_until_it_knows_that_this_is_committed() -> None:
    """Ongaro's thesis, 4.2.2: only we may have the entry, and nobody else would get our vote."""
    bench = moved(final=True)
    bench.elect(CLEO)
    assert bench.leads()
    bench.sync()
    bench.hear(CLEO, Appended(TOPIC, 2, STORES[CLEO], True, 6, 2, ()))
    assert bench.sequencer.state.committed == 6
    assert bench.is_removed


def test_who_is_replaced_and_named_again_lets_those_in_force_go_on() -> None:
    """Decision 0024: it may make no events, and who is to join them may be away for long."""
    bench = moved(final=True)
    bench.elect(CLEO)
    bench.lists.append((CLEO, ME, BEN))
    bench.sync()
    bench.hear(CLEO, Appended(TOPIC, 2, STORES[CLEO], True, 6, 2, ()))
    assert not bench.leads()
    assert not bench.is_removed


def test_one_that_was_replaced_and_asks_is_told_that_this_is_committed_and_no_more() -> None:
    """Decision 0024: it goes by that, and whoever leads need not keep it in mind."""
    final = Config((MEMBERS[0], MEMBERS[2]), version=VERSIONS[1])
    joint = Config(final.members, MEMBERS, VERSIONS[1])
    bench = Bench(
        Entry(1, 0, EntryKind.MEMBERS, pack_config(joint)),
        Entry(1, 1, EntryKind.EVENT, b"handover"),
        Entry(1, 1, EntryKind.MEMBERS, pack_config(final)),
    )
    bench.lists = [PEERS, (ME, BEN)]
    bench.elect(BEN)
    bench.sync()
    last = bench.sequencer.log.last_index
    pre_vote = RequestVote(TOPIC, 2, STORES[ANN], 2, 1, True)
    assert list(appends(bench.hear(ANN, pre_vote))) == [ANN]
    bench.hear(BEN, Appended(TOPIC, 2, STORES[BEN], True, last, 1, ()))
    assert bench.sequencer.state.committed == last
    has_all = Appended(TOPIC, 2, STORES[ANN], True, last, 1, ())
    ((peer, farewell),) = appends(bench.hear(ANN, has_all)).items()
    assert peer == ANN
    assert (farewell.entries, farewell.committed) == ((), last)
    assert appends(bench.hear(ANN, has_all)) == {}


def test_old_sequencers_go_when_most_of_the_new_ones_hold_what_they_certified() -> None:
    """Decision 0024: a certificate on one disk can be lost, and nobody could make it again."""
    bench = moved(final=False)
    bench.elect(ANN, CLEO)
    assert bench.leads()
    bench.sync()
    signed = ((1, b"theirs"), (2, b"theirs"))
    bench.hear(ANN, Appended(TOPIC, 2, STORES[ANN], True, 5, 0, signed))
    bench.hear(CLEO, Appended(TOPIC, 2, STORES[CLEO], True, 5, 0, ()))
    assert [entry.position for entry, _ in bench.certified_events] == [1, 2]
    bench.holds = 2
    bench.hear(ANN, Appended(TOPIC, 2, STORES[ANN], True, 5, 2, ()))
    assert bench.sequencer.log.config().is_joint
    bench.hear(CLEO, Appended(TOPIC, 2, STORES[CLEO], True, 5, 2, ()))
    assert not bench.sequencer.log.config().is_joint


def test_who_was_named_for_a_while_stays_until_a_later_list_is_in_force() -> None:
    """Decision 0024: a leader may count on its store, in an entry that it has not got yet."""
    old = Entry(1, 0, EntryKind.MEMBERS, pack_config(Config(MEMBERS[1:])))
    bench = Bench(old)
    bench.sequencer.state.committed = 2
    bench.lists = [(ANN, BEN), PEERS, (ANN, BEN)]
    bench.do(bench.sequencer.renewed)
    assert not bench.is_removed
    last = Entry(2, 0, EntryKind.MEMBERS, pack_config(Config(MEMBERS[1:], version=VERSIONS[2])))
    bench.hear(ANN, append(2, 2, 1, last, committed=3))
    assert bench.is_removed


def test_what_comes_from_others_lets_go_what_waited_behind_it() -> None:
    """A leader alone hears from nobody: only its own history tells it that it may go on."""
    bench = Bench(event(1, 1), event(1, 2))
    bench.elect()
    bench.sync()
    signed = ((2, b"theirs"),)
    bench.hear(ANN, Appended(TOPIC, 2, STORES[ANN], True, 4, 0, signed))
    assert bench.certified_events == []
    bench.holds = 1
    bench.do(bench.sequencer.settle)
    assert [entry.position for entry, _ in bench.certified_events] == [2]


def test_whoever_meets_a_later_term_is_a_follower_in_it() -> None:
    """5.1."""
    bench = Bench()
    bench.elect()
    assert bench.leads() is True
    bench.hear(BEN, Appended(TOPIC, 9, STORES[BEN], False, 0, 0, ()))
    assert bench.leads() is False
    assert bench.sequencer.state.term == 9


def test_a_trial_changes_nobodys_term_and_fails_while_somebody_leads() -> None:
    """Ongaro's thesis, 9.6."""
    bench = Bench()
    bench.hear(ANN, append(1, 1, 1))
    pre_vote = RequestVote(TOPIC, 2, STORES[BEN], 9, 1, True)
    [vote] = [m for m in said(bench.hear(BEN, pre_vote) + bench.sync()) if isinstance(m, Vote)]
    assert not vote.granted
    bench.turn.now += 5.0
    [vote] = [m for m in said(bench.hear(BEN, pre_vote)) if isinstance(m, Vote)]
    assert vote.granted
    assert bench.sequencer.state.term == 1


def test_strangers_and_impossible_terms_are_not_heard() -> None:
    bench = Bench()
    with pytest.raises(RemoteError, match="not a sequencer"):
        bench.hear(identity("eve").peer_id, ask(2, 1, 1))
    with pytest.raises(RemoteError, match="a term out of range"):
        bench.hear(ANN, ask(1 << 63, 1, 1))


def test_one_that_was_dismissed_hears_nobody() -> None:
    """Whoever still asks for its vote is told nothing that could be counted."""
    bench = moved(final=True)
    bench.elect(CLEO)
    bench.sync()
    bench.hear(CLEO, Appended(TOPIC, 2, STORES[CLEO], True, 6, 2, ()))
    assert bench.is_removed
    term = bench.sequencer.state.term
    for sender in (CLEO, ANN):
        for message in (ask(term + 1, 9, 9), append(term + 1, 6, term)):
            with pytest.raises(RemoteError, match="not a sequencer"):
                bench.hear(sender, message)
            assert not said(bench.effects + bench.sync())
    assert (bench.sequencer.state.term, bench.sequencer.log.last_index) == (term, 6)


def test_nobody_speaks_in_our_own_name() -> None:
    bench = Bench()
    with pytest.raises(RemoteError, match="not a sequencer"):
        bench.hear(ME, ask(2, 1, 1, store=STORES[ME]))
    assert bench.sequencer.state.voted_for is None


def test_entries_that_no_leader_sends_are_refused_whole() -> None:
    for entries in (
        (event(9, 1),),
        (event(2, 1), event(2, 3)),
        (event(2, 5),),
        (Entry(2, 0, EntryKind.MEMBERS, pack_config(Config(MEMBERS[:2]))),),
    ):
        bench = Bench()
        with pytest.raises(RemoteError):
            bench.hear(ANN, append(2, 1, 1, *entries))
        assert len(bench.sequencer.log) == 1
