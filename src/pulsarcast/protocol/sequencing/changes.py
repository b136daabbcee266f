"""Changes of members: a leader takes them one step at a time, by joint consensus (Raft, 6).

There are two. **Another store**: who lost its own is a new member, and takes the old one's place
when it has caught up. The old store may have voted for somebody that we do not know of, in a term
that we have not come to; its successor knows nothing of that. **Other sequencers**: the topic's
author has made a version that names others. They catch up first; then both lists have a say; an
event by the old ones, the **handover**, tells every member whose certificates count from there on;
and when that is certified, the old ones go.

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

    # Where a change stands, by our log.

    def counting(self) -> tuple[PeerId, ...]:
        """The sequencers who certify what our log would take next."""
        config = self.sequencer.log.config()
        if not config.members:
            return self.sequencer.founders
        if config.is_joint and self._handover() is None:
            return _peers_of(config.outgoing)
        return _peers_of(config.members)

    def sequencers_before_handover(self) -> tuple[PeerId, ...]:
        """The sequencers who hand over in the change in our log."""
        return _peers_of(self.sequencer.log.config().outgoing)

    @property
    def may_count(self) -> bool:
        """Whether we may make events: an outgoing leader may not, once it has handed over.

        Nor may one that has not heard yet of the version that its log speaks of.
        """
        sequencer = self.sequencer
        is_known = sequencer.owner.named_by(sequencer.log.config().version) is not None
        return is_known and sequencer.turn.me in self.counting()

    @property
    def may_stand(self) -> bool:
        """Whether we may be elected: a new sequencer not before the old ones have handed over.

        Who is replaced may, as long as it cannot know that this is committed: it may be one of few
        who have the change in their logs, and nobody else would get its vote (Ongaro, 4.2.2).
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
        """Whether the last change in our log may still be undone, as far as we know."""
        sequencer = self.sequencer
        return (sequencer.log.last_change() or sequencer.log.snapshot.index) > sequencer.committed

    def _handover(self) -> int | None:
        """The position of the handover that belongs to the change in our log."""
        sequencer = self.sequencer
        log = sequencer.log
        config = log.config()
        if _peers_of(config.outgoing) == _peers_of(config.members):
            # Only stores change: there is nothing to hand over.
            return log.snapshot.position
        for index in range((log.last_change() or log.snapshot.index) + 1, log.last_index + 1):
            entry = log.at(index)
            if entry.kind is EntryKind.EVENT and sequencer.owner.handed_over(entry) is not None:
                return entry.position
        return None

    # A leader's steps.

    def go_on(self) -> None:
        """More is committed, or somebody has caught up: begin a change, or finish one."""
        sequencer = self.sequencer
        log = sequencer.log
        change = log.last_change()
        if not sequencer.leads or (change is not None and change > sequencer.committed):
            return
        if log.term_at(sequencer.committed) != sequencer.term:
            # Not before something of our own term is committed, or two changes could be open.
            return
        config = log.config()
        if config.is_joint:
            self._finish(config)
            return
        if self.see():
            return
        if sequencer.turn.me not in _peers_of(config.members):
            # Named again, in a version whose turn has not come: those in force go on meanwhile.
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
        """All new ones are up, with their stores, and have caught up: both lists have a say.

        One that stays, and is away, may have lost its store: of a short list it could be most.
        """
        sequencer = self.sequencer
        if sequencer.owner.named_by(config.version) != _peers_of(config.members):
            # A list that we took over before we knew its version, and that it does not name.
            sequencer.cannot_hand_over()
            return
        sequencer.followers.meet_circle()
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
            # No such change is taken over, but our disk may have one from before we looked.
            self.sequencer.cannot_hand_over()
        elif self._handover() is None:
            self.sequencer.hand_over(config.version)

    def _finish(self, config: Config) -> None:
        """Both lists agree on the change: the new one goes on alone, once all can know it.

        That is when most of each hold all that the old ones certified: were it on one disk only,
        and lost with it, nobody could certify it again, since nobody asks the old ones any more.
        """
        sequencer = self.sequencer
        handover = self._handover()
        if handover is None:
            self._hand_over(config)
        elif handover <= min(sequencer.emitted, sequencer.settled):
            sequencer.change(Config(config.members, version=config.version))

    def see(self) -> bool:
        """Whether others have taken our place: then we are done here."""
        sequencer = self.sequencer
        log = sequencer.log
        config, me = log.config(), sequencer.turn.me
        if not config.members or config.is_joint or me in sequencer.circle():
            return False
        if self._is_open or sequencer.owner.is_named(me, config.version):
            # Named later than our log knows, if only for a while: some leader may count on us.
            return False
        if sequencer.leads:
            self._resign()
        sequencer.owner.removed()
        return True

    def _resign(self) -> None:
        self.sequencer.followers.part()
        self.sequencer.step_down()


def _peers_of(members: tuple[Member, ...]) -> tuple[PeerId, ...]:
    return tuple(member.peer for member in members)
