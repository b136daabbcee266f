"""Changes of members: the leader replaces stores and sequencers by joint consensus (Raft, 6).

There are two kinds. **Another store**: a sequencer that lost its store is a new member, and
replaces the old one when it has caught up. The old store may have voted in a term that the leader
has not seen; the new one knows nothing of that vote. **Other sequencers**: the topic's author has
made a version that names others. They catch up first; then both lists vote; an event by the old
sequencers, the **handover**, tells every member of the topic whose certificates count from there
on; and when the handover is certified, the old sequencers are removed.

    members: old          members: old and new                       members: new
    ----------------------|-------------------|----------------------|------------
    events of the old     joint               handover: the last     final
                                              event of the old
"""

import enum

from pulsarcast.model.ids import Cid, PeerId
from pulsarcast.protocol.sequencing.configs import Config, Member, peers_of
from pulsarcast.protocol.sequencing.followers import Followers
from pulsarcast.protocol.sequencing.log import EntryKind
from pulsarcast.protocol.sequencing.state import SequencerState


class Step(enum.Enum):
    """A leader's step in a change of members, other than the change itself."""

    HAND_OVER = "hand over"
    """Append the event that hands the order over."""
    RESIGN = "resign"
    """Let the present members elect another leader."""
    LEAVE = "leave"
    """Stop: a committed change has removed this sequencer."""


class Changes:
    """One sequencer's part in changes of who has a vote."""

    def __init__(self, state: SequencerState, followers: Followers) -> None:
        self.state = state
        self.followers = followers

    # The state of a change, by the log.

    def certifying(self) -> tuple[PeerId, ...]:
        """The sequencers that certify the next event of the log."""
        config = self.state.log.config()
        if not config.members:
            return self.state.founders
        if config.is_joint and self._handover() is None:
            return peers_of(config.outgoing)
        return peers_of(config.members)

    @property
    def may_certify(self) -> bool:
        """Whether the sequencer may make events: not an outgoing leader that has handed over.

        Nor one that does not know yet the version that its log names.
        """
        state = self.state
        is_known = state.versions.named_by(state.log.config().version) is not None
        return is_known and state.turn.me in self.certifying()

    @property
    def may_campaign(self) -> bool:
        """Whether the sequencer may be elected: a new one not before the old ones have handed over.

        A replaced sequencer may, while it cannot know that the change is committed: if few have
        the change in their logs, no other candidate would get its vote (Ongaro, 4.2.2).
        """
        state = self.state
        config, me = state.log.config(), state.turn.me
        if not state.has_vote:
            return self._is_open and me not in peers_of(config.members)
        if not config.members and state.events.held():
            return False
        is_old = not config.is_joint or any(member.peer == me for member in config.outgoing)
        return is_old or self._handover() is not None

    @property
    def is_removed(self) -> bool:
        """Whether a committed change has removed this sequencer."""
        state = self.state
        config, me = state.log.config(), state.turn.me
        if not config.members or config.is_joint or me in state.participants():
            return False
        # If a later version than the log's names the sequencer, a leader may count on it.
        return not self._is_open and me not in state.versions.named_since(config.version)

    @property
    def awaits_handover(self) -> bool:
        """Whether the old sequencers have yet to hand over in the change in the log."""
        return self.state.log.config().is_joint and self._handover() is None

    @property
    def _is_open(self) -> bool:
        """Whether the last change in the log may still be undone, as far as the sequencer knows."""
        state = self.state
        return (state.log.last_change() or state.log.snapshot.index) > state.committed

    def _handover(self) -> int | None:
        """The position of the handover that belongs to the change in the log."""
        state = self.state
        log = state.log
        config = log.config()
        if peers_of(config.outgoing) == peers_of(config.members):
            # Only stores change: no sequencer hands over.
            return log.snapshot.position
        for index in range((log.last_change() or log.snapshot.index) + 1, log.last_index + 1):
            entry = log.at(index)
            if entry.kind is EntryKind.EVENT and state.events.handed_over(entry) is not None:
                return entry.position
        return None

    # The leader's steps.

    def next_step(self) -> Config | Step | None:
        """The step that follows once more is committed, or a follower has caught up.

        A configuration: append it, and so begin a change or end one.
        """
        state = self.state
        log = state.log
        change = log.last_change()
        if not state.leads or (change is not None and change > state.committed):
            return None
        if log.term_at(state.committed) != state.term:
            # Not before an entry of this term is committed, or two changes could be open.
            return None
        config = log.config()
        if config.is_joint:
            return self._finish(config)
        if self.is_removed:
            return Step.LEAVE
        if state.turn.me not in peers_of(config.members):
            # Named again by a later version: the present members go on meanwhile.
            return Step.RESIGN
        newest = state.versions.newest()
        wanted = state.versions.named_by(newest) or ()
        is_later = state.versions.is_later(newest, config.version)
        if is_later and wanted != peers_of(config.members):
            return self._begin(config, newest, wanted)
        return self._readmit(config)

    def _readmit(self, config: Config) -> Config | None:
        for place, member in enumerate(config.members):
            back = self.followers.caught_up(member.peer)
            if back is not None and back != member:
                self.state.counts["readmitted"] += 1
                members = (*config.members[:place], back, *config.members[place + 1 :])
                return Config(members, config.members, config.version)
        return None

    def _begin(self, config: Config, newest: Cid, wanted: tuple[PeerId, ...]) -> Config | None:
        """The joint configuration, once all new sequencers are up and have caught up.

        Also one that stays must be up: it may have lost its store, and of a short list be most.
        """
        state = self.state
        if state.versions.named_by(config.version) != peers_of(config.members):
            # A list that was taken over before its version was known, which names others.
            state.counts["handover_without_version"] += 1
            return None
        self.followers.add_followers()
        members: list[Member] = []
        for peer in wanted:
            member = self.followers.caught_up(peer)
            if member is None:
                return None
            members.append(member)
        state.counts["sequencers_changed"] += 1
        return Config(tuple(members), config.members, newest)

    def _finish(self, config: Config) -> Config | Step | None:
        """The new configuration, once most of each list hold all that the old ones certified.

        A certificate on one disk only could be lost with it, and not be made again: the old
        sequencers are not asked any more.
        """
        handover = self._handover()
        if handover is None:
            return Step.HAND_OVER
        if handover > min(self.state.emitted, self.state.settled):
            return None
        return Config(config.members, version=config.version)
