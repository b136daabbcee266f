"""Elections: elects the leader of a topic's sequencers, term by term (Raft, 5.2 and 5.4.1).

Before a sequencer begins a term it asks whether it would be elected (PreVote; Ongaro's thesis,
9.6): so a sequencer that comes back after a while deposes no leader.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.sequencing.changes import Changes
from pulsarcast.protocol.sequencing.messages import RequestVote, Vote
from pulsarcast.protocol.sequencing.state import Role, SequencerState
from pulsarcast.protocol.sequencing.syncing import Syncing


class ElectionsOwner(Protocol):
    """What elections tell the sequencer that stands in them."""

    def follow(self, leader: PeerId | None) -> None:
        """The sequencer knows another leader, or none."""

    def elected(self, votes: dict[PeerId, bytes]) -> None:
        """Most have voted for the sequencer: each peer with its store."""


class Elections:
    """One sequencer's part in elections."""

    def __init__(
        self, state: SequencerState, syncing: Syncing, changes: Changes, owner: ElectionsOwner
    ) -> None:
        self.state = state
        self.turn = state.turn
        self.syncing = syncing
        self.changes = changes
        self.owner = owner
        self._heard_s = float("-inf")
        """When the sequencer last heard from a leader."""
        self.votes: dict[PeerId, bytes] = {}
        """The peers that voted for this sequencer, each with its store."""
        self._pre_vote = False
        self._timer: int | None = None
        self._asking: int | None = None

    def stop(self) -> None:
        """The sequencer leads, or stops: no election timeout runs."""
        self.turn.cancel(self._timer)
        self.turn.cancel(self._asking)

    def heard_leader(self) -> None:
        """A leader is there: no election is needed for a while."""
        self._heard_s = self.turn.now
        self.reset_timeout()

    def reset_timeout(self) -> None:
        """Start the election timeout, random so that not all sequencers campaign at once (5.2)."""
        self.turn.cancel(self._timer)
        delay_s = self.state.parameters.election_timeout_s * (1.0 + self.turn.rng.random())
        self._timer = self.turn.after(delay_s, self._campaign)

    def _campaign(self) -> None:
        """The timeout has elapsed: ask for pre-votes, and for votes only if most grant them."""
        state = self.state
        self.reset_timeout()
        if not self.changes.may_campaign:
            if self.turn.me not in state.participants():
                self._ask_whether_removed()
            return
        self.owner.follow(None)
        state.role = Role.CANDIDATE
        self._pre_vote = True
        self.votes = {self.turn.me: state.store}
        self._ask(state.term + 1)

    def _ask_whether_removed(self) -> None:
        """A replaced sequencer does not know whether that is committed: the leader will say."""
        ask = self._request(self.state.term + 1, pre_vote=True)
        for peer in self.state.participants():
            self.turn.send(peer, ask)

    def _request(self, term: int, *, pre_vote: bool) -> RequestVote:
        state, log = self.state, self.state.log
        last = (log.last_index, log.last_term)
        return RequestVote(state.topic, term, state.store, *last, pre_vote)

    def _ask(self, term: int) -> None:
        """Ask all that have not answered, and again until they have."""
        state, turn = self.state, self.turn
        request = self._request(term, pre_vote=self._pre_vote)
        for peer in state.participants():
            if peer not in self.votes and peer != turn.me:
                turn.send(peer, request)
        again = partial(self._ask_again, state.term, self._pre_vote)
        turn.cancel(self._asking)
        self._asking = turn.after(state.parameters.leader_heartbeat_s, again)
        self._count()

    def _ask_again(self, term: int, pre_vote: bool) -> None:
        state = self.state
        unchanged = (state.term, self._pre_vote) == (term, pre_vote)
        if unchanged and state.role is Role.CANDIDATE:
            self._ask(term + pre_vote)

    def _begin_term(self) -> None:
        """Most would vote for this sequencer: begin a term."""
        state = self.state
        state.term += 1
        state.voted_for = self.turn.me
        self._pre_vote = False
        self.votes = {self.turn.me: state.store}
        state.counts["election"] += 1
        self.reset_timeout()
        self.syncing.sync_vote(partial(self._term_synced, state.term))

    def _term_synced(self, term: int) -> None:
        state = self.state
        if state.term == term and state.role is Role.CANDIDATE and not self._pre_vote:
            self._ask(term)

    def receive_request(self, sender: PeerId, message: RequestVote) -> None:
        """A candidate asks for a vote, or whether it would get one."""
        state = self.state
        # The candidate decides whether this vote counts: its log may have admitted this sequencer.
        ours = (state.log.last_term, state.log.last_index)
        good = (message.last_term, message.last_index) >= ours
        if message.last_index == 0 and state.events.held():
            # There are events: a founding took place, and the candidate has forgotten it.
            good = False
        topic, store = state.topic, state.store
        if message.pre_vote:
            silent_s = self.turn.now - self._heard_s
            is_led = state.leads or silent_s < state.parameters.election_timeout_s
            granted = good and message.term > state.term and not is_led
            self.syncing.reply(sender, Vote(topic, state.term, store, granted, True))
            return
        may = message.term == state.term and state.voted_for in (None, sender)
        granted = good and may
        answer = Vote(topic, state.term, store, granted, False)
        if granted:
            state.voted_for = sender
            self.reset_timeout()
            self.syncing.sync_vote(lambda: self.turn.send(sender, answer))
        else:
            self.syncing.reply(sender, answer)

    def receive_vote(self, sender: PeerId, message: Vote) -> None:
        """A peer grants its vote, or its pre-vote, or not."""
        state = self.state
        if state.role is not Role.CANDIDATE or not message.granted:
            return
        if message.pre_vote == self._pre_vote and (message.pre_vote or message.term == state.term):
            self.votes[sender] = message.store
            self._count()

    def _count(self) -> None:
        if self.state.role is not Role.CANDIDATE or not self._is_quorum():
            return
        if self._pre_vote:
            self._begin_term()
        else:
            self.owner.elected(self.votes)

    def _is_quorum(self) -> bool:
        """Most members, each with its store; before the founding, all that were ever named.

        The founders alone do not suffice: they may be replaced, and their stores lost.
        """
        config = self.state.log.config()
        if not config.members:
            return all(peer in self.votes for peer in self.state.versions.named_since(None))
        return config.is_quorum(lambda member: self.votes.get(member.peer) == member.store)
