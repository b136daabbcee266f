"""A seeded network of whole nodes in one process: latency, faults, checkers, scenarios.

`World` is the room's door: it drives the same core as the real network driver does.
"""
