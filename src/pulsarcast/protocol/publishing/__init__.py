"""Getting events into a topic: ours, those we are asked for, and as a visitor (design 6)."""
