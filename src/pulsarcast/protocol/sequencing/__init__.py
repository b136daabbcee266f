"""Total order that outlives its first sequencer: Raft among a topic's sequencers (design 7)."""
