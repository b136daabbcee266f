"""Elections: elects the leader of a topic's sequencers, term by term (Raft, 5.2 and 5.4.1).

Before a sequencer begins a term it asks whether it would be elected (PreVote; Ongaro's thesis,
9.6): so a sequencer that comes back after a while deposes no leader.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.sequencing.messages import RequestVote, Vote
from pulsarcast.protocol.sequencing.roles import Role

if TYPE_CHECKING:
    from pulsarcast.protocol.sequencing.sequencer import Sequencer


class Elections:
    """One sequencer's part in elections."""

    def __init__(self, sequencer: Sequencer) -> None:
        self.sequencer = sequencer
        self.heard_s = float("-inf")
        """When the sequencer last heard from a leader."""
        self.votes: dict[PeerId, bytes] = {}
        """The peers that voted for this sequencer, each with its store."""
        self._pre_vote = False
        self._timer: int | None = None
        self._asking: int | None = None

    def stop(self) -> None:
        """The sequencer leads, or stops: no election timeout runs."""
        self.sequencer.turn.cancel(self._timer)
        self.sequencer.turn.cancel(self._asking)

    def reset_timeout(self) -> None:
        """Start the election timeout, random so that not all sequencers campaign at once (5.2)."""
        turn = self.sequencer.turn
        turn.cancel(self._timer)
        delay_s = self.sequencer.parameters.election_timeout_s * (1.0 + turn.rng.random())
        self._timer = turn.after(delay_s, self._campaign)

    def _campaign(self) -> None:
        """The timeout has elapsed: ask for pre-votes, and for votes only if most grant them."""
        sequencer = self.sequencer
        self.reset_timeout()
        if not sequencer.changes.may_campaign:
            if sequencer.turn.me not in sequencer.participants():
                self._ask_whether_removed()
            return
        if sequencer.leader is not None:
            sequencer.leader = None
            sequencer.owner.leader_changed()
        sequencer.role = Role.CANDIDATE
        self._pre_vote = True
        self.votes = {sequencer.turn.me: sequencer.store}
        self._ask(sequencer.term + 1)

    def _ask_whether_removed(self) -> None:
        """A replaced sequencer does not know whether that is committed: the leader will say."""
        sequencer = self.sequencer
        last = (sequencer.log.last_index, sequencer.log.last_term)
        ask = RequestVote(sequencer.topic, sequencer.term + 1, sequencer.store, *last, True)
        for peer in sequencer.participants():
            sequencer.turn.send(peer, ask)

    def _ask(self, term: int) -> None:
        """Ask all that have not answered, and again until they have."""
        sequencer = self.sequencer
        log, turn = sequencer.log, sequencer.turn
        for peer in sequencer.participants():
            if peer not in self.votes and peer != turn.me:
                last = (log.last_index, log.last_term)
                turn.send(
                    peer, RequestVote(sequencer.topic, term, sequencer.store, *last, self._pre_vote)
                )
        again = partial(self._ask_again, sequencer.term, self._pre_vote)
        turn.cancel(self._asking)
        self._asking = turn.after(sequencer.parameters.leader_heartbeat_s, again)
        self._count()

    def _ask_again(self, term: int, pre_vote: bool) -> None:
        sequencer = self.sequencer
        unchanged = (sequencer.term, self._pre_vote) == (term, pre_vote)
        if unchanged and sequencer.role is Role.CANDIDATE:
            self._ask(term + pre_vote)

    def _begin_term(self) -> None:
        """Most would vote for this sequencer: begin a term."""
        sequencer = self.sequencer
        sequencer.term += 1
        sequencer.voted_for = sequencer.turn.me
        self._pre_vote = False
        self.votes = {sequencer.turn.me: sequencer.store}
        sequencer.counts["election"] += 1
        self.reset_timeout()
        sequencer.sync_vote(partial(self._term_synced, sequencer.term))

    def _term_synced(self, term: int) -> None:
        sequencer = self.sequencer
        if sequencer.term == term and sequencer.role is Role.CANDIDATE and not self._pre_vote:
            self._ask(term)

    def receive_request(self, sender: PeerId, message: RequestVote) -> None:
        """A candidate asks for a vote, or whether it would get one."""
        sequencer = self.sequencer
        # The candidate decides whether this vote counts: its log may have admitted this sequencer.
        ours = (sequencer.log.last_term, sequencer.log.last_index)
        good = (message.last_term, message.last_index) >= ours
        if message.last_index == 0 and sequencer.owner.held():
            # There are events: a founding took place, and the candidate has forgotten it.
            good = False
        topic, store = sequencer.topic, sequencer.store
        if message.pre_vote:
            silent_s = sequencer.turn.now - self.heard_s
            is_led = sequencer.leads or silent_s < sequencer.parameters.election_timeout_s
            granted = good and message.term > sequencer.term and not is_led
            sequencer.reply(sender, Vote(topic, sequencer.term, store, granted, True))
            return
        if message.term > sequencer.term:
            sequencer.become_follower(message.term)
        may = message.term == sequencer.term and sequencer.voted_for in (None, sender)
        granted = good and may
        answer = Vote(topic, sequencer.term, store, granted, False)
        if granted:
            sequencer.voted_for = sender
            self.reset_timeout()
            sequencer.sync_vote(lambda: sequencer.turn.send(sender, answer))
        else:
            sequencer.reply(sender, answer)

    def receive_vote(self, sender: PeerId, message: Vote) -> None:
        """A peer grants its vote, or its pre-vote, or not."""
        sequencer = self.sequencer
        if sequencer.role is not Role.CANDIDATE or not message.granted:
            return
        if message.pre_vote == self._pre_vote and (
            message.pre_vote or message.term == sequencer.term
        ):
            self.votes[sender] = message.store
            self._count()

    def _count(self) -> None:
        if self.sequencer.role is not Role.CANDIDATE or not self._is_quorum():
            return
        if self._pre_vote:
            self._begin_term()
        else:
            self.sequencer.become_leader(self.votes)

    def _is_quorum(self) -> bool:
        """Most members, each with its store; before the founding, all that were ever named.

        The founders alone do not suffice: they may be replaced, and their stores lost.
        """
        config = self.sequencer.log.config()
        if not config.members:
            return all(peer in self.votes for peer in self.sequencer.owner.named())
        return config.is_quorum(lambda member: self.votes.get(member.peer) == member.store)
