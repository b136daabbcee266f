"""Sequencing: Raft among a topic's sequencers, for a total order that outlives some of them."""
