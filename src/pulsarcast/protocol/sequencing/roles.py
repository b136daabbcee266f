"""The roles of a sequencer in a term: follower, candidate, leader."""

import enum


class Role(enum.Enum):
    """Follower, candidate or leader (Raft, 5.1)."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"
