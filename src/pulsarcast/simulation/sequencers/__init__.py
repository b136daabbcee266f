"""Sequencers alone: the machine that orders events, on a simulated network and simulated disks.

Nothing else of a node is here, so that a seed takes some hundredths of a second and ten thousand
of them some minutes. Whole nodes with several sequencers are in the scenario `sequenced`.
"""
