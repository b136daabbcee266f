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

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsarcast.model.ids import PeerId
from pulsarcast.protocol.sequencing.configs import Config, Member
from pulsarcast.protocol.sequencing.log import EntryKind
from pulsarcast.protocol.sequencing.owner import Wanted

if TYPE_CHECKING:
    from pulsarcast.protocol.sequencing.sequencer import Sequencer


class Changes:
    """One sequencer's part in changes of who has a vote."""

    def __init__(self, sequencer: Sequencer) -> None:
        self.sequencer = sequencer

    # The state of a change, by the log.

    def certifying(self) -> tuple[PeerId, ...]:
        """The sequencers that certify the next event of the log."""
        config = self.sequencer.log.config()
        if not config.members:
            return self.sequencer.founders
        if config.is_joint and self._handover() is None:
            return _peers_of(config.outgoing)
        return _peers_of(config.members)

    def sequencers_before_handover(self) -> tuple[PeerId, ...]:
        """The sequencers that hand over in the change in the log."""
        return _peers_of(self.sequencer.log.config().outgoing)

    @property
    def may_certify(self) -> bool:
        """Whether the sequencer may make events: not an outgoing leader that has handed over.

        Nor one that does not know yet the version that its log names.
        """
        sequencer = self.sequencer
        is_known = sequencer.owner.named_by(sequencer.log.config().version) is not None
        return is_known and sequencer.turn.me in self.certifying()

    @property
    def may_campaign(self) -> bool:
        """Whether the sequencer may be elected: a new one not before the old ones have handed over.

        A replaced sequencer may, while it cannot know that the change is committed: if few have
        the change in their logs, no other candidate would get its vote (Ongaro, 4.2.2).
        """
        sequencer = self.sequencer
        config, me = sequencer.log.config(), sequencer.turn.me
        if not sequencer.has_vote:
            return self._is_open and me not in _peers_of(config.members)
        if not config.members and sequencer.owner.held():
            return False
        is_old = not config.is_joint or any(member.peer == me for member in config.outgoing)
        return is_old or self._handover() is not None

    @property
    def _is_open(self) -> bool:
        """Whether the last change in the log may still be undone, as far as the sequencer knows."""
        sequencer = self.sequencer
        return (sequencer.log.last_change() or sequencer.log.snapshot.index) > sequencer.committed

    def _handover(self) -> int | None:
        """The position of the handover that belongs to the change in the log."""
        sequencer = self.sequencer
        log = sequencer.log
        config = log.config()
        if _peers_of(config.outgoing) == _peers_of(config.members):
            # Only stores change: no sequencer hands over.
            return log.snapshot.position
        for index in range((log.last_change() or log.snapshot.index) + 1, log.last_index + 1):
            entry = log.at(index)
            if entry.kind is EntryKind.EVENT and sequencer.owner.handed_over(entry) is not None:
                return entry.position
        return None

    # The leader's steps.

    def advance(self) -> None:
        """More is committed, or a follower has caught up: begin a change, or finish one."""
        sequencer = self.sequencer
        log = sequencer.log
        change = log.last_change()
        if not sequencer.leads or (change is not None and change > sequencer.committed):
            return
        if log.term_at(sequencer.committed) != sequencer.term:
            # Not before an entry of this term is committed, or two changes could be open.
            return
        config = log.config()
        if config.is_joint:
            self._finish(config)
            return
        if self.leave_if_removed():
            return
        if sequencer.turn.me not in _peers_of(config.members):
            # Named again by a later version: the present members go on meanwhile.
            self._resign()
            return
        wanted = sequencer.owner.wanted()
        if sequencer.owner.is_later(wanted.version, config.version) and (
            wanted.peers != _peers_of(config.members)
        ):
            self._begin(config, wanted)
        else:
            self._readmit(config)

    def _readmit(self, config: Config) -> None:
        sequencer = self.sequencer
        for place, member in enumerate(config.members):
            back = sequencer.followers.caught_up(member.peer)
            if back is not None and back != member:
                sequencer.counts["readmitted"] += 1
                members = (*config.members[:place], back, *config.members[place + 1 :])
                sequencer.change(Config(members, config.members, config.version))
                return

    def _begin(self, config: Config, wanted: Wanted) -> None:
        """Begin the joint configuration, once all new sequencers are up and have caught up.

        Also one that stays must be up: it may have lost its store, and of a short list be most.
        """
        sequencer = self.sequencer
        if sequencer.owner.named_by(config.version) != _peers_of(config.members):
            # A list that was taken over before its version was known, which names others.
            sequencer.cannot_hand_over()
            return
        sequencer.followers.add_followers()
        members: list[Member] = []
        for peer in wanted.peers:
            member = sequencer.followers.caught_up(peer)
            if member is None:
                return
            members.append(member)
        sequencer.counts["sequencers_changed"] += 1
        sequencer.change(Config(tuple(members), config.members, wanted.version))
        self._hand_over(sequencer.log.config())

    def _hand_over(self, config: Config) -> None:
        if config.version is None:
            # No such change is taken over now, but the disk may hold one that was.
            self.sequencer.cannot_hand_over()
        elif self._handover() is None:
            self.sequencer.hand_over(config.version)

    def _finish(self, config: Config) -> None:
        """End the joint configuration, once most of each list hold all that the old ones certified.

        A certificate on one disk only could be lost with it, and not be made again: the old
        sequencers are not asked any more.
        """
        sequencer = self.sequencer
        handover = self._handover()
        if handover is None:
            self._hand_over(config)
        elif handover <= min(sequencer.emitted, sequencer.settled):
            sequencer.change(Config(config.members, version=config.version))

    def leave_if_removed(self) -> bool:
        """Stop if a committed change has removed this sequencer; whether it has."""
        sequencer = self.sequencer
        log = sequencer.log
        config, me = log.config(), sequencer.turn.me
        if not config.members or config.is_joint or me in sequencer.participants():
            return False
        if self._is_open or sequencer.owner.is_named(me, config.version):
            # A later version than the log's names the sequencer: a leader may count on it.
            return False
        if sequencer.leads:
            self._resign()
        sequencer.owner.removed()
        return True

    def _resign(self) -> None:
        self.sequencer.followers.send_last_heartbeat()
        self.sequencer.step_down()


def _peers_of(members: tuple[Member, ...]) -> tuple[PeerId, ...]:
    return tuple(member.peer for member in members)
