"""Sequencing: Raft among a topic's sequencers, which gives its events one total order."""
