"""Stores of blocks, frontiers, outbox and cursors: SQLite and memory (docs/decisions/0013)."""
