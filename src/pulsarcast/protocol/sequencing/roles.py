"""What a sequencer does in a term."""

import enum


class Role(enum.Enum):
    """Follower, candidate or leader (Raft, 5.1)."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"
