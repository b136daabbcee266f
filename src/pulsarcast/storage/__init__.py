"""Where blocks, frontiers, outbox and cursors rest (design 3)."""
