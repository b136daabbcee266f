"""Changes of members: a leader takes them one step at a time (Raft, 6).

Who lost its store is a new member, and takes the old one's place when it has caught up. The old
store may have voted for somebody that we do not know of, in a term that we have not come to: a
store that replaces it knows nothing of that. So most of the **old** members have to agree to the
change, which the lost one cannot, and whoever leads them in a later term hears of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsarcast.protocol.sequencing.configs import Config

if TYPE_CHECKING:
    from pulsarcast.protocol.sequencing.sequencer import Sequencer


class Changes:
    """A leader's changes of who has a vote."""

    def __init__(self, sequencer: Sequencer) -> None:
        self.sequencer = sequencer

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
            sequencer.change(Config(config.members, version=config.version))
            return
        for place, member in enumerate(config.members):
            back = sequencer.followers.caught_up(member.peer)
            if back is not None and back != member:
                sequencer.counts["readmitted"] = sequencer.counts.get("readmitted", 0) + 1
                members = (*config.members[:place], back, *config.members[place + 1 :])
                sequencer.change(Config(members, config.members, config.version))
                return
